"""The command that searches for the highest rate, after a run that missed a latency limit."""

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from harness.analysis.next_rate import rate_to_try
from harness.analysis.plan_evidence import run_in_offline
from harness.cli.commands import recorded, start_of
from harness.cli.door import LAUNCHER, verb_of
from harness.config.other_flags import SYNONYMS
from harness.record.run_record import RunRecord

_PROGRAM, _SEARCH = "find_peak.py", "search"
_SURE_PART = 0.5  # of the queries that must have ended for their rate to say what the servers can do
# Flags of a run that a search has no use for, and whether a value follows each.
_OF_A_RUN = {
    "--accuracy": False,
    "--resume": False,
    "--restart": False,
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
) -> str:
    """The rate to try after a run that was lost, and the command of a search; "" where there is none.

    ``issued`` and ``ended`` are its queries so far, in ``seconds``, ``tpot_ns`` the mean of their TPOT.
    """
    if not ended or not seconds or not record.limits_ns:
        return ""
    target = float(record.settled.loadgen_settings["server_target_qps"])
    reached = ended / seconds if ended >= _SURE_PART * issued else _SURE_PART * target
    earlier, offline = run_in_offline(record)
    if earlier is not None:  # with limits they seldom answer more
        reached = min(reached, offline)
    guess = rate_to_try(target, reached, (tpot_ns or 0.0) / record.limits_ns["TPOT"])
    command = search_after(record, guess.target_qps)
    return command and f"{guess.text}; {command}"


def search_after(record: RunRecord, rate: float | None) -> str:
    """``search for the highest rate with: COMMAND``; "" where that is no remedy.

    ``rate``: that of its first run; None: it begins with its ladder.
    """
    plan, command = record.plan, record.provenance.command
    if plan.accuracy or plan.audit_text is not None or not record.limits_ns or not command:
        return ""
    if is_search(command):  # its next run is the search's own choice
        return ""
    return f"search for the highest rate with: {search_command(command, rate)}"


def is_search(command: Sequence[str]) -> bool:
    """Whether a command, given as sys.argv, is a search by script or verb."""
    program = Path(command[0]).name
    return program == _PROGRAM or (program == LAUNCHER.name and verb_of(_PROGRAM, _SEARCH) in command[1:2])


def search_command(arguments: Sequence[str], rate: float | None) -> str:
    """The search for the servers and the dataset of a run's command, given as sys.argv."""
    words = (*start_of(_PROGRAM, _SEARCH), *_kept(recorded(arguments).flags))
    return shlex.join(words if rate is None else (*words, "--start-qps", f"{rate:g}"))


def _kept(flags: Sequence[str]) -> Iterator[str]:
    words = iter(flags)
    for word in words:
        typed, has_value, _ = word.partition("=")
        name = typed.replace("_", "-")
        name = SYNONYMS[name].flag if name in SYNONYMS else name
        if name not in _OF_A_RUN:
            yield word
        elif _OF_A_RUN[name] and not has_value:
            next(words, None)
