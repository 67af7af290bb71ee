"""One benchmark run: checks, processes, the LoadGen test, and its record."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from itertools import chain

from msgspec.structs import replace

from harness.analysis.answer_lengths import LengthWatch
from harness.analysis.client_overhead import LARGEST_PART
from harness.analysis.early_stopping import most_over_limit
from harness.analysis.encoded_answers import encoded_with
from harness.analysis.finish_run import finish
from harness.analysis.plan_evidence import contradictions
from harness.analysis.run_warnings import refused_mean
from harness.cli.signals import interruptible
from harness.config.expected_queries import ExpectedQueries, expected_queries
from harness.config.loadgen_settings import Setting
from harness.config.plans import RunPlan
from harness.files import JOURNAL_DIR, RUN_RECORD, USER_CONF
from harness.grading.decoding.text_tokenizer import TextTokenizer
from harness.progress.lost_run import LostWatch, ValidityRules
from harness.progress.progress_files import ProgressLine
from harness.progress.progress_line import ProgressSnapshot
from harness.record.answer_log import SavedAnswer
from harness.record.journal import first_failure
from harness.record.output_dir import (
    WRITE,
    accessing,
    check_free,
    free_reserve,
    locked,
    move_aside_existing,
    prepare_dir,
    reserve_for,
)
from harness.record.provenance import gather_provenance
from harness.record.repeated import ANEW
from harness.record.resume import (
    EarlierRun,
    archive_attempt,
    check_answers,
    check_model,
    earlier_run,
    require_unchanged,
    saved_answers,
    servers_of_answers,
    version_changes,
)
from harness.record.run_record import RunRecord, read_clocks
from harness.record.settled import Placement
from harness.report.search_advice import advice_in_mid_run
from harness.submission.tree.origins import require_one_origin
from sut.client.endpoint import access_by
from sut.drive import (
    DrivenRun,
    answer_tokenizer,
    ask_servers,
    ended,
    preflight,
    serving_urls,
    tried_in_dry_run,
)
from sut.issuers.loadgen import LoadGen
from sut.loadgen.binding import TestSpec
from sut.prepare import PreparedClient, as_sent, place_workers, prepare_client
from sut.run_checks import (
    Inputs,
    dataset_warnings,
    read_inputs,
    require_enough_queries,
    require_limits,
    require_official,
    require_times_of_tokens,
    rule_deviations,
    settle,
    stray_audit_config,
)
from sut.servers.gpus import LocalGpus
from sut.servers.scrape import MetricsScraper
from sut.servers.setting_checks import closed_division_deviations, draft_warnings, later_deviations
from sut.supervisor.alarms import LossRule
from sut.supervisor.placement import load_of_full, load_of_test, server_is_here
from sut.supervisor.progress_meter import RunLength
from sut.supervisor.session import QuerySession

log = logging.getLogger("mlperf")


def run(
    plan: RunPlan,
    *,
    on_earlier: Callable[[EarlierRun], None] | None = None,
    is_done: Callable[[RunRecord], bool] = lambda record: False,
    on_plan: Callable[[RunRecord], None] | None = None,
    on_progress: Callable[[ProgressSnapshot], None] | None = None,
    on_line: Callable[[ProgressLine], None] = lambda line: None,
    trace: bool = False,
    rate_follows: bool = False,
) -> RunRecord:
    """Run the plan and return its record, also of INVALID and interrupted runs; run.json holds the same.

    An accuracy run in the output folder is continued if its settings are the same, and nothing is sent if it
    is complete: the record is then the earlier one. ``on_earlier`` is called first, where the folder holds
    anything; ``is_done`` as in harness.record.resume.earlier_run.

    ``on_plan`` is called after all checks and before anything is sent, ``on_progress`` about once a second,
    ``on_line`` with each line of progress.jsonl. A dry run ends before the first query, without a verdict and
    without a file. ``trace`` makes LoadGen write its trace, which costs time in its process: for benchmarks
    of this harness. ``rate_follows``: the dry run of a search, whose runs have rates of their own, up to that
    of full servers.

    KeyboardInterrupt and harness.cli.signals.InterruptedRun end the run; before its first query they are
    raised, as is HarnessError for whatever keeps the run from starting.
    """
    inputs = read_inputs(plan, rate_follows=rate_follows)
    earlier = _found(plan, inputs, is_done, on_earlier)
    if earlier is not None and earlier.course == "complete" and earlier.record is not None:
        return earlier.record
    resumed = None if earlier is None or earlier.course == "anew" else earlier.record
    inputs = replace(inputs, samples=as_sent(plan.client, inputs.samples))
    client, load = plan.client, load_of_test(plan, inputs.settings)
    placement = place_workers(client, load)
    issuer = _loadgen(plan, len(inputs.samples), trace=trace)
    with (
        interruptible(),
        _settled(plan, inputs, issuer, placement, rate_follows=rate_follows) as (session, readback, expected),
        serving_urls(client, inputs.samples) as (urls, death),
    ):
        servers = ask_servers(client, urls)
        load = replace(load, queries=expected.samples)
        if rate_follows and plan.scenario.poisson:
            load = load_of_full(plan, servers.found, readback)
            placement = place_workers(client, load)
        prepared = prepare_client(client, inputs.samples, load, placement, servers)
        record = _planned(plan, inputs, prepared, readback, expected, resumed)
        require_one_origin(record)
        if on_plan is not None:
            on_plan(record)
        if stray := stray_audit_config(plan):
            log.warning(stray)
        changes = _check_resume(record, resumed)
        if client.dry_run:
            check_free(plan.results_dir)
            _gpus(plan)
            tried = tried_in_dry_run(prepared)
            encoded = encoded_with(answer_tokenizer(tried))
            record = replace(record, servers=tried.servers, encoded=encoded)
            require_one_origin(record)
            return record
        with locked(plan.results_dir):
            require_unchanged(client.log_dir, earlier)
            prepared, destination, warnings = preflight(prepared)
            if resumed is not None:
                encoded = encoded_with(destination.tokenizer)
                check_answers(client.log_dir, resumed, destination.protocol.answers, encoded)
            record = _started(record, prepared, (*changes, *warnings), destination.tokenizer)
            require_one_origin(record)  # the tokenizer of answers is known now
            saved = _prepare_output_dir(plan, len(inputs.samples), resumed)
            destination = replace(destination, saved=saved)
            _write_first(record)
            driven = DrivenRun(
                session,
                prepared,
                destination,
                death,
                length=_length(expected),
                rules=validity_rules(record),
                on_progress=on_progress,
                on_line=on_line,
                scraper=_scraper(plan, prepared),
                lengths=_length_watch(record),
                lost=_loss_rule(record),
            )
            with ended(driven, lambda: _keep_conf_files(plan)) as seen:
                later = (*later_deviations(client.log_dir / JOURNAL_DIR, client.benchmark, plan.scenario),)
                for text in later:  # the plan is printed, and names none of these
                    log.warning("DEVIATION %s", text)
                return finish(replace(record, deviations=(*record.deviations, *later)), seen)


def _loadgen(plan: RunPlan, samples: int, *, trace: bool) -> LoadGen:
    """LoadGen as the issuer of the plan's test."""
    log_dir = plan.client.log_dir
    return LoadGen(
        TestSpec(
            model_key=plan.model_key,
            scenario=plan.scenario.loadgen,
            accuracy=plan.accuracy,
            user_conf=str(plan.user_conf),
            mlperf_conf=None if plan.mlperf_conf is None else str(plan.mlperf_conf),
            round_settings=plan.round_settings,
            audit_text=plan.audit_text,
            audit_config=str(plan.kept_audit_config or ""),
            samples=samples,
            log_dir=str(log_dir),
            journal_dir=str(log_dir / JOURNAL_DIR),
            trace=trace,
            late_part=LARGEST_PART if plan.scenario.poisson and not plan.accuracy else 0.0,
        )
    )


