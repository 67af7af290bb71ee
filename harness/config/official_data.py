"""The official files, where datasets/download.sh puts them."""

from pathlib import Path

from harness.config.benchmark import Benchmark, DatasetRule
from harness.errors import ConfigError
from harness.files import ROOT


def fetching(benchmark: str) -> str:
    """The command that downloads the datasets of a benchmark."""
    return f"datasets/download.sh --benchmark {benchmark} --what perf"


def downloaded(name: str, *folders: Path) -> Path:
    """The file or folder in data/ of the first folder that has it: of ``folders``, else of this checkout.

    Where none has it, its name below the working folder.
    """
    file = Path("data", name)
    return next((folder / file for folder in (*folders, ROOT) if (folder / file).exists()), file)


def official_dataset(benchmark: Benchmark, rule: DatasetRule) -> Path:
    """What a run without --input-file reads. Raises ConfigError where it is not downloaded."""
    file = downloaded(rule.file, Path())
    if not file.exists():
        raise ConfigError(
            f"no --input-file, and {benchmark.name}'s {file} is not here; run {fetching(benchmark.name)}, "
            "or pass --input-file FILE (datasets/samples has some to try)"
        )
    return file
