"""server_metrics.parquet: what the servers' /metrics pages said during a run, a row for each value.

The pages are Prometheus text. Buckets of histograms (most of a page's lines), times of creation and comments
are left out. After a bound of rows only the values in ``QUANTITIES`` are kept, after a second bound none.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Literal, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from harness.arrays import Floats
from harness.arrow import CLOCK, arrow_numbers, arrow_texts, numpy_numbers, reading

MOST_PAGE_BYTES = 4 << 20
_MOST_LINES = 50_000  # lines of a page
_MOST_SERIES = 50_000  # different names with labels, of all servers
_MOST_ROWS = 8_000_000
_MOST_OTHER_ROWS = 4_000_000  # rows of names that are not in QUANTITIES
_GROUP_ROWS = 1 << 17
_BATCH_ROWS = 1 << 17  # of the table that are read at once
_LONGEST = 1000  # characters in a name with its labels

_LEFT_OUT = re.compile(rb"\w(_bucket|_created)(\{|$)")
_SERIES = re.compile(rb"([a-zA-Z_:][\w:]*)(\{.*\})?\Z")
# The label of a data-parallel rank: SGLang's and vLLM's.
RANK_LABEL = re.compile(r'[{,](?:dp_rank|engine)="([0-9]{1,9})"')
RANK_LABEL_BYTES = re.compile(RANK_LABEL.pattern.encode())


class Quantity(msgspec.Struct, frozen=True):
    """A quantity that servers report under different names."""

    kind: Literal["level", "count"]
    """a level goes up and down; a count only grows, until its server restarts"""
    meaning: str
    names: tuple[str, ...]
    """the first name that a server has counts"""
    mode: str = ""
    """that of the label, of names that count several things"""


def _level(meaning: str, *names: str) -> Quantity:
    return Quantity("level", meaning, names)


def _count(meaning: str, *names: str, mode: str = "") -> Quantity:
    return Quantity("count", meaning, names, mode)


# Names in SGLang 0.5, vLLM 0.10 to 0.33, llama.cpp and pytorch/; they differ between versions.
QUANTITIES: Mapping[str, Quantity] = {
    "running": _level(
        "requests running",
        "sglang:num_running_reqs",
        "vllm:num_requests_running",
        "llamacpp:requests_processing",
        "pytorch:num_running_reqs",
    ),
    "queued": _level(
        "requests waiting in the servers' queues",
        "sglang:num_queue_reqs",
        "vllm:num_requests_waiting",
        "llamacpp:requests_deferred",
        "pytorch:num_queue_reqs",
    ),
    "kv_use": _level(
        "part of the KV cache in use",
        "sglang:token_usage",
        "sglang:full_token_usage",
        "vllm:kv_cache_usage_perc",
        "vllm:gpu_cache_usage_perc",
        "llamacpp:kv_cache_usage_ratio",
    ),
    "swa_kv_use": _level("part of the KV cache of sliding windows in use", "sglang:swa_token_usage"),
    "retractions": _count(
        "requests that lost their KV cache and were computed again",
        "sglang:num_retracted_requests_total",
        "sglang:num_retractions_total",
        "vllm:num_preemptions_total",
    ),
    "retracted": _level("requests retracted at once", "sglang:num_retracted_reqs"),
    "cached_tokens": _count(
        "prompt tokens taken from the prefix cache",
        "sglang:cached_tokens_total",
        "vllm:prefix_cache_hits_total",
        "vllm:gpu_prefix_cache_hits_total",
        "llamacpp:prompt_tokens_cached_total",
    ),
    "external_cached_tokens": _count(
        "prompt tokens whose KV cache a connector brought",
        "vllm:external_prefix_cache_hits_total",
    ),
    "cache_hit_rate": _level(
        "part of the latest prompt tokens taken from the prefix cache",
        "sglang:cache_hit_rate",
        "vllm:gpu_prefix_cache_hit_rate",
    ),
    "prompt_tokens": _count(
        "prompt tokens",
        "sglang:prompt_tokens_total",
        "vllm:prompt_tokens_total",
        "llamacpp:prompt_tokens_total",
        "pytorch:prompt_tokens_total",
    ),
    "output_tokens": _count(
        "output tokens",
        "sglang:generation_tokens_total",
        "vllm:generation_tokens_total",
        "llamacpp:tokens_predicted_total",
        "pytorch:generation_tokens_total",
    ),
    "output_rate": _level("output tokens a second, as the servers say", "sglang:gen_throughput"),
    "computed_tokens": _count("tokens computed, of prompts and answers", "sglang:realtime_tokens_total"),
    "accept_length": _level(
        "tokens for each step of a draft model",
        "sglang:spec_accept_length",
        "sglang:spec_accept_len",
    ),
    "draft_tokens": _count(
        "tokens drafted",
        "vllm:spec_decode_num_draft_tokens_total",
        "llamacpp:spec_decode_num_draft_tokens_total",
    ),
    "accepted_tokens": _count(
        "drafted tokens accepted",
        "vllm:spec_decode_num_accepted_tokens_total",
        "llamacpp:spec_decode_num_accepted_tokens_total",
    ),
    "ttft_seconds": _count(
        "time until first tokens, as the servers measured it, s",
        "sglang:time_to_first_token_seconds_sum",
        "vllm:time_to_first_token_seconds_sum",
    ),
    "ttft_count": _count(
        "first tokens of which the servers measured the time",
        "sglang:time_to_first_token_seconds_count",
        "vllm:time_to_first_token_seconds_count",
    ),
    "graph_steps": _count(
        "decoding steps with a CUDA graph",
        "sglang:cuda_graph_passes_total",
        mode="decode_cuda_graph",
    ),
    "plain_steps": _count(
        "decoding steps without a CUDA graph",
        "sglang:cuda_graph_passes_total",
        mode="decode_none",
    ),
    "kv_tokens": _level("tokens that the KV cache holds", "sglang:max_total_num_tokens"),
    "gpu_power": _level("power of a GPU, W", "DCGM_FI_DEV_POWER_USAGE"),
    "gpu_energy": _count("energy of the GPUs, mJ", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"),
    "gpu_clock": _level("clock of a GPU, MHz", "DCGM_FI_DEV_SM_CLOCK"),
    "gpu_temperature": _level("temperature of a GPU, degrees C", "DCGM_FI_DEV_GPU_TEMP"),
    "gpu_use": _level("time in which a GPU worked, %", "DCGM_FI_DEV_GPU_UTIL"),
    "gpu_memory": _level("memory of a GPU in use, MiB", "DCGM_FI_DEV_FB_USED"),
    "gpu_slowed": _level("GPU slowed down by heat or its power supply", "gpu_slowed"),
    "gpu_power_limited": _level("GPU slowed down by its power limit", "gpu_power_limited"),
    "gpu_heat": _count("time slowed down by heat", "DCGM_FI_DEV_THERMAL_VIOLATION"),
}
# By name; of a name with several modes one of the quantities.
MAPPED = {name: key for key, quantity in QUANTITIES.items() for name in quantity.names}
_BY_MODE = {(name, one.mode): key for key, one in QUANTITIES.items() for name in one.names if one.mode}
_MODE = re.compile(r'[{,]mode="(\w+)"')

SCHEMA = pa.schema(
    [
        pa.field(name, kind, metadata={"description": description})
        for name, kind, description in (
            ("time_ns", pa.int64(), "CLOCK_MONOTONIC of the reading"),
            ("replica", pa.dictionary(pa.int32(), pa.string()), "URL of the server"),
            ("name", pa.dictionary(pa.int32(), pa.string()), "of the metric"),
            ("labels", pa.dictionary(pa.int32(), pa.string()), "as on the page, with braces"),
            ("value", pa.float64(), ""),
        )
    ],
    metadata={"clock": CLOCK},
)


def quantity_of(name: str, labels: str) -> str:
    """The quantity of a name in MAPPED; "" for a mode that is none."""
    if not QUANTITIES[MAPPED[name]].mode:
        return MAPPED[name]
    found = _MODE.search(labels)
    return _BY_MODE.get((name, found[1]), "") if found else ""


def values_of(page: bytes) -> Iterator[tuple[bytes, float]]:
    """Each series of a page (its name with its labels) and its value; other lines are left out."""
    for line in page.split(b"\n", _MOST_LINES)[:_MOST_LINES]:
        if not line or line.startswith(b"#"):
            continue
        end = line.rfind(b"}") + 1 or line.find(b" ")
        series, rest = line[:end], line[end:].split()  # a time may follow the value
        if not rest or not series or len(series) > _LONGEST:
            continue
        try:
            yield series, float(rest[0])
        except ValueError:
            continue


def has_values(page: bytes) -> bool:
    """Whether there is a number to keep: a broken exporter gives NaN for each."""
    return any(_named(series) and math.isfinite(value) for series, value in values_of(page))


def _named(series: bytes) -> tuple[str, str] | None:
    """Name and labels; None for what is left out."""
    found = None if _LEFT_OUT.search(series) else _SERIES.match(series)
    if found is None:
        return None
    return found[1].decode(), (found[2] or b"").decode(errors="backslashreplace")


class MetricsWriter:
    """Writes the values of pages into an open file, a group of rows at a time. Raises OSError."""

    def __init__(self, file: IO[bytes], replicas: Sequence[str]) -> None:
        self.full = False  # rows or series were left out, because there were too many
        self._writer = pq.ParquetWriter(file, SCHEMA, compression="zstd")
        self._replicas = arrow_texts(replicas)
        self._names: dict[str, int] = {}
        self._labels: dict[str, int] = {}
        self._series: dict[bytes, tuple[int, int, bool] | None] = {}
        self._rows: list[tuple[int, int, int, int, float]] = []
        self._written = self._others = 0

    def add(self, time_ns: int, replica: int, page: bytes) -> None:
        """Add the values of a page."""
        for series, value in values_of(page):
            codes = self._codes(series)
            if codes is None:
                continue
            name, labels, mapped = codes
            if self._written >= _MOST_ROWS or (not mapped and self._others >= _MOST_OTHER_ROWS):
                self.full = True
                continue
            self._rows.append((time_ns, replica, name, labels, value))
            self._written += 1
            self._others += not mapped
        if len(self._rows) >= _GROUP_ROWS:
            self._write()

    def close(self) -> None:
        """Write what is left and the end of the file."""
        self._write()
        self._writer.close()

    def _codes(self, series: bytes) -> tuple[int, int, bool] | None:
        """The numbers of its name and labels, and whether it is mapped; None where it is left out."""
        try:
            return self._series[series]
        except KeyError:
            pass
        if len(self._series) >= _MOST_SERIES:
            self.full = True
            return None
        codes = None
        if named := _named(series):
            name, labels = named
            names, known = self._names, self._labels
            codes = (names.setdefault(name, len(names)), known.setdefault(labels, len(known)), name in MAPPED)
        self._series[series] = codes
        return codes

    def _write(self) -> None:
        if not self._rows:
            return
        times, replicas, names, labels, values = zip(*self._rows, strict=True)
        self._rows = []
        self._writer.write_table(
            pa.Table.from_arrays(
                [
                    arrow_numbers(np.array(times, np.int64)),
                    _labelled(replicas, self._replicas),
                    _labelled(names, arrow_texts(list(self._names))),
                    _labelled(labels, arrow_texts(list(self._labels))),
                    arrow_numbers(np.array(values, np.float64)),
                ],
                schema=SCHEMA,
            )
        )


def _labelled(codes: Sequence[int], labels: pa.Array) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(arrow_numbers(np.array(codes, np.int32)), labels)


class Series(NamedTuple):
    """The values of one name and its labels in a part of the table."""

    name: str
    """one in MAPPED"""
    replica: str
    """URL"""
    labels: str
    rows: npt.NDArray[np.int64]
    """their places in the part, in order of time"""


class Part(msgspec.Struct, frozen=True):
    """A part of the table, in order of time."""

    times_ns: npt.NDArray[np.int64]
    values: Floats
    first_ns: Mapping[str, int]
    """the first reading of each replica here, by URL"""
    series: Sequence[Series]
    """of the quantities' numbers; of a quantity those with its first name first"""


