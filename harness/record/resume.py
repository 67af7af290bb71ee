"""What a run finds in its folder: a run to continue, a complete one, or one to move aside."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import structs

from harness.cli.commands import CommandLine
from harness.config.plans import RunPlan
from harness.config.protocol import Answers, prompts_of
from harness.errors import ConfigError
from harness.files import ACCURACY_LOG, JOURNAL_DIR, RUN_RECORD, move_path, sha256_of
from harness.loadgen_logs.integrity import damage
from harness.record.answer_log import SavedAnswer, read_saved_answers
from harness.record.journal import ANSWERS_FILE
from harness.record.output_dir import READ, accessing, aside_of
from harness.record.repeated import MOVES_ASIDE, FirstLine, resuming_command, run_of
from harness.record.run_record import EncodedAnswers, RunRecord
from harness.record.server_changes import other_model, with_other_settings
from harness.record.settled import ServerInfo
from harness.text import counted

ATTEMPT = "attempt."  # folders of attempts; a number follows
_ATTEMPT_NUMBER = re.compile(r"[1-9][0-9]{0,8}", re.ASCII)
_SHOWN = 80  # characters of a value
_BEFORE = 30  # of them, what two values have in common
_DIGITS = 12  # of a sha256
_EARLIER = "earlier answers in"
ANY_SAMPLE = 1 << 32  # beyond every sample index


class EarlierRun(msgspec.Struct, frozen=True):
    """An earlier run in the folder of a plan, or of a file of rows, and what the command makes of it."""

    course: Literal["continue", "complete", "anew"]
    first_line: str
    record: RunRecord | None = None
    """None where none can be read; rows have none"""


def earlier_run(
    plan: RunPlan, samples: int, dataset_sha256: str, is_done: Callable[[RunRecord], bool]
) -> EarlierRun | None:
    """What the folder of ``plan`` holds, None for nothing. Asks no server and changes nothing.

    An accuracy run with the same settings is continued, one that is VALID is complete. ``is_done`` decides
    whether another run with the same settings is, such as that of a compliance test. All others begin anew,
    and what is there is moved aside.

    Raises ConfigError where --resume finds nothing to resume, and where answers lie without the record that
    names their settings.
    """
    client = plan.client
    log_dir, line = client.log_dir, FirstLine(client.dry_run)
    if client.restart or (not plan.accuracy and plan.audit is None):
        why = "as asked for" if client.restart else "as performance runs do"
        return _anew(plan, why, readable_run(log_dir))
    try:
        record = newest_run(log_dir)
    except ConfigError as error:
        return _without_record(plan, str(error))
    if record is None:
        return _without_record(plan, f"{log_dir} holds no run to resume")
    settled = record.settled
    before = _decisive(record.plan, settled.samples, settled.dataset_sha256)
    found = _differing(before, _decisive(plan, samples, dataset_sha256))
    if found and client.resume:
        raise ConfigError(
            f"--resume: {log_dir} holds a run with {'; '.join(found)}; give the same arguments as before, or "
            "omit --resume: it is then moved aside"
        )
    if found:
        return _anew(plan, f"as it has {'; '.join(found)}", record)
    if _is_finished(plan, record) and (plan.accuracy or is_done(record)):
        here = _moved_to(record, log_dir)
        return EarlierRun("complete", line.complete(f"{run_of(record.started)}, VALID,", log_dir), here)
    if not plan.accuracy:
        return _anew(plan, "as a compliance test that has not passed is repeated", record)
    first_line = line.continues(run_of(record.started), _counts(log_dir, samples))
    return EarlierRun("continue", first_line, record)


def _anew(plan: RunPlan, why: str, record: RunRecord | None) -> EarlierRun | None:
    """The run begins anew; None where there is nothing to move aside."""
    folder = plan.results_dir
    if (aside := aside_of(folder)) is None:
        return None
    earlier = f"what {folder} holds, which is no run,"
    if record is not None:
        earlier = _described(record, plan.client.log_dir)
    back = _resuming(record) if record is not None and record.plan.accuracy else None
    line = FirstLine(plan.client.dry_run).anew(why, earlier, aside, back)
    return EarlierRun("anew", line, record)


def _described(record: RunRecord, log_dir: Path) -> str:
    """``the run of … (gpt-oss-120b, offline, accuracy; INTERRUPTED; 36 of 96 samples are answered)``."""
    result = "it has not ended" if record.verdict is None else record.verdict.result
    facts = [record.plan.title, result]
    if record.plan.accuracy:
        facts.append(_counts(log_dir, record.settled.samples))
    elif record.statistics is not None:
        facts.append(f"{counted(record.statistics.completed, 'query', 'is')} answered")
    return f"{run_of(record.started)} ({'; '.join(facts)})"


def _counts(log_dir: Path, samples: int) -> str:
    """``36 of 96 samples are answered``."""
    return f"{len(answers_in(log_dir, samples))} of {samples} samples are answered"


def _without_record(plan: RunPlan, problem: str) -> EarlierRun | None:
    """What becomes of a folder without a readable run.json. Raises ConfigError where answers lie in it."""
    log_dir = plan.client.log_dir
    kept = len(answers_in(log_dir, ANY_SAMPLE)) if plan.accuracy else 0
    if kept:
        raise ConfigError(
            f"{problem}; so it is unknown which run the {counted(kept, 'answer')} in {log_dir} belong to: "
            f"restore {RUN_RECORD}, or {MOVES_ASIDE} them aside and begins anew"
        )
    if plan.client.resume:
        raise ConfigError(
            f"--resume: {problem}; check --results and --scenario, or omit --resume to begin anew"
        )
    return _anew(plan, "", None)


def _is_finished(plan: RunPlan, record: RunRecord) -> bool:
    """Whether the logs of a run with the same settings are complete, and need not be written again."""
    verdict, log_dir = record.verdict, plan.client.log_dir
    if verdict is None or not (verdict.result == "VALID" or (plan.audit is not None and verdict.complete)):
        return False
    are_whole = not damage(log_dir, log_dir) and not other_log(log_dir / ACCURACY_LOG, record)
    return are_whole and _of_logs(record.plan) == _of_logs(plan)


def _of_logs(plan: RunPlan) -> tuple[object, ...]:
    """The settings beside the decisive ones that LoadGen's logs or the rules' verdict follow from."""
    audit = plan.audit and (plan.audit.settings, plan.audit.official)
    rules = plan.client.benchmark.round, plan.round_settings, plan.client.deviations
    return *rules, plan.mlperf_conf, plan.audit_text, audit


def unfinished(log_dir: Path, record: RunRecord) -> str:
    """What to know before the log of a run is scored: that it is not complete; "" where it is."""
    if record.is_valid:
        return ""
    state = "has not ended or was killed" if record.verdict is None else f"is {record.verdict.result}"
    if not record.plan.accuracy:
        return f"the run {state}, so that no score of it counts; score the log of the accuracy run"
    command = _resuming(record)
    how = f"with: {command}" if command else "by its own command"
    counts = _counts(log_dir, record.settled.samples)
    return f"the run {state}, so that no score of it counts; {counts}. Continue it {how}"


def _resuming(record: RunRecord) -> CommandLine | None:
    made = record.provenance
    return resuming_command(made.command, made.folder) if made.command else None


def other_log(log: Path, record: RunRecord, digest: Callable[[Path], str] = sha256_of) -> str:
    """What to know before a log is judged: that the run.json beside it is of another log; "" where it is not.

    Also "" where that ``record`` names no log.
    """
    wanted = record.accuracy_log_sha256
    if not wanted or not log.is_file() or (found := digest(log)) == wanted:
        return ""
    return (
        f"{log} is not the log of the run in the {RUN_RECORD} beside it (sha256 {found[:_DIGITS]}, expected "
        f"{wanted[:_DIGITS]}): nothing in it counts for that run; repeat the run, or move this log to a "
        "folder of its own"
    )


def check_model(log_dir: Path, record: RunRecord, server: ServerInfo) -> None:
    """Raise ConfigError if every server of the earlier run served another model than ``server`` does."""
    others = [other_model(before, server) for before in record.servers]
    if others and all(others):
        raise ConfigError(
            f"the answers in {log_dir} are of another model than {server.url} now serves: {others[0]}; one "
            f"result needs one model: start the servers as before, or {MOVES_ASIDE} the answers aside"
        )


def check_answers(log_dir: Path, record: RunRecord, answers: Answers, encoded: EncodedAnswers | None) -> None:
    """Raise ConfigError if the answers of the earlier run came in another form, ids or text, than now.

    ``encoded``: as that of a record.
    """
    if record.encoded and encoded and record.encoded.tokenizer_sha256 != encoded.tokenizer_sha256:
        raise ConfigError(
            f"the answers in {log_dir} were encoded with {record.encoded.tokenizer}, not with this "
            f"{encoded.tokenizer}; give the earlier one, or {MOVES_ASIDE} the answers aside"
        )
    for before in record.servers:
        if before.answers != answers:
            raise ConfigError(
                f"the answers in {log_dir} came as {before.answers}, those of the servers now are {answers}; "
                f"one result needs one kind: give --api and the servers as before, or {MOVES_ASIDE} the "
                "answers aside"
            )


def require_unchanged(log_dir: Path, earlier: EarlierRun | None) -> None:
    """Raise ConfigError if another run has written to the folder since ``earlier`` was found there."""
    now, before = readable_run(log_dir), earlier and earlier.record
    if (now and (now.started, now.ended)) != (before and (before.started, before.ended)):
        raise ConfigError(f"another run has written to {log_dir} since this one began; repeat the command")


def _decisive(plan: RunPlan, samples: int, dataset_sha256: str) -> dict[str, object]:
    """The facts that decide which prompts are answered, by which model, and how."""
    return {
        "benchmark": plan.client.benchmark.name,
        "scenario": str(plan.scenario),
        "mode": plan.mode,
        "model_key": plan.model_key,
        "samples": samples,
        "dataset_sha256": dataset_sha256,
        "parameters": msgspec.to_builtins(plan.client.parameters),
        "prompts": prompts_of(plan.client.api),
    }


def _differing(before: Mapping[str, object], now: Mapping[str, object]) -> list[str]:
    """What differs; of another benchmark nothing else, for then everything does."""
    found = [text for name, value in before.items() for text in differences(name, value, now[name])]
    return found[:1] if before["benchmark"] != now["benchmark"] else found


def _moved_to(record: RunRecord, log_dir: Path) -> RunRecord:
    """The record with the paths of its folder, which may have been moved since."""
    client = structs.replace(record.plan.client, log_dir=log_dir)
    files = {name: str(log_dir / Path(path).name) for name, path in record.files.items()}
    return structs.replace(record, plan=structs.replace(record.plan, client=client), files=files)


def version_changes(log_dir: Path, record: RunRecord) -> Iterator[str]:
    """Warnings about earlier answers of another version, of the servers or the harness, than ``record``."""
    found = list(_readable_runs(filter(_has_answers, _folders(log_dir))))
    earlier = {server.version for run in found for server in run.servers}
    now = {server.version for server in record.servers}
    if others := sorted(str(other) for other in earlier - now - {None}):
        yield (
            f"{_EARLIER} {log_dir} are of server version {', '.join(others)}, the servers "
            f"now report {', '.join(sorted(filter(None, now))) or 'no version'}"
        )
    here = record.provenance.git
    commits = sorted({str(run.provenance.git) for run in found if run.provenance.git} - {str(here)})
    if commits and here is not None:
        yield (
            f"{_EARLIER} {log_dir} are of commit {', '.join(commits)} of the harness, this checkout "
            f"is at {here}: a submission takes all runs of a scenario from one commit; if the others are of "
            "the earlier one, end this run, git checkout that commit, and repeat the command"
        )


def names_other_version(warning: str) -> bool:
    """Whether a warning of a run is one of ``version_changes``."""
    return warning.startswith(_EARLIER)


def archive_attempt(log_dir: Path) -> Path:
    """Move the files of the earlier attempt into a separate folder; returns that folder."""
    number = 1 + max((_number(path) for path in _attempts(log_dir)), default=0)
    attempt = log_dir / f"{ATTEMPT}{number}"
    attempt.mkdir()
    # The record goes first: a folder with the record of a complete run and without its log is none.
    for entry in sorted(log_dir.iterdir(), key=lambda path: (path.name != RUN_RECORD, path.name)):
        if not entry.name.startswith(ATTEMPT):
            move_path(entry, attempt / entry.name)
    return attempt


def saved_answers(log_dir: Path, samples: int) -> dict[int, SavedAnswer]:
    """Every answer of the attempts in ``log_dir``, by sample index."""
    return read_saved_answers([attempt / JOURNAL_DIR for attempt in _attempts(log_dir)], samples)


def answers_in(log_dir: Path, samples: int) -> dict[int, SavedAnswer]:
    """Every answer in ``log_dir`` and its attempts, by sample index. Raises ConfigError."""
    with accessing(log_dir, READ):
        return read_saved_answers(
            [folder / JOURNAL_DIR for folder in (*_attempts(log_dir), log_dir)], samples
        )


def newest_run(log_dir: Path) -> RunRecord | None:
    """The newest run.json: of the last attempt, or of one before when a crash came between.

    Raises ConfigError for a damaged one.
    """
    for folder in (log_dir, *reversed(_attempts(log_dir))):
        with suppress(FileNotFoundError):
            return RunRecord.read(folder / RUN_RECORD)
    return None


def readable_run(log_dir: Path) -> RunRecord | None:
    """As ``newest_run``; None also for a damaged one."""
    with suppress(ConfigError):
        return newest_run(log_dir)
    return None


def _readable_runs(folders: Iterable[Path]) -> Iterator[RunRecord]:
    for folder in folders:
        with suppress(OSError, ConfigError):
            yield RunRecord.read(folder / RUN_RECORD)


def servers_of_answers(log_dir: Path) -> Iterator[Sequence[ServerInfo]]:
    """The servers of all attempts whose answers are used again, and with start options of later moments."""
    for folder in filter(_has_answers, _folders(log_dir)):
        yield from (run.servers for run in _readable_runs([folder]))
        yield tuple(with_other_settings(folder / JOURNAL_DIR))


def _folders(log_dir: Path) -> list[Path]:
    """That of the newest attempt, and the earlier ones'."""
    return [log_dir, *_attempts(log_dir)]


