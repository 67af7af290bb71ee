"""The command line of run_mlperf.py. Imports stay light, so that ``--help`` is fast."""

import argparse
import os
from collections.abc import Sequence
from dataclasses import MISSING, fields
from typing import Any, get_args

from harness.cli.parser import SIGNAL_CODES, Parser, Synonym, add_benchmark, path
from harness.config.run_options import (
    DEFAULT_BACKEND,
    FAILURES_OF_ACCURACY,
    PROGRESS_S,
    REQUEST_S,
    SERVER_URL,
    STALL_S,
    TOKEN_S,
    Backend,
    LogLevel,
    RunOptions,
    Stream,
)
from harness.config.scenario import Scenario
from harness.errors import ConfigError

# Flags that are repeated begin with None: argparse would append to any other default.
DEFAULTS = {field.name: field.default for field in fields(RunOptions) if field.default is not MISSING}
DEFAULTS |= {"server_url": None, "dcgm_url": None, "backend": None}  # the environment may name a backend

_BACKEND_NAME = "MLPERF_BACKEND"  # which users of deepseek-r1's reference export

# Flags of the reference implementations and of other harnesses.
_FIRST_SAMPLES = "only the first N samples are used, and a run of fewer than all is not official"
SYNONYMS = {
    "--mode": Synonym("--scenario"),
    "--dataset-path": Synonym("--input-file"),
    "--total-sample-count": Synonym("--max-samples", _FIRST_SAMPLES),
    "--num-samples": Synonym("--max-samples", _FIRST_SAMPLES),
}


def build_parser() -> Parser:
    """All flags; their defaults are those of RunOptions."""
    parser = Parser(
        prog="run_mlperf.py",
        synonyms=SYNONYMS,
        description="Run an MLPerf Inference LLM benchmark: LoadGen drives queries to a running server.",
        epilog="Exit codes: 0 valid, 2 usage, config or dataset, 3 server, 4 invalid run or failures, "
        f"{SIGNAL_CODES}.",
    )
    _add_workload(parser.add_argument_group("workload"))
    add_server(parser.add_argument_group("server"))
    add_failures(parser.add_argument_group("deadlines and failures"))
    add_run(parser.add_argument_group("run"), "DIR/<scenario>/{performance,accuracy}/")
    parser.set_defaults(**DEFAULTS)
    return parser


def _add_workload(group: argparse._ArgumentGroup) -> None:
    add_scenario(group)
    group.add_argument("--accuracy", action="store_true", help="run accuracy mode instead of performance")
    group.add_argument(
        "--resume",
        action="store_true",
        help="resume the accuracy run in the output folder; only unanswered samples are sent",
    )
    add_input_file(group)
    group.add_argument(
        "--max-samples", type=int, metavar="N", help="use only the first N samples (default: all)"
    )
    add_settings(group)
    group.add_argument(
        "--audit-config", type=path, metavar="FILE", help="LoadGen audit.config of a compliance test"
    )


def add_scenario(
    group: argparse._ArgumentGroup,
    default_scenario: str = "%(default)s",
    scenarios: Sequence[Scenario] = tuple(Scenario),
) -> None:
    """Scenario and benchmark: ``default_scenario`` describes what holds without the flag."""
    group.add_argument(
        "--scenario",
        type=lambda text: _scenario(text, scenarios),
        choices=tuple(scenarios),
        help="MLPerf scenario; interactive is LoadGen's Server with tighter limits "
        f"(default: {default_scenario})",
    )
    add_benchmark(group)


def _scenario(text: str, scenarios: Sequence[Scenario]) -> Scenario:
    try:
        scenario = Scenario.parse(text)
    except ConfigError as error:
        remedy = "; accuracy mode is --accuracy" if text.lower() in ("accuracy", "performance") else ""
        raise argparse.ArgumentTypeError(f"{error}{remedy}") from None
    if scenario not in scenarios:
        raise argparse.ArgumentTypeError(f"scenario is {text!r}, expected one of {', '.join(scenarios)}")
    return scenario