@contextmanager
def _settled(
    plan: RunPlan, inputs: Inputs, issuer: LoadGen, placement: Placement, *, rate_follows: bool
) -> Iterator[tuple[QuerySession, dict[str, Setting], ExpectedQueries]]:
    """The session, LoadGen's settings, and the queries that they make.

    Raises ConfigError, before any server is asked or started.
    """
    with QuerySession(plan.client, issuer, placement) as session:
        readback, samples = session.readback(), len(inputs.samples)
        require_limits(plan, readback)
        require_times_of_tokens(plan, readback)
        expected = expected_queries(readback, plan.scenario.loadgen, samples, accuracy=plan.accuracy)
        if not rate_follows:
            require_enough_queries(plan, readback, expected)
        yield session, readback, expected


def _length(expected: ExpectedQueries) -> RunLength:
    return RunLength(expected.samples, expected.seconds if expected.scheduled else None, expected.least_s)


def _planned(
    plan: RunPlan,
    inputs: Inputs,
    prepared: PreparedClient,
    readback: dict[str, Setting],
    expected: ExpectedQueries,
    resumed: RunRecord | None,
) -> RunRecord:
    """The record before the first query. Raises ConfigError for what the rules forbid."""
    rules = (prepared.servers, plan.client.benchmark, plan.scenario)
    deviations = (
        *prepared.deviations,
        *rule_deviations(plan, inputs, readback),
        *closed_division_deviations(*rules),
    )
    if resumed is not None:
        deviations += tuple(_earlier_deviations(plan, deviations))
    require_official(plan, deviations)
    record = RunRecord(
        plan=plan,
        settled=settle(inputs, prepared, readback, expected),
        provenance=gather_provenance(),
        servers=prepared.servers,
        left_out=dict(prepared.left_out),
        started=datetime.now(UTC),
        deviations=deviations,
        warnings=(*prepared.warnings, *draft_warnings(*rules), *dataset_warnings(plan, inputs.samples)),
    )
    return replace(record, warnings=(*record.warnings, *contradictions(record)))


