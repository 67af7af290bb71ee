"""The shape of a submission: ``closed/<org>/results/<system>/<benchmark>/<Scenario>/...``."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.config.benchmark import Scenario
from harness.errors import ConfigError

DIVISIONS = ("closed", "open", "network")
FOLDER_OF: dict[Scenario, str] = {
    "offline": "Offline",
    "server": "Server",
    "interactive": "Interactive",
    "single-stream": "SingleStream",
}
_SCENARIO_OF: dict[str, Scenario] = {folder.lower(): scenario for scenario, folder in FOLDER_OF.items()}

SUMMARY, DETAIL = "mlperf_log_summary.txt", "mlperf_log_detail.txt"
ACCURACY_LOG, ACCURACY_TEXT = "mlperf_log_accuracy.json", "accuracy.txt"
PERFORMANCE, ACCURACY = Path("performance/run_1"), Path("accuracy")
VERIFY_FILE = {
    "TEST06": "verify_accuracy.txt",
    "TEST07": "verify_accuracy.txt",
    "TEST09": "verify_output_len.txt",
}


@dataclass(frozen=True, slots=True)
class Place:
    """One scenario's results in a tree; a system's or a benchmark's folder where the last names are empty."""

    root: Path
    division: str
    org: str
    system: str
    benchmark: str
    folder: str

    @property
    def org_path(self) -> Path:
        """The folder that holds systems/, src/ and results/."""
        return self.root / self.division / self.org

    @property
    def binding(self) -> bool:
        """Whether accuracy target, tests and settings are binding: everywhere but in the open division."""
        return self.division != "open"

    @property
    def scenario(self) -> Scenario | None:
        """The official checker takes "Offline" and "offline", and fails on "OFFLINE"."""
        scenario = _SCENARIO_OF.get(self.folder.lower())
        is_known = scenario is not None and self.folder in (FOLDER_OF[scenario], self.folder.lower())
        return scenario if is_known else None

    @property
    def system_file(self) -> Path:
        """The description of the system."""
        return self.org_path / "systems" / f"{self.system}.json"

    @property
    def path(self) -> Path:
        """The scenario's folder."""
        return self.org_path / "results" / self.system / self.benchmark / self.folder

    def name(self, path: Path) -> str:
        """A file of the tree, as a reader of a complaint finds it."""
        return path.relative_to(self.root).as_posix()


def places(root: Path) -> tuple[Place, ...]:
    """All scenarios of a tree. Raises ConfigError when it has none."""
    if not root.is_dir():
        raise ConfigError(f"{root}: no such folder; pass the folder that holds closed/ or open/")
    found = tuple(_folders(root, 3))
    if not found:
        raise ConfigError(
            f"{root}: no <division>/<org>/results/<system>/<benchmark>/<Scenario>/ in it, expected "
            f"divisions {', '.join(DIVISIONS)}; pass the folder that holds them"
        )
    return found


def systems(root: Path) -> tuple[Place, ...]:
    """Every folder in results/, whatever is in it."""
    return tuple(_folders(root, 1))


def benchmarks(root: Path) -> tuple[Place, ...]:
    """Every folder in the folder of a system, whatever is in it."""
    return tuple(_folders(root, 2))


def _folders(root: Path, depth: int) -> Iterator[Place]:
    for path in sorted(root.glob("/".join(["*/*/results", *"*" * depth]))):
        division, org, _, *names = path.relative_to(root).parts
        if division in DIVISIONS and path.is_dir():
            system, benchmark, folder = (*names, "", "")[:3]
            yield Place(root, division, org, system, benchmark, folder)


def read_fields(path: Path) -> dict[str, Any] | str:
    """The object in a JSON file, or what is wrong with the file."""
    if not path.is_file():
        return "is missing"
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        return "is not UTF-8"
    except (ValueError, RecursionError) as error:
        return f"is not JSON: {error}"
    return fields if isinstance(fields, dict) else "is not a JSON object"
