"""The only module that imports LoadGen: settings in, settings read back, one test run."""

import os
from collections.abc import Callable, Mapping

import mlperf_loadgen as lg
import msgspec

from harness.config.loadgen_settings import BY_ATTRIBUTE, SAMPLE_COUNTS, Setting
from harness.config.scenario import LoadGenScenario
from harness.errors import ConfigError
from harness.files import AUDIT_CONFIG
from harness.system_calls import memory_file

FLUSH_INTERVAL_S = 0.5  # LoadGen's log thread writes at least once in this time

Readback = dict[str, Setting]


class TestSpec(msgspec.Struct, frozen=True):
    """One LoadGen test. ``samples`` is the number of dataset rows.

    ``round_settings`` are those of an earlier round, in place of those inside LoadGen. ``audit_text`` are
    settings on top of all others, None for none; ``audit_config`` is the file that holds them when the test
    starts. ``late_part`` of the TTFT limit: a first token that is reported later is counted; 0: none.
    """

    model_key: str
    scenario: LoadGenScenario
    accuracy: bool
    user_conf: str
    mlperf_conf: str | None
    round_settings: Mapping[str, Setting]
    audit_text: str | None
    audit_config: str
    samples: int
    log_dir: str
    journal_dir: str
    trace: bool = False
    late_part: float = 0.0


def configure(spec: TestSpec) -> "lg.TestSettings":
    """Settings as LoadGen makes them of its own mlperf.conf, the user.conf and the audit settings.

    Call it once in a process: a second FromConfig is logged as an invalid run. Sample counts beyond the
    dataset are cut to it, because LoadGen reads past the end under performance_issue_unique. StartTest
    applies the audit settings once more; applied here, they can be read back before the run.
    """
    settings = lg.TestSettings()
    _load(settings, spec.user_conf, spec, 1)
    for name, value in spec.round_settings.items():  # LoadGen reads seeds from its own mlperf.conf only
        setattr(settings, name, value)
    if spec.mlperf_conf is not None:
        _load(settings, spec.mlperf_conf, spec, 2)
    if spec.round_settings or spec.mlperf_conf is not None:  # both are below the user.conf
        _load(settings, spec.user_conf, spec, 2)
    settings.scenario = getattr(lg.TestScenario, spec.scenario)
    settings.mode = lg.TestMode.AccuracyOnly if spec.accuracy else lg.TestMode.PerformanceOnly
    for key in SAMPLE_COUNTS:
        if getattr(settings, key) > spec.samples:
            setattr(settings, key, spec.samples)
    if spec.audit_text is not None:
        _audit(settings, spec)
    return settings


def _load(settings: "lg.TestSettings", path: str, spec: TestSpec, kind: int) -> None:
    code = settings.FromConfig(path, spec.model_key, spec.scenario, kind)
    if code != 0:
        raise ConfigError(f"{path}: LoadGen refuses the file (code {code}); see the lines above")


def _audit(settings: "lg.TestSettings", spec: TestSpec) -> None:
    """Apply the audit settings as StartTest does (loadgen.cc): for every model, on top of all others."""
    mode = settings.mode
    descriptor = memory_file(AUDIT_CONFIG)
    try:
        os.write(descriptor, (spec.audit_text or "").encode())
        code = settings.FromConfig(f"/proc/self/fd/{descriptor}", "*", spec.scenario, 2)
    finally:
        os.close(descriptor)
    if code != 0:
        raise ConfigError(f"LoadGen refuses the audit settings (code {code}); see the lines above")
    if settings.mode != mode:
        raise ConfigError(
            f"the audit settings make LoadGen run in mode {settings.mode.name}, this run is {mode.name}; "
            "remove their mode row, or run in that mode (with or without --accuracy)"
        )
    if settings.performance_sample_count_override > spec.samples:
        raise ConfigError(
            f"the audit settings set performance_sample_count_override = "
            f"{settings.performance_sample_count_override}, the dataset has {spec.samples} rows; "
            "LoadGen would crash: remove the row"
        )


def read_back(settings: "lg.TestSettings") -> Readback:
    """The settings that LoadGen will use, by LoadGen's names; latencies in ns."""
    return {name: getattr(settings, name) for name in BY_ATTRIBUTE}


def run_test(
    settings: "lg.TestSettings",
    spec: TestSpec,
    issue: Callable[[list[int], list[int]], None],
    load: Callable[[list[int]], None],
    unload: Callable[[list[int]], None],
) -> None:
    """Run to the end of the test. The audit config is passed by name: a stray ./audit.config is not read."""
    sut = lg.ConstructFastSUT(issue, lambda: None)
    qsl = lg.ConstructQSL(spec.samples, spec.samples, load, unload)
    log_settings = lg.LogSettings()
    log_settings.log_output.outdir = spec.log_dir
    log_settings.log_output.copy_summary_to_stdout = False
    log_settings.log_mode = lg.LoggingMode.AsyncPoll
    log_settings.log_mode_async_poll_interval_ms = int(FLUSH_INTERVAL_S * 1000)
    log_settings.enable_trace = spec.trace
    lg.StartTestWithLogSettings(sut, qsl, settings, log_settings, spec.audit_config)


def first_tokens(responses: list["lg.QuerySampleResponse"]) -> None:
    """Report first tokens to LoadGen, which takes the time of this call."""
    lg.FirstTokenComplete(responses)


def completed(responses: list["lg.QuerySampleResponse"]) -> None:
    """Report ended queries to LoadGen, which takes the time of this call and copies the tokens."""
    lg.QuerySamplesComplete(responses)


response = lg.QuerySampleResponse
