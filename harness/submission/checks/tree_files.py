"""Checks of all files of a tree: kind, name, size, encoding, secrets, and no run submitted twice."""

import errno
import json
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from harness.compliance.registry import TESTS
from harness.endpoints import run_folder
from harness.errors import ConfigError
from harness.files import (
    ACCURACY,
    ACCURACY_LOG,
    ACCURACY_TEXT,
    DETAIL,
    GIT_LFS_POINTER,
    GRADING_PROGRESS,
    JOURNAL_DIR,
    PERFORMANCE,
    PROGRESS,
    REPORT,
    REQUESTS,
    RUN_RECORD,
    SERVER_METRICS,
    SUMMARY,
    sha256_of,
)
from harness.loadgen_logs.accuracy_log import EMPTY_LOG_BYTES
from harness.loadgen_logs.summary_and_detail import ROW_PREFIX
from harness.record.run_record import RunRecord
from harness.submission.checks.context import CheckContext
from harness.submission.checks.issue import Issue, unreadable
from harness.submission.tree.accuracy_files import read_accuracy_text
from harness.submission.tree.layout import DIVISIONS, REHEARSAL, is_division
from harness.submission.tree.origins import read_record
from harness.submission.tree.secrets import find_secrets

_RESULTS = "results"
# They differ between any two runs: the last is that of Endpoints.
_RUN_FILES = (DETAIL, ACCURACY_LOG, ACCURACY_TEXT, Path(run_folder.SUMMARY).name)
_POINTER_BYTES = 200  # a git-lfs pointer has about 130
_COMPILED = ("__pycache__", ".pyc")
_ARCHIVES = (".zip", ".tar", ".tgz", ".7z", ".tar.gz", ".tar.bz2", ".tar.xz", ".tar.zst")
_LEFT_OVER = (RUN_RECORD, JOURNAL_DIR, REQUESTS, REPORT, PROGRESS, GRADING_PROGRESS, SERVER_METRICS)
# The official checker opens files of these names wherever they lie, even where no rule asks for them.
_FILES = (SUMMARY, DETAIL, ACCURACY_LOG, ACCURACY_TEXT, *(test.verify_file for test in TESTS.values()))
# Tests of other models. The official checker reads their files in every scenario, needed or not.
_OTHER_TESTS = ("TEST01", "TEST04", "TEST08")


def check_files(root: Path, most_bytes: int) -> Iterator[Issue]:
    """Names, kinds and sizes of everything below the divisions, names beside them, and secrets anywhere."""
    entries = _tree_entries(root)
    for name in (entry for entry in entries if "/" not in entry):
        if name.lower() in DIVISIONS and name not in DIVISIONS:
            text = f"is skipped by MLCommons's checker, whose divisions are {', '.join(DIVISIONS)}"
            yield Issue("files", name, text, remedy=f"rename it to {name.lower()}")
        elif name.endswith(_ARCHIVES) and (root / name).is_file():
            yield Issue("files", name, "is an archive beside the divisions")
        elif name.endswith(REHEARSAL) and any(division in entries for division in DIVISIONS):
            yield Issue("files", name, "is a rehearsal beside results to submit", remedy="remove the folder")
    for where in entries:
        if "/" not in where or not is_division(where.partition("/")[0]):
            continue
        try:
            what = _issue(f"{root}/{where}", where, most_bytes)
        except OSError as error:
            yield unreadable(where, str(error.strerror))
            continue
        if what:
            yield Issue("files", where, what)
    yield from _secrets(root, entries)


def _secrets(root: Path, entries: Sequence[str]) -> Iterator[Issue]:
    """Secrets in any file: the place and the kind, never the text."""
    for found in find_secrets(sorted(root / entry for entry in entries)):
        where = f"{found.path.relative_to(root).as_posix()}:{found.line}"
        yield Issue("secret", where, f"looks like {found.kind}")


def _tree_entries(root: Path) -> list[str]:
    """The path of everything in a tree, sorted; a link that stands for a division is followed."""
    found = []
    for top in root.iterdir():
        found += [top.name, *(f"{top.name}/{entry}" for entry in _entries(top))]
    return sorted(found)


