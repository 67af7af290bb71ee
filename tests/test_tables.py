"""Rows that run as one test fail as each would have."""

from types import SimpleNamespace

import pytest

from tests import tables
from tests.tables import run_each


def run_rows(*functions):
    rows = [SimpleNamespace(does=does, id=f"row {number}") for number, does in enumerate(functions)]
    run_each(rows, lambda row: row.does())


def passes():
    pass


def fails():
    raise AssertionError("not so")


def fails_by_pytest():
    with pytest.raises(ValueError):
        pass


def skips():
    pytest.skip("not here")


def runs_out_of_time():
    pytest.fail("Timeout (>900.0s) from pytest-timeout.")


def test_every_failure_is_named():
    with pytest.raises(BaseExceptionGroup, match="2 of 4 rows") as caught:
        run_rows(fails, passes, fails_by_pytest, skips)
    assert [failure.__notes__ for failure in caught.value.exceptions] == [["[row 0]"], ["[row 2]"]]


def test_one_failure_is_itself():
    with pytest.raises(AssertionError, match="not so") as caught:
        run_rows(passes, fails, passes)
    assert caught.value.__notes__ == ["[row 1]"]


def test_skipped_rows_are_counted():
    with pytest.raises(pytest.skip.Exception, match="1 of 2 rows: not here"):
        run_rows(passes, skips)


def test_without_time_no_further_row_runs():
    with pytest.raises(pytest.fail.Exception, match="pytest-timeout"):
        run_rows(passes, runs_out_of_time, fails)


class Joined:
    """A session of its own, in which each table is one test, as in a process of pytest-xdist."""

    def __init__(self):
        self.caught = []

    @pytest.hookimpl(wrapper=True)
    def pytest_generate_tests(self, metafunc):
        yield
        tables.join(metafunc)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item):
        tables.leave_fixtures_to_rows(item)

    @pytest.hookimpl(tryfirst=True)
    def pytest_pyfunc_call(self, pyfuncitem):
        return tables.run(pyfuncitem)

    def pytest_runtest_makereport(self, call):
        self.caught += [(call.when, call.excinfo.value)] if call.excinfo else []


TABLE = """
import pytest

@pytest.fixture(params=["x", "y"])
def made(request, tmp_path, monkeypatch, number):
    if number == 0:
        pytest.skip("not here")
    (tmp_path / "made").mkdir()
    yield request.param
    assert number < 3, "the end of three"

@pytest.mark.parametrize("number", range(4))
def test_rows(number, made, capsys):
    print(number, made)
    assert capsys.readouterr().out == f"{number} {made}\\n"
    assert (number, made) != (2, "y")
"""


def test_each_row_has_fixtures_of_its_own(tmp_path, monkeypatch, capsys):
    """One that skips a row, or fails at its end, is of that row alone."""
    (tmp_path / "test_rows.py").write_text(TABLE)
    session = Joined()
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    # The third looks through all objects of this process, five times.
    plugins = ("cacheprovider", "faulthandler", "unraisableexception")
    off = (*(f"-pno:{name}" for name in plugins), "--tb=no", "--assert=plain")
    pytest.main([*off, f"--rootdir={tmp_path}", str(tmp_path)], plugins=[session])
    capsys.readouterr()
    ((when, caught),) = session.caught
    said = {failure.__notes__[0]: str(failure) for failure in caught.exceptions}
    assert (when, list(said)) == ("call", ["[x-3]", "[y-2]", "[y-3]"])
    assert "the end of three" in said["[x-3]"] and "the end of three" in said["[y-3]"]
