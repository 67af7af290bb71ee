"""Intervals for a run's figures, from blocks of neighbouring queries.

Queries that are in flight together share the server's queue, so single queries cannot be resampled as if they
were independent. Blocks of at least the mean latency are nearly independent: the block bootstrap (Künsch
1989). An interval covers the variation within its run, not what changes from run to run (start, placement,
temperature).
"""

from collections.abc import Mapping

import msgspec
import numpy as np
import numpy.typing as npt

from harness.analysis.queries import Queries
from harness.analysis.statistics import percentile
from harness.arrays import Floats, distinct

RESAMPLES = 500
_MOST_BLOCKS, _FEWEST_BLOCKS = 200, 10
_CELLS = 500  # half of a histogram's cells: for all ranks, and for the highest ones


class Estimate(msgspec.Struct, frozen=True):
    """A figure of a run."""

    value: float
    resampled: Floats
    """its values in resamples of the run's blocks; empty where the run has too few blocks"""


def estimates(queries: Queries, seed: int) -> Mapping[str, Estimate]:
    """The figures of a run by name: latencies in ms, rates per second. Compared runs need different seeds."""
    blocks = _blocks(queries)
    weights = _weights(int(blocks.max()) + 1 if len(blocks) else 0, seed)
    found = {"tokens/s": _rate(queries, queries.osl, blocks, weights)}
    found["samples/s"] = _rate(queries, np.ones(len(queries), dtype=np.int32), blocks, weights)
    for name, values in (("TTFT", queries.ttft), ("TPOT", queries.tpot), ("latency", queries.latency)):
        found |= _of_values(name, values, blocks, weights)
    return found


def _blocks(queries: Queries) -> npt.NDArray[np.int32]:
    """The block of each query: equal intervals of the time of issue, at least as long as the mean latency."""
    known = queries.latency[~np.isnan(queries.latency)]
    span = float(np.fmax.reduce(queries.issued, initial=0.0))
    if not len(known) or span <= 0:
        return np.zeros(len(queries), dtype=np.int32)
    count = max(1, min(_MOST_BLOCKS, int(span / float(known.mean(dtype=np.float64)))))
    issued = np.nan_to_num(queries.issued)
    return np.minimum((issued / span * count).astype(np.int32), count - 1)


def _weights(blocks: int, seed: int) -> npt.NDArray[np.float64]:
    """How often each resample (row) draws each block; no row where there are too few blocks."""
    if blocks < _FEWEST_BLOCKS:
        return np.empty((0, blocks))
    drawn = np.random.default_rng(seed).multinomial(blocks, np.full(blocks, 1 / blocks), RESAMPLES)
    return drawn.astype(np.float64)


def _rate(
    queries: Queries, amounts: npt.NDArray[np.int32], blocks: npt.NDArray[np.int32], weights: Floats
) -> Estimate:
    """Completed amounts over the time from the first issue to the last answer, as run.json has them."""
    good = ~np.isnan(queries.latency)
    by_block = np.bincount(blocks[good], amounts[good], minlength=weights.shape[1])
    span = float(queries.ended[good].max(initial=0.0)) or 1.0
    return Estimate(float(by_block.sum()) / span, weights @ by_block / span if len(weights) else np.empty(0))


def _of_values(
    name: str, values: Floats, blocks: npt.NDArray[np.int32], weights: Floats
) -> dict[str, Estimate]:
    """Mean, p50 and p99."""
    known = ~np.isnan(values)
    if not known.any():
        return {}
    values, blocks = values[known] * 1e3, blocks[known]
    found = {f"{name} mean, ms": _mean(values, blocks, weights)}
    counts = _histograms(values, blocks, weights.shape[1])
    for share in (0.5, 0.99):
        resampled = _percentiles(counts, weights, share)
        found[f"{name} p{share * 100:g}, ms"] = Estimate(percentile(values, share), resampled)
    return found


def _mean(values: Floats, blocks: npt.NDArray[np.int32], weights: Floats) -> Estimate:
    sums = np.bincount(blocks, values, minlength=weights.shape[1])
    counts = np.bincount(blocks, minlength=weights.shape[1])
    resampled = weights @ sums / np.maximum(weights @ counts, 1) if len(weights) else np.empty(0)
    return Estimate(float(sums.sum() / counts.sum()), resampled)


class _Histograms(msgspec.Struct, frozen=True):
    """Histograms of the blocks, with the same cells."""

    counts: Floats
    """by block (rows) and cell (columns)"""
    least: Floats
    """smallest value of each cell"""


def _histograms(values: Floats, blocks: npt.NDArray[np.int32], count: int) -> _Histograms:
    """The cells are bounded by values of the run itself and become narrower towards the largest."""
    ranks = np.concatenate([np.linspace(0, 1, _CELLS), 1 - np.geomspace(1, 1 / len(values), _CELLS)])
    least = distinct(np.sort(values)[np.minimum(ranks * len(values), len(values) - 1).astype(np.int64)])
    cells = np.searchsorted(least, values, side="right") - 1
    flat = np.bincount(blocks.astype(np.int64) * len(least) + cells, minlength=count * len(least))
    return _Histograms(flat.reshape(count, len(least)).astype(np.float64), least)


def _percentiles(found: _Histograms, weights: Floats, share: float) -> Floats:
    """For each resample, the smallest value of the cell that contains the rank."""
    if not len(weights):
        return np.empty(0)
    cumulative = np.cumsum(weights @ found.counts, axis=1)
    ranks = np.floor(share * cumulative[:, -1:])
    chosen: Floats = found.least[np.minimum((cumulative <= ranks).sum(axis=1), len(found.least) - 1)]
    return chosen
