"""A scenario whose runs were made with the client of MLPerf Endpoints: its run folder becomes its result."""

from collections.abc import Iterator
from pathlib import Path

from harness.config.benchmark import Benchmark
from harness.endpoints.run_folder import ACCURACY, CONFIG, EVENTS, SUMMARY
from harness.json_files import read_fields
from harness.staging import copy_file, keep_file
from harness.submission.building.find_runs import ScenarioRuns
from harness.submission.building.gaps import Gap
from harness.submission.building.source_code import WrittenSource
from harness.submission.tree.cost import Cost
from harness.submission.tree.layout import endpoints_config

_AUDITS = "audit/audit_*.json"


def endpoints_gaps(benchmark: Benchmark, run: ScenarioRuns) -> Iterator[Gap]:
    """What the run folder lacks; its numbers are judged by the check."""
    for name in (SUMMARY, ACCURACY):
        if not (run.path / name).is_file():
            what = f"{benchmark.name}: {run.path.name}/{name} is missing"
            yield Gap(Cost.GPU_HOURS, what, "run the client of Endpoints with --mode both into this folder")
        elif isinstance(found := read_fields(run.path / name), str):
            yield Gap(Cost.MINUTES, f"{benchmark.name}: {run.path.name}/{name} {found}", "copy it again")


def write_endpoints(run: ScenarioRuns, target: Path, kept: Path) -> None:
    """The files that MLCommons's checker reads; the log of the run is kept."""
    copy_file(run.path / endpoints_config(run.path), target / CONFIG)
    for name in (SUMMARY, ACCURACY):
        copy_file(run.path / name, target / name)
    for path in sorted(run.path.glob(_AUDITS)):
        copy_file(path, target / path.relative_to(run.path))
    kept.mkdir(parents=True)
    if (run.path / EVENTS).is_file():
        keep_file(run.path / EVENTS, kept / EVENTS)


def endpoints_readme(benchmark: Benchmark, run: ScenarioRuns, code: WrittenSource) -> str:
    """What was run, and with which settings."""
    summary = read_fields(run.path / SUMMARY)
    found = {} if isinstance(summary, str) else summary
    version = " ".join(str(found[name]) for name in ("version", "git_sha") if found.get(name))
    lines = [
        f"# {benchmark.name}, {run.scenario.folder}",
        "",
        f"Run with the client of MLPerf Endpoints {version}".rstrip() + f"; {CONFIG} holds its settings.",
        f"The code is in src/{code.folder}.",
    ]
    return "\n".join(lines) + "\n"
