"""C_max where it is not given: a short ladder shows at how many requests in flight the servers are full."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from harness.cli.signals import require_no_signal, signals_kept
from harness.config.generation import SamplingParameters
from harness.config.plans import ClientPlan
from harness.config.scenario import Scenario
from harness.endpoints.planning.regions import ULTRA_LOW_MOST
from harness.errors import ConfigError, RunError, ServerError
from harness.peak.ladder.ladder_console import LadderConsole
from harness.peak.ladder.ladder_files import read_ladder
from harness.peak.ladder.ladder_plan import LadderPlan
from harness.peak.ladder.ladder_result import Ladder
from harness.record.settled import ServerInfo
from sut.peak.ladder import climb
from sut.servers.health import check_same_servers

_STEP_S = 20.0


def find_c_max(client: ClientPlan, folder: Path, most: int) -> tuple[int, str]:
    """The number in flight of most tokens/s, at most ``most``, and how it was found. Writes the ladder.

    ``most``: requests of a pass less one. Raises ConfigError, RunError, ServerError and InterruptedRun.
    """
    best = _c_max_of(_climbed(client, folder))
    where = f"found by the ladder in {folder}"
    return (best, where) if best <= most else (most, f"{best} {where}, but the dataset is smaller")


def measured_rates(
    folder: Path, parameters: SamplingParameters, servers: Sequence[ServerInfo]
) -> dict[int, float]:
    """Requests/s by the number in flight, of a folder's ladder of these servers and answers; else none."""
    try:
        ladder = read_ladder(folder)
        check_same_servers(ladder.servers, servers)
    except (OSError, ValueError, ServerError):
        return {}
    if ladder.parameters != parameters or len(ladder.servers) != len(servers):
        return {}
    return {step.concurrency: step.queries_per_s for step in ladder.steps}


def _climbed(client: ClientPlan, folder: Path) -> Ladder:
    # Endpoints has no limit of latency: the ladder ends where more in flight only wait.
    benchmark = msgspec.structs.replace(client.benchmark, latency_limits={})
    plan = LadderPlan(
        client=msgspec.structs.replace(client, log_dir=folder, benchmark=benchmark),
        scenario=Scenario.SERVER,
        concurrency=(),
        seconds=_STEP_S,
    )
    console = LadderConsole()
    with signals_kept():  # its end ignores them, and the points follow
        ladder = climb(plan, console)
    console.end_line()
    require_no_signal(ladder.interrupted_by)
    return ladder


def _c_max_of(ladder: Ladder) -> int:
    """The step of most tokens/s. Raises RunError where there is none, ConfigError where it is too low."""
    best = ladder.best
    if best is None or not ladder.complete:
        raise RunError(f"C_max was not found: {ladder.stopped}; give --c-max")
    if best.concurrency <= ULTRA_LOW_MOST:
        raise ConfigError(
            f"C_max was looked for: the most tokens/s come with {best.concurrency} in flight, and a curve "
            f"needs more than {ULTRA_LOW_MOST}; give --c-max"
        )
    return best.concurrency
