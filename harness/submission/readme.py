"""README.md of one scenario: how the result was made, and what a reviewer needs to make it again."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from harness.config.benchmark import Benchmark
from harness.submission.checks.check_context import Logs
from harness.submission.find_runs import ScenarioRuns
from harness.submission.layout import FOLDER_OF, PERFORMANCE

Record = Mapping[str, Any]


def scenario_readme(benchmark: Benchmark, run: ScenarioRuns, logs: Logs) -> str:
    """Of the runs' own run.json; runs of another harness have none."""
    records = run.records()
    lines = [f"# {benchmark.name}, {FOLDER_OF[run.scenario]}", "", *_result(logs)]
    if (record := records.get(PERFORMANCE.as_posix())) is not None:
        lines += ["", "## What ran", "", *_made_of(record)]
    if commands := list(_commands(records)):
        lines += ["", "## Commands", "", *commands]
    if records:
        deviations = [
            f"- {name}: {deviation}"
            for name, one in records.items()
            for deviation in one.get("deviations") or ()
        ]
        lines += ["", "## Deviations from the rules", "", *(deviations or ["None."])]
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
        names = ("engine", "version", "model", "dp_size", "context_length")
        yield "- server: " + _listed({name: server.get(name) for name in names})
        if settings := server.get("settings"):
            yield "- server settings, as the server names them: " + _listed(settings)
    yield f"- dataset: {plan.get('samples')} samples, sha256 {plan.get('dataset_sha256')}"
    parameters = plan.get("parameters") or {}
    yield "- generation: " + _listed({name: value for name, value in parameters.items() if name != "extra"})
    workers = (plan.get("placement") or {}).get("workers")
    yield "- client: " + _listed(
        {"worker processes": workers, "backend": plan.get("backend"), "concurrency": plan.get("concurrency")}
    )


def _listed(fields: Record) -> str:
    return ", ".join(f"{name} {value}" for name, value in fields.items() if value is not None)


def _commands(records: Mapping[str, Record]) -> Iterator[str]:
    """As the runs were called, each one once; folders of the machine are left out of the paths."""
    called = [(one.get("provenance") or {}).get("command") for one in records.values()]
    lines = dict.fromkeys(_command_line(words) for words in called if isinstance(words, list) and words)
    if not lines:
        return
    yield "The runs were started with these commands. user.conf is that of the performance run."
    yield ""
    yield "```bash"
    yield from lines
    yield "```"
    yield ""
    yield "eval_mlperf_accuracy.py made accuracy.txt from the log of the accuracy run."


def _command_line(words: Sequence[object]) -> str:
    return shlex.join(["python", *(_without_folder(str(word)) for word in words)])


def _without_folder(word: str) -> str:
    """``/home/me/acc.parquet`` is acc.parquet, also behind ``--flag=`` and ``TEST07=``."""
    before, equals, path = word.rpartition("=")
    return f"{before}{equals}{PurePosixPath(path).name}" if path.startswith("/") else word
