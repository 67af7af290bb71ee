"""The key figures of a section, out of what its command left.

A reader gets the section's folder, which holds the command's output, and returns the figures with the reason
why they are not what was asked for: "" where they are. It raises an error of files or values where there is
nothing to read.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.gpu.section_table import Figure
from harness.errors import HarnessError
from harness.files import RUN_RECORD
from harness.peak.search.search_state import SEARCH_STATE, read_state
from harness.record.run_record import Distribution, Level, RunRecord

OUTPUT, ERRORS = "output.txt", "errors.txt"  # of a section's command
SCORE, SERVER_INFO, INDEX, RUNS = "score.json", "server_info.json", "index.html", "runs.json"

# Raised for what a section has not left, or left unfinished.
UNREADABLE = (OSError, ValueError, LookupError, TypeError, HarnessError)

Found = tuple[dict[str, Figure], str]
Reader = Callable[[Path], Found]


def doctor(folder: Path) -> Found:
    """Counts of findings, the lines about GPUs, and the errors."""
    findings = json.loads((folder / OUTPUT).read_text())["findings"]
    levels = [one["level"] for one in findings]
    about = {one["subject"]: one["text"] for one in findings if one["subject"].startswith("GPU")}
    errors = [f"{one['subject']}: {one['text']}" for one in findings if one["level"] == "error"]
    return {"errors": len(errors), "warnings": levels.count("warning"), **about}, "; ".join(errors)


def server(folder: Path) -> Found:
    """What the server says of itself."""
    info = json.loads((folder / SERVER_INFO).read_text())
    wanted = ("version", "dtype", "load_format", "max_running_requests")
    return {"model": Path(info["model_path"]).name} | {name: info[name] for name in wanted}, ""


def run(folder: Path) -> Found:
    """The one run below the folder: rates, times, and the GPUs' power, clocks and throttling."""
    (path,) = sorted(folder.rglob(RUN_RECORD))
    record = RunRecord.read(path)
    found: dict[str, Figure] = {"result": record.verdict.result if record.verdict else "not ended"}
    if (figures := record.statistics) is not None:
        found |= {"queries": figures.queries, "failed": figures.failed, "OSL mean": figures.osl_mean}
        found |= {"samples/s": figures.samples_per_s, "tokens/s": figures.tokens_per_s}
        found |= _times("TTFT", figures.ttft) | _times("TPOT", figures.tpot)
    found |= _times("client share", record.client_share)
    found |= dict(_of_gpus(record))
    return found, "; ".join(record.verdict.reasons) if record.verdict else ""


def score(folder: Path) -> Found:
    """The official score."""
    summary = json.loads((folder / SCORE).read_text())["summary"]
    wanted = ("total_samples", "total_correct")
    return {name: summary[name] for name in wanted} | summary["metrics"], ""


def peak(folder: Path) -> Found:
    """The rate that a search found."""
    (path,) = sorted(folder.rglob(SEARCH_STATE))
    state = read_state(path.parent)
    end = state.conclusion
    if end is None:
        return {}, "the search did not end"
    found: dict[str, Figure] = {
        "outcome": end.outcome,
        "target_qps": end.rate,
        "VALID": f"{end.valid} of {end.runs}",
        "limit": end.binding,
        "expected peak": end.expected_peak,
    }
    return found, "" if end.rate is not None else end.why


def pages(folder: Path) -> Found:
    """The number of runs on the page of all."""
    return {"runs": len(json.loads((folder / RUNS).read_text())), "page": f"{folder.name}/{INDEX}"}, ""


def client_capacity(folder: Path) -> Found:
    """What one core carries."""
    rows = _result(folder, "client_capacity")
    return {
        f"{row['workload']}/s": f"{row['per second']:,.0f}, {row['CPU us for each']:.3g} us" for row in rows
    }, ""


def client_workers(folder: Path) -> Found:
    """How the rate grows."""
    rows = _result(folder, "client_workers")
    return {
        f"{row['workload']}/s": f"{row['per second']:,.0f}, {row['client cores']:.3g} cores" for row in rows
    }, ""


def timing_truth(folder: Path) -> Found:
    """The errors of LoadGen's times, in microseconds."""
    rows = [row for row in _result(folder, "timing_truth") if "LoadGen" in row["streams and quantity"]]
    return {
        row["streams and quantity"]: f"{row['mean us']:.3g}, p99 {row['p99 us']:.3g} us" for row in rows
    }, ""


def record_load(name: str) -> Reader:
    """The load that was reached; other than VALID it was not."""
    wanted = (
        *("issued per second", "most streams in flight", "failures", "client share p50 ms"),
        *("client share p99 ms", "issue delay p99 ms", "client CPU cores", "client memory MiB"),
        *("workers", "verdict"),
    )

    def read(folder: Path) -> Found:
        result = _result(folder, f"record_load_{name}")
        reached = result.get("verdict") == "VALID"
        return {key: result[key] for key in wanted if key in result}, "" if reached else _why(result)

    return read


def _why(result: dict[str, Any]) -> str:
    return result.get("reasons") or f"the run at this load was {result.get('verdict') or 'not judged'}"


def _result(folder: Path, name: str) -> Any:
    """What a benchmark wrote, for which BENCH_RESULTS named the section's folder."""
    return json.loads((folder / f"{name}.json").read_text())


def _times(name: str, found: Distribution | None) -> dict[str, Figure]:
    if found is None:
        return {}
    return {f"{name} p{percent} ms": found.percentiles[percent] / 1e6 for percent in ("50", "99")}


def _of_gpus(record: RunRecord) -> Iterator[tuple[str, Figure]]:
    load = record.server_load
    if load is None:
        return
    for name, label in (
        ("gpu_power", "GPU W"),
        ("gpu_clock", "GPU MHz"),
        ("gpu_temperature", "GPU degrees C"),
        ("gpu_use", "GPU use %"),
        ("gpu_memory", "GPU MiB"),
    ):
        if (level := load.levels.get(name)) is not None:
            yield label, f"{level.mean:.0f}, at most {level.max:.0f}"
    for name, label in (("gpu_slowed", "GPU slowed"), ("gpu_power_limited", "GPU power-limited")):
        if (level := load.levels.get(name)) is not None:
            yield label, _share(level)
    yield "J/token", load.gpus_j_per_token


def _share(level: Level) -> str:
    return f"{level.share:.0%} of the readings"