def _has_answers(folder: Path) -> bool:
    return any(path.stat().st_size for path in (folder / JOURNAL_DIR).glob(ANSWERS_FILE.format("*")))


def differences(name: str, earlier: Any, now: Any, form: str = "{} {}, this one has {}") -> Iterator[str]:
    """``parameters.temperature 1.0, this one has 0.5``, for each value of two trees that differs."""
    if isinstance(earlier, Mapping) and isinstance(now, Mapping):
        for key in dict.fromkeys([*earlier, *now]):
            place = f"{name}.{key}" if name else str(key)
            yield from differences(place, earlier.get(key), now.get(key), form)
    elif earlier != now:
        yield form.format(name, *_short(earlier, now))


def _attempts(log_dir: Path) -> list[Path]:
    found = [path for path in log_dir.glob(f"{ATTEMPT}*") if path.is_dir() and _number(path)]
    return sorted(found, key=_number)


def _number(path: Path) -> int:
    digits = path.name.removeprefix(ATTEMPT)
    return int(digits) if _ATTEMPT_NUMBER.fullmatch(digits) else 0


def _short(*values: object) -> Iterator[str]:
    """The texts of two values that differ; of long ones, such as commands, the part that does."""
    first, second = texts = ["none" if value is None else str(value) for value in values]
    equal = (a == b for a, b in zip(first, second, strict=False))
    same = sum(takewhile(bool, equal)) if max(len(first), len(second)) > _SHOWN else 0
    for text in texts:
        shown = text if same <= _BEFORE else f"...{text[same - _BEFORE :]}"
        yield shown if len(shown) <= _SHOWN else shown[: _SHOWN - 3] + "..."
