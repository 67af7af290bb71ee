"""The plan of a run: every choice resolved and checked, before anything is started."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, get_args

import msgspec

from harness.config import generation
from harness.config.audit_config import plain_rows
from harness.config.benchmark import Benchmark, DatasetRule, load_benchmark
from harness.config.deadlines import (
    Deadlines,
    FailurePolicy,
    Preflight,
    resolve_deadlines,
    resolve_policy,
    resolve_preflight,
    unused_deadlines,
)
from harness.config.generation import MOST_NUMBER, SamplingParameters
from harness.config.loadgen_conf import read_text
from harness.config.loadgen_settings import Setting
from harness.config.rule_checks import round_deviations, round_settings, scenario_deviations
from harness.config.run_options import SERVER_URL, Backend, RunOptions, Stream
from harness.config.scenario import Scenario
from harness.config.server_urls import parse_server_urls
from harness.errors import ConfigError
from harness.files import AUDIT_CONFIG, COMPLIANCE_RUN

Mode = Literal["performance", "accuracy"]

MOST_WORKERS = 512  # more than any machine has cores
_MOST_CONCURRENCY = 1 << 20  # more than a machine has ports


class AuditRun(msgspec.Struct, frozen=True, kw_only=True):
    """A compliance test: its settings by conf key, and the text of its audit.config.

    An ``official`` one must not run with any deviation.
    """

    test: str
    dataset: DatasetRule
    settings: dict[str, int | float]
    text: str
    official: bool
    deviations: tuple[str, ...] = ()


class RunPlan(msgspec.Struct, frozen=True, kw_only=True):
    """One LoadGen test, fully resolved. Paths are absolute."""

    benchmark: Benchmark
    scenario: Scenario
    mode: Mode
    model_key: str
    input_file: Path
    max_samples: int | None
    parameters: SamplingParameters
    backend: Backend
    server_urls: tuple[str, ...]
    dcgm_urls: tuple[str, ...]
    ca_file: Path | None
    preflight: Preflight
    num_workers: int | None
    max_concurrency: int | None
    deadlines: Deadlines
    policy: FailurePolicy
    resume: bool
    log_dir: Path
    user_conf: Path
    mlperf_conf: Path | None
    round_settings: dict[str, Setting]  # of an earlier round, in place of those inside LoadGen
    audit_config: Path | None  # the user's file
    audit_text: str | None  # settings that LoadGen puts on top of all others; kept beside its logs
    dry_run: bool
    deviations: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    audit: AuditRun | None = None

    @property
    def kept_audit_config(self) -> Path | None:
        """The file from which LoadGen reads the audit settings, beside its logs."""
        return None if self.audit_text is None else self.log_dir / AUDIT_CONFIG

    @property
    def results_dir(self) -> Path:
        """The folder that is moved aside before another run; a test's verdict and logs move together."""
        return self.log_dir if self.audit is None else self.log_dir.parent

    @property
    def accuracy(self) -> bool:
        """Whether LoadGen logs every answer."""
        return self.mode == "accuracy"


def resolve_plan(options: RunOptions, audit: AuditRun | None = None) -> RunPlan:
    """Turn options into a plan. Raises ConfigError; reads small config files only.

    With ``audit`` it is the plan of a compliance test, whose audit.config is written beside LoadGen's logs.
    """
    _check_choices(options)
    benchmark = load_benchmark(options.benchmark, options.round)
    parameters, differences = _parameters(options, benchmark, audit)
    mode: Mode = "accuracy" if options.accuracy else "performance"
    audit_config = _optional("--audit-config", options.audit_config)
    audit_text, rewritten = _audit_text(audit_config)
    return RunPlan(
        benchmark=benchmark,
        scenario=options.scenario,
        mode=mode,
        model_key=benchmark.model_key(options.scenario),
        input_file=options.input_file.absolute(),
        max_samples=_count("--max-samples", options.max_samples, MOST_NUMBER),
        parameters=parameters,
        backend=options.backend,
        server_urls=_server_urls(options.backend, options.server_url),
        dcgm_urls=_dcgm_urls(options.dcgm_url),
        ca_file=_optional("--ca-file", options.ca_file),
        preflight=resolve_preflight(options, compliance=audit is not None or audit_config is not None),
        num_workers=_count("--num-workers", options.num_workers, MOST_WORKERS),
        max_concurrency=_count("--max-concurrency", options.max_concurrency, _MOST_CONCURRENCY),
        deadlines=resolve_deadlines(
            options, streams=parameters.stream, max_new_tokens=parameters.max_new_tokens
        ),
        policy=resolve_policy(options, streams=parameters.stream),
        resume=_resume(options.resume, options.accuracy),
        log_dir=options.output_dir.absolute() / options.scenario / _folder(mode, audit),
        user_conf=_existing("--user-conf", options.user_conf),
        mlperf_conf=_optional("--mlperf-conf", options.mlperf_conf),
        round_settings=round_settings(benchmark, options.scenario),
        audit_config=audit_config,
        audit_text=audit_text if audit is None else audit.text,
        dry_run=options.dry_run,
        deviations=(
            *scenario_deviations(benchmark, options.scenario),
            *round_deviations(benchmark),
            *differences,
            *(() if audit is None else audit.deviations),
        ),
        warnings=(*options.warnings, *rewritten, *_without_effect(options, parameters)),
        audit=audit,
    )


