"""Rows that run as one test fail as each would have."""

from types import SimpleNamespace

import pytest

from tests.tables import run_each


def run_rows(functions, fixtures):
    rows = [
        SimpleNamespace(params={"does": function, "number": number}, id=f"row {number}")
        for number, function in enumerate(functions)
    ]
    run_each(lambda does, **given: does(**given), rows, fixtures)


def passes(number, **fixtures):
    pass


def fails(number, **fixtures):
    raise AssertionError(f"not {number}")


def fails_by_pytest(number, **fixtures):
    with pytest.raises(ValueError):
        pass


def skips(number, **fixtures):
    pytest.skip("not here")


def runs_out_of_time(number, **fixtures):
    pytest.fail("Timeout (>900.0s) from pytest-timeout.")


def test_every_failure_is_named():
    with pytest.raises(BaseExceptionGroup, match="2 of 4 rows") as caught:
        run_rows([fails, passes, fails_by_pytest, skips], {})
    assert [failure.__notes__ for failure in caught.value.exceptions] == [["[row 0]"], ["[row 2]"]]


def test_one_failure_is_itself():
    with pytest.raises(AssertionError, match="not 1") as caught:
        run_rows([passes, fails, passes], {})
    assert caught.value.__notes__ == ["[row 1]"]


def test_skipped_rows_are_counted():
    with pytest.raises(pytest.skip.Exception, match="1 of 2 rows: not here"):
        run_rows([passes, skips], {})


def test_without_time_no_further_row_runs():
    with pytest.raises(pytest.fail.Exception, match="pytest-timeout"):
        run_rows([passes, runs_out_of_time, fails], {})


def test_each_row_has_a_folder_of_its_own(tmp_path):
    folders = []
    run_rows([lambda number, tmp_path: folders.append(tmp_path)] * 2, {"tmp_path": tmp_path})
    assert folders == [tmp_path / "0", tmp_path / "1"] == sorted(tmp_path.iterdir())
