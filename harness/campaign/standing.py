"""How far a step is, from what it left on disk: nothing else decides whether it is done."""

import hashlib
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import msgspec

from harness.analysis.outages import what_stood
from harness.analysis.run_outcome import RunOutcome, loadgen_figure, score_line
from harness.analysis.run_warnings import length_warning
from harness.analysis.verdict import is_of_clock
from harness.campaign.campaign_file import Campaign
from harness.campaign.conf import conf_of_search, user_conf
from harness.campaign.searches import concluded, first_run, found_rate, search_state
from harness.campaign.steps import Step, dataset_of
from harness.compliance.registry import TESTS
from harness.compliance.verified import read_verdict
from harness.config.plans import RunPlan
from harness.config.scenario import Scenario
from harness.config.server_urls import folded
from harness.errors import ConfigError
from harness.files import (
    ACCURACY,
    ACCURACY_LOG,
    ACCURACY_RESULT,
    ACCURACY_TEXT,
    PERFORMANCE,
    RUN_RECORD,
    SUMMARY,
    USER_CONF,
    unofficial,
)
from harness.grading.decoding.text_tokenizer import tokenizer_sha256
from harness.json_files import read_kept, write_json
from harness.loadgen_logs.integrity import damage
from harness.record.accuracy_result import AccuracyResult
from harness.record.repeated import MOVES_ASIDE
from harness.record.resume import ANY_SAMPLE, answers_in, differences, newest_run, other_log
from harness.record.run_events import RunEvent
from harness.record.run_record import RunRecord
from harness.submission.tree.layout import benchmark_dirs
from harness.text import counted, figure, first_few

State = Literal["done", "lost", "failed", "incomplete", "other", "missing"]
_NAMED = 3
_MADE = "made.json"  # by step: digest of what a score or the folder to submit was made of, and a note
# What is different when a run, a score or a test is.
_DECISIVE = {RUN_RECORD, ACCURACY_TEXT, *(test.verify_file for test in TESTS.values())}


class Standing(msgspec.Struct, frozen=True):
    """How far a step is."""

    state: State
    """`lost`: it ended, and would end so again; `failed`: it ended otherwise than it should, and is tried
    again; `incomplete`: it continues; `other`: it was made under other settings, or cut off where nothing
    can continue, and is not used"""
    text: str = ""
    """its result, or why it has none"""
    record: RunRecord | None = None
    of_search: tuple[RunEvent, ...] = ()
    """the events of what a search has measured last"""

    @property
    def events(self) -> tuple[RunEvent, ...]:
        """Those of the run, or of the search."""
        return self.of_search if self.record is None else self.record.events


def standings(campaign: Campaign, steps: Sequence[Step], anew: Collection[str] = ()) -> dict[str, Standing]:
    """How far all steps are, those in ``anew`` as if nothing were there."""
    found: dict[str, Standing] = {}
    for step in steps:
        if step.name in anew:
            found[step.name] = Standing("missing", "begins anew")
        elif any(found[one.name].state != "done" for one in _sources(step, steps)):
            found[step.name] = Standing("missing")
        else:
            found[step.name] = standing(campaign, step)
    return found


def _sources(step: Step, steps: Sequence[Step]) -> Iterator[Step]:
    """The earlier steps whose results this one reads."""
    scenario = step.name.rpartition("/")[0]
    for one in steps[: steps.index(step)]:
        of_score = one.kind == "accuracy" and one.name.rpartition("/")[0] == scenario
        if step.kind in ("build", "check") or (step.kind == "score" and of_score):
            yield one


def standing(campaign: Campaign, step: Step) -> Standing:
    """How far the step is. What is damaged is only made again by itself where that takes minutes."""
    try:
        return _standing(campaign, step)
    except ConfigError as error:
        cheap = step.kind in ("trial", "score")
        what = str(error).partition(f"; restore it, or {MOVES_ASIDE}")[0]  # --restart of its own program
        return Standing("failed" if cheap else "lost", f"restore it or begin anew: {what}")


