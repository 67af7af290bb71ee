"""The rows of a parametrised test as one test.

Each test costs pytest-xdist 3 ms of CPU beside its call, and the collection of each process 0.2 ms.
"""

import inspect
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from _pytest.python import CallSpec, DirectParamFixtureDef

_SHARED = ("session", "package", "module")  # scopes of fixtures that all rows get the same

_rows: dict[str, list[CallSpec]] = {}
"""By the name of their test."""


def join(metafunc: Any) -> None:
    """Leave one of the rows that need no fixture of their own; ``run`` runs each."""
    rows = [row for row in metafunc._calls if not row.marks]
    if len(rows) < 2 or metafunc.definition.get_closest_marker("engine"):
        return
    if any(_is_its_own(metafunc, rows[0], taken) for taken in metafunc.fixturenames):
        return
    _rows[metafunc.definition.nodeid] = rows
    metafunc._calls = [replace(rows[0], _idlist=()), *(row for row in metafunc._calls if row.marks)]


def _is_its_own(metafunc: Any, row: CallSpec, name: str) -> bool:
    """Whether a row needs the fixture for itself, as a changed environment; a folder is made for each."""
    if name == "tmp_path":
        return False
    if name == "request":  # listed for the fixtures' own use, too
        return name in inspect.signature(metafunc.function).parameters
    made = metafunc._arg2fixturedefs[name][-1]
    if isinstance(made, DirectParamFixtureDef):
        return False
    return name in row.params or made.scope not in _SHARED


def run(item: Any) -> bool | None:
    """Run the rows of which the item is left; None for another item.

    :raises BaseExceptionGroup: All failures, each with the row's name; where one row fails, its own.
    """
    if (rows := _rows.get(item.nodeid)) is None:
        return None
    names = [name for name in item._fixtureinfo.argnames if name not in rows[0].params]
    run_each(item.obj, rows, {name: item.funcargs[name] for name in names})
    return True


def run_each(test: Any, rows: Sequence[Any], fixtures: dict[str, Any]) -> None:
    """Run each row, whatever became of those before it."""
    failures: list[BaseException] = []
    skips = []
    for number, row in enumerate(rows):
        own = dict(fixtures)
        if "tmp_path" in own:
            own["tmp_path"] /= str(number)
            own["tmp_path"].mkdir()
        try:
            test(**row.params, **own)
        except pytest.skip.Exception as skip:
            skips.append(skip)
        except (Exception, pytest.fail.Exception) as failure:  # noqa: BLE001  # said at the end
            failure.add_note(f"[{row.id}]")
            failures.append(failure)
            if "pytest-timeout" in str(failure):  # its clock ran for all rows
                break
    if len(failures) == 1:
        raise failures[0]
    if failures:
        raise BaseExceptionGroup(f"{len(failures)} of {len(rows)} rows", failures)
    if skips:
        pytest.skip(f"{len(skips)} of {len(rows)} rows: {skips[0].msg}")
