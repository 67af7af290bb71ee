"""Our rules for a point's files: settings, streaming, salt, score, latencies, failures, steady state."""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from harness.endpoints.accuracy import read_accuracy
from harness.endpoints.checks.checked_point import PointFiles
from harness.endpoints.checks.finding import Finding, Severity, finding
from harness.endpoints.official_files import (
    OFFLINE_PATTERN,
    Fields,
    SteadyWindow,
    at,
    number,
    percentile_of,
    performance_dataset,
    read_table,
    shown,
    steady_window,
    table,
    tables,
    whole,
)
from harness.endpoints.planning.cohorts import cohort_name, cohort_number
from harness.endpoints.planning.rules import EndpointsRules, is_same_model
from harness.endpoints.run_folder import ACCURACY, CONFIG, POINT_YAML, SUMMARY
from harness.endpoints.sampling import sampling_differences
from harness.endpoints.steady.steady_block import block_of_summary
from harness.endpoints.steady.steady_point import STEADY, WINDOWABLE
from harness.errors import ConfigError

_PATTERNS = ("concurrency", "agentic_inference")
_COUNT_TOLERANCE = 0.01  # of answers without a first fragment, which some count


def check_files(files: PointFiles) -> Iterator[Finding]:
    """Everything that needs no log."""
    yield from files.problems
    yield from _accuracy_salt(files)
    yield from _accuracy_score(files)
    if not files.scored_alone:
        yield from _performance(files)


def _performance(files: PointFiles) -> Iterator[Finding]:
    yield from _name(files)
    yield from _own_files(files)
    if files.config:
        yield from _load_pattern(files)
        yield from _config(files)
        yield from _sampling(files)
        yield from _warm_up(files)
    yield from _min_duration(files)
    yield from _streaming(files)
    yield from _accuracy_run(files)
    if files.summary:
        yield from _summary(files)
    yield from _steady_state(files)


def _name(files: PointFiles) -> Iterator[Finding]:
    if files.in_tree and files.folder.name != f"r{files.concurrency}":
        text = f"is of concurrency {files.concurrency}"
        yield finding("folder-name", files.where(), text, expected=f"r{files.concurrency}")


def _own_files(files: PointFiles) -> Iterator[Finding]:
    """A tree stays as it was when a point is run again. A short rehearsal's scores have other names there."""
    if files.run is None:
        return
    tables_by_name = {CONFIG: files.config, SUMMARY: files.summary}
    if not files.is_short:
        tables_by_name[ACCURACY] = files.accuracy
    for name, content in tables_by_name.items():
        own = read_table(files.run / name) if (files.run / name).is_file() else content
        if content and own != content:
            text = f"is another one than {files.run.name}/{name}"
            remedy = "build the tree again from the run folders"
            yield finding("copied", files.where(name), text, remedy=remedy)


def _load_pattern(files: PointFiles) -> Iterator[Finding]:
    pattern = files.load_pattern
    expected = (OFFLINE_PATTERN,) if files.is_offline else _PATTERNS
    if pattern not in expected:
        yield finding("load-pattern", files.where(CONFIG), f"the load pattern is {pattern or 'not stated'}")


def _config(files: PointFiles) -> Iterator[Finding]:
    """config.yaml is the configuration of this point: of its load, seeds, model and salt."""
    if not files.in_tree:
        return
    load, runtime, client = (table(files.settings, name) for name in ("load_pattern", "runtime", "client"))
    stated, duration = files.runtime_settings, "min_duration_ms"
    in_flight = None if files.is_offline else files.concurrency
    pairs = {
        "load_pattern.target_concurrency": (load.get("target_concurrency"), in_flight),
        "load_pattern.type": (load.get("type"), stated.get("load_pattern")),
        f"runtime.{duration}": (
            duration_ms(runtime.get(duration)),
            duration_ms(stated.get(duration)) if duration in runtime else None,
        ),
        "client.stream_all_chunks": (client.get("stream_all_chunks"), stated.get("stream_all_chunks")),
    }
    for name, (got, expected) in pairs.items():
        if expected is not None and got != expected:
            text, wanted = f"settings.{name} is {shown(got)}", f"{shown(expected)} as in {POINT_YAML}"
            yield finding("config-differs", files.where(CONFIG), text, expected=wanted)
    yield from _seeds(files, runtime, table(stated, "runtime"))
    yield from _model(files)