def _standing(campaign: Campaign, step: Step) -> Standing:
    match step.kind:
        case "trial" | "performance" | "accuracy":
            return _run(campaign, step)
        case "search":
            return _search(campaign, step)
        case "score":
            return _score(campaign, step)
        case "test":
            return _test(campaign, step)
    if not campaign.output.is_dir() or not _is_made(campaign, step):
        return Standing("missing")
    return Standing("done", str(campaign.output) if step.kind == "build" else _made(campaign, step)[1])


def _run(campaign: Campaign, step: Step) -> Standing:
    if (record := newest_run(step.run_folder)) is None:
        if step.kind == "accuracy" and (kept := len(answers_in(step.run_folder, ANY_SAMPLE))):
            raise ConfigError(f"{step.run_folder} has {counted(kept, 'answer')} and no {RUN_RECORD}")
        return Standing("missing")
    if changed := list(_changes(campaign, step, record, step.run_folder / USER_CONF)):
        return Standing("other", f"made with {_first(changed)}", record)
    cut_off: State = "incomplete" if step.kind == "accuracy" else "other"
    if record.verdict is None:
        return Standing(cut_off, "has not ended or was killed", record)
    if record.deviations and campaign.strict and step.kind != "trial":
        return Standing("lost", f"NOT OFFICIAL: {_first(record.deviations)}", record)
    result = record.verdict.result
    judged = result == "VALID" and step.kind == "performance" and campaign.strict
    if judged and (refused := length_warning(record)):
        return Standing("lost", f"VALID, but {refused}", record)
    # How fast the servers are is no question of a trial, nor of a rehearsal.
    if result == "VALID" or (record.verdict.complete and (step.kind == "trial" or campaign.rehearsal)):
        if problem := _damage(campaign, step, record):
            return Standing("incomplete", problem, record)  # its answers are kept
        figures = _figures(record, "VALID" if result == "VALID" else "complete")
        return Standing("done", _with_url(figures, step, record), record)
    if result == "INTERRUPTED" or step.kind == "accuracy":
        answered = 0 if record.statistics is None else record.statistics.completed
        return Standing(cut_off, f"{answered} of {record.settled.expected.samples} answered", record)
    lost = record.verdict.complete or any(one.startswith("lost:") for one in record.verdict.reasons)
    disturbed = _was_disturbed(record)
    return Standing(
        "lost" if lost and not disturbed else "failed",
        f"{_first(record.verdict.reasons)}{_stood(record)}",
        record,
    )


def other_url(step: Step, record: RunRecord) -> str:
    """``of http://a:1, url is now http://b:1``; "" for the same in any order, or if it changes at each start.

    The same servers may have moved to another port; those of another system would count as the same.
    """
    assert step.plan is not None
    before, now = record.plan.client.server_urls, step.plan.client.server_urls
    if step.addresses_change or {*before} == {*now}:
        return ""
    return f"of {folded(before)}, url is now {folded(now)}"


def _with_url(text: str, step: Step, record: RunRecord) -> str:
    return ", ".join(filter(None, (text, other_url(step, record))))


def _first(texts: Sequence[str]) -> str:
    return first_few(texts, _NAMED, "; ")


def _damage(campaign: Campaign, step: Step, record: RunRecord) -> str:
    """What is wrong with the logs of an accuracy run. Raises ConfigError for those of a performance run."""
    folder = step.run_folder
    if step.kind == "accuracy":
        return damage(folder, folder) or other_log(folder / ACCURACY_LOG, record, campaign.digests.of)
    if step.kind == "performance" and (problem := damage(folder, None)):
        raise ConfigError(f"{folder}: {problem}")
    return ""


def _stood(record: RunRecord) -> str:
    """The first silence, which no reason of the verdict names."""
    found = (one.text for one in record.events if one.kind in ("silence", "rank_stands", "suspended"))
    return next((f"; meanwhile {text}" for text in found), "")


def _was_disturbed(record: RunRecord) -> bool:
    """Whether queries failed, a server or this client stood, or the clock was set: the next may end well."""
    failed = record.statistics is not None and record.statistics.failed > 0
    reasons = () if record.verdict is None else record.verdict.reasons
    return failed or bool(what_stood(record.events)) or any(map(is_of_clock, reasons))