def each_part(path: Path, *takes: Callable[[Part], None]) -> None:
    """Hand the table over in parts, each to all ``takes``.

    Raises DatasetError for a damaged file, also where one cannot use a value; FileNotFoundError without one.
    """
    with reading(path), pq.ParquetFile(path) as file:
        if not file.schema_arrow.equals(SCHEMA):
            raise ValueError("its columns have other names or types")
        for batch in file.iter_batches(_BATCH_ROWS, columns=SCHEMA.names, use_threads=False):
            part = _part(batch)
            for take in takes:
                take(part)


def _part(batch: pa.RecordBatch) -> Part:
    times, values = (numpy_numbers(batch.column(name)) for name in ("time_ns", "value"))
    columns = [batch.column(name) for name in ("name", "replica", "labels")]
    names, urls, labels = (column.dictionary.to_pylist() for column in columns)
    codes = [numpy_numbers(column.indices).astype(np.int64) for column in columns]
    replicas, at = np.unique(codes[1], return_index=True)
    mapped = np.array([name in MAPPED for name in names], dtype=bool)
    used = np.flatnonzero(mapped[codes[0]] & np.isfinite(values))
    used = used[np.lexsort([column[used] for column in codes])]  # a stable sort: in order of time
    codes = [column[used] for column in codes]
    starts = np.flatnonzero(np.any([np.diff(column, prepend=-1) != 0 for column in codes], axis=0))
    series = [
        Series(names[codes[0][start]], urls[codes[1][start]], labels[codes[2][start]], rows)
        for start, rows in zip(starts.tolist(), np.split(used, starts[1:]), strict=False)
    ]
    series.sort(key=lambda one: QUANTITIES[MAPPED[one.name]].names.index(one.name))
    first_ns = dict(zip((urls[code] for code in replicas.tolist()), times[at].tolist(), strict=True))
    return Part(times, values, first_ns, series)