def _seeds(files: PointFiles, config: Fields, point: Fields) -> Iterator[Finding]:
    """The official client takes the seeds from the ruleset where one is named, whatever else is written."""
    where = files.where(CONFIG)
    named = table(files.config, "submission_ref").get("ruleset")
    if isinstance(named, str) and named.startswith("mlperf-endpoints"):
        seed_set, target = files.point.get("seed_set"), files.point.get("target_cohort")
        # A point without a set or a cohort is a finding of its own.
        cohorts = [""] if target is None else [f"-{cohort}" for cohort in _publications(target, files.rules)]
        endings = tuple(f"{cohort}-{seed_set}" for cohort in cohorts)
        is_other = seed_set is not None and not named.endswith(endings)
        if named != "mlperf-endpoints-current" and is_other:
            expected = f"that of seed set {seed_set}{'' if target is None else f' for {target}'}"
            yield finding("config-differs", where, f"the ruleset is {named}", expected=expected)
        return
    for ours, theirs in (
        ("scheduler_random_seed", "scheduler_rng_seed"),
        ("dataloader_random_seed", "sample_index_rng_seed"),
    ):
        if point.get(theirs) is not None and config.get(ours) != point[theirs]:
            text = f"settings.runtime.{ours} is {shown(config.get(ours))}"
            yield finding("config-differs", where, text, expected=f"{point[theirs]} as in {POINT_YAML}")


def _publications(target: object, rules: EndpointsRules) -> Iterator[str]:
    """The cohorts whose seed sets a submission to this one may take."""
    with suppress(ConfigError):
        number = cohort_number(str(target))
        yield from map(cohort_name, range(number, number - rules.adoption_cohorts, -1))


def _model(files: PointFiles) -> Iterator[Finding]:
    declared = files.point.get("model_name")
    names = (
        table(files.config, "submission_ref").get("model"),
        table(files.config, "model_params").get("tokenizer_name"),
        table(files.config, "model_params").get("name"),
    )
    used = [name for name in names if isinstance(name, str)]
    if declared and used and not any(is_same_model(str(declared), name) for name in used):
        text = f"is a configuration of {used[0]}"
        yield finding("config-differs", files.where(CONFIG), text, expected=f"of {declared}")


def _sampling(files: PointFiles) -> Iterator[Finding]:
    """The parameters of performance requests, of a model that has a benchmark here."""
    benchmark = files.benchmark
    for name, got, expected in () if benchmark is None else sampling_differences(files.config, benchmark):
        yield by_length(files, "sampling", files.where(CONFIG), f"{name} is {got}", expected=expected)


def _warm_up(files: PointFiles) -> Iterator[Finding]:
    """The official client warms up with the performance dataset, and without salt unless it is told to."""
    warm_up = table(files.settings, "warmup")
    if warm_up.get("enabled") is True and warm_up.get("salt") is not True:
        text = f"settings.warmup.salt is {shown(warm_up.get('salt'))}"
        yield finding("warm-up", files.where(CONFIG), text)


def _min_duration(files: PointFiles) -> Iterator[Finding]:
    """Versions of the client have this setting or not; the log shows how long it was."""
    required, runtime = files.required_s, table(files.settings, "runtime")
    for name, settings in ((POINT_YAML, files.runtime_settings), (CONFIG, runtime)):
        value = settings.get("min_duration_ms")
        stated = duration_ms(value)
        if required is None or value is None or (stated is not None and stated >= required * 1000):
            continue
        text, expected = f"min_duration_ms is {shown(value)}", f"{required * 1000:.0f} or more"
        yield by_length(files, "min-duration", files.where(name), text, expected=expected)


def _streaming(files: PointFiles) -> Iterator[Finding]:
    """A dedicated Offline run reports throughput only, so it may do without."""
    mode = table(files.config, "model_params").get("streaming")
    if files.config and not files.is_offline and mode not in ("on", True):
        yield finding("streaming", files.where(CONFIG), f"model_params.streaming is {shown(mode)}")


