"""LoadGen's settings, one row each: their names in TestSettings, in conf files and in the detail log.

The table is that of LoadGen 6.0: FromConfig, LogRequestedTestSettings and LogEffectiveSettings in
test_settings_internal.cc.
"""

from collections.abc import Mapping

import msgspec

from harness.config.scenario import LOADGEN_SCENARIOS, Scenario

Number = int | float  # a conf file has
Setting = int | float | bool  # LoadGen reads back

# LoadGen's modes, in the order of the numbers that conf files have for them.
TEST_MODES = ("SubmissionRun", "AccuracyOnly", "PerformanceOnly", "FindPeakPerformance")
ACCURACY_MODE, PERFORMANCE_MODE = TEST_MODES[1:3]

# Samples that LoadGen takes of the dataset.
SAMPLE_COUNTS = ("performance_sample_count_override", "accuracy_sample_count_override")

# The part of a Server run's queries that the rules' limits are for: LoadGen's default.
SERVER_PERCENTILE = 0.99
# Beyond these a part of 1 is lost in the digits of a float, and LoadGen's early stopping has no logarithm.
LEAST_PERCENTILE, MOST_PERCENTILE = 1e-6, 1 - 1e-6
# TestSettings' names of a Server run's limits.
_LIMITS = {"TTFT": "ttft_latency", "TPOT": "tpot_latency"}
NS_PER_MS = 1_000_000
_PERCENT = 0.01
_EFFECTIVE, _REQUESTED = "effective_", "requested_"


class LoadGenSetting(msgspec.Struct, frozen=True):
    """One setting. ``attribute`` is its name in TestSettings and in benchmark definitions.

    ``kind`` and ``scale`` turn the number of a conf file into LoadGen's value. ``scenarios`` are those for
    which LoadGen looks the key up; an ``internal`` key it takes from its own mlperf.conf only. ``key`` and
    ``detail`` are given where they do not follow from ``attribute``; ``detail`` "" where no row of the
    detail log holds the value as it was set.
    """

    attribute: str
    kind: type[int] | type[float] | type[bool] = int
    scenarios: tuple[str, ...] = LOADGEN_SCENARIOS
    key: str | None = None
    detail: str | None = None
    scale: float = 1
    internal: bool = False

    @property
    def conf_key(self) -> str:
        """The key of a conf file."""
        return self.key or self.attribute

    @property
    def detail_key(self) -> str:
        """The row of the detail log, "" for none."""
        return f"{_EFFECTIVE}{self.attribute}" if self.detail is None else self.detail

    @property
    def effective_name(self) -> str:
        """The row among LoadGen's effective settings, without its prefix; "" for none."""
        return self.detail_key.removeprefix(_EFFECTIVE) if self.detail_key.startswith(_EFFECTIVE) else ""

    @property
    def requested_name(self) -> str:
        """The row among the settings that LoadGen was given, without its prefix."""
        logged = self.detail_key.startswith(_REQUESTED)
        return self.detail_key.removeprefix(_REQUESTED) if logged else self.attribute

    def value(self, number: float) -> Setting:
        """LoadGen's value of a conf file's number."""
        if self.kind is bool:
            return bool(number)
        return number if self.scale == 1 else number * self.scale


_Row = LoadGenSetting
_SERVER, _OFFLINE, _SINGLE, _MULTI = ("Server",), ("Offline",), ("SingleStream",), ("MultiStream",)
_RATE = ("target_qps", "effective_target_qps")
_LATENCY = ("target_latency", "")
_PERCENTILE = ("target_latency_percentile", "effective_target_latency_percentile")

SETTINGS = (
    _Row("min_duration_ms", key="min_duration"),
    _Row("max_duration_ms", key="max_duration"),
    _Row("min_query_count"),
    _Row("max_query_count"),
    _Row("performance_sample_count_override", detail="effective_performance_sample_count"),
    _Row("accuracy_sample_count_override", detail="effective_accuracy_sample_count"),
    _Row("sample_concatenate_permutation", bool),
    _Row("performance_issue_unique", bool),
    _Row("performance_issue_same", bool),
    _Row("performance_issue_same_index"),
    _Row("print_timestamps", bool),
    _Row("use_token_latencies", bool, detail="requested_use_token_latencies"),
    _Row("infer_token_latencies", bool, detail=""),
    _Row("token_latency_scaling_factor", detail=""),
    _Row("ttft_latency", int, _SERVER, detail="requested_server_ttft_latency", scale=NS_PER_MS),
    _Row("tpot_latency", int, _SERVER, detail="requested_server_tpot_latency", scale=NS_PER_MS),
    _Row("server_target_qps", float, _SERVER, *_RATE),
    _Row("offline_expected_qps", float, _OFFLINE, *_RATE),
    _Row("server_target_latency_ns", int, _SERVER, *_LATENCY, scale=NS_PER_MS),
    _Row("single_stream_expected_latency_ns", float, _SINGLE, *_LATENCY, scale=NS_PER_MS),
    _Row("multi_stream_expected_latency_ns", float, _MULTI, *_LATENCY, scale=NS_PER_MS),
    _Row("server_target_latency_percentile", float, _SERVER, *_PERCENTILE, scale=_PERCENT),
    _Row("single_stream_target_latency_percentile", float, _SINGLE, *_PERCENTILE, scale=_PERCENT),
    _Row("multi_stream_target_latency_percentile", float, _MULTI, *_PERCENTILE, scale=_PERCENT),
    _Row("multi_stream_samples_per_query", int, _MULTI, "samples_per_query", "effective_samples_per_query"),
    _Row("server_coalesce_queries", bool, _SERVER, "coalesce_queries", "requested_server_coalesce_queries"),
    _Row("server_max_async_queries", int, _SERVER, "max_async_queries", "effective_max_async_queries"),
    _Row("accuracy_log_rng_seed"),
    _Row("accuracy_log_sampling_target"),
    _Row("accuracy_log_probability", float, internal=True),
    _Row("qsl_rng_seed", internal=True),
    _Row("sample_index_rng_seed", internal=True),
    _Row("schedule_rng_seed", internal=True),
)
BY_ATTRIBUTE = {setting.attribute: setting for setting in SETTINGS}


def settings_of(key: str, scenario: str | None = None) -> tuple[LoadGenSetting, ...]:
    """The settings that a key of a conf file sets, in one of LoadGen's scenarios or in any."""
    return tuple(
        setting
        for setting in SETTINGS
        if setting.conf_key == key and (scenario is None or scenario in setting.scenarios)
    )


def limits_ns(scenario: Scenario, settings: Mapping[str, Setting]) -> dict[str, int]:
    """The p99 limits of TTFT and TPOT in settings as read back; none where the scenario has none."""
    if not scenario.poisson or not settings.keys() >= set(_LIMITS.values()):
        return {}
    return {name: int(settings[key]) for name, key in _LIMITS.items()}
