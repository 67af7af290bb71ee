"""MLPerf's scenarios, one row each: everything in which one differs from another."""

from enum import StrEnum
from typing import Literal

from harness.errors import ConfigError

LoadGenScenario = Literal["Offline", "Server", "SingleStream"]
# The scenarios that LoadGen's conf files name; no benchmark of ours runs MultiStream.
LOADGEN_SCENARIOS = ("SingleStream", "MultiStream", "Server", "Offline")


class Scenario(StrEnum):
    """A scenario. Its value is its name in flags, in run.json and in the folders of results.

    ``loadgen`` is LoadGen's scenario and decides how queries are issued; ``folder`` is its folder in a
    submission; ``key_suffix`` ends its model key in conf files; ``result`` is the row of LoadGen's detail log
    that is the result of a language model, as the official checker takes it.
    """

    loadgen: LoadGenScenario
    folder: str
    key_suffix: str
    result: str

    OFFLINE = "offline", "Offline", "Offline", "", "result_tokens_per_second"
    SERVER = "server", "Server", "Server", "", "result_completed_tokens_per_second"
    INTERACTIVE = (
        "interactive",
        "Server",
        "Interactive",
        "-interactive",
        "result_completed_tokens_per_second",
    )
    SINGLE_STREAM = (
        "single-stream",
        "SingleStream",
        "SingleStream",
        "",
        "result_90.00_percentile_latency_ns",
    )

    def __new__(
        cls, name: str, loadgen: LoadGenScenario, folder: str, key_suffix: str, result: str
    ) -> "Scenario":
        """A row of the table."""
        row = str.__new__(cls, name)
        row._value_ = name
        row.loadgen, row.folder, row.key_suffix, row.result = loadgen, folder, key_suffix, result
        return row

    @property
    def poisson(self) -> bool:
        """Whether queries are issued on LoadGen's Poisson schedule, and latency limits hold."""
        return self.loadgen == "Server"

    @property
    def one_query(self) -> bool:
        """Whether all samples are issued in one query."""
        return self.loadgen == "Offline"

    @property
    def one_at_a_time(self) -> bool:
        """Whether each query waits for the end of the one before it."""
        return self.loadgen == "SingleStream"

    @property
    def streams(self) -> bool:
        """Whether LoadGen measures the times of tokens, so that a run needs streamed answers."""
        return needs_first_tokens(self.loadgen)

    @property
    def rate_key(self) -> str:
        """The key of a conf file that sets the expected rate."""
        return "target_latency" if self.one_at_a_time else "target_qps"

    @classmethod
    def parse(cls, text: str) -> "Scenario":
        """The scenario of a name in any case, its words joined in any way. Raises ConfigError."""
        for scenario in cls:
            if _letters(scenario) == _letters(text):
                return scenario
        raise ConfigError(f"scenario is {text!r}, expected one of {', '.join(cls)}")


def needs_first_tokens(loadgen_scenario: str) -> bool:
    """Whether LoadGen waits for first tokens: not in its Offline (needs_first_token in loadgen.cc)."""
    return loadgen_scenario != "Offline"


def _letters(name: str) -> str:
    return name.strip().replace("-", "").replace("_", "").replace(" ", "").lower()