def add_input_file(group: argparse._ArgumentGroup) -> None:
    """The dataset."""
    group.add_argument(
        "--input-file",
        type=path,
        metavar="FILE",
        required=True,
        help="tokenized dataset (parquet, pickle or JSON file)",
    )


def add_settings(group: argparse._ArgumentGroup) -> None:
    """LoadGen's settings and the generation parameters."""
    group.add_argument(
        "--mlperf-conf",
        type=path,
        metavar="FILE",
        help="LoadGen mlperf.conf (default: the official one inside LoadGen)",
    )
    group.add_argument(
        "--user-conf",
        type=path,
        metavar="FILE",
        help="LoadGen user.conf: target_qps and the like (default: configs/user.conf)",
    )
    add_generation(group)


def add_generation(group: argparse._ArgumentGroup) -> None:
    """The generation parameters."""
    group.add_argument(
        "--generation-config",
        type=path,
        metavar="FILE",
        help="JSON file of generation parameters (default: the benchmark's)",
    )
    group.add_argument(
        "--max-new-tokens", type=int, metavar="N", help="override max_new_tokens of the generation parameters"
    )
    group.add_argument(
        "--stream",
        choices=get_args(Stream),
        help="stream answers token by token; auto: except in offline, where no token times are measured "
        "(default: %(default)s)",
    )


def add_server(group: argparse._ArgumentGroup, *, max_concurrency: bool = True) -> None:
    """The servers, and the client's load on them, with or without the flag that limits it."""
    add_backend(group)
    group.add_argument(
        "--min-replicas",
        type=int,
        metavar="N",
        help="accuracy and compliance runs: start with at least N usable replicas, without the others "
        "(default: all are needed)",
    )
    group.add_argument(
        "--wait-for-servers",
        metavar="TIME",
        help="longest wait for servers that are starting, such as 30m, 1h or 1800 seconds (default: none)",
    )
    add_ca_file(group)
    _add_preflight(group)
    group.add_argument(
        "--num-workers",
        type=int,
        metavar="N",
        help="client worker processes (default: chosen from the cores and the load)",
    )
    if max_concurrency:
        group.add_argument(
            "--max-concurrency",
            type=int,
            metavar="N",
            help="maximum number of requests in flight, over all replicas (default: in offline twice the "
            "number that the servers run at once, otherwise unlimited)",
        )


def _add_preflight(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--preflight-timeout",
        type=float,
        metavar="S",
        help="time limit in seconds for the checks of each server before a run (default: %(default)g)",
    )
    group.add_argument(
        "--trial-timeout",
        type=float,
        metavar="S",
        help="time limit in seconds for the trial request before a run; a cold server compiles its kernels "
        "during it (default: %(default)g)",
    )


def add_backend(group: argparse._ActionsContainer) -> None:
    """The servers and their protocol."""
    group.add_argument(
        "--backend",
        choices=get_args(Backend),
        help="protocol of the server: SGLang's native API (pytorch: the same of pytorch/run_server.sh), "
        "OpenAI completions (vllm; openai: the same for other servers, or llama.cpp), TensorRT-LLM's "
        "trtllm-serve (not yet tried on the real server), or a small engine that is started here (default: "
        f"{DEFAULT_BACKEND}, or what {_BACKEND_NAME} names)",
    )
    group.add_argument(
        "--server-url",
        action="append",
        metavar="URL",
        help="server URL; repeat it or separate by commas for several replicas; also "
        "http://node[001-064,70]:30000-30007, @FILE of one URL a line, slurm:HOSTS:PORTS, or "
        f"dns+http://NAME:PORT for every address of a name (default: {SERVER_URL})",
    )


def add_ca_file(group: argparse._ActionsContainer) -> None:
    """Certificates to trust."""
    group.add_argument(
        "--ca-file",
        type=path,
        metavar="FILE",
        help="PEM file of certificates to trust besides the system's: a private CA's, or self-signed ones",
    )


