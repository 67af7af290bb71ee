"""The plan of a run as values: the client's part, and LoadGen's, which holds it.

Both are in run.json. They are made by client_plan.py and run_plan.py.
"""

from pathlib import Path
from typing import Literal, get_args

import msgspec

from harness.config.benchmark import Benchmark, DatasetRule
from harness.config.deadlines import Deadlines, FailurePolicy, PreflightLimits
from harness.config.generation import SamplingParameters
from harness.config.loadgen_conf import ConfKey, source_of
from harness.config.loadgen_settings import Number, Setting
from harness.config.protocol import Api
from harness.config.run_options import Backend
from harness.config.scenario import Scenario
from harness.files import AUDIT_CONFIG

TestMode = Literal["performance", "accuracy"]


class ClientPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the client needs to send queries, whoever issues them. Paths are absolute."""

    benchmark: Benchmark
    input_file: Path
    """the dataset"""
    parameters: SamplingParameters
    """generation parameters, as every request carries them"""
    backend: Backend
    """`sglang`, `pytorch`, `vllm`, `trtllm`, `dynamo`, `openai` or `embedded`"""
    api: Api | None = None
    """as asked for; `servers` shows the API in use"""
    tokenizer: str | None = None
    """as asked for; `encoded` shows the one in use"""
    server_urls: tuple[str, ...]
    ca_file: Path | None
    preflight: PreflightLimits
    """seconds that the questions to a server, its trial request and its start may take, the latter with
    `--wait-for-servers`; how many replicas are enough with `--min-replicas`"""
    num_workers: int | None
    """as asked for; `placement.workers` is the number in use"""
    max_concurrency: int | None
    """as asked for; `concurrency` is the number in use"""
    deadlines: Deadlines
    """seconds that a request may take"""
    policy: FailurePolicy
    """when the run ends early, and how often a query is sent again"""
    resume: bool
    """whether the run was to be a continued one (`--resume`)"""
    restart: bool = False
    """whether it was to begin anew (`--restart`)"""
    log_dir: Path
    """the folder of all files of the run"""
    dry_run: bool
    deviations: tuple[str, ...] = ()
    """deviations that follow from the flags alone; the record's `deviations` has all of them"""
    warnings: tuple[str, ...] = ()
    """about the flags"""


class ComplianceSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A compliance test: its audit settings by conf key, and the dataset that it asks for."""

    test: str
    dataset: DatasetRule
    settings: dict[str, Number]
    text: str
    """the audit.config that LoadGen read"""
    file: Path | None = None
    """the user's audit.config (`--audit-config`); none: the settings of the rules"""
    official: bool
    """whether the run was to be refused with any deviation"""
    deviations: tuple[str, ...] = ()


class RunPlan(msgspec.Struct, frozen=True, kw_only=True):
    """One LoadGen test, every choice resolved. Paths are absolute."""

    client: ClientPlan
    """what does not concern LoadGen"""
    scenario: Scenario
    mode: TestMode
    """`performance` or `accuracy`"""
    model_key: str
    """LoadGen's key of the model in conf files"""
    max_samples: int | None
    dcgm_urls: tuple[str, ...] = ()
    """exporters of the servers' GPUs (`--dcgm-url`)"""
    user_conf: Path
    mlperf_conf: Path | None
    round_settings: dict[str, Setting] = {}
    """of an earlier round (`--round`), in place of those inside LoadGen"""
    audit_config: Path | None
    """the user's file"""
    audit_text: str | None
    """audit settings on top of all others, as LoadGen read them"""
    audit: ComplianceSettings | None = None
    """of a compliance test"""
    official: bool = False
    """whether the run is refused with any deviation (`--official`)"""
    stop_when_lost: bool = False
    """end the run once it can no longer become VALID (`--stop-when-lost`)"""

    def __post_init__(self) -> None:
        """Refuse a benchmark that can be scored alone; raises ValueError."""
        if missing := set(get_args(TestMode)) - self.client.benchmark.datasets.keys():
            raise ValueError(f"datasets has no {' and no '.join(sorted(missing))}")

    @property
    def kept_audit_config(self) -> Path | None:
        """The file from which LoadGen reads the audit settings, beside its logs."""
        return None if self.audit_text is None else self.client.log_dir / AUDIT_CONFIG

    @property
    def results_dir(self) -> Path:
        """The folder that is moved aside before another run; a test's verdict and logs move together."""
        return self.client.log_dir if self.audit is None else self.client.log_dir.parent

    @property
    def conf_key(self) -> ConfKey:
        """What the rows of a conf file must name to apply to the run."""
        return ConfKey(self.model_key, self.scenario.loadgen, interactive=bool(self.scenario.key_suffix))

    def conf_with(self, key: str) -> str:
        """The conf file that decides on a setting, as a message names it. Raises ConfigError."""
        return source_of(key, self.conf_key, self.user_conf, self.mlperf_conf)

    @property
    def accuracy(self) -> bool:
        """Whether LoadGen logs every answer."""
        return self.mode == "accuracy"

    @property
    def title(self) -> str:
        """``gpt-oss-120b, server, performance``, or the compliance test."""
        test = self.mode if self.audit is None else self.audit.test
        return f"{self.client.benchmark.name}, {self.scenario}, {test}"
