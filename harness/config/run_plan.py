"""The plan of a LoadGen test: every choice resolved and checked, before anything is started."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec.structs import replace

from harness.config.audit_config import plain_rows
from harness.config.benchmark import Benchmark, load_benchmark
from harness.config.client_plan import resolve_client
from harness.config.deadlines import (
    FIRST_FAILURES,
    FIRST_FAILURES_SINGLE_STREAM,
    FailurePolicy,
    resolve_policy,
)
from harness.config.generation import (
    MOST_NUMBER,
    ResolvedGeneration,
    official_parameters,
    resolve_generation,
)
from harness.config.loadgen_conf import and_more, read_text
from harness.config.official_data import official_dataset
from harness.config.option_checks import existing_file, optional_count, optional_file
from harness.config.plans import ComplianceSettings, RunPlan, TestMode
from harness.config.rule_checks import round_deviations, round_settings, scenario_deviations
from harness.config.run_options import FAILURES_OF_ACCURACY, RunOptions
from harness.config.server_urls import parse_server_urls
from harness.errors import ConfigError
from harness.files import COMPLIANCE_RUN


def resolve_plan(options: RunOptions, audit: ComplianceSettings | None = None) -> RunPlan:
    """Turn options into a plan. Raises ConfigError; reads small config files only.

    With ``audit`` it is the plan of a compliance test, whose audit.config is written beside LoadGen's logs.
    """
    if options.resume and not options.accuracy:
        raise ConfigError("--resume without --accuracy: a performance run cannot be resumed, only repeated")
    benchmark = load_benchmark(options.benchmark, options.round)
    generation = _generation(options, benchmark, audit)
    mode: TestMode = "accuracy" if options.accuracy else "performance"
    audit_config = optional_file("--audit-config", options.audit_config)
    audit_text, rewritten = _audit_text(audit_config)
    dcgm_urls = _dcgm_urls(options.dcgm_url)
    return RunPlan(
        client=resolve_client(
            options,
            benchmark,
            _dataset(options, benchmark),
            generation.parameters,
            _policy(options, streams=generation.parameters.stream),
            options.results / options.scenario / _folder(mode, audit),
            every_replica=not options.accuracy and audit is None and audit_config is None,
            further_urls=dcgm_urls,
            deviations=(
                *scenario_deviations(benchmark, options.scenario),
                *round_deviations(benchmark),
                *generation.deviations,
                *(() if audit is None else audit.deviations),
            ),
            warnings=(*rewritten, *generation.warnings, *_unused(options)),
        ),
        scenario=options.scenario,
        mode=mode,
        model_key=benchmark.model_key(options.scenario),
        max_samples=optional_count("--max-samples", options.max_samples, MOST_NUMBER),
        dcgm_urls=dcgm_urls,
        user_conf=existing_file("--user-conf", options.user_conf),
        mlperf_conf=optional_file(
            "--mlperf-conf", options.mlperf_conf, "omit the flag: LoadGen has the official settings inside"
        ),
        round_settings=round_settings(benchmark, options.scenario),
        audit_config=audit_config,
        audit_text=audit_text if audit is None else audit.text,
        audit=audit,
        official=options.official,
        stop_when_lost=options.stop_when_lost,
    )


def _dataset(options: RunOptions, benchmark: Benchmark) -> Path:
    if options.input_file is not None:
        return options.input_file
    if options.audit_config is not None:
        raise ConfigError("--audit-config: a test has a dataset of its own; add --input-file FILE")
    return official_dataset(benchmark, benchmark.dataset(accuracy=options.accuracy))


def _generation(
    options: RunOptions, benchmark: Benchmark, audit: ComplianceSettings | None
) -> ResolvedGeneration:
    """The generation parameters of the run, and how they differ from the official ones."""
    official = official_parameters(benchmark, accuracy=options.accuracy)
    if audit is not None:
        official = replace(official, max_new_tokens=audit.dataset.max_new_tokens)
    return resolve_generation(options, official, timed=options.scenario.streams)


def _policy(options: RunOptions, *, streams: bool) -> FailurePolicy:
    return resolve_policy(
        options,
        streams=streams,
        most_failures=FAILURES_OF_ACCURACY if options.accuracy else None,
        first_failures=FIRST_FAILURES_SINGLE_STREAM if options.scenario.one_at_a_time else FIRST_FAILURES,
    )


def _folder(mode: TestMode, audit: ComplianceSettings | None) -> str:
    return mode if audit is None else f"{audit.test}/{COMPLIANCE_RUN}"


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
    return plain, (
        f"{source}:{changed[0]}: rewritten for LoadGen, which reads no comment behind a value and no "
        f"'key=3' without spaces{and_more(changed)}",
    )


def _unused(options: RunOptions) -> Iterator[str]:
    """A warning for each flag without an effect in this scenario or mode."""
    if options.max_concurrency not in (None, 1) and options.scenario.one_at_a_time:
        yield (
            f"--max-concurrency {options.max_concurrency} has no effect: in {options.scenario} each query "
            "waits for the end of the one before it"
        )
    if options.stop_when_lost and options.accuracy:
        yield (
            "--stop-when-lost has no effect: an accuracy run is not lost, as the repeated command sends what "
            "has failed"
        )


def _dcgm_urls(values: Sequence[str]) -> tuple[str, ...]:
    """With or without the page's name, as the exporter prints them."""
    urls = parse_server_urls(values, "--dcgm-url") if any(values) else ()
    return tuple(dict.fromkeys(url.removesuffix("/metrics") for url in urls))
