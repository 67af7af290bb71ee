"""The options of a run as one frozen value, each with its flag: the command line of run_mlperf.py.

What programs that send queries have in common is ``ClientOptions``. Imports stay light, since ``--help`` uses
them.
"""

import argparse
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

from harness.cli.door import called
from harness.cli.durations import duration
from harness.cli.flags import add_groups, flag, options, read
from harness.cli.parser import SIGNAL_CODES, Parser, built_once
from harness.config.choices import DEFAULT_OUTPUT, LogLevel, benchmark_flag, results_folder, round_flag
from harness.config.other_flags import ELSEWHERE, LOADGEN, RUN_ALONE, SYNONYMS
from harness.config.protocol import Api
from harness.config.scenario import Scenario
from harness.errors import ConfigError
from harness.files import CONFIG_DIR, USER_CONF

SERVER_URL = "http://localhost:30000"  # where no URL is given, unless the engine is embedded

Backend = Literal["sglang", "pytorch", "vllm", "trtllm", "dynamo", "openai", "embedded"]
DEFAULT_BACKEND: Backend = "sglang"
BACKEND_NAME = "MLPERF_BACKEND"  # which users of deepseek-r1's reference export
Stream = Literal["auto", "on", "off"]

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

GENERATION = ("generation_config", "max_new_tokens", "stream")
SETTINGS = ("mlperf_conf", "user_conf", *GENERATION)
SERVER = (
    "backend",
    "api",
    "tokenizer",
    "server_url",
    "min_replicas",
    "wait_for_servers",
    "ca_file",
    "preflight_timeout",
    "trial_timeout",
    "num_workers",
    "max_concurrency",
)
FAILURES = (
    "timeout",
    "first_token_timeout",
    "stall_timeout",
    "progress_timeout",
    "retries",
    "fail_fast",
    "max_failures",
)
RUN = ("output_dir", "dcgm_url", "report", "metrics_port", "dry_run", "log_level")
_GROUPS = {
    "workload": (
        "scenario",
        "benchmark",
        "round",
        "accuracy",
        "resume",
        "restart",
        "input_file",
        "max_samples",
        *SETTINGS,
        "audit_config",
        "official",
    ),
    "server": SERVER,
    "deadlines and failures": (*FAILURES, "stop_when_lost"),
    "run": RUN,
}


def backend_flag() -> Any:
    """The field for the servers' protocol."""
    return flag(
        "protocol of the server: SGLang's native API (pytorch: the same of pytorch/run_server.sh), "
        "OpenAI completions (vllm; openai: the same for other servers, or llama.cpp), TensorRT-LLM's "
        "trtllm-serve (not yet tried with its engine), Dynamo's frontend (ids in nvext), or a small "
        f"engine that is started here (default: {DEFAULT_BACKEND}, or what {BACKEND_NAME} names)",
        default=DEFAULT_BACKEND,
        untyped=None,  # the environment may name another
    )


def tokenizer_flag() -> Any:
    """The field for the model's tokenizer."""
    return flag(
        "where there is text: tokenizer.json or folder of the model, or its name in the Hugging Face cache; "
        "it must be the benchmark's model (default: the benchmark's tokenizer: built in, beside the dataset "
        "as DATASET_tokenizer.json or in models/, or from that cache)",
        default=None,
        metavar="PATH",
    )


def server_url_flag(without: str = SERVER_URL, *, before_words: bool = False) -> Any:
    """The field for the servers; ``without``: what holds without the flag.

    ``before_words``: words that are no URLs may follow, so that it takes one.
    """
    several: dict[str, Any] = {} if before_words else {"nargs": "+", "action": "extend"}
    return flag(
        f"server URL; several replicas' separated by commas{' or spaces' if several else ''}; also "
        "http://node[001-064,70]:30000-30007, @FILE of one URL a line, slurm:HOSTS:PORTS, or "
        f"dns+http://NAME:PORT for every address of a name (default: {without})",
        default=(),
        metavar="URL",
        **several,
    )


def min_replicas_flag(where: str = "") -> Any:
    """The field for how many replicas are enough; ``where`` that is so."""
    return flag(
        f"{where}start with at least N usable replicas, without the others (default: all are needed)",
        default=None,
        metavar="N",
    )


def results_flag(below: str) -> Any:
    """The field for the folder of runs; ``below`` it are those of a program."""
    return flag(
        f"folder of runs: {below} (default: {DEFAULT_OUTPUT})",
        "--results",
        "--output-dir",
        default=None,
        metavar="DIR",
    )


def ca_file_flag() -> Any:
    """The field for certificates to trust."""
    return flag(
        "PEM file of certificates to trust besides the system's: a private CA's, or self-signed ones",
        default=None,
        metavar="FILE",
    )


def mlperf_conf_flag() -> Any:
    """The field for LoadGen's settings."""
    return flag(
        "LoadGen mlperf.conf, with which a run is NOT OFFICIAL (default: the official one inside LoadGen)",
        default=None,
        metavar="FILE",
    )