def _parameters(
    options: RunOptions, benchmark: Benchmark, audit: AuditRun | None
) -> tuple[SamplingParameters, tuple[str, ...]]:
    """The generation parameters of the run, and how they differ from the official ones."""
    official = generation.official_parameters(benchmark, accuracy=options.accuracy)
    if audit is not None:
        official = msgspec.structs.replace(official, max_new_tokens=audit.dataset.max_new_tokens)
    config = _optional("--generation-config", options.generation_config)
    parameters = generation.resolve_parameters(official, config, options.max_new_tokens)
    official, parameters = generation.settle_stream(
        official, parameters, options.stream, timed=options.scenario.streams
    )
    return parameters, generation.deviations(official, parameters)


def _without_effect(options: RunOptions, parameters: SamplingParameters) -> Iterator[str]:
    yield from generation.not_applied(options.generation_config)
    yield from unused_deadlines(options, streams=parameters.stream)


def _folder(mode: Mode, audit: AuditRun | None) -> str:
    return mode if audit is None else f"{audit.test}/{COMPLIANCE_RUN}"


def _check_choices(options: RunOptions) -> None:
    """Refuse what the parser refuses, for a caller from Python."""
    for name, known in (
        ("backend", get_args(Backend)),
        ("stream", get_args(Stream)),
    ):
        if (given := getattr(options, name)) not in known:
            raise ConfigError(f"{name} is {given!r}, expected {', '.join(known)}")


def _audit_text(path: Path | None) -> tuple[str | None, tuple[str, ...]]:
    """The file as LoadGen gets it, and a warning where rows are rewritten for it."""
    if path is None:
        return None, ()
    source = f"--audit-config {path}"
    text = read_text(source, path)
    plain = plain_rows(text)
    changed = [
        number
        for number, lines in enumerate(zip(text.split("\n"), plain.split("\n"), strict=True), start=1)
        if lines[0] != lines[1]
    ]
    if not changed:
        return text, ()
    more = f" (and {len(changed) - 1} more such rows)" if len(changed) > 1 else ""
    return plain, (
        f"{source}:{changed[0]}: rewritten for LoadGen, which reads no comment behind a value and no "
        f"'key=3' without spaces{more}",
    )


def _server_urls(backend: Backend, values: Sequence[str]) -> tuple[str, ...]:
    if backend != "embedded":
        return parse_server_urls(values or (SERVER_URL,))
    if values:
        raise ConfigError(
            f"--server-url {values[0]}: --backend embedded starts its own server; remove one of the two flags"
        )
    return ()


def _dcgm_urls(values: Sequence[str]) -> tuple[str, ...]:
    """With or without the page's name, as the exporter prints them."""
    urls = parse_server_urls(values, "--dcgm-url") if any(values) else ()
    return tuple(dict.fromkeys(url.removesuffix("/metrics") for url in urls))


def _count(flag: str, value: int | None, most: int) -> int | None:
    if value is not None and not 1 <= value <= most:
        raise ConfigError(f"{flag} is {value}, expected 1 to {most}")
    return value


def _resume(wanted: bool, accuracy: bool) -> bool:
    if wanted and not accuracy:
        raise ConfigError("--resume without --accuracy: a performance run cannot be resumed, only repeated")
    return wanted


def _existing(flag: str, path: Path) -> Path:
    if not path.is_file():
        raise ConfigError(f"{flag} {path}: {'not a regular file' if path.exists() else 'no such file'}")
    return path.absolute()


def _optional(flag: str, path: Path | None) -> Path | None:
    return None if path is None else _existing(flag, path)
