"""The number of queries that LoadGen issues for a run, and their duration at the expected rate.

LoadGen fills up to complete datasets (sample_concatenate_permutation), so that a run can be much longer than
min_duration. The rules are those of LoadGen 6.0: TestSettingsInternal, GenerateQueries and
IssueQueriesInternal; the schedule of Server is reproduced from its seed.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from harness.config.scenario import LoadGenScenario

_OFFLINE_SLACK = 1.1
_SINGLE_STREAM_SLACK = 2.0
_MOST_DRAWN = 4_000_000  # queries of a schedule that is drawn; a longer one is estimated
_NS = 1e9

Settings = Mapping[str, int | float | bool]


class ExpectedQueries(msgspec.Struct, frozen=True):
    """The queries that LoadGen will issue."""

    samples: int
    """queries in Server and SingleStream, samples of the one query in Offline"""
    dataset: int
    """rows of the dataset that they are taken from"""
    exact: bool
    """false where LoadGen issues more when answers come faster than expected"""
    seconds: float | None
    """the time at the expected rate: of the schedule where `scheduled`, of the answers elsewhere; None
    where no rate is known"""
    scheduled: bool = False
    """LoadGen issues on a schedule"""
    least_s: float = 0.0
    """LoadGen issues for at least this time"""


def expected_queries(
    settings: Settings, scenario: LoadGenScenario, samples: int, *, accuracy: bool
) -> ExpectedQueries:
    """The run that ``settings`` make, by TestSettings' names, over a dataset of ``samples`` rows."""
    if accuracy:
        return _accuracy(settings, scenario, samples)
    loaded = loaded_samples(settings, samples)
    if scenario == "Offline":
        return _offline(settings, loaded)
    if scenario == "Server":
        return _server(settings, loaded)
    return _single_stream(settings, loaded, samples)


def loaded_samples(settings: Settings, samples: int) -> int:
    """Samples that LoadGen has loaded at once in performance mode, of a dataset of ``samples`` rows."""
    return min(int(settings["performance_sample_count_override"]) or samples, samples)


def ended_by(settings: Settings, scenario: LoadGenScenario, expected: ExpectedQueries) -> str:
    """The conf row by which LoadGen ends a performance run with an error in its log for certain; "" for none.

    A Server run of as many queries as ``max_query_count`` has that error, too. Elsewhere the answers decide.
    """
    if scenario != "Server":
        return ""
    if 0 < settings["max_query_count"] <= expected.samples:
        return "max_query_count"
    return "max_duration" if 0 < settings["max_duration_ms"] / 1000 < (expected.seconds or 0) else ""


def _accuracy(settings: Settings, scenario: LoadGenScenario, samples: int) -> ExpectedQueries:
    """Every sample once; Server keeps to its schedule."""
    count = min(int(settings["accuracy_sample_count_override"]) or samples, samples)
    scheduled = scenario == "Server"
    seconds = count / float(settings["server_target_qps"]) if scheduled else None
    return ExpectedQueries(count, count, exact=True, seconds=seconds, scheduled=scheduled)


def _offline(settings: Settings, loaded: int) -> ExpectedQueries:
    rate = float(settings["offline_expected_qps"])
    count = offline_samples(settings)
    if settings["performance_issue_unique"]:
        count = loaded
    if settings["sample_concatenate_permutation"]:
        count = _filled_up(count, loaded)
    return ExpectedQueries(count, loaded, exact=True, seconds=count / rate)


def offline_samples(settings: Settings) -> int:
    """The samples that Offline asks for, before LoadGen fills up to complete datasets."""
    by_rate = _OFFLINE_SLACK * (settings["min_duration_ms"] / 1000) * settings["offline_expected_qps"]
    return int(max(settings["min_query_count"], int(by_rate)))


def _single_stream(settings: Settings, loaded: int, samples: int) -> ExpectedQueries:
    rate = _NS / float(settings["single_stream_expected_latency_ns"])
    least_s = settings["min_duration_ms"] / 1000
    count = int(settings["min_query_count"])
    fills = bool(settings["sample_concatenate_permutation"])
    if fills:
        count = max(count, int(_SINGLE_STREAM_SLACK * least_s * rate))
        count += samples - count % samples
    if settings["performance_issue_unique"]:
        count = min(count, loaded)
    count = _at_most(count, settings)
    exact, seconds = fills or not least_s, max(count / rate, least_s)
    return ExpectedQueries(count, loaded, exact=exact, seconds=seconds, least_s=least_s)


def _server(settings: Settings, loaded: int) -> ExpectedQueries:
    duration_ns, count = int(settings["min_duration_ms"] * 1_000_000), int(settings["min_query_count"])
    fills = settings["sample_concatenate_permutation"]
    step = loaded if fills else 1
    if settings["performance_issue_unique"]:
        duration_ns, count = 0, loaded
    count = _filled_up(count, step)
    if not count and (fills or not duration_ns):  # LoadGen permutes min_query_count samples
        return ExpectedQueries(0, loaded, exact=True, seconds=0.0, scheduled=True)
    count, seconds = _scheduled(settings, max(count, step), step, duration_ns)
    return ExpectedQueries(count, loaded, exact=True, seconds=seconds, scheduled=True)


def _scheduled(settings: Settings, least: int, step: int, duration_ns: int) -> tuple[int, float]:
    """The queries of a schedule and the time of its last: ``least`` + k x ``step``, past the duration."""
    rate = float(settings["server_target_qps"])
    likely = max(least, int(duration_ns / _NS * rate)) + step
    if likely > _MOST_DRAWN:
        count = max(least, -(-int(duration_ns / _NS * rate) // step) * step)
        return _at_most(count, settings), _at_most(count, settings) / rate
    drawn = likely + 10 * int(likely**0.5) + 2 * step
    at_ns = _arrivals(int(settings["schedule_rng_seed"]), rate, drawn)
    count = least
    while count < drawn and at_ns[count - 1] < duration_ns:
        count += step
    count = _at_most(count, settings)
    return count, float(at_ns[min(count, drawn) - 1]) / _NS


def _arrivals(seed: int, rate: float, count: int) -> npt.NDArray[np.int64]:
    """Scheduled times in ns: libstdc++'s exponential_distribution over its mt19937."""
    return np.concatenate(
        [np.zeros(1, np.int64), np.cumsum((_unit_gaps(seed, count) / rate * _NS).astype(np.int64))]
    )


def unit_arrivals(seed: int, count: int) -> npt.NDArray[np.float64]:
    """The schedule at one query per second, in s; for each rate LoadGen rounds the gaps down to whole ns."""
    return np.concatenate([np.zeros(1), np.cumsum(_unit_gaps(seed, count))])


def _unit_gaps(seed: int, count: int) -> npt.NDArray[np.float64]:
    raw = mt19937(seed).random_raw(2 * (count - 1)).astype(np.float64)
    uniform = (raw[0::2] + raw[1::2] * 2.0**32) / 2.0**64
    gaps: npt.NDArray[np.float64] = -np.log1p(-uniform)
    return gaps


def mt19937(seed: int) -> Any:
    """The generator as C++ seeds it."""
    generator: Any = np.random.MT19937()
    generator.state = np.random.RandomState(seed & 0xFFFFFFFF).get_state(legacy=False)
    return generator


def _filled_up(count: int, dataset: int) -> int:
    return -(-count // dataset) * dataset


def _at_most(count: int, settings: Settings) -> int:
    """LoadGen ends with an error at max_query_count, 0 for none."""
    most = int(settings["max_query_count"])
    return min(count, most) if most else count
