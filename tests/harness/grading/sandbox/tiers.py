"""The tiers to test on this machine, the others skipped with the reason that the evaluator would give."""

from functools import cache

import pytest

from harness.grading.sandbox.jail import protocol
from harness.grading.sandbox.sandbox_process import SandboxProcess
from harness.grading.sandbox.tier_probe import why_not
from harness.grading.sandbox.tiers import MIB, Tier, sandbox

SMALL_MEMORY = 512 * MIB
TIERS = (Tier.BUBBLEWRAP, Tier.LANDLOCK)  # of processors that have a filter


@cache
def obstacle(tier: Tier) -> str:
    return why_not(tier)


def process_in(tier: Tier, memory: int = SMALL_MEMORY) -> SandboxProcess:
    if obstacle(tier):
        pytest.skip(f"{tier}: {obstacle(tier)}")
    return SandboxProcess(sandbox(tier, memory))


def attempt(
    process: SandboxProcess,
    code: str,
    text: str = "",
    *,
    function: str = "",
    mode: str = "strict",
    limit_s: float = 5.0,
) -> protocol.TestRunResult:
    process.begin(protocol.Job(mode, function, code))
    return process.attempt(protocol.TestRun(limit_s, text))