def _declared_salt(files: PointFiles) -> int | bool | None:
    """Bits of salt, or whether there is one, as the files declare it; None where none does.

    The official client has a switch for agentic datasets and for its warm-up only.
    """
    if files.record is not None:
        return files.record.curve.salt_bits
    agentic = table(performance_dataset(files.config), "agentic_inference").get("enable_salt")
    places = (files.runtime_settings.get("salt"), files.settings.get("salt"), agentic)
    for value in places:
        found = value.get("bits", value.get("enabled")) if isinstance(value, Mapping) else value
        if isinstance(found, int):
            return found
    return None


def check_salt(files: PointFiles, issued: int | None = None, prompts: int | None = None) -> Iterator[Finding]:
    """``prompts``: different ones among the issued requests, as a log shows what was sent."""
    least = files.rules.least_salt_bits
    expected = f"{least} or more bits of salt in each performance request"
    if issued and prompts is not None and prompts < issued:
        text = f"{issued - prompts:,} of {issued:,} performance requests repeat the prompt of another"
        yield finding("salt", files.where(), text, expected=expected)
        return
    declared = _declared_salt(files)
    is_small = type(declared) is int and declared < least
    if declared is False or is_small:
        text = f"{declared} bits are declared" if declared else "the salt is declared to be off"
        yield finding("salt", files.where(POINT_YAML if files.in_tree else CONFIG), text, expected=expected)
    elif declared is None and not (prompts and files.dataset_size and issued and issued > files.dataset_size):
        text = "no file declares the salt, and no log shows it"
        remedy = "look at prompts that were sent twice, or keep events.jsonl of two passes with its prompts"
        yield finding(
            "salt", files.where(), text, expected=expected, remedy=remedy, severity=Severity.UNKNOWN
        )


def _accuracy_salt(files: PointFiles) -> Iterator[Finding]:
    """Accuracy prompts are the reference's."""
    for one in tables(files.config, "datasets"):
        salted = one.get("salt") or table(one, "agentic_inference").get("enable_salt")
        if one.get("type") == "accuracy" and salted:
            yield finding("accuracy-salt", files.where(CONFIG), f"dataset {one.get('name')} is salted")
    if (salt := table(files.runtime_settings, "accuracy").get("salt")) not in (None, False, 0):
        yield finding(
            "accuracy-salt", files.where(POINT_YAML), f"runtime_settings.accuracy.salt is {shown(salt)}"
        )
    for score in tables(files.accuracy, "accuracy_scores"):
        if score.get("salted") not in (None, False, 0):
            yield finding("accuracy-salt", files.where(ACCURACY), "the scored answers were salted")


def _accuracy_run(files: PointFiles) -> Iterator[Finding]:
    """The accuracy run is of this point, where the file says at what concurrency it was made: ours does."""
    if files.is_offline or files.concurrency is None:
        return
    for score in tables(files.accuracy, "accuracy_scores"):
        if (found := whole(score.get("concurrency"))) not in (None, files.concurrency):
            text = f"is of an accuracy run at concurrency {found}"
            yield finding("copied", files.where(ACCURACY), text, expected=f"one at {files.concurrency}")


def _accuracy_score(files: PointFiles) -> Iterator[Finding]:
    """MLCommons's checker passes over a metric that is not there, and over what the file says of its run."""
    benchmark = files.benchmark
    if not files.accuracy or benchmark is None:
        return
    where = files.where(ACCURACY)
    try:
        found = read_accuracy(files.folder, benchmark)
    except ConfigError as error:
        what = str(error).removeprefix(f"{files.root / where}: ")
        yield finding("unreadable", where, what, remedy="")
        return
    if found is not None and not found.passed:
        yield by_length(files, "accuracy", where, found.line)