def _earlier_deviations(plan: RunPlan, now: Sequence[str]) -> Iterator[str]:
    """Those of the servers whose answers are used again, beside what the servers deviate in ``now``."""
    client = plan.client
    before = servers_of_answers(client.log_dir)
    found = (closed_division_deviations(servers, client.benchmark, plan.scenario) for servers in before)
    for text in dict.fromkeys(chain.from_iterable(found)):
        if text not in now:
            yield f"earlier answers: {text.partition('; ')[0]}; begin anew with {ANEW}"


def _started(
    record: RunRecord, prepared: PreparedClient, warnings: Sequence[str], tokenizer: TextTokenizer | None
) -> RunRecord:
    """The record at the start of the run, with the servers that passed the preflight."""
    clock = read_clocks()
    return replace(
        record,
        started=clock.utc,
        clock=clock,
        warnings=(*record.warnings, *warnings),
        servers=prepared.servers,
        left_out=dict(prepared.left_out),
        encoded=encoded_with(tokenizer),
    )


def _write_first(record: RunRecord) -> None:
    """Write the record of a run that begins. Raises ConfigError without room for it and the last one."""
    log_dir = record.plan.client.log_dir
    path = log_dir / RUN_RECORD
    with accessing(log_dir, WRITE):
        try:
            record.write(path)
            reserve_for(log_dir, path.stat().st_size)
        except OSError:
            path.unlink(missing_ok=True)  # it would be that of a killed run
            free_reserve(log_dir)
            raise


def _loss_rule(record: RunRecord) -> LossRule | None:
    """None for an accuracy run, which ``--resume`` can complete."""
    plan = record.plan
    if plan.accuracy and plan.audit is None:
        return None
    return LossRule(
        LostWatch(plan.client.log_dir, validity_rules(record), [one.url for one in record.servers]),
        plan.stop_when_lost,
        partial(_advice, record),
    )


def validity_rules(record: RunRecord) -> ValidityRules:
    """What the run needs to be VALID; an accuracy run and one of a compliance test keep no limits."""
    most_over = most_over_limit(record.settled.expected.samples, record.latency_percentile)
    return ValidityRules(record.judged_limits_ns, most_over)


