"""The LoadGen conf file of a scenario's runs: the user's, with the campaign's rate as its last row."""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from harness.config.loadgen_conf import parse_conf, read_text, with_rows, without_rows
from harness.config.loadgen_settings import Number
from harness.config.plans import RunPlan
from harness.config.scenario import Scenario
from harness.files import atomic_write
from harness.peak.search.offline_rate import SHORT_CONF
from harness.peak.search.probe_record import FOUND_RATE


class RunConf(msgspec.Struct, frozen=True):
    """A conf file as a run gets it, written right before that run: the table of steps writes nothing."""

    path: Path
    base: Path
    """the user's file, or that of the checkout"""
    text: str
    """the content of `path`"""

    def write(self) -> None:
        """Write the file where it is not the user's own. Raises OSError."""
        if self.path == self.base or (self.path.is_file() and self.path.read_bytes() == self.text.encode()):
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(self.path) as file:
            file.write(self.text.encode())

    def settings(self, plan: RunPlan, *, with_rate: bool = True) -> Mapping[str, Number]:
        """The rows that apply to the run. Raises ConfigError."""
        found = parse_conf(self.text, str(self.base), plan.conf_key, "user").settings
        if not with_rate:
            found.pop(plan.scenario.rate_key, None)
        return found


def user_conf(path: Path) -> RunConf:
    """A file as it is. Raises ConfigError."""
    return RunConf(path, path, read_text(str(path), path))


def conf_of_search(path: Path, scenario: Scenario) -> RunConf:
    """The file that a search's run kept, without the rows that are the search's own. Raises ConfigError."""
    own = SHORT_CONF if scenario is Scenario.OFFLINE else FOUND_RATE
    return RunConf(path, path, without_rows(read_text(str(path), path), own))


def with_rate(base: Path, path: Path, model_key: str, scenario: Scenario, rate: float) -> RunConf:
    """``base`` with a rate as last row: of equally exact rows LoadGen takes the last. Raises ConfigError."""
    row = f"{model_key}.{scenario.loadgen}.{scenario.rate_key} = {rate!r}"
    return RunConf(path, base, with_rows(read_text(str(base), base), "Of the campaign", [row]))