def _summary(files: PointFiles) -> Iterator[Finding]:
    where, summary = files.where(SUMMARY), files.summary
    issued, failed = (whole(summary.get(f"n_samples_{name}")) for name in ("issued", "failed"))
    if failed is None:
        yield finding("failures", where, f"n_samples_failed is {shown(summary.get('n_samples_failed'))}")
    elif failed:
        of_issued = "" if issued is None else f" of {issued:,}"
        yield finding("failures", where, f"{failed:,}{of_issued} requests failed")
    if summary.get("complete", True) is not True or summary.get("state") in ("interrupted", "INTERRUPTED"):
        text = f"complete is {shown(summary.get('complete'))}, state {shown(summary.get('state'))}"
        yield finding("incomplete", where, text)
    yield from whole_passes(files, where, issued)
    required, duration_ns = files.required_s, number(summary.get("duration_ns"))
    if duration_ns is None:
        yield finding("issue-time", where, f"duration_ns is {shown(summary.get('duration_ns'))}")
    elif files.log is None and required and duration_ns < required * 1e9:
        text = f"the complete run lasts {duration_ns / 1e9:.1f} s"
        yield by_length(files, "issue-time", where, text, expected=f"{required:.0f} s or more")
    total = at(summary, "output_sequence_lengths", "total")
    if (number(total) or 0.0) <= 0:
        yield finding("output-tokens", where, f"output_sequence_lengths.total is {shown(total)}")
    # A dedicated Offline run reports throughput only.
    for name in () if files.is_offline else ("ttft", "tpot"):
        yield from _latency(files, where, name)


def whole_passes(files: PointFiles, where: str, issued: int | None) -> Iterator[Finding]:
    """Issue ends with a pass."""
    size = files.dataset_size
    if issued is None or not size:
        text = "the size of the dataset is not known" if issued is not None else "n_samples_issued is missing"
        remedy = "write the summary again" if issued is None else "state datasets[].samples in config.yaml"
        yield finding("whole-passes", where, text, remedy=remedy, severity=Severity.UNKNOWN)
    elif issued % size or not issued:
        text = f"{issued:,} samples issued: {issued // size} passes and {issued % size:,} samples"
        yield by_length(files, "whole-passes", where, text, expected=f"a multiple of {size:,}")


def _latency(files: PointFiles, where: str, name: str) -> Iterator[Finding]:
    """``name``: of the block in the summary, and of the rule."""
    p90 = percentile_of(files.summary, name, 90)
    if not table(files.summary, name):
        yield finding(name, where, f"the block {name} is missing")
    elif p90 is None or p90 <= 0:
        yield finding(name, where, f"{name} has no p90" if p90 is None else f"the p90 of {name} is {p90}")


def _steady_state(files: PointFiles) -> Iterator[Finding]:
    """A dedicated Offline run is outside the scope of the rules' steady state."""
    if files.is_offline:
        return
    block, where = steady_block(files)
    if not block:
        if files.in_tree:
            yield by_length(files, "steady-state", where, "steady_state is missing")
        return
    verdict, status = block.get("verdict"), block.get("status")
    drifting = [name for name, state in table(block, "state").items() if str(state).startswith("Drifting")]
    if drifting or verdict not in (STEADY, "anomaly"):
        text = f"the verdict is {shown(verdict)}" + (
            f", {', '.join(map(str, drifting))} drift" if drifting else ""
        )
        yield by_length(files, "steady-state", where, text)
    elif verdict == "anomaly":
        yield finding("steady-state", where, "the verdict is anomaly", severity=Severity.WARNING)
    if status != WINDOWABLE:
        yield by_length(files, "super-passes", where, f"the status is {shown(status)}", expected=WINDOWABLE)
    yield from _window(files, where, block)
    yield from _summary_block(files, where, block)


def _summary_block(files: PointFiles, where: str, block: Fields) -> Iterator[Finding]:
    """The detector's block of the same run, from which point.yaml's is written."""
    own = block_of_summary(files.summary, files.concurrency)
    for name, got, expected in () if own is None else block_differences(block, own):
        # A headline does not say whether its only super-pass is complete.
        if name != "status" or WINDOWABLE in (got, expected):
            wanted = f"{expected} as in {Path(SUMMARY).name}"
            yield finding("steady-state-differs", where, f"{name} is {got}", expected=wanted)


