"""The strongest sandbox that works here: a probe tries to escape from each tier."""

from harness.errors import GradingError
from harness.grading.sandbox.jail import protocol
from harness.grading.sandbox.sandbox_process import SandboxLostError, SandboxProcess
from harness.grading.sandbox.tiers import (
    Sandbox,
    Tier,
    candidates,
    refusal,
    require_program_limits,
    sandbox,
    unsupported,
)
from harness.grading.scoring.grade import GradingMode

_PROBE_LIMIT_S = 20.0
_CONTAINED = "contained"
_PROBE = """
import os, socket
def escapes(attempt):
    try:
        attempt()
    except OSError:
        return False
    return True
def reach_network():
    with socket.socket():
        if {{name for _, name in socket.if_nameindex()}} <= {{"lo"}}:
            raise OSError
def see_processes():  # others than the warden, its fork server and this one
    if len([name for name in os.listdir("/proc") if name.isdigit()]) <= 3:
        raise OSError
attempts = dict(
    read=lambda: open("/etc/shadow").close(),
    write=lambda: open("/var/tmp/escaped", "w").close(),
    settings=lambda: os.close(os.open("/proc/sys/kernel/core_pattern", os.O_WRONLY)),
)
if {filtered}:
    attempts |= dict(
        network=lambda: socket.socket(),
        signal=lambda: os.kill(os.getppid(), 0),
        process=lambda: os.fork() or os._exit(0),
    )
else:
    attempts |= dict(network=reach_network, processes=see_processes)
found = [name for name, attempt in attempts.items() if escapes(attempt)]
import fractions, decimal, heapq
print(" ".join(found) or {contained!r})
"""


def choose_sandbox(allow_unsandboxed: bool) -> Sandbox:
    """The strongest tier that contains the probe.

    Raises GradingError with the reason against each tier where none does, unless that is allowed; with the
    reason against that where no program runs at all, or where this process may use less than a program.
    """
    require_program_limits()
    reasons: dict[Tier, str] = {}
    for tier in candidates():
        reasons[tier] = why_not(tier)
        if not reasons[tier]:
            return sandbox(tier)
    if not allow_unsandboxed:
        raise refusal(reasons)
    if reason := why_not(Tier.UNSANDBOXED):
        raise GradingError(f"no program can run here: {reason}; score the log on another machine")
    return sandbox(Tier.UNSANDBOXED)


def why_not(tier: Tier) -> str:
    """The reason why a tier does not work on this machine; empty when it does."""
    reason = unsupported(tier)
    if reason:
        return reason
    try:
        with SandboxProcess(sandbox(tier)) as process:
            probe = _PROBE.format(filtered=tier is not Tier.NAMESPACES, contained=_CONTAINED)
            if tier is Tier.UNSANDBOXED:
                probe = f"print({_CONTAINED!r})"  # that it runs is all there is to know
            process.begin(protocol.Job(GradingMode.STRICT, "", probe))
            result = process.attempt(protocol.TestRun(_PROBE_LIMIT_S, ""))
    except (GradingError, SandboxLostError) as error:
        return str(error)
    escapes = result.output.decode(errors="replace").strip()
    if result.status != protocol.OK:
        return f"the probe ended with {result.status}: {result.detail}"
    return "" if escapes == _CONTAINED else f"the probe escaped by {escapes}"