def _figures(record: RunRecord, result: str) -> str:
    """With LoadGen's rates, which are submitted; of an accuracy run, which has none, this client's."""
    result += RunOutcome(Path(), record).mark
    if official := loadgen_figure(record):
        rate = None if record.loadgen is None else record.loadgen.samples_per_s
        return ", ".join((result, *(() if rate is None else (f"{figure(rate)} samples/s",)), official))
    statistics = record.statistics
    if statistics is None or statistics.samples_per_s is None or statistics.tokens_per_s is None:
        return result
    samples, tokens = figure(statistics.samples_per_s), figure(statistics.tokens_per_s)
    return f"{result}, {samples} samples/s, {tokens} tokens/s"


def _changes(campaign: Campaign, step: Step, record: RunRecord, kept: Path) -> Iterator[str]:
    """What the run was made with that the step has otherwise: ``temperature 1.0, now 0.5``.

    ``kept`` is the run's conf file.
    """
    assert step.plan is not None and step.conf is not None
    now, before = _asked(step.plan), _asked(record.plan)
    if step.plan.client.input_file.is_file():  # `status` needs no dataset
        now["dataset_sha256"] = campaign.digests.of(step.plan.client.input_file)
        before["dataset_sha256"] = record.settled.dataset_sha256
    if tokenizer := record.tokenizer_sha256:
        with suppress(ConfigError):  # nor the tokenizer
            client = step.plan.client
            now["tokenizer_sha256"] = tokenizer_sha256(
                client.benchmark, client.input_file, client.tokenizer, campaign.digests.of
            )
            before["tokenizer_sha256"] = tokenizer
    command = None if step.servers is None else step.servers.command
    now["server command"], before["server command"] = command, record.provenance.server_command
    if not step.plan.accuracy and kept.is_file():
        is_given = step.kind != "search"  # whose runs have rates of their own
        conf = user_conf(kept) if is_given else conf_of_search(kept, step.plan.scenario)
        now["conf"] = step.conf.settings(step.plan, with_rate=is_given)
        before["conf"] = conf.settings(step.plan, with_rate=is_given)
    for name, value in before.items():
        yield from differences(name, value, now[name], "{} {}, now {}")


def _asked(plan: RunPlan) -> dict[str, Any]:
    """What a plan asks for, as far as it bears on the result."""
    client = plan.client
    # No answer depends on these. A router's or a cluster's servers may have other addresses after a restart.
    speed = {"max_concurrency": client.max_concurrency, "servers": len(client.server_urls)}
    return {
        "benchmark": client.benchmark.name,
        "round": client.benchmark.round,
        "scenario": str(plan.scenario),
        "mode": plan.mode,
        "max_samples": plan.max_samples,
        "parameters": msgspec.to_builtins(client.parameters),
        "backend": client.backend,
        "api": client.api,
        "test": "" if plan.audit is None else plan.audit.test,
        **({} if plan.accuracy else speed),
    }


def write_made(campaign: Campaign, step: Step, note: str) -> None:
    """Keep what a score or the folder was made of, so that it is made again when that changes."""
    path = campaign.folder / _MADE
    write_json(path, read_kept(path) | {step.name: f"{_inputs(campaign, step)} {note}".rstrip()})


def _made(campaign: Campaign, step: Step) -> tuple[str, str]:
    """The digest of what it was made of, and the note."""
    digest, _, note = read_kept(campaign.folder / _MADE).get(step.name, "").partition(" ")
    return digest, note


def _is_made(campaign: Campaign, step: Step) -> bool:
    return _made(campaign, step)[0] == _inputs(campaign, step)


def _inputs(campaign: Campaign, step: Step) -> str:
    """A digest of all that a step was made of, and of how."""
    # Without folders: results may move to another disk.
    words = [Path(word).name for word in step.words]
    digest = hashlib.sha256(repr((words, campaign.info if step.kind != "score" else "")).encode())
    for path in _files(campaign, step):
        place = path.relative_to(campaign.results) if path.is_relative_to(campaign.results) else path.name
        digest.update(f"{place}\0{campaign.digests.of(path) if path.is_file() else ''}\0".encode())
    if step.kind == "check":
        digest.update(repr(sorted(_file_states(campaign.output))).encode())
    return digest.hexdigest()


