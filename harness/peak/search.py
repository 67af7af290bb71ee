"""The policy of a search: what is measured next, as a function of what has been measured.

No clock and no I/O: time spent is what the steps and probes say of themselves, so that a search resumes from
its history and runs against a simulator.
"""

from collections.abc import Callable, Mapping
from typing import Literal

import msgspec

from harness.config.loadgen_settings import Setting
from harness.config.scenario import Scenario
from harness.peak.probe import Probe, Prober
from harness.peak.steps import Step


class SearchSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a search knows before it measures anything."""

    scenario: Scenario
    loadgen: Mapping[str, Setting]
    """as read back from LoadGen: seeds, min_duration, limits"""
    samples: int
    """rows of the dataset"""
    replicas: int = 1
    slots: int | None = None
    """requests that all servers together run at once; None where they do not report it"""
    tolerance: float = 0.01
    budget_s: float | None = None
    start_qps: float | None = None
    most_in_flight: int | None = None
    """requests that this client can hold: --max-concurrency, ports, open files"""


class History(msgspec.Struct, frozen=True):
    """What a search has measured, in the order of time."""

    steps: tuple[Step, ...] = ()
    probes: tuple[Probe, ...] = ()

    @property
    def spent_s(self) -> float:
        """Time that the measurements took."""
        return sum(step.seconds + step.filling_s for step in self.steps) + sum(
            one.cost_s for one in self.probes
        )


class NextStep(msgspec.Struct, frozen=True, tag="step"):
    """Measure a step of the ladder."""

    concurrency: int
    why: str


class NextProbe(msgspec.Struct, frozen=True, tag="probe"):
    """Measure a run of official length."""

    rate: float
    why: str


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    """Nothing more is measured."""

    outcome: "Outcome"
    why: str


Outcome = Literal["FOUND", "AT_LEAST", "NOTHING_PASSES", "BUDGET", "STOPPED"]
Action = NextStep | NextProbe | Ended


def search(
    prober: Prober,
    settings: SearchSettings,
    history: History,
    keep: Callable[[History], None] = lambda history: None,
) -> tuple[History, Ended]:
    """Measure until ``decide`` ends it, resuming from ``history``; after each measurement ``keep`` gets it.

    Raises what ``prober`` raises; what was measured until then has been kept.
    """
    while not isinstance(action := decide(settings, history), Ended):
        if isinstance(action, NextStep):
            history = History((*history.steps, prober.ladder(action.concurrency)), history.probes)
        else:
            history = History(history.steps, (*history.probes, prober.probe(action.rate)))
        keep(history)
    return history, action


def decide(settings: SearchSettings, history: History) -> Action:
    """What comes next: doubling, then bisection."""
    passed = [one.rate for one in history.probes if one.verdict == "VALID"]
    failed = [one.rate for one in history.probes if one.verdict == "INVALID"]
    if not history.probes:
        return NextProbe(settings.start_qps or 1.0, "start")
    if not failed:
        return NextProbe(2 * max(passed), "nothing failed yet")
    if not passed:
        return NextProbe(min(failed) / 2, "nothing passed yet")
    if min(failed) / max(passed) - 1 <= settings.tolerance:
        return Ended("FOUND", "the bracket is as narrow as the tolerance")
    return NextProbe(
        (max(passed) + min(failed)) / 2, "between the highest that passed and the lowest that failed"
    )
