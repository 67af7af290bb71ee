"""The prepared tests: one SQLite file, read test by test, so that grading needs little memory."""

import contextlib
import hashlib
import json
import os
import sqlite3
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from harness.errors import DatasetError
from harness.files import user_cache
from harness.grading.livecodebench.release import Example, Problem, read_problems, release_files

INDEX_NAME = "lcb-index.sqlite"
_FORMAT = "2"
_FAST = 1  # zlib level: the file is read more often than its size matters
_SCHEMA = """
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT);
CREATE TABLE problems (question_id TEXT PRIMARY KEY, function TEXT, tests INTEGER, digest TEXT,
                       difficulty TEXT);
CREATE TABLE tests (question_id TEXT, number INTEGER, input BLOB, expected BLOB);
"""
_INDEX = "CREATE UNIQUE INDEX test_of ON tests (question_id, number)"


class ProblemFacts(msgspec.Struct, frozen=True):
    """A problem without its tests."""

    question_id: str
    function: str
    tests: int
    """Their number."""
    digest: str
    """SHA-256 of function and tests."""
    difficulty: str


class ProblemIndex:
    """Read access to a prepared file. A connection belongs to the thread that opened it."""

    def __init__(self, path: Path) -> None:
        """Open the file. Everything raises DatasetError where it is damaged."""
        self._path = path
        with self._readable():
            self._db = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
            self.facts = dict(self._db.execute("SELECT name, value FROM facts"))

    def find(self, question_id: str) -> ProblemFacts | None:
        """A problem's facts, or None where the release has no such problem."""
        with self._readable():
            row = self._db.execute("SELECT * FROM problems WHERE question_id = ?", (question_id,)).fetchone()
        return ProblemFacts(*row) if row else None

    def tests(self, question_id: str) -> Iterator[Example]:
        """A problem's tests in order, one in memory at a time."""
        return self._examples("question_id = ? ORDER BY number", question_id)

    def test(self, question_id: str, number: int) -> Example:
        """One test of a problem, from 0."""
        (example,) = self._examples("question_id = ? AND number = ?", question_id, number)
        return example

    def close(self) -> None:
        """Release the file."""
        self._db.close()

    def _examples(self, where: str, *values: str | int) -> Iterator[Example]:
        with self._readable():
            for packed in self._db.execute(f"SELECT input, expected FROM tests WHERE {where}", values):
                parts = (zlib.decompress(part).decode("utf-8", "surrogatepass") for part in packed)
                yield Example(*parts)

    @contextlib.contextmanager
    def _readable(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, zlib.error, UnicodeDecodeError) as error:
            raise DatasetError(
                f"{self._path}: not a prepared LiveCodeBench index ({error}); delete it"
            ) from error


def prepared(path: Path, notify: Callable[[str], None]) -> Path:
    """The index for ``path``: itself if it is one, else built once beside it or, if that is read-only, in the
    user's cache. Raises DatasetError, and ConfigError for a user who would need a cache and has none.
    """
    if path.suffix in (".sqlite", ".db"):
        _require_index(path)
        return path
    files = release_files(path)
    origin = _origin(files)
    for folder in _homes(files[0].parent):
        index = folder / (INDEX_NAME if path.is_dir() else f"{path.stem}.{INDEX_NAME}")
        if _is_current(index, origin):
            return index
        if os.access(folder, os.W_OK):
            notify(f"preparing {index} from {len(files)} release file(s), once")
            build(files, index)
            return index
    raise DatasetError(
        f"{files[0].parent} and {user_cache()}: no place to write {INDEX_NAME}; let this user write to one "
        "of them, or export XDG_CACHE_HOME=FOLDER"
    )


def build(files: list[Path], index: Path) -> None:
    """Write the index completely or not at all; a repeated question_id replaces the earlier one.

    Raises DatasetError, also where the disk is full.
    """
    partial = index.with_name(f"{index.name}.{os.getpid()}.part")
    partial.unlink(missing_ok=True)
    try:
        with contextlib.closing(sqlite3.connect(partial)) as db:
            db.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;" + _SCHEMA)
            for file in files:
                for problem in read_problems(file):
                    _insert(db, problem)
            facts = {"format": _FORMAT, "origin": _origin(files)}
            db.executemany("INSERT INTO facts VALUES (?, ?)", facts.items())
            db.execute(_INDEX)
            db.commit()
        partial.replace(index)
    except sqlite3.Error as error:
        raise DatasetError(f"{index}: cannot be written ({error}); free space there") from error
    finally:
        partial.unlink(missing_ok=True)


def _insert(db: sqlite3.Connection, problem: Problem) -> None:
    known = db.execute("SELECT 1 FROM problems WHERE question_id = ?", (problem.question_id,)).fetchone()
    if known:
        db.execute("DELETE FROM tests WHERE question_id = ?", (problem.question_id,))
    digest = hashlib.sha256(problem.function.encode())
    for number, test in enumerate(problem.tests):
        given, expected = (text.encode("utf-8", "surrogatepass") for text in (test.input, test.expected))
        digest.update(b"%d:%d:" % (len(given), len(expected)) + given + expected)
        blobs = (zlib.compress(given, _FAST), zlib.compress(expected, _FAST))
        db.execute("INSERT INTO tests VALUES (?, ?, ?, ?)", (problem.question_id, number, *blobs))
    tests = len(problem.tests)
    facts = (problem.question_id, problem.function, tests, digest.hexdigest(), problem.difficulty)
    db.execute("INSERT OR REPLACE INTO problems VALUES (?, ?, ?, ?, ?)", facts)


def _origin(files: list[Path]) -> str:
    """Names, sizes and times of the release files: the index is stale when they differ."""
    return json.dumps([[file.name, file.stat().st_size, file.stat().st_mtime_ns] for file in files])


def _homes(beside: Path) -> Iterator[Path]:
    yield beside
    cache = user_cache()
    with contextlib.suppress(OSError):
        cache.mkdir(parents=True, exist_ok=True)
        yield cache


def _is_current(index: Path, origin: str) -> bool:
    if not index.is_file():
        return False
    try:
        with contextlib.closing(ProblemIndex(index)) as found:
            return found.facts == {"format": _FORMAT, "origin": origin}
    except DatasetError:
        return False


def _require_index(path: Path) -> None:
    if not path.is_file():
        raise DatasetError(f"{path}: no such file; expected a prepared LiveCodeBench index or release files")
    with contextlib.closing(ProblemIndex(path)) as found:
        if found.facts.get("format") != _FORMAT:
            raise DatasetError(
                f"{path}: index format {found.facts.get('format')}, expected {_FORMAT}; delete it"
            )
