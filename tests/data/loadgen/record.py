"""Records the logs in this folder with the real LoadGen: ``python record.py <folder>``.

Each run's own times, taken around the calls to LoadGen, are written to ``times.json`` beside its logs.
"""

import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from tempfile import NamedTemporaryFile

import mlperf_loadgen as lg
import numpy as np

SAMPLES = 64


# A permutation of 0..63, so that LoadGen has something to sort.
def shuffled(order):
    return order * 37 % SAMPLES


# Scenario and rows of its conf, the times of first token and end, and the number of tokens, of query i.
RUNS = {
    "offline_valid": (
        "Offline",
        ("target_qps = 10",),
        (lambda i: 0.01, lambda i: 0.05 + 0.02 * shuffled(i), lambda i: 8),
    ),
    # Every first token is later than the limit of 1 ms.
    "server_invalid": (
        "Server",
        ("target_qps = 100", "ttft_latency = 1"),
        (lambda i: 0.05 + 0.01 * shuffled(i), lambda i: 0.15 + 0.025 * shuffled(i), lambda i: 2 + i % 5),
    ),
    # One query in eight completes without a token: LoadGen's figures are absurd.
    "server_errors": (
        "Server",
        ("target_qps = 500",),
        (lambda i: 0.001, lambda i: 0.002, lambda i: 0 if i % 8 == 3 else 4),
    ),
    # One query in sixteen completes without a token, and LoadGen still says VALID.
    "offline_errors": (
        "Offline",
        ("target_qps = 10",),
        (lambda i: 0.001, lambda i: 0.002, lambda i: 0 if i % 16 == 3 else 4),
    ),
    # LoadGen names its result by the percentile of the conf.
    "single_stream_percentile_50": (
        "SingleStream",
        ("target_latency = 1", "target_latency_percentile = 50"),
        (lambda i: 0.001, lambda i: 0.002 + 0.0001 * shuffled(i), lambda i: 4),
    ),
}
# Beside the summary.
KEPT = dict.fromkeys(("offline_valid", "server_invalid"), "times.json")
KEPT |= dict.fromkeys(("offline_errors", "single_stream_percentile_50"), "mlperf_log_detail.txt")


class Recorder:
    """Completes query i after a delay of its own and notes when it did so."""

    def __init__(self, first_s, last_s, tokens):
        self.first_s, self.last_s, self.tokens = first_s, last_s, tokens
        self.rows = []

    def issue(self, queries):
        issued = time.monotonic_ns()
        for query in queries:
            order = len(self.rows)
            row = {"id": query.id, "index": query.index, "issued": issued, "tokens": self.tokens(order)}
            self.rows.append(row)
            threading.Thread(target=self.answer, args=(row, order)).start()

    def answer(self, row, order):
        n = row["tokens"]
        data = np.arange(n, dtype=np.int32)
        self.wait(row["issued"], self.first_s(order))
        row["first"] = time.monotonic_ns()
        if n:
            lg.FirstTokenComplete([lg.QuerySampleResponse(row["id"], data.ctypes.data, 4, 1)])
        self.wait(row["issued"], self.last_s(order))
        row["last"] = time.monotonic_ns()
        lg.QuerySamplesComplete([lg.QuerySampleResponse(row["id"], data.ctypes.data if n else 0, 4 * n, n)])

    @staticmethod
    def wait(start_ns, delay_s):
        time.sleep(max(0.0, start_ns / 1e9 + delay_s - time.monotonic()))


def settings(scenario, rows):
    made = lg.TestSettings()
    with NamedTemporaryFile("w", suffix=".conf") as file:
        file.writelines(f"*.{scenario}.{row}\n" for row in rows)
        file.flush()
        made.FromConfig(file.name, "gpt-oss-120b", scenario, 1)
    made.scenario = getattr(lg.TestScenario, scenario)
    made.mode = lg.TestMode.PerformanceOnly
    made.min_duration_ms, made.min_query_count, made.sample_concatenate_permutation = 0, SAMPLES, False
    made.performance_sample_count_override = made.accuracy_sample_count_override = SAMPLES
    return made


def record(name, folder):
    scenario, rows, answers = RUNS[name]
    recorder = Recorder(*answers)
    log = lg.LogSettings()
    log.log_output, log.enable_trace = lg.LogOutputSettings(), False
    log.log_output.outdir = str(folder)
    sut = lg.ConstructSUT(recorder.issue, lambda: None)
    qsl = lg.ConstructQSL(SAMPLES, SAMPLES, lambda ids: None, lambda ids: None)
    lg.StartTestWithLogSettings(sut, qsl, settings(scenario, rows), log, "")
    lg.DestroyQSL(qsl)
    lg.DestroySUT(sut)
    (folder / "times.json").write_text(json.dumps(recorder.rows, separators=(",", ":")))
    shorten(folder)


def shorten(folder):
    """Keep what the tests read: one detail log, without its long row of checksums of LoadGen's sources."""
    detail = folder / "mlperf_log_detail.txt"
    rows = [row for row in detail.open() if '"loadgen_file_sha1"' not in row]
    detail.write_text("".join(rows))
    for path in folder.iterdir():
        if path.name not in ("mlperf_log_summary.txt", KEPT.get(folder.name)):
            path.unlink()


def main():
    if len(sys.argv) == 3:
        return record(sys.argv[2], Path(sys.argv[1]))
    for name in RUNS:  # LoadGen allows one test per process
        folder = Path(sys.argv[1]) / name
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run([sys.executable, __file__, str(folder), name], check=True)
    return None


if __name__ == "__main__":
    main()
