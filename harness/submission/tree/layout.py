"""The shape of a submission: ``closed/<org>/results/<system>/<benchmark>/<Scenario>/...``."""

import os
import re
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path

import msgspec
from msgspec.structs import astuple

from harness.config.scenario import Scenario
from harness.endpoints import run_folder
from harness.errors import ConfigError
from harness.files import ACCURACY, DETAIL, PERFORMANCE

DIVISIONS = ("closed", "open", "network")
# A rehearsal has the rules of a division and a folder of another name, which MLCommons's checker skips.
REHEARSAL = ".REHEARSAL"
MEASUREMENTS = "measurements.json"  # what a scenario's folder says of the weights


def is_division(name: str) -> bool:
    """Whether a folder is that of a division, or of a rehearsal of one."""
    return name.removesuffix(REHEARSAL) in DIVISIONS


def kept_beside(root: Path) -> Path:
    """The folder of the files that are kept and not submitted, for the tree ``root``."""
    named = root if root.name not in ("", "..") else root.resolve()  # . has no name
    return named.with_name(f"{named.name}.kept")


def is_rehearsal(root: Path) -> bool:
    """Whether a tree holds rehearsals, and nothing to submit."""
    names = [path.name for path in root.iterdir() if is_division(path.name)]
    return bool(names) and not any(name in DIVISIONS for name in names)


class SystemDir(msgspec.Struct, frozen=True, dict=True):
    """``<division>/<org>/results/<system>`` in the tree ``root``."""

    root: Path
    division: str
    org: str
    system: str

    @cached_property
    def org_path(self) -> Path:
        """The folder that holds systems/, src/ and results/."""
        return self.root.joinpath(self.division, self.org)

    @property
    def binding(self) -> bool:
        """Whether accuracy target, tests and settings are binding: in every division but open."""
        return self.division.removesuffix(REHEARSAL) != "open"

    @property
    def is_rehearsal(self) -> bool:
        """Whether its runs are those of a rehearsal, which nobody can submit."""
        return self.division.endswith(REHEARSAL)

    @property
    def system_file(self) -> Path:
        """The description of the system."""
        return self.org_path / "systems" / f"{self.system}.json"

    @cached_property
    def path(self) -> Path:
        """The folder itself."""
        below = astuple(self)[3:]  # after root, division and organisation
        return self.org_path.joinpath("results", *below)

    def relative(self, path: Path) -> str:
        """A path in the tree, relative to its root, as issues name it."""
        return path.relative_to(self.root).as_posix()


class BenchmarkDir(SystemDir, frozen=True):
    """A benchmark's folder below a system's."""

    benchmark: str


class ScenarioDir(BenchmarkDir, frozen=True):
    """A scenario's folder below a benchmark's."""

    folder: str

    @property
    def scenario(self) -> Scenario | None:
        """None for a folder of another name."""
        return scenario_of(self.path)


# submission_structure.md, "Endpoints submission structure": both are taken, of both the first is read.
_ENDPOINTS_CONFIGS = (run_folder.CONFIG, "config.yml")
_ENDPOINTS_SERVER = "online"  # the Endpoints harness's name for Server


def endpoints_config(folder: Path) -> Path:
    """The client's settings in a scenario's folder, as a name."""
    there = (name for name in _ENDPOINTS_CONFIGS if (folder / name).is_file())
    return Path(next(there, _ENDPOINTS_CONFIGS[0]))


def has_endpoints_layout(folder: Path) -> bool:
    """Whether a scenario's folder holds results of the MLPerf Endpoints harness, and no log of LoadGen."""
    logs = (PERFORMANCE / DETAIL, ACCURACY / DETAIL)
    files = (endpoints_config(folder), run_folder.SUMMARY)
    return all((folder / name).is_file() for name in files) and not any(
        (folder / log).is_file() for log in logs
    )


def scenario_of(folder: Path) -> Scenario | None:
    """The scenario of a folder. The official checker accepts "Offline" and "offline", not "OFFLINE"."""
    if folder.name.lower() == _ENDPOINTS_SERVER and has_endpoints_layout(folder):
        return Scenario.SERVER
    return next((one for one in Scenario if folder.name in (one.folder, one.folder.lower())), None)


