"""The part of a run's record that was settled before its first query: plan, placement, servers.

These are values of run.json. RunPlan and the benchmark's definition may change their shape; what published
runs have written must stay readable, so the record has types of its own.
"""

from pathlib import Path
from typing import Any

import msgspec

from harness.config.deadlines import Deadlines, FailurePolicy, Preflight
from harness.config.expected_queries import Issue
from harness.config.generation import SamplingParameters
from harness.config.loadgen_settings import limits_ns
from harness.config.scenario import Scenario

Number = int | float
Cpus = tuple[int, ...]


class BenchmarkRules(msgspec.Struct, frozen=True, kw_only=True):
    """The benchmark's definition as configs/ had it."""

    name: str
    round: str | None = None
    """whose rules hold"""
    official: bool = False
    model: str | None = None
    vocabulary_size: int | None = None
    context_length: int | None = None
    loadgen: dict[str, Any] = {}
    generation: dict[str, Any] = {}
    datasets: dict[str, Any] = {}
    scenarios: tuple[str, ...] = ()
    model_revision: str | None = None
    tokenizer: str | None = None
    embedded_model: str | None = None
    latency_limits: dict[str, Any] = {}
    reasoning_effort_ids: dict[str, Any] = {}
    accuracy: dict[str, Any] | None = None
    compliance: dict[str, Any] = {}


class ComplianceTestPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A compliance test: its audit settings by conf key, and the dataset that it asks for."""

    test: str
    dataset: dict[str, Any]
    settings: dict[str, Number]
    text: str
    """the audit.config that LoadGen read"""
    official: bool
    """whether the run was to be refused with any deviation"""
    deviations: tuple[str, ...] = ()


class Placement(msgspec.Struct, frozen=True):
    """Worker processes and their CPUs."""

    workers: int
    """number of client worker processes"""
    reason: str
    """reason for this number"""
    loadgen_cores: Cpus = ()
    """CPUs of LoadGen's process; empty where the scheduler decides"""
    worker_cores: tuple[Cpus, ...] = ()
    """CPUs of each worker; empty where the scheduler decides"""

    def cores_of(self, worker: int) -> Cpus:
        """The CPUs of one worker."""
        return self.worker_cores[worker] if self.worker_cores else ()

    def __str__(self) -> str:
        noun = "worker process" if self.workers == 1 else "worker processes"
        pinned = ", each on a core of its own" if self.worker_cores else ""
        return f"{self.workers} {noun} ({self.reason}){pinned}"


class ResolvedPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Every choice of the run, resolved from its flags, the dataset, LoadGen and the servers."""

    benchmark: BenchmarkRules
    scenario: Scenario
    mode: str
    """`performance` or `accuracy`"""
    model_key: str
    """LoadGen's key of the model in conf files"""
    input_file: Path
    """the dataset"""
    max_samples: int | None
    parameters: SamplingParameters
    """generation parameters, as every request carries them"""
    backend: str
    """`sglang`, `pytorch`, `vllm`, `trtllm`, `openai` or `embedded`"""
    server_urls: tuple[str, ...]
    dcgm_urls: tuple[str, ...] = ()
    """exporters of the servers' GPUs (`--dcgm-url`)"""
    ca_file: Path | None
    preflight: Preflight
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
    log_dir: Path
    """the folder of all files of the run"""
    user_conf: Path
    mlperf_conf: Path | None
    round_settings: dict[str, Any] = {}
    """of an earlier round (`--round`), in place of those inside LoadGen"""
    audit_config: Path | None
    """the user's file"""
    audit_text: str | None
    """audit settings on top of all others, as LoadGen read them"""
    audit_settings: dict[str, Number] | None = None
    """the audit settings in force, by conf key"""
    dry_run: bool
    deviations: tuple[str, ...]
    """deviations that follow from the flags alone; the record's `deviations` has all of them"""
    warnings: tuple[str, ...] = ()
    """about the flags"""
    audit: ComplianceTestPlan | None = None
    """of a compliance test"""
    samples: int
    """rows of the dataset that are used"""
    dataset_sha256: str
    placement: Placement
    concurrency: int | None
    """most requests in flight; `null` where LoadGen alone decides"""
    loadgen_settings: dict[str, int | float | bool]
    """LoadGen's settings as read back before the run, by TestSettings' names"""
    conf_warnings: tuple[str, ...] = ()
    """rows of the conf files that LoadGen skips, with file and line"""
    expected: Issue
    """the queries that LoadGen will issue"""

    @property
    def accuracy(self) -> bool:
        """Whether LoadGen logs every answer."""
        return self.mode == "accuracy"

    @property
    def title(self) -> str:
        """``gpt-oss-120b, server, performance``, or the compliance test."""
        return f"{self.benchmark.name}, {self.scenario}, {self.audit.test if self.audit else self.mode}"

    @property
    def limits_ns(self) -> dict[str, int]:
        """The p99 limits of TTFT and TPOT, none where the scenario has none."""
        return limits_ns(self.scenario, self.loadgen_settings)


class Router(msgspec.Struct, frozen=True):
    """A router between this client and the servers."""

    name: str
    version: str | None = None
    servers: int | None = None
    """behind it"""


class ServerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Facts that one server URL reported; `null` where it did not."""

    url: str
    wire: str
    """its protocol: `sglang`, `openai`, `trtllm` or `llamacpp`"""
    engine: str
    model: str | None = None
    """the name under which it serves"""
    served_name: str = ""
    """the name that OpenAI requests carry"""
    model_path: str | None = None
    """where its weights came from"""
    revision: str | None = None
    """of the weights"""
    weight_version: str | None = None
    """SGLang's name for the weights (`--weight-version`, `/update_weight_version`)"""
    version: str | None = None
    """of the engine"""
    context_length: int | None = None
    vocabulary_size: int | None = None
    max_running_requests: int | None = None
    """requests that all ranks together run at once"""
    dp_size: int | None = None
    """data-parallel ranks behind the URL"""
    stream_interval: int | None = None
    """tokens in an event of a stream"""
    settings: dict[str, str | int | float | bool] = {}
    """start options of SGLang that bear on a result (tensor parallelism, quantization, KV dtype and
    others)"""
    differs: dict[str, str | int | float | bool] = {}
    """further values of SGLang's /server_info, only those in which replicas of the run differ"""
    trial_s: float | None = None
    """seconds that its trial request took before the run"""
    repeats_ids: bool | None = None
    """whether the trial answer carried its request's id; if not, each connection carries one request"""

    router: Router | None = None
    """in front of it, where its answers show one"""

    @property
    def names(self) -> str:
        """``PATH as NAME``, or the one name that there is."""
        served = self.served_name or self.model or "a model without a name"
        return served if self.model_path in (None, served) else f"{self.model_path} as {served}"
