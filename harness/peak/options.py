"""The options of find_peak.py as frozen values. Imports stay light."""

from dataclasses import dataclass

from harness.config.options import ClientOptions
from harness.config.scenario import Scenario


@dataclass(frozen=True, slots=True, kw_only=True)
class LadderOptions(ClientOptions):
    """``ladder``. ``concurrency`` empty: steps that follow from what the servers report."""

    scenario: Scenario = Scenario.SERVER
    concurrency: tuple[int, ...] = ()
    seconds: float = 60.0