def add_failures(group: argparse._ArgumentGroup) -> None:
    """Deadlines of requests, and when failures end a run."""
    for flag, what in (
        (
            "--timeout",
            f"time limit in seconds of a request (default: {REQUEST_S:g}, or {TOKEN_S:g} per token if more)",
        ),
        (
            "--first-token-timeout",
            "time limit in seconds of its first token (default: only --timeout)",
        ),
        (
            "--stall-timeout",
            f"time limit in seconds between two events of a streamed answer (default: {STALL_S:g})",
        ),
        ("--progress-timeout", f"end the run when no data arrives for S seconds (default: {PROGRESS_S:g})"),
    ):
        group.add_argument(flag, type=float, metavar="S", help=what)
    group.add_argument(
        "--retries",
        type=int,
        metavar="N",
        help="retry a query up to N times if the server accepted no byte of it; with --accuracy after any "
        "failure (default: %(default)d)",
    )
    group.add_argument(
        "--fail-fast",
        action=argparse.BooleanOptionalAction,
        help=f"end the run after {FAILURES_OF_ACCURACY} failures (default with --accuracy); without it a run "
        "ends early only when no replica answers; --no-fail-fast never ends a run early",
    )
    group.add_argument("--max-failures", type=int, metavar="N", help="end the run after N failures")


def add_run(group: argparse._ArgumentGroup, layout: str) -> None:
    """Output of a run; ``layout`` names the folders under --output-dir."""
    add_output_dir(group, layout)
    group.add_argument(
        "--dcgm-url",
        action="append",
        metavar="URL",
        help="DCGM exporter of the servers' GPUs, such as http://node[01-64]:9400; written as --server-url "
        "(default: the GPUs of this machine, if a server runs here and nvidia-ml-py or amdsmi is installed)",
    )
    group.add_argument(
        "--no-report",
        dest="report",
        action="store_false",
        help="leave out report.html, the page that shows the run",
    )
    add_metrics_port(group)
    add_dry_run(group)


def add_output_dir(group: argparse._ArgumentGroup, layout: str) -> None:
    """The output folder; ``layout`` names the folders under it."""
    group.add_argument(
        "--output-dir",
        type=path,
        metavar="DIR",
        help=f"logs are written to {layout} (default: %(default)s)",
    )


def add_metrics_port(group: argparse._ArgumentGroup) -> None:
    """The port on which a run's progress is served."""
    group.add_argument(
        "--metrics-port",
        metavar="[ADDRESS:]PORT",
        help="serve the run's progress for Prometheus at /metrics while it lasts; ADDRESS is 127.0.0.1 where "
        "it is omitted (default: not served)",
    )


def add_dry_run(group: argparse._ArgumentGroup) -> None:
    """The dry run and the verbosity."""
    group.add_argument(
        "--dry-run", action="store_true", help="check everything and print the plan without issuing a query"
    )
    group.add_argument(
        "--log-level",
        choices=get_args(LogLevel),
        help="verbosity of messages on stderr (default: %(default)s)",
    )


def parse_options(argv: list[str] | None = None) -> RunOptions:
    """Parse flags; argparse exits with code 2 and one line on wrong usage."""
    parser = build_parser()
    return run_options(parsed(parser, argv))


def parsed(parser: Parser, argv: Sequence[str] | None) -> dict[str, Any]:
    """The flags by name, the backend also from the environment, and the warnings about them."""
    given = vars(parser.parse_args(argv))
    warnings = parser.warnings
    if given.get("backend", "") is None:
        given["backend"] = named = os.environ.get(_BACKEND_NAME) or DEFAULT_BACKEND
        if named not in (known := get_args(Backend)):
            parser.error(f"{_BACKEND_NAME} in the environment is {named!r}, expected {', '.join(known)}")
        if named != DEFAULT_BACKEND:
            warnings += (f"--backend {named} is taken from {_BACKEND_NAME} in the environment",)
    return given | {"warnings": warnings}


def run_options(given: dict[str, Any]) -> RunOptions:
    """The options of a run among parsed flags."""
    named = {name: given[name] for name in DEFAULTS | {"input_file": None}}
    urls = {name: given[name] or () for name in ("server_url", "dcgm_url")}
    return RunOptions(**named | urls)
