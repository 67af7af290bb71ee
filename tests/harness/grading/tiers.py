"""The tiers to test on this machine, the others skipped with the reason that the evaluator would give."""

from functools import cache

import pytest

from harness.grading.sandbox.jail import protocol
from harness.grading.sandbox.probe import why_not
from harness.grading.sandbox.session import Session
from harness.grading.sandbox.tiers import MIB, Tier, sandbox

SMALL_MEMORY = 512 * MIB
TIERS = (Tier.BUBBLEWRAP, Tier.LANDLOCK)


@cache
def obstacle(tier: Tier) -> str:
    return why_not(tier)


def session_in(tier: Tier, memory: int = SMALL_MEMORY) -> Session:
    if obstacle(tier):
        pytest.skip(f"{tier}: {obstacle(tier)}")
    return Session(sandbox(tier, memory))


def attempt(
    session: Session,
    code: str,
    text: str = "",
    *,
    function: str = "",
    mode: str = "strict",
    cpu_s: float = 5.0,
) -> protocol.Report:
    session.begin(protocol.Job(mode, function, code))
    return session.attempt(protocol.Trial(cpu_s, 3 * cpu_s, text))
