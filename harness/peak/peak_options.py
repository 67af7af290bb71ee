"""The options of find_peak.py as frozen values. Imports stay light."""

from dataclasses import dataclass
from pathlib import Path

from harness.config.run_options import ClientOptions
from harness.config.scenario import Scenario
from harness.files import CONFIG_DIR, USER_CONF


@dataclass(frozen=True, slots=True, kw_only=True)
class LadderOptions(ClientOptions):
    """``ladder``. ``concurrency`` empty: steps that follow from what the servers report."""

    scenario: Scenario = Scenario.SERVER
    concurrency: tuple[int, ...] = ()
    seconds: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOptions(ClientOptions):
    """``search``. Times in seconds; ``tolerance`` is a share of the rate."""

    scenario: Scenario = Scenario.SERVER
    mlperf_conf: Path | None = None
    user_conf: Path = CONFIG_DIR / USER_CONF
    budget: float | None = None
    tolerance: float = 0.01
    start_qps: float | None = None
    ladder_seconds: float = 60.0
