"""The rows of a parametrised test as one test.

Each test costs pytest-xdist 3 ms of CPU beside its call, more than most rows take.
"""

import functools
import inspect
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from _pytest.python import DirectParamFixtureDef

_SHARED = ("session", "package", "module")  # scopes of fixtures that all rows get the same


def joined(items: Sequence[pytest.Item]) -> Iterator[pytest.Item]:
    """``items``, with the rows of a test that need no fixture of their own as one item that runs each."""
    tables: dict[str, list[pytest.Item]] = {}
    for item in items:
        tables.setdefault(_table(item), []).append(item)
    for rows in tables.values():
        yield rows[0] if len(rows) == 1 else _one(rows)


def _table(item: Any) -> str:
    """The name of the test that the item is a row of, its own where it stays a test of its own."""
    name: str = item.nodeid
    if not hasattr(item, "callspec") or item.callspec.marks or item.get_closest_marker("engine"):
        return name
    return name if any(_is_its_own(item, taken) for taken in item.fixturenames) else name.partition("[")[0]


def _is_its_own(item: Any, name: str) -> bool:
    """Whether a row needs the fixture for itself, as a changed environment; a folder is made for each."""
    if name == "tmp_path":
        return False
    if name == "request":  # listed for the fixtures' own use, too
        return name in inspect.signature(item.function).parameters
    made = item._fixtureinfo.name2fixturedefs[name][-1]
    if isinstance(made, DirectParamFixtureDef):
        return False
    return name in item.callspec.params or made.scope not in _SHARED


def _one(rows: Sequence[Any]) -> pytest.Item:
    function, parameters = rows[0].function, rows[0].callspec.params

    @functools.wraps(function)
    def test(**fixtures: Any) -> None:
        _run_each(rows, fixtures)

    names = [name for name in inspect.signature(function).parameters if name not in parameters]
    test.__signature__ = inspect.Signature(  # type: ignore[attr-defined]  # what pytest reads
        [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in names]
    )
    item: pytest.Item = pytest.Function.from_parent(rows[0].parent, name=rows[0].originalname, callobj=test)
    return item


def _run_each(rows: Sequence[Any], fixtures: dict[str, Any]) -> None:
    """Run each row, whatever became of those before it.

    :raises BaseExceptionGroup: All failures, each with the row's name; where one row fails, its own.
    """
    failures: list[BaseException] = []
    skips = []
    for number, row in enumerate(rows):
        own = dict(fixtures)
        if "tmp_path" in own:
            own["tmp_path"] /= str(number)
            own["tmp_path"].mkdir()
        try:
            row.function(**row.callspec.params, **own)
        except pytest.skip.Exception as skip:
            skips.append(skip)
        except (Exception, pytest.fail.Exception) as failure:  # noqa: BLE001  # said at the end
            failure.add_note(row.nodeid)
            failures.append(failure)
            if "pytest-timeout" in str(failure):  # its clock ran for all rows
                break
    if len(failures) == 1:
        raise failures[0]
    if failures:
        raise BaseExceptionGroup(f"{len(failures)} of {len(rows)} rows", failures)
    if skips:
        pytest.skip(f"{len(skips)} of {len(rows)} rows: {skips[0].msg}")