def restart_flag(what: str, *, of_file: bool = False) -> Any:
    """The field that begins anew where the same command would continue; a complete file is never moved."""
    state = "would be continued" if of_file else "would be continued, or is complete"
    return flag(
        f"begin anew where an earlier {what} {state}; it is moved aside, never deleted", default=False
    )


def resume_flag(what: str) -> Any:
    """The field that never begins anew; the same command without it continues, too."""
    return flag(
        f"never begin anew: fail where there is no {what} with the same settings to continue (without the "
        "flag one is continued, too)",
        default=False,
    )


def user_conf_flag() -> Any:
    """The field for the settings of a submitter."""
    return flag(
        "LoadGen user.conf: target_qps and the like (default: configs/user.conf)",
        default=CONFIG_DIR / USER_CONF,
        metavar="FILE",
    )


def scenario_flag(
    default: Scenario | None,
    allowed: Sequence[Scenario] = tuple(Scenario),
    shown: str = "%(default)s",
    others: str = "",
) -> Any:
    """The field for one of these scenarios; ``shown`` describes what holds without the flag.

    ``others`` says why the rest is not allowed.
    """
    return flag(
        f"MLPerf scenario; interactive is LoadGen's Server with tighter limits (default: {shown})",
        default=default,
        type=_scenario_among(allowed, others),
        choices=tuple(allowed),
    )


def _scenario_among(allowed: Sequence[Scenario], others: str) -> Callable[[str], Scenario]:
    def parse(text: str) -> Scenario:
        try:
            scenario = Scenario.parse(text)
        except ConfigError as error:
            remedy = "; accuracy mode is --accuracy" if text.lower() in ("accuracy", "performance") else ""
            raise argparse.ArgumentTypeError(f"{error}{remedy}") from None
        if scenario not in allowed:
            expected = f"expected one of {', '.join(allowed)}"
            raise argparse.ArgumentTypeError(f"scenario is {text!r}, {expected}{others}")
        return scenario

    return parse


@options
class ClientOptions:
    """The common options of programs that send queries: dataset, generation, servers, deadlines.

    ``server_url`` may be one string. Times are in seconds; None leaves the choice to the plan. ``warnings``
    are about the command line; ``metrics_port`` and ``log_level`` concern the program only.
    """

    has_stream_flag: ClassVar[bool] = True
    """whether the program's user decides on --stream"""

    input_file: Path | None = flag(
        "tokenized dataset (parquet, pickle or JSON file; default: the benchmark's, which "
        "datasets/download.sh puts into data/)",
        default=None,
        metavar="FILE",
    )
    benchmark: str = benchmark_flag()
    round: str = round_flag()
    resume: bool = False
    restart: bool = False
    generation_config: Path | None = flag(
        "JSON file of generation parameters (default: the benchmark's)", default=None, metavar="FILE"
    )
    max_new_tokens: int | None = flag(
        "override max_new_tokens of the generation parameters", default=None, metavar="N"
    )
    stream: Stream = flag(
        "stream answers token by token; auto: where token times are measured, so not in offline and eval "
        "(default: %(default)s)",
        default="auto",
    )
    backend: Backend = backend_flag()
    api: Api | None = flag(
        "how the server is asked: generate (SGLang's, or vLLM's /inference/v1/generate), completions or "
        "chat-ids (both with token ids), completions-text or chat (with text); a trial request shows whether "
        "ids come back, and answers without are encoded again with the benchmark's tokenizer (default: the "
        "backend's own, with token ids)",
        default=None,
    )
    tokenizer: str | None = tokenizer_flag()
    server_url: Sequence[str] = server_url_flag()
    ca_file: Path | None = ca_file_flag()
    preflight_timeout: float = flag(
        "time limit for the checks of each server before a run (default: 60s)",
        default=60.0,
        type=duration,
        metavar="TIME",
    )
    trial_timeout: float = flag(
        "time limit for the trial request before a run; a cold server compiles its kernels during it "
        "(default: 15m)",
        default=900.0,
        type=duration,
        metavar="TIME",
    )
    wait_for_servers: str | float | None = flag(
        "longest wait for servers that are starting, such as 30m, 1h or 1800 (default: none)",
        default=None,
        type=duration,
        metavar="TIME",
    )
    min_replicas: int | None = min_replicas_flag()
    num_workers: int | None = flag(
        "client worker processes (default: chosen from the cores and the load)", default=None, metavar="N"
    )
    max_concurrency: int | None = flag(
        "maximum number of requests in flight, over all replicas (default: in server and interactive "
        "unlimited, otherwise twice the number that the servers run at once; single-stream has one)",
        default=None,
        metavar="N",
    )
    timeout: float | None = flag(
        f"time limit of a request (default: {REQUEST_S:g}s, or {TOKEN_S:g}s per token if more)",
        default=None,
        type=duration,
        metavar="TIME",
    )
    first_token_timeout: float | None = flag(
        "time limit of the first token of a streamed answer (default: only --timeout)",
        default=None,
        type=duration,
        metavar="TIME",
    )
    stall_timeout: float | None = flag(
        f"time limit between two events of a streamed answer (default: {STALL_S:g}s)",
        default=None,
        type=duration,
        metavar="TIME",
    )
    progress_timeout: float | None = flag(
        "end the run when no data arrives for this time and, where answers are not streamed, no server is "
        f"seen to work (default: {PROGRESS_S:g}s)",
        default=None,
        type=duration,
        metavar="TIME",
    )
    retries: int = flag(
        "retry a query up to N times if the server accepted no byte of it; in accuracy runs, eval and "
        "prompts after any failure (default: %(default)d)",
        default=0,
        metavar="N",
    )
    fail_fast: bool | None = flag(
        f"end the run after {FAILURES_OF_ACCURACY} failures (default in accuracy runs and prompts; in peak "
        "after the first; otherwise when all queries fail or no server works any more); --no-fail-fast: "
        "failures never end it",
        default=None,
    )
    max_failures: int | None = flag("end the run after N failures", default=None, metavar="N")
    output_dir: Path | None = None
    metrics_port: str | None = flag(
        "serve the run's progress for Prometheus at /metrics while it lasts; ADDRESS is 127.0.0.1 where "
        "it is omitted (default: not served)",
        default=None,
        metavar="[ADDRESS:]PORT",
    )
    dry_run: bool = flag("check everything and print the plan without issuing a query", default=False)
    log_level: LogLevel = flag("verbosity of messages on stderr (default: %(default)s)", default="info")
    warnings: tuple[str, ...] = ()

    @property
    def results(self) -> Path:
        """The folder of the benchmark's runs."""
        return results_folder(self.output_dir, self.benchmark)


