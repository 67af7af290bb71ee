"""Edits of a submission's files, and of the runs that one is built from.

Each edit is a function of the folder that holds the scenarios: in a tree it is named after the benchmark.
"""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

Edit = Callable[[Path], object]
Rows = list[dict[str, Any]]
DETAIL, SUMMARY = "mlperf_log_detail.txt", "mlperf_log_summary.txt"
SCORE = "Offline/accuracy/accuracy.txt"
# From a benchmark's folder.
ORGANISATION, TREE = "../../..", "../../../../.."
SYSTEM = f"{ORGANISATION}/systems/made_up.json"
_PREFIX = ":::MLLOG "


def both(*edits: Edit) -> Edit:
    return lambda results: [edit(results) for edit in edits]


def remove(name: str) -> Edit:
    def edit(results: Path) -> None:
        path = results / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()

    return edit


def rename(old: str, new: str) -> Edit:
    return lambda results: (results / old).rename(results / new)


def copied(source: str, target: str) -> Edit:
    def edit(results: Path) -> None:
        copy = shutil.copytree if (results / source).is_dir() else shutil.copyfile
        copy(results / source, results / target)

    return edit


def write(name: str, content: str | bytes) -> Edit:
    def edit(results: Path) -> None:
        path = results / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())

    return edit


def changed(name: str, change: Callable[[bytes], bytes]) -> Edit:
    """Other content of a file; it must differ."""

    def edit(results: Path) -> None:
        before = (results / name).read_bytes()
        after = change(before)
        assert after != before, name
        (results / name).write_bytes(after)

    return edit


def cut(name: str, share: float = 0.5) -> Edit:
    return changed(name, lambda content: content[: int(len(content) * share)])


def text(name: str, old: str, new: str) -> Edit:
    return changed(name, lambda content: content.replace(old.encode(), new.encode()))


def pattern(name: str, old: str, new: str) -> Edit:
    return changed(name, lambda content: re.sub(old, new, content.decode(), flags=re.MULTILINE).encode())


def fields(name: str, **values: Any) -> Edit:
    """Set fields of a JSON file; None removes one."""

    def change(content: bytes) -> bytes:
        found = json.loads(content) | values
        return json.dumps({name: value for name, value in found.items() if value is not None}).encode()

    return changed(name, change)


def _rows(run: str, edit: Callable[[Rows], Rows]) -> Edit:
    """Other rows of the detail log of a run."""

    def change(content: bytes) -> bytes:
        rows = [json.loads(line.removeprefix(_PREFIX)) for line in content.decode().splitlines()]
        return "".join(f"{_PREFIX}{json.dumps(row)}\n" for row in edit(rows)).encode()

    return changed(f"{run}/{DETAIL}", change)


def row(run: str, **values: Any) -> Edit:
    """Set values by key; ``_`` in a name stands for itself, ``__`` for a dot."""
    wanted = {key.replace("__", "."): value for key, value in values.items()}

    def edit(rows: Rows) -> Rows:
        assert wanted.keys() <= {row["key"] for row in rows}
        return [row | {"value": wanted.get(row["key"], row["value"])} for row in rows]

    return _rows(run, edit)


def without_row(run: str, key: str) -> Edit:
    return _rows(run, lambda rows: [row for row in rows if row["key"] != key])


def error_row(run: str, message: str, kind: str = "error") -> Edit:
    """One more row, marked as an error or a warning, before the last."""

    def edit(rows: Rows) -> Rows:
        marked = {"metadata": rows[-2]["metadata"] | {f"is_{kind}": True}}
        return [*rows[:-1], rows[-2] | {"key": f"{kind}_runtime", "value": message} | marked, rows[-1]]

    return _rows(run, edit)


def second_row(run: str, key: str, value: Any, *, before: bool) -> Edit:
    """A second row of one key beside the first."""

    def edit(rows: Rows) -> Rows:
        (at,) = (number for number, row in enumerate(rows) if row["key"] == key)
        place = at if before else at + 1
        return [*rows[:place], rows[at] | {"value": value}, *rows[place:]]

    return _rows(run, edit)