def _length_watch(record: RunRecord) -> LengthWatch | None:
    """None for an accuracy run, whose samples come in the order of the dataset."""
    if record.plan.accuracy:
        return None
    return LengthWatch([server.url for server in record.servers], partial(refused_mean, record))


def _advice(record: RunRecord, snapshot: ProgressSnapshot) -> str:
    """The first failure or a silence, which another rate need not prevent; else the rate to try."""
    if snapshot.failed:
        urls = [server.url for server in record.servers]
        return first_failure(record.plan.client.log_dir / JOURNAL_DIR, urls)
    if snapshot.standing:
        return f"the rate need not be the cause: {snapshot.standing}"
    issued, ended, tpot_ns = snapshot.issued, snapshot.completed, snapshot.tpot_ns
    return str(advice_in_mid_run(record, issued, ended, snapshot.elapsed_s, tpot_ns) or "")


def _scraper(plan: RunPlan, prepared: PreparedClient) -> MetricsScraper:
    client = plan.client
    return MetricsScraper(
        prepared.servers,
        client.log_dir,
        access_by(client.ca_file),
        dcgm_urls=plan.dcgm_urls,
        gpus=_gpus(plan),
    )


def _gpus(plan: RunPlan) -> LocalGpus | None:
    """GPUs of this machine, where a server runs on it and no exporter is named; a dry run prints them."""
    gpus, here = None, "none here, as the servers are elsewhere"
    if plan.dcgm_urls:
        here = f"those of {', '.join(plan.dcgm_urls)}"
    elif server_is_here(plan.client):
        found = LocalGpus()
        gpus = found if len(found) else None
        failed = "; ".join(found.failures)
        here = f"the {len(found)} of this machine" if gpus else "none"
        if failed:
            here += f" ({failed})"
        elif not gpus:
            here += " (nvidia-ml-py or amdsmi is not installed or lists none)"
        if failed and not plan.client.dry_run:
            log.info("GPUs that the run does not record: %s", failed)
    if plan.client.dry_run:
        log.info("GPUs whose power and clocks the run records: %s", here)
    return gpus


def _found(
    plan: RunPlan,
    inputs: Inputs,
    is_done: Callable[[RunRecord], bool],
    on_earlier: Callable[[EarlierRun], None] | None,
) -> EarlierRun | None:
    """What the output folder holds, reported at once. Raises ConfigError where no run can write there."""
    earlier = earlier_run(plan, len(inputs.samples), inputs.samples.sha256, is_done)
    if earlier is None:
        return None
    if earlier.course != "complete":
        check_free(plan.results_dir)
    if on_earlier is not None:
        on_earlier(earlier)
    else:
        log.info(earlier.first_line)
    return earlier


def _check_resume(record: RunRecord, resumed: RunRecord | None) -> tuple[str, ...]:
    """Warnings about changes since the earlier attempts. Raises ConfigError for another model."""
    if resumed is None:
        return ()
    log_dir = record.plan.client.log_dir
    for server in record.servers:
        check_model(log_dir, resumed, server)
    changes = tuple(version_changes(log_dir, record))
    for change in changes:
        log.warning(change)
    return changes


def _prepare_output_dir(plan: RunPlan, samples: int, resumed: RunRecord | None) -> Mapping[int, SavedAnswer]:
    """Prepare the output folder; returns the answers of earlier attempts at the same run."""
    log_dir = plan.client.log_dir
    if resumed is not None:
        archive_attempt(log_dir)
        prepare_dir(log_dir)
        return saved_answers(log_dir, samples)
    if aside := move_aside_existing(plan.results_dir):
        log.info("the earlier results are now in %s", aside)
    if log_dir != plan.results_dir:
        free_reserve(plan.results_dir)
        move_aside_existing(log_dir)
    return {}


def _keep_conf_files(plan: RunPlan) -> None:
    (plan.client.log_dir / USER_CONF).write_bytes(plan.user_conf.read_bytes())
    if plan.kept_audit_config is not None and plan.audit_text is not None:  # LoadGen gets it by name
        plan.kept_audit_config.write_bytes(plan.audit_text.encode())