@options
class RunOptions(ClientOptions):
    """A requested run, before anything is read or checked; ``resolve_plan`` turns it into a RunPlan.

    Paths and the scenario may be strings. ``report`` (write report.html) concerns the program only.
    """

    scenario: Scenario = scenario_flag(Scenario.OFFLINE)
    accuracy: bool = flag("run accuracy mode instead of performance", default=False)
    resume: bool = resume_flag("accuracy run")
    restart: bool = restart_flag("run")
    max_samples: int | None = flag("use only the first N samples (default: all)", default=None, metavar="N")
    mlperf_conf: Path | None = mlperf_conf_flag()
    user_conf: Path = user_conf_flag()
    audit_config: Path | None = flag(
        "LoadGen audit.config of a test that ./mlperf comply does not have", default=None, metavar="FILE"
    )
    official: bool = flag("refuse to start where the run would be NOT OFFICIAL", default=False)
    min_replicas: int | None = min_replicas_flag("with --accuracy: ")
    output_dir: Path | None = results_flag("logs are written to DIR/<scenario>/{performance,accuracy}/")
    dcgm_url: Sequence[str] = flag(
        "DCGM exporter of the servers' GPUs, such as http://node[01-64]:9400; written as --server-url "
        "(default: the GPUs of this machine, if a server runs here and nvidia-ml-py or amdsmi is installed)",
        default=(),
        metavar="URL",
    )
    report: bool = flag("leave out report.html, the page that shows the run", default=True)
    stop_when_lost: bool = flag(
        "end a performance run as soon as it can no longer become VALID; exit code 4", default=False
    )

    def __post_init__(self) -> None:
        for name in _PATHS:
            if isinstance(value := getattr(self, name), str):
                object.__setattr__(self, name, Path(value))
        object.__setattr__(self, "scenario", Scenario.parse(self.scenario))


@built_once
def build_parser() -> Parser:
    """All flags of run_mlperf.py."""
    parser = Parser(
        prog=called("run_mlperf.py"),
        synonyms=SYNONYMS,
        elsewhere=ELSEWHERE | LOADGEN | RUN_ALONE,
        description="Run an MLPerf Inference LLM benchmark: LoadGen drives queries to a running server.",
        epilog="Exit codes: 0 valid, 2 usage, config or dataset, 3 server, 4 invalid run or failures, "
        f"{SIGNAL_CODES}.",
    )
    add_groups(parser, RunOptions, _GROUPS)
    return parser


def parse_options(argv: list[str]) -> RunOptions:
    """Parse flags; argparse exits with code 2 and one line on wrong usage."""
    return read(RunOptions, parsed(build_parser(), argv))


def of_environment(backend: str) -> str:
    """The warning about a backend that no flag names."""
    return f"--backend {backend} is taken from {BACKEND_NAME} in the environment"


def parsed(parser: Parser, argv: Sequence[str]) -> dict[str, Any]:
    """The flags by name, the backend also from the environment, and the warnings about them."""
    given = vars(parser.parse_args(argv))
    warnings = parser.warnings
    if given.get("backend", "") is None:
        given["backend"] = named = os.environ.get(BACKEND_NAME) or DEFAULT_BACKEND
        if named not in (known := get_args(Backend)):
            parser.error(f"{BACKEND_NAME} in the environment is {named!r}, expected {', '.join(known)}")
        if named != DEFAULT_BACKEND:
            warnings += (of_environment(named),)
    return given | {"warnings": warnings}