def _entries(folder: Path) -> Iterator[str]:
    """The path of everything below a folder, as text: a tree has tens of thousands of entries."""
    for above, folders, files in os.walk(folder):
        inside = above[len(str(folder)) + 1 :]
        yield from (f"{inside}/{name}" if inside else name for name in (*folders, *files))


def _issue(path: str, where: str, most_bytes: int) -> str:
    entry, (_, *above, name) = os.lstat(path), where.split("/")
    is_folder, is_file = stat.S_ISDIR(entry.st_mode), stat.S_ISREG(entry.st_mode)
    if stat.S_ISLNK(entry.st_mode):
        return "is a symbolic link"
    if name.startswith("."):
        return "has a name with a leading dot"
    if " " in name:
        return "has a name with a space"
    if not is_file and not is_folder:
        return "is no plain file or folder"
    if is_folder and name in _FILES:
        return "is a folder, expected a file"
    if not os.access(path, os.R_OK | (os.X_OK if is_folder else 0)):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    if name.endswith(_COMPILED):
        return "is what Python compiled"
    beside_code = _RESULTS in above or len(above) < 2  # src/ may hold anything
    if beside_code and (name in _LEFT_OVER or name.endswith(_ARCHIVES)):
        return "is left over from a run, and no part of a submission"
    if is_file and entry.st_size < _POINTER_BYTES and _RESULTS in above and _is_pointer(path):
        return "is a git-lfs pointer in place of the file: run git lfs pull"
    if is_file and entry.st_size > most_bytes:
        return f"has {entry.st_size} bytes, expected {most_bytes} or less"
    return ""


def _is_pointer(path: str) -> bool:
    with Path(path).open("rb") as file:
        return file.read(len(GIT_LFS_POINTER)) == GIT_LFS_POINTER


def check_encoding(context: CheckContext) -> Iterator[Issue]:
    """The text files that the official checker reads as UTF-8."""
    names = [PERFORMANCE / DETAIL, ACCURACY / DETAIL, ACCURACY / ACCURACY_TEXT]
    names += [Path(name, test.verify_file) for name, test in TESTS.items()]
    names += [Path(name, "verify_accuracy.txt") for name in _OTHER_TESTS]
    for name in names:
        path = context.dir.path / name
        if path.is_file() and not _is_text(path):
            yield context.issue("encoding", name, "is not UTF-8")


def check_other_tests(context: CheckContext) -> Iterator[Issue]:
    """The logs of tests of other models, which end the official checker if it cannot read them."""
    for name in _OTHER_TESTS:
        path = context.dir.path / name / PERFORMANCE / DETAIL
        if path.is_file() and not _is_detail_log(path):
            text = f"cannot be read by MLCommons's checker, and {context.benchmark.name} has no {name}"
            yield context.issue("log-damaged", path, text, remedy=f"remove the folder {name}")


def _is_detail_log(path: Path) -> bool:
    """Whether it begins with a row, and every row is JSON with a key, as that checker wants it."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        rows = [json.loads(line.removeprefix(ROW_PREFIX)) for line in lines if line.startswith(ROW_PREFIX)]
    except (ValueError, RecursionError):
        return False
    begins = not lines or lines[0].startswith(ROW_PREFIX)
    return begins and all(isinstance(row, dict) and "key" in row for row in rows)


def _is_text(path: Path) -> bool:
    try:
        with path.open(encoding="utf-8") as file:
            for _ in file:
                continue
    except UnicodeDecodeError:
        return False
    return True


class _RunFile(NamedTuple):
    """A log of a run, or its accuracy.txt."""

    path: Path
    run: Path
    """the run's folder"""
    context: CheckContext

    @property
    def has_answers(self) -> bool:
        """Whether it has no times: the answers of two runs may be equal."""
        return self.path.name in (ACCURACY_LOG, ACCURACY_TEXT)

    @property
    def record(self) -> RunRecord | None:
        """The kept run.json, if the run left the log whose hash is in accuracy.txt."""
        kept, text = self.context.kept, self.path.with_name(ACCURACY_TEXT)
        if kept is None or not text.is_file():
            return None
        try:
            found = read_record(kept / self.run.relative_to(self.context.dir.path) / RUN_RECORD)
        except ConfigError:
            return None
        left = "" if found is None else found.accuracy_log_sha256
        return found if left in read_accuracy_text(text).hashes else None


