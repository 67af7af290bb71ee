"""The options of a run: the flags of run_mlperf.py as one frozen value, with each default written here once.

Imports stay light, since ``--help`` shows the defaults.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from harness.config.rounds import current_round
from harness.config.scenario import Scenario
from harness.files import CONFIG_DIR, USER_CONF

DEFAULT_BENCHMARK = "gpt-oss-120b"
SERVER_URL = "http://localhost:30000"  # where no URL is given, unless the engine is embedded

Backend = Literal["sglang", "pytorch", "vllm", "trtllm", "openai", "embedded"]
DEFAULT_BACKEND: Backend = "sglang"
Stream = Literal["auto", "on", "off"]
LogLevel = Literal["debug", "info", "warning", "error"]

# Seconds. A request's deadline is at least REQUEST_S, and long enough for the longest answer of a slow server
# behind another one in its queue: 5 tokens/s, twice.
REQUEST_S, TOKEN_S, STALL_S, PROGRESS_S = 3600.0, 0.4, 600.0, 600.0
# An accuracy run with this number of failures has to be resumed anyway, so it ends.
FAILURES_OF_ACCURACY = 10

_PATHS = (
    "input_file",
    "mlperf_conf",
    "user_conf",
    "generation_config",
    "audit_config",
    "ca_file",
    "output_dir",
)


def available_benchmarks() -> dict[str, Path]:
    """The definition of each benchmark in configs/, by its name, sorted."""
    return dict(sorted((path.stem, path) for path in CONFIG_DIR.glob("*.toml")))


def available_models() -> dict[str, Path]:
    """The definition of each model without a benchmark in configs/models/, by its name, sorted."""
    return dict(sorted((path.stem, path) for path in (CONFIG_DIR / "models").glob("*.toml")))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """The common options of programs that send queries: dataset, generation, servers, deadlines.

    ``server_url`` may be one string. Times are in seconds; None leaves the choice to the plan. ``warnings``
    are about the command line; ``metrics_port`` and ``log_level`` concern the program only.
    """

    input_file: Path
    benchmark: str = DEFAULT_BENCHMARK
    round: str = current_round()
    resume: bool = False
    generation_config: Path | None = None
    max_new_tokens: int | None = None
    stream: Stream = "auto"
    backend: Backend = DEFAULT_BACKEND
    server_url: Sequence[str] = ()
    ca_file: Path | None = None
    preflight_timeout: float = 60.0
    trial_timeout: float = 900.0
    wait_for_servers: str | float | None = None
    min_replicas: int | None = None
    num_workers: int | None = None
    max_concurrency: int | None = None
    timeout: float | None = None
    first_token_timeout: float | None = None
    stall_timeout: float | None = None
    progress_timeout: float | None = None
    retries: int = 0
    fail_fast: bool | None = None
    max_failures: int | None = None
    output_dir: Path = Path("mlperf_results")
    metrics_port: str | None = None
    dry_run: bool = False
    log_level: LogLevel = "info"
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions(ClientOptions):
    """A requested run, before anything is read or checked; ``resolve_plan`` turns it into a RunPlan.

    Paths and the scenario may be strings. ``report`` (write report.html) concerns the program only.
    """

    scenario: Scenario = Scenario.OFFLINE
    accuracy: bool = False
    max_samples: int | None = None
    mlperf_conf: Path | None = None
    user_conf: Path = CONFIG_DIR / USER_CONF
    audit_config: Path | None = None
    dcgm_url: Sequence[str] = ()
    report: bool = True

    def __post_init__(self) -> None:
        for name in _PATHS:
            if isinstance(value := getattr(self, name), str):
                object.__setattr__(self, name, Path(value))
        object.__setattr__(self, "scenario", Scenario.parse(self.scenario))
        urls = (self.server_url,) if isinstance(self.server_url, str) else tuple(self.server_url)
        object.__setattr__(self, "server_url", urls)
        if isinstance(self.dcgm_url, str):
            object.__setattr__(self, "dcgm_url", (self.dcgm_url,))
