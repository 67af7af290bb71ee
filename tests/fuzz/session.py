"""Runs targets: which there are, inputs from numbers, a bound on the time of each."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

from tests.fuzz import answers, records

CPU_LIMIT_S = 20.0  # for one input; the slowest honest one takes some milliseconds

Target = Callable[[Path, Random], None]


class HangError(Exception):
    """One input took longer than CPU_LIMIT_S."""


def _pathless(target: Callable[[str, Random], None], what: str) -> Target:
    return lambda _, rng: target(what, rng)


TARGETS: dict[str, Target] = {
    **{name: _pathless(answers.stream, name) for name in answers.STREAMS},
    **{name: _pathless(answers.whole, name) for name in answers.WHOLE},
    **{f"noise-{wire}": _pathless(answers.noise, wire) for wire in answers.KINDS},
    **{f"values-{wire}": _pathless(answers.values, wire) for wire in answers.KINDS},
    "events": answers.events,
    "messages": answers.messages,
    "accuracy-log": records.accuracy_log,
    "journal": records.journal,
    "kept-answers": records.kept_answers,
    "run-json": records.run_json,
    "loadgen-logs": records.loadgen_logs,
    "conf": records.conf,
    "audit-config": records.audit_config,
    "safe-pickle": records.safe_pickle,
}


def run_one(name: str, number: int, folder: Path) -> None:
    """Run one input, which follows from name and number. Raises whatever the target raises, or HangError."""
    place = folder / name
    place.mkdir(exist_ok=True)
    with _cpu_limit():
        TARGETS[name](place, Random(f"{name} {number}"))


@contextmanager
def _cpu_limit() -> Iterator[None]:
    before = signal.signal(signal.SIGVTALRM, _hang)
    signal.setitimer(signal.ITIMER_VIRTUAL, CPU_LIMIT_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def _hang(*_: object) -> None:
    raise HangError(f"more than {CPU_LIMIT_S:g} s of CPU for one input")
