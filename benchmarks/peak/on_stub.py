"""The model's servers and workloads on the stub (benchmarks/stub/batch.c)."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.peak.server_model import Server
from benchmarks.peak.workload import Workload

_PROMPT = 40  # ids


def write_dataset(path: Path, workload: Workload) -> Path:
    """Prompts whose first id is the number of tokens of their answers (the stub's ``first_id_tokens``)."""
    ids = [[int(tokens), *range(row + 1, row + _PROMPT)] for row, tokens in enumerate(workload.tokens)]
    pq.write_table(pa.table({"input_tokens": pa.array(ids, pa.list_(pa.int32()))}), path)
    return path


def conf_rows(workload: Workload, rate: float) -> str:
    """A user.conf for the workload's runs."""
    return (
        f"*.Server.target_qps = {rate:.6g}\n"
        f"*.Server.min_duration = {1000 * workload.min_duration_s:.0f}\n*.Server.min_query_count = 459\n"
    )


def knobs(server: Server) -> dict[str, int]:
    """The stub's knobs for a server; its noise is another realisation."""
    return {
        "ports": server.replicas,
        "first_id_tokens": 1,
        "cumulative": 0,
        "batch_us": round(server.step_s * 1e6),
        "stream_ns": round(server.stream_s * 1e9),
        "square_ps": round(server.square_s * 1e12),
        "slots": server.slots if server.slots < 1_000_000 else 0,
        "prefill_us": round(server.prefill_s * 1e6),
        "slow_permille": round(1000 * (server.slow - 1)),
        "noise_permille": round(1000 * server.noise),
        "noise_ms": round(1000 * server.noise_s),
        "drift_permille": round(1000 * server.drift),
        "drift_s": round(server.drift_s),
    }