def check_repeats(root: Path, contexts: Sequence[CheckContext]) -> Iterator[Issue]:
    """Detail and accuracy logs, and summaries of Endpoints, hold times and tokens: those of two runs differ.

    But a greedy model gives the same answers again, also to the samples of TEST06, which LoadGen draws by the
    same seed in every scenario. Those of other models are of two runs where the run.json of each says so. One
    run may be submitted in two divisions, and an inferred result is a copy. What was copied as one folder is
    one issue.
    """
    seen: dict[str, _RunFile] = {}
    pairs = [
        (first, file)
        for context in contexts
        for file in _run_files(context)
        for key in _fingerprints(file.path)
        if (first := seen.setdefault(key, file)).run != file.run and not _is_inferred(first, file)
    ]
    same_runs = {(first.run, file.run) for first, file in pairs if not file.has_answers}
    copied: dict[tuple[Path, Path, bool], list[tuple[Path, Path]]] = {}
    for first, file in pairs:
        by_chance = (first.run, file.run) not in same_runs and _may_be_equal(first, file)
        where = (*_copied_folder(first.path, file.path), by_chance)
        copied.setdefault(where, []).append((first.path, file.path))
    for (source, target, by_chance), files in copied.items():
        yield _repeat(root, source, target, files, by_chance)


def _is_inferred(one: _RunFile, other: _RunFile) -> bool:
    """Whether the result of one was inferred from the other's."""
    is_of_one = one.context.dir.path.parent == other.context.dir.path.parent
    return is_of_one and one.context.is_inferred != other.context.is_inferred


def _may_be_equal(one: _RunFile, other: _RunFile) -> bool:
    """Whether two runs may have left the same answers."""
    if not other.context.benchmark.generation.temperature:
        return True
    first, second = one.record, other.record
    return first is not None and second is not None and first.started != second.started


def _copied_folder(first: Path, second: Path) -> tuple[Path, Path]:
    """The largest folders, or the files, that hold the two under the same path."""
    while first.name == second.name:
        first, second = first.parent, second.parent
    return first, second


def _repeat(
    root: Path, source: Path, target: Path, files: Sequence[tuple[Path, Path]], by_chance: bool
) -> Issue:
    if len(files) == 1:
        ((source, target),) = files
    where, other = target.relative_to(root).as_posix(), source.relative_to(root).as_posix()
    (division, submitter), (another, copier) = (path.relative_to(root).parts[:2] for path in files[0])
    what = f"has {len(files)} logs of the same runs as" if len(files) > 1 else "is of the same run as"
    if division != another and submitter == copier:
        text = f"{what} {other}, which is allowed in another division"
        return Issue("repeat", where, text, is_warning=True)
    if by_chance:
        return Issue("repeat", where, f"has the same answers as {other}", is_warning=True)
    return Issue("repeat", where, f"{what} {other}")


def _run_files(context: CheckContext) -> Iterator[_RunFile]:
    folder = context.dir.path
    found = (folder / entry for entry in _entries(folder) if entry.rpartition("/")[2] in _RUN_FILES)
    for path in sorted(path for path in found if path.is_file() and os.access(path, os.R_OK)):
        yield _RunFile(path, folder / path.relative_to(folder).parts[0], context)


def _fingerprints(path: Path) -> tuple[str, ...]:
    """The digest of a log; for accuracy.txt, the hashes of the full log in it."""
    if path.name == ACCURACY_TEXT:
        return tuple(f"full log {found}" for found in read_accuracy_text(path).hashes)
    return () if path.stat().st_size <= EMPTY_LOG_BYTES else (sha256_of(path),)