def block_differences(stated: Fields, found: Fields) -> Iterator[tuple[str, object, object]]:
    """What two blocks ``steady_state`` of one run do not agree on: its name, as stated, as found."""
    for name in ("status", "verdict"):
        if stated.get(name) != found.get(name):
            yield name, stated.get(name), found.get(name)
    if table(stated, "state") and table(stated, "state") != table(found, "state"):
        yield "state", dict(table(stated, "state")), dict(table(found, "state"))
    ours, theirs = table(found, "window"), table(stated, "window")
    for name in ("super_pass_start", "super_pass_end"):
        if theirs.get(name) != ours.get(name):
            yield f"window.{name}", theirs.get(name), ours.get(name)
    counted, claimed = number(ours.get("n_samples")), number(theirs.get("n_samples"))
    if counted and claimed is not None and abs(claimed - counted) > _COUNT_TOLERANCE * counted:
        yield "window.n_samples", theirs["n_samples"], ours["n_samples"]


def steady_block(files: PointFiles) -> tuple[Fields, str]:
    """The block of the point, or what the summary of a run folder alone amounts to, and where it is."""
    if files.in_tree:
        return table(files.point, "steady_state"), files.where(POINT_YAML)
    block = block_of_summary(files.summary, files.concurrency)
    return block or {}, files.where(SUMMARY)


def _window(files: PointFiles, where: str, block: Fields) -> Iterator[Finding]:
    window = steady_window(block)
    passes, duration_s = window.super_passes, window.duration_s
    yield from _extent(files, where, window, needed=block.get("status") == WINDOWABLE)
    if passes is not None and passes < files.rules.window_passes:
        yield too_few_passes(files, where, f"the window spans {passes} super-passes")
    required = files.required_s
    if required and duration_s is not None and duration_s < required:
        text = f"the window has {duration_s:.1f} s of issue time"
        yield by_length(files, "issue-time", where, text, expected=f"{required:.0f} s or more")
    run_ns = number(files.summary.get("duration_ns"))
    if run_ns is not None and duration_s is not None and duration_s * 1e9 > run_ns * 1.001:
        text = f"the window claims {duration_s:.1f} s of a run of {run_ns / 1e9:.1f} s"
        yield finding("steady-state-differs", where, text)


def _extent(files: PointFiles, where: str, window: SteadyWindow, *, needed: bool) -> Iterator[Finding]:
    """The window is of passes of the dataset, all in the run; ``needed``: its numbers are official."""
    stated = {
        "super_pass_start": window.first,
        "super_pass_end": window.last,
        "super_pass_size": window.size,
        "duration_s": window.duration_s,
    }
    lacking = [name for name, value in stated.items() if value is None]
    if needed and lacking:
        text = f"the status is {WINDOWABLE}, but the window has no {', '.join(lacking)}"
        yield finding("steady-state-differs", where, text)
    size, issued = files.dataset_size, whole(files.summary.get("n_samples_issued"))
    if size and window.size not in (None, size):
        text = f"super_pass_size is {window.size:,}"
        yield finding("steady-state-differs", where, text, expected=f"{size:,}, one pass")
    if window.first is not None and window.first < 0:
        text = f"super_pass_start is {window.first}"
        yield finding("steady-state-differs", where, text, expected="0 or more")
    if size and issued is not None and window.last is not None and (window.last + 1) * size > issued:
        text = f"the window ends with super-pass {window.last}"
        expected = f"{issued // size} super-passes as in the run"
        yield finding("steady-state-differs", where, text, expected=expected)


def too_few_passes(files: PointFiles, where: str, text: str) -> Finding:
    """Of the window, or of the complete run."""
    expected = f"{files.rules.window_passes} or more super-passes in the steady-state window"
    return by_length(files, "super-passes", where, text, expected=expected)


def by_length(files: PointFiles, rule: str, where: str, text: str, *, expected: str = "") -> Finding:
    """A finding that says nothing of a short rehearsal."""
    severity = Severity.REHEARSED if files.is_short else Severity.ERROR
    return finding(rule, where, text, expected=expected, severity=severity)


def duration_ms(value: object) -> float | None:
    """A duration of config.yaml: ms, or with a unit, such as ``600s``."""
    if (found := number(value)) is not None:
        return found
    matched = re.fullmatch(r"(\d{1,12}(?:\.\d{1,6})?)(ms|s|m|h)?", value) if isinstance(value, str) else None
    return (
        float(matched[1]) * {"ms": 1, "s": 1e3, "m": 6e4, "h": 3.6e6}[matched[2] or "ms"] if matched else None
    )