def scenario_dirs(root: Path) -> tuple[ScenarioDir, ...]:
    """All scenario folders of a tree. Raises ConfigError when it has none."""
    if not root.is_dir():
        raise ConfigError(f"{root}: no such folder; pass the folder that holds closed/ or open/")
    found = tuple(ScenarioDir(root, *names) for names in _folders(root, 3))
    above = (path.parent for path in (root, *root.parents) if is_division(path.name))
    inside = [] if found else [path for path in above if any(_folders(path, 3))]
    if inside:
        raise ConfigError(f"{root}: lies in a division; pass the folder that holds it: {inside[0]}")
    if not found:
        raise ConfigError(
            f"{root}: no <division>/<org>/results/<system>/<benchmark>/<Scenario>/ in it, expected "
            f"divisions {', '.join(DIVISIONS)}; pass the folder that holds them"
        )
    return found


def system_dirs(root: Path) -> tuple[SystemDir, ...]:
    """Every folder in results/, with or without results."""
    return tuple(SystemDir(root, *names) for names in _folders(root, 1))


def organisations(root: Path) -> tuple[Path, ...]:
    """The folder of every submitter in every division."""
    found = (path for path in root.glob("*/*") if is_division(path.parent.name))
    return tuple(sorted(path for path in found if _is(Path.is_dir, path)))


def benchmark_dirs(root: Path) -> tuple[BenchmarkDir, ...]:
    """Every folder in the folder of a system, with or without results."""
    return tuple(BenchmarkDir(root, *names) for names in _folders(root, 2))


def _folders(root: Path, depth: int) -> Iterator[tuple[str, ...]]:
    """Division, organisation and the ``depth`` names below results/ of each folder."""
    for path in sorted(root.glob("/".join(["*/*/results", *"*" * depth]))):
        division, org, _, *names = path.relative_to(root).parts
        if is_division(division) and _is(Path.is_dir, path):
            yield (division, org, *names)


def _is(kind: Callable[[Path], bool], path: Path) -> bool:
    """Whether the path is of a kind; False in a folder that this user may not read, where Path raises."""
    try:
        return kind(path)
    except OSError:
        return False


def is_empty(folder: Path) -> bool:
    """Whether a folder holds nothing but folders."""
    return not any(names for _, _, names in os.walk(folder)) and os.access(folder, os.R_OK | os.X_OK)


def is_readable(path: Path) -> bool:
    """Whether it is a plain file that this user can read."""
    return _is(Path.is_file, path) and os.access(path, os.R_OK)


_OLD_NAMES = {"src": "code"}  # as trees until v5.1 have them


def absence(folder: SystemDir, path: Path) -> tuple[str, str]:
    """The reason why a path is not what is expected there, and the remedy ("" for the rule's)."""
    if path.is_symlink():
        return f"is a link to {path.readlink()}, which does not lead to a file", "put the file in its place"
    if path.is_dir():
        return ("is a folder, expected a file" if any(path.iterdir()) else "is an empty folder"), ""
    if path.is_file():
        return "is a file, expected a folder", ""
    if path.exists():
        return "is no plain file", "put the file in its place"
    found = next(_instead(folder, path), None)
    if found is None:
        return "is missing", ""
    return f"is missing, found {folder.relative(found)}", f"rename or move it to {folder.relative(path)}"


def _instead(folder: SystemDir, path: Path) -> Iterator[Path]:
    """Entries that may be meant: of a similar name beside it, of an earlier round, of a renamed system."""
    for parent in (path.parent, *path.parent.parents):
        if parent.is_dir():
            break
    rest = path.relative_to(parent)
    for entry in sorted(parent.iterdir()):
        similar = _letters(entry.name) in (_letters(rest.parts[0]), _OLD_NAMES.get(rest.parts[0]))
        if similar and entry.name != rest.parts[0]:
            yield entry.joinpath(*rest.parts[1:]) if entry.joinpath(*rest.parts[1:]).exists() else entry
    inside = folder.org_path / "results"
    if path.is_relative_to(inside):
        result = path.relative_to(inside)
        for old in ("compliance", "measurements"):
            if (moved := folder.org_path / old / result).exists():
                yield moved
        if path.name == MEASUREMENTS:
            yield from sorted((folder.org_path / "measurements" / result).parent.glob("*.json"))
    if path == folder.system_file:
        described = sorted(path.parent.glob("*.json"))
        yield from (entry for entry in described if not (inside / entry.stem).exists())


def _letters(name: str) -> str:
    """The name for comparison: TEST7 and test07, Made_up.json and made-up.json are similar."""
    return re.sub(r"0+(?=\d)", "", re.sub(r"[-_ ]", "", name.lower()))