def _files(campaign: Campaign, step: Step) -> Iterator[Path]:
    if step.kind == "score":
        text = step.folder / ACCURACY_TEXT
        yield from (step.folder / ACCURACY_LOG, text, unofficial(text), step.folder / ACCURACY_RESULT)
        yield _references(campaign, step)
        return
    for name, (_, part) in sorted(campaign.benchmarks.items()):
        for scenario in part.scenarios:
            folder = campaign.results / name / scenario
            found = sorted((*folder.glob("*/*.*"), *folder.glob("*/run/run.json")))
            yield from (path for path in found if path.name in _DECISIVE)
    if step.kind == "build":
        yield from _logs_built(campaign, step)


def _logs_built(campaign: Campaign, step: Step) -> Iterator[Path]:
    """LoadGen's summaries in the folder to submit: a build by hand may have replaced them by other runs'."""
    for folder in benchmark_dirs(campaign.output):
        of_step = step.name in (step.kind, f"{folder.benchmark}/{step.kind}")
        if of_step and folder.system == campaign.info.system_id:
            yield from sorted(folder.path.glob(f"*/{PERFORMANCE}/{SUMMARY}"))


def _references(campaign: Campaign, step: Step) -> Path:
    return dataset_of(campaign, campaign.benchmarks[step.name.partition("/")[0]][0], "accuracy")


def _file_states(tree: Path) -> Iterator[tuple[str, int, int]]:
    """Name, size and time of each file: a folder that was edited since is checked again."""
    for path in tree.rglob("*"):
        if path.is_file():
            state = path.stat()
            yield str(path.relative_to(tree)), state.st_size, state.st_mtime_ns


def _search(campaign: Campaign, step: Step) -> Standing:
    scenario = Scenario.parse(step.folder.name)
    rate = found_rate(step.folder, scenario)
    run = first_run(step.folder, scenario)
    if run is not None and (changed := list(_changes(campaign, step, run[1], run[0] / USER_CONF))):
        return Standing("other", f"made with {_first(changed)}")
    if rate is not None:
        return Standing("done", f"target_qps {rate:g}")
    if (conclusion := concluded(step.folder)) is None:
        begun = search_state(step.folder)
        if begun is None:  # Offline's has one run
            return Standing("missing", of_search=() if run is None else run[1].events)
        events = () if begun.conclusion is None else begun.conclusion.events
        return Standing("incomplete", f"{begun.history.text} are measured", of_search=events)
    return Standing("lost", conclusion.why)


def _score(campaign: Campaign, step: Step) -> Standing:
    result = AccuracyResult.read(step.folder)
    text = step.folder / ACCURACY_TEXT
    if result is None or not (text.is_file() or unofficial(text).is_file()):
        return Standing("missing")
    if _references(campaign, step).is_file() and not _is_made(campaign, step):
        return Standing("other", "scored by hand or with other references or flags")
    line = score_line(step.folder)
    return Standing("done" if result.target.met or not campaign.strict else "lost", line)


def _test(campaign: Campaign, step: Step) -> Standing:
    run = _run(campaign, step)
    record = run.record
    if record is None or record.plan.audit is None or run.state == "other":
        return run
    found = read_verdict(record.plan.client.benchmark, record.plan.audit, step.folder)
    if found.passed is None:
        return Standing("incomplete", "not verified", record)
    if problem := damage(step.folder / PERFORMANCE, step.folder / ACCURACY):
        return Standing("incomplete", problem, record)
    measured = "" if found.figure is None else f"{found.figure:g} ({found.bounds})"
    outcome = RunOutcome(step.folder, record, compliance=found)
    words = ("PASS" if found.passed else "FAIL", measured)
    counts = (found.passed and outcome.official) or not campaign.strict
    text = _with_url(", ".join(filter(None, words)) + outcome.mark, step, record)
    return Standing("done" if counts else "lost", text, record)
