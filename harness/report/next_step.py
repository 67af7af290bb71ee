"""The command that follows a run: score it, resume it, search for another rate, or repeat it."""

from collections.abc import Sequence
from pathlib import Path

from harness.analysis.encoded_answers import text_reasons
from harness.analysis.next_rate import rate_after
from harness.analysis.outages import what_stood
from harness.cli.commands import CommandLine, shown, start_of, users_folder
from harness.files import ACCURACY_LOG
from harness.record.repeated import NextStep, repeat_step, restarting_command, resuming_command
from harness.record.run_record import RunRecord, RunVerdict, Statistics
from harness.report.search_advice import advice_in_mid_run, is_search, search_after

_EVALUATOR = "eval_mlperf_accuracy.py"


def next_step(record: RunRecord, *, elsewhere: bool = False) -> str:
    """A line with the command that follows the run; "" where there is none.

    ``elsewhere``: the command is for any working folder, not for the user's.
    """
    step = _step(record)
    if step is None:
        return ""
    return step.anywhere() if elsewhere else str(step)


def _step(record: RunRecord) -> NextStep | None:
    plan, client, made = record.plan, record.plan.client, record.provenance
    if record.verdict is None or record.statistics is None:
        return None
    if not plan.accuracy:
        return _search(record) or _repeat(record, record.verdict, record.statistics)
    if record.verdict.result == "VALID":
        return NextStep("Score it with", scoring_command(client.log_dir / ACCURACY_LOG, client.tokenizer))
    if not made.command or not record.statistics.completed or plan.audit is not None:  # a test is repeated
        return _repeat(record, record.verdict, record.statistics)
    errors = (record.loadgen is not None and record.loadgen.errors) or any(text_reasons(record.encoded))
    if errors and not record.statistics.failed and not record.unanswered:
        # LoadGen gets the same answers, such as those of one token or of half a text, each time.
        words = "Mend their cause, then begin anew with"
        return NextStep(words, restarting_command(made.command, made.folder))
    return NextStep("Resume it with", resuming_command(made.command, made.folder))


def _repeat(record: RunRecord, verdict: RunVerdict, statistics: Statistics) -> NextStep | None:
    """Of a run that is measured again; a compliance test counts whether LoadGen reports VALID or not."""
    made, counts = record.provenance, record.plan.audit_text is not None and verdict.complete
    if verdict.result == "VALID" or counts or not made.command or is_search(made.command):
        return None
    mend = verdict.result != "INTERRUPTED" or statistics.failed > 0
    return repeat_step(made.command, made.folder, mend=mend)


def _search(record: RunRecord) -> NextStep | None:
    """Of a run that missed a limit of latency, whether it was ended for that or not."""
    verdict, statistics, loadgen = record.verdict, record.statistics, record.loadgen
    if verdict is None or statistics is None or verdict.result != "INVALID" or statistics.failed:
        return None
    if what_stood(record.events) or any(change.answers for change in record.changed):
        # The rate need not be the cause.
        return None
    guess = None if loadgen is None else rate_after(loadgen, record.latency_percentile)
    if verdict.complete and guess is not None:
        found = search_after(record, guess.target_qps)
    elif any(event.kind == "lost" for event in record.events):
        issued = statistics.queries + (record.unanswered or 0)
        tpot_ns = None if statistics.tpot is None else statistics.tpot.mean
        found = advice_in_mid_run(record, issued, statistics.completed, statistics.duration_s, tpot_ns)
    else:
        found = None
    return found and found._replace(words=f"{found.words[:1].upper()}{found.words[1:]}")


def scoring_command(outputs: Path, tokenizer: str | None = None, more: Sequence[str] = ()) -> CommandLine:
    """The evaluator's command for the log of a complete accuracy run, ready to paste.

    The evaluator finds the rest in run.json. ``tokenizer`` is the flag's value; ``more``: further flags, for
    outputs that have no run.json.
    """
    flags = ["--mlperf-log", str(shown(outputs))]
    flags += [] if tokenizer is None else ["--tokenizer", str(shown(Path(tokenizer)))]
    return CommandLine(start_of(_EVALUATOR), (*flags, *more), users_folder())
