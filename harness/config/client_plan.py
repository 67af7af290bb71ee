"""The client's part of a plan, from the options that all programs share. Everything is checked."""

from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from harness.config.benchmark import Benchmark
from harness.config.deadlines import (
    FailurePolicy,
    resolve_deadlines,
    resolve_preflight,
    unused_deadlines,
)
from harness.config.generation import SamplingParameters
from harness.config.option_checks import check_choice, optional_count, optional_file
from harness.config.plans import ClientPlan
from harness.config.protocol import Api, check_api
from harness.config.run_options import SERVER_URL, Backend, ClientOptions
from harness.config.server_urls import parse_server_urls, unused_ca_file
from harness.errors import ConfigError

MOST_WORKERS = 512  # more than any machine has cores
MOST_CONCURRENCY = 1 << 20  # more than a machine has ports


def resolve_client(
    options: ClientOptions,
    benchmark: Benchmark,
    input_file: Path,
    parameters: SamplingParameters,
    policy: FailurePolicy,
    log_dir: Path,
    *,
    every_replica: bool = False,
    further_urls: Sequence[str] = (),
    deviations: tuple[str, ...] = (),
    warnings: tuple[str, ...] = (),
) -> ClientPlan:
    """The options checked, with what a program decides by itself. Raises ConfigError.

    ``input_file``: the dataset, also where --input-file does not name it. ``every_replica``: replicas are
    measured, so that --min-replicas is refused. ``further_urls``: of what is asked besides servers.
    ``deviations`` and ``warnings`` are those of the program, beside the options' own.
    """
    streams = parameters.stream
    if options.resume and options.restart:
        raise ConfigError("--resume and --restart: one continues the earlier run, one begins anew; omit one")
    server_urls = _server_urls(options.backend, options.server_url)
    return ClientPlan(
        benchmark=benchmark,
        input_file=input_file.absolute(),
        parameters=parameters,
        backend=options.backend,
        api=_api(options.backend, options.api),
        tokenizer=_place_or_name(options.tokenizer),
        server_urls=server_urls,
        ca_file=optional_file("--ca-file", options.ca_file),
        preflight=resolve_preflight(options, every_replica=every_replica),
        num_workers=optional_count("--num-workers", options.num_workers, MOST_WORKERS),
        max_concurrency=optional_count("--max-concurrency", options.max_concurrency, MOST_CONCURRENCY),
        deadlines=resolve_deadlines(options, streams=streams, max_new_tokens=parameters.max_new_tokens),
        policy=policy,
        resume=options.resume,
        restart=options.restart,
        log_dir=log_dir.absolute(),
        dry_run=options.dry_run,
        deviations=deviations,
        warnings=(
            *options.warnings,
            *warnings,
            *unused_deadlines(options, streams=streams),
            *unused_ca_file(options.ca_file, (*server_urls, *further_urls)),
        ),
    )


def _place_or_name(tokenizer: str | None) -> str | None:
    """A tokenizer's file or folder by its complete path, since commands that are made of the plan name it."""
    return str(Path(tokenizer).absolute()) if tokenizer and Path(tokenizer).exists() else tokenizer


def _api(backend: Backend, api: Api | None) -> Api | None:
    check_choice("backend", backend, get_args(Backend))
    if api is not None:
        check_choice("api", api, get_args(Api))
    check_api(backend, api)
    return api


def _server_urls(backend: Backend, given: str | Sequence[str]) -> tuple[str, ...]:
    if backend != "embedded":
        return parse_server_urls(given or SERVER_URL)
    if given:
        raise ConfigError(
            f"--server-url {parse_server_urls(given)[0]}: --backend embedded starts its own server; "
            "remove one of the two flags"
        )
    return ()
