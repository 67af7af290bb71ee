"""The rows of a parametrised test as one test.

Each test costs pytest-xdist 3 ms of CPU beside its call, and the collection of each process 0.2 ms; a row
costs 0.1 ms.
"""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from _pytest.python import CallSpec, DirectParamFixtureDef
from _pytest.tmpdir import tmppath_result_key

_rows: dict[str, list[CallSpec]] = {}
"""By the name of their test."""


def join(metafunc: Any) -> None:
    """Leave one of the rows that need no test of their own; ``run`` runs each."""
    rows = [row for row in metafunc._calls if not row.marks]
    if len(rows) < 2 or metafunc.definition.get_closest_marker("engine"):
        return
    if any(_is_of_a_test(metafunc, rows[0], taken) for taken in metafunc.fixturenames):
        return
    _rows[metafunc.definition.nodeid] = rows
    metafunc._calls = [replace(rows[0], _idlist=()), *(row for row in metafunc._calls if row.marks)]


def _is_of_a_test(metafunc: Any, row: CallSpec, name: str) -> bool:
    """Whether a fixture is not made anew for each row."""
    if name == "request":  # listed for the fixtures' own use, too
        return name in inspect.signature(metafunc.function).parameters
    made = metafunc._arg2fixturedefs[name][-1]
    is_direct = isinstance(made, DirectParamFixtureDef)
    return name == "caplog" or (name in row.params and not is_direct and made.scope != "function")


def leave_fixtures_to_rows(item: Any) -> None:
    """Before the set-up of an item: one that fails or is skipped there would take all rows with it."""
    if item.nodeid in _rows:
        item.setup = lambda: None


def run(item: Any) -> bool | None:
    """Run the rows of which the item is left; None for another item.

    :raises BaseExceptionGroup: All failures, each with the row's name; where one row fails, its own.
    """
    if (rows := _rows.get(item.nodeid)) is None:
        return None
    del item.setup
    item.session._setupstate.teardown_exact(item.parent)
    run_each(rows, lambda row: _run(item, row))
    return True


def _run(item: Any, row: CallSpec) -> None:
    """A row between the set-up and the end of its fixtures."""
    item.callspec = row
    item._initrequest()
    passed = item.stash.setdefault(tmppath_result_key, {})  # where "call" is False, tmp_path is kept
    passed["call"] = False
    try:
        item.session._setupstate.setup(item)
        item.obj(**{name: item.funcargs[name] for name in item._fixtureinfo.argnames})
        passed["call"] = True
    finally:
        item.session._setupstate.teardown_exact(item.parent)


def run_each(rows: Sequence[Any], test: Callable[[Any], None]) -> None:
    """Run each row, whatever became of those before it."""
    failures: list[BaseException] = []
    skips = []
    for row in rows:
        try:
            test(row)
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
