"""The command that searches for the highest rate, after a run that missed a latency limit."""

from collections.abc import Sequence
from pathlib import Path

from harness.analysis.next_rate import rate_to_try
from harness.analysis.plan_evidence import run_in_offline
from harness.cli.commands import CommandLine, recorded, start_of
from harness.cli.door import LAUNCHER, verb_of
from harness.record.repeated import ANEW_OR_NOT, NextStep, without
from harness.record.run_record import RunRecord

_PROGRAM, _SEARCH = "find_peak.py", "search"
_SURE_PART = 0.5  # of the queries that must have ended for their rate to say what the servers can do
# Flags of a run that a search has no use for, and whether a value follows each.
_OF_A_RUN = {
    "--accuracy": False,
    **ANEW_OR_NOT,
    "--official": False,
    "--dry-run": False,
    "--no-report": False,
    "--report": False,
    "--stop-when-lost": False,
    "--max-samples": True,
    "--audit-config": True,
    "--dcgm-url": True,
    "--metrics-port": True,
}


def advice_in_mid_run(
    record: RunRecord, issued: int, ended: int, seconds: float, tpot_ns: float | None
) -> NextStep | None:
    """The rate to try after a run that was lost, and the command of a search; None where there is none.

    ``issued`` and ``ended`` are its queries so far, in ``seconds``, ``tpot_ns`` the mean of their TPOT.
    """
    if not ended or not seconds or not record.limits_ns:
        return None
    target = float(record.settled.loadgen_settings["server_target_qps"])
    reached = ended / seconds if ended >= _SURE_PART * issued else _SURE_PART * target
    earlier, offline = run_in_offline(record)
    if earlier is not None:  # with limits they seldom answer more
        reached = min(reached, offline)
    guess = rate_to_try(target, reached, (tpot_ns or 0.0) / record.limits_ns["TPOT"])
    found = search_after(record, guess.target_qps)
    return found and found._replace(words=f"{guess.text}; {found.words}")


def search_after(record: RunRecord, rate: float | None) -> NextStep | None:
    """``search for the highest rate with: COMMAND``; None where that is no remedy.

    ``rate``: that of its first run; None: it begins with its ladder.
    """
    plan, made = record.plan, record.provenance
    if plan.accuracy or plan.audit_text is not None or not record.limits_ns or not made.command:
        return None
    if is_search(made.command):  # its next run is the search's own choice
        return None
    return NextStep("search for the highest rate with", search_command(made.command, rate, made.folder))


def is_search(command: Sequence[str]) -> bool:
    """Whether a command, given as sys.argv, is a search by script or verb."""
    program = Path(command[0]).name
    return program == _PROGRAM or (program == LAUNCHER.name and verb_of(_PROGRAM, _SEARCH) in command[1:2])


def search_command(arguments: Sequence[str], rate: float | None, folder: str = "") -> CommandLine:
    """The search for the servers and the dataset of a run's command, given as sys.argv with its folder."""
    flags = tuple(without(recorded(arguments).flags, _OF_A_RUN))
    flags += () if rate is None else ("--start-qps", f"{rate:g}")
    return CommandLine(start_of(_PROGRAM, _SEARCH, folder), flags, folder)
