"""README.md of one scenario: how the result was made, and what a reviewer needs to make it again."""

from collections.abc import Iterator, Mapping
from typing import Any

from harness.benchmark import Benchmark
from harness.compliance.submission.evidence import Logs
from harness.compliance.submission.runs import ScenarioRuns
from harness.compliance.submission.tree import FOLDER_OF

Record = Mapping[str, Any]


def scenario_readme(benchmark: Benchmark, run: ScenarioRuns, record: Record | None, logs: Logs) -> str:
    """``record`` is the performance run's run.json, None for runs of another harness."""
    lines = [f"# {benchmark.name}, {FOLDER_OF[run.scenario]}", "", *_result(logs)]
    if record is not None:
        lines += [
            "",
            "## What ran",
            "",
            *_made_of(record),
            "",
            "## Again",
            "",
            *_commands(benchmark, run, record),
        ]
        lines += ["", "## Deviations from the rules", ""]
        lines += [f"- {deviation}" for deviation in record.get("deviations") or ()] or ["None."]
    return "\n".join(lines) + "\n"


def _result(logs: Logs) -> Iterator[str]:
    yield f"LoadGen {logs.values.get('loadgen_version')} says {logs.values.get('result_validity')}."
    if logs.mean_tokens is not None:
        yield f"Mean output tokens per sample: {logs.mean_tokens:.2f}."


def _made_of(record: Record) -> Iterator[str]:
    plan, provenance = record.get("plan") or {}, record.get("provenance") or {}
    git = provenance.get("git") or {}
    dirty = " with changes" if git.get("dirty") else ""
    yield f"- harness: commit {git.get('commit', 'unknown')}{dirty}, {provenance.get('python')}; code in src/"
    packages = provenance.get("packages") or {}
    yield "- packages: " + ", ".join(f"{name} {version}" for name, version in packages.items() if version)
    for server in record.get("servers") or ():
        told = {
            name: server.get(name) for name in ("engine", "version", "model", "dp_size", "context_length")
        }
        yield "- server: " + ", ".join(f"{name} {value}" for name, value in told.items() if value is not None)
    yield f"- dataset: {plan.get('samples')} samples, sha256 {plan.get('dataset_sha256')}"
    parameters = plan.get("parameters") or {}
    yield "- generation: " + ", ".join(
        f"{name} {value}" for name, value in parameters.items() if name != "extra"
    )
    yield f"- client: {plan.get('workers')} worker processes, backend {plan.get('backend')}"


def _commands(benchmark: Benchmark, run: ScenarioRuns, record: Record) -> Iterator[str]:
    backend = (record.get("plan") or {}).get("backend", "sglang")
    common = (
        f"--benchmark {benchmark.name} --scenario {run.scenario} --backend {backend} --user-conf user.conf"
    )
    yield "```bash"
    yield f"python run_mlperf.py {common} --input-file {benchmark.dataset(accuracy=False).file}"
    accuracy = benchmark.dataset(accuracy=True).file
    yield f"python run_mlperf.py {common} --accuracy --input-file {accuracy}"
    yield (
        f"python eval_mlperf_accuracy.py --benchmark {benchmark.name} --reference-data {accuracy} "
        f"--mlperf-log mlperf_results/{run.scenario}/accuracy/mlperf_log_accuracy.json"
    )
    for test in run.tests:
        file = benchmark.datasets[str(benchmark.compliance[test].get("dataset", "performance"))].file
        yield f"python run_compliance.py --test {test} {common} --input-file {file}"
    yield "```"
