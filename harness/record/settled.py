"""What was settled between the plan and the first query: dataset, placement, LoadGen's settings, servers."""

from collections.abc import Iterable, Sequence
from fractions import Fraction

import msgspec

from harness.config.expected_queries import ExpectedQueries
from harness.config.loadgen_settings import Number, Setting
from harness.config.protocol import Answers, Api, Dialect, Protocol, own_protocol
from harness.dataset.prompt_texts import PromptTexts
from harness.text import counted

DUMMY = "-dummy-weights"
"""in the name of the folder that scripts/dummy_model.py writes"""

# Start options by SGLang's names. Below 1 it accepts drafts more often than speculative sampling does.
ACCEPTANCE = ("speculative_accept_threshold_single", "speculative_accept_threshold_acc")
WATERMARKS = ("watermark_default_enabled", "watermark_enforce_all")  # of a file, without a flag

Cpus = tuple[int, ...]

# A guess for each rank of a server that does not report it: vLLM's default on GPUs of at least 70 GiB
# but the A100 (max_num_seqs in vLLM 0.32.0's arg_utils.py). Too many only wait in the server's queue.
_UNKNOWN_RANK_RUNS = 1024


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
    native: bool = False
    """whether workers read plain streams in C: `./setup.sh` has found a compiler"""

    def cores_of(self, worker: int) -> Cpus:
        """The CPUs of one worker."""
        return self.worker_cores[worker] if self.worker_cores else ()

    def __str__(self) -> str:
        noun = "worker process" if self.workers == 1 else "worker processes"
        pinned = ", each on a core of its own" if self.worker_cores else ""
        return f"{self.workers} {noun} ({self.reason}){pinned}"


class Settled(msgspec.Struct, frozen=True, kw_only=True):
    """The facts and choices of a run that follow from the dataset, LoadGen, the servers and this machine."""

    samples: int
    """rows of the dataset that are used"""
    dataset_sha256: str
    prompts: PromptTexts | None = None
    """as text; `null` where requests carry ids"""
    placement: Placement
    concurrency: int | None
    """most requests in flight; `null` where LoadGen alone decides"""
    audit_settings: dict[str, Number] | None = None
    """the audit settings in force, by conf key"""
    loadgen_settings: dict[str, Setting]
    """LoadGen's settings as read back before the run, by TestSettings' names"""
    conf_warnings: tuple[str, ...] = ()
    """rows of the conf files that LoadGen skips, with file and line"""
    expected: ExpectedQueries
    """the queries that LoadGen will issue"""


class Router(msgspec.Struct, frozen=True):
    """A router between this client and the servers."""

    name: str
    version: str | None = None
    servers: int | None = None
    """behind it"""
    failed: int = 0
    """of them those that it reports as not healthy, and sends no queries"""

    def __str__(self) -> str:
        """``SMG smg-1.13.0 before 8 servers, 1 of them not healthy``."""
        named = " ".join(filter(None, (self.name, self.version)))
        before = "" if self.servers is None else f" before {counted(self.servers, 'server')}"
        return f"{named}{before}{f', {self.failed} of them not healthy' if self.failed else ''}"


class RankListener(msgspec.Struct, frozen=True):
    """The place of a URL among those of a server whose data-parallel ranks listen at a port each."""

    rank: int
    """the one that listens here"""
    of: int
    """ranks of the server"""
    here: int
    """of them on this machine, at consecutive ports in their order"""

    @property
    def offset(self) -> int:
        """From the machine's first port."""
        return self.rank % self.here


class ServerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Facts that one server URL reported; `null` where it did not."""

    url: str
    wire: Dialect
    """names and values of its options: `sglang`, `openai` (vLLM's), `trtllm`, `llamacpp` or `dynamo`"""
    engine: str
    model: str | None = None
    """the name under which it serves"""
    served_name: str = ""
    """the name that OpenAI requests carry"""
    model_path: str | None = None
    """where its weights came from"""
    revision: str | None = None
    """of the weights"""
    weights_gb: float | None = None
    """memory of the weights on all GPUs of a data-parallel rank, as SGLang reports it"""
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
    listener: RankListener | None = None
    """where the URL is one rank's, as with data-parallel attention and SGLang's Rust server"""
    stream_interval: int | None = None
    """tokens in an event of a stream"""
    settings: dict[str, str | int | float | bool] = {}
    """start options of SGLang that bear on a result (tensor parallelism, quantization, KV dtype and
    others)"""
    differs: dict[str, str | int | float | bool] = {}
    """further values of SGLang's /server_info, only those in which replicas of the run differ"""
    trial_s: float | None = None
    """seconds that its trial request took before the run"""
    api: Api | None = None
    """how it is asked; `null`: the protocol's own way, token ids in and out"""
    answers: Answers = "ids"
    """`text`: the ids of its answers are found by encoding them again"""
    repeats_ids: bool | None = None
    """whether the trial answer carried its request's id; if not, each connection carries one request"""

    router: Router | None = None
    """in front of it, where its answers show one"""

    @property
    def protocol(self) -> Protocol:
        """How it is asked, and what its answers hold."""
        own = own_protocol(self.wire)
        return Protocol(self.wire, self.api or own.api, self.answers)

    @property
    def has_sglang_pages(self) -> bool:
        """Whether it has SGLang's pages, such as `/flush_cache`, by whatever API it is asked."""
        return self.wire == "sglang" or self.engine == "SGLang"

    @property
    def has_dummy_weights(self) -> bool:
        """Whether it was started with random weights; vLLM shows it by the name of the folder alone."""
        named = any(DUMMY in name for name in (self.model_path, self.model, self.served_name) if name)
        return named or self.settings.get("load_format") == "dummy"

    @property
    def software(self) -> str:
        """``SGLang 0.5.23``, without a version where it reports none."""
        return f"{self.engine} {self.version or ''}".strip()

    @property
    def names(self) -> str:
        """``PATH as NAME``, or the one name that there is."""
        served = self.served_name or self.model or "a model without a name"
        return served if self.model_path in (None, served) else f"{self.model_path} as {served}"


def running_limit(servers: Iterable[ServerInfo]) -> int:
    """Requests that the servers run at once; a guess for those that do not report it."""
    return sum(server.max_running_requests or _UNKNOWN_RANK_RUNS * ranks_of(server) for server in servers)


def parts_of(servers: Sequence[ServerInfo], *, in_proportion: bool) -> list[Fraction]:
    """The part of the requests in flight that each server gets: in proportion to what it runs at once."""
    runs = [running_limit([server]) if in_proportion else 1 for server in servers]
    total = sum(runs)
    return [Fraction(one, total) for one in runs]


def ranks_of(server: ServerInfo) -> int:
    """Data-parallel ranks behind the URL; a router passes on the number of one of its servers."""
    behind = 1 if server.router is None else server.router.servers or 1
    return behind * (server.dp_size or 1)
