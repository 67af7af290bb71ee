"""What every test may rely on, however the suite was started."""

import gc
import importlib
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from harness.cli.main import spare_processors
from tests import order, tables
from tests.order import ROOT

# Whatever the suite was started in, its tests have a usual terminal, Python, git, and none of our settings.
for name in [name for name in os.environ if name.startswith(("PYTHON", "MLPERF_"))]:
    del os.environ[name]
for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "ALL_PROXY", "all_proxy", "OPENAI_API_KEY"):
    os.environ.pop(name, None)
os.environ["TERM"] = "xterm"
os.environ |= {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "commit.gpgsign", "GIT_CONFIG_VALUE_0": "false"}

# Some machines ask Python to keep no bytecode. The suite starts some hundred Pythons, and each would compile
# the harness anew: a third of the quick loop's time.
sys.dont_write_bytecode = False

# Behind a proxy the servers of tests are still on this machine.
for name in ("NO_PROXY", "no_proxy"):
    os.environ[name] = ",".join(filter(None, (os.environ.get(name), "localhost", "127.0.0.1", "127.0.0.9")))

spare_processors()  # as the programs do it

# Whoever starts a suite with nohup, in the background of a script, or from a daemon hands ignored signals
# down, and children inherit that: the programs under test would rightly leave those signals ignored.
_DEFAULTS: dict[signal.Signals, Callable[..., Any] | signal.Handlers] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGHUP: signal.SIG_DFL,
    signal.SIGQUIT: signal.SIG_DFL,
}


def pytest_configure(config):
    """In the main process and in every worker of pytest-xdist, before anything is started."""
    _usual_signals()
    if _is_quick(config) and "TMPDIR" not in os.environ and _is_roomy(MEMORY):
        os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)


def _is_quick(config):
    return config.option.markexpr == "not engine"


def _is_roomy(folder):
    return os.access(folder, os.W_OK | os.X_OK) and shutil.disk_usage(folder).free > 2 << 30


def _usual_signals():
    for signum, default in _DEFAULTS.items():
        if signal.getsignal(signum) is not default:
            signal.signal(signum, default)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _DEFAULTS)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown():
    """A test leaves signals as they were: the next one starts programs, which inherit what is ignored."""
    yield
    changed = [signum.name for signum, usual in _DEFAULTS.items() if signal.getsignal(signum) is not usual]
    blocked = [signum.name for signum in _DEFAULTS if signum in signal.pthread_sigmask(signal.SIG_BLOCK, ())]
    _usual_signals()
    assert not changed and not blocked, f"a test changed the handling of {changed}, or blocked {blocked}"


def pytest_ignore_collect(collection_path, config):
    """What has tests with engines alone is not even imported for the quick loop."""
    if _is_quick(config) and collection_path.suffix == ".py":
        return order.has_engines_alone(collection_path.relative_to(ROOT).as_posix()) or None
    return None


@pytest.hookimpl(wrapper=True)
def pytest_collection(session):
    """What is collected stays to the end: no garbage collection looks through it, 1.5 s of CPU a process."""
    gc.disable()
    try:
        _import_a_part(session.config)
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def _import_a_part(config):
    """Each process of pytest-xdist begins elsewhere: what one has compiled, the others load.

    In a fresh clone that is 5 s of CPU a process.
    """
    worker = getattr(config, "workerinput", None)
    if worker is None or config.args != config.getini("testpaths"):
        return
    paths = sorted(
        path for path in Path(__file__).parent.rglob("test_*.py") if not pytest_ignore_collect(path, config)
    )
    first = int(worker["workerid"].removeprefix("gw"))
    for path in paths[first :: worker["workercount"]]:
        with suppress(Exception, pytest.skip.Exception):  # where it is collected it is said
            importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))


@pytest.hookimpl(wrapper=True)
def pytest_generate_tests(metafunc):
    """In a process of pytest-xdist a table of rows is one test, unless rows are chosen by their names."""
    yield
    config = metafunc.config
    chosen = config.option.keyword or any("[" in argument for argument in config.args)
    if hasattr(config, "workerinput") and not chosen:
        tables.join(metafunc)


def pytest_sessionfinish():
    """What is left ends with the process: pytest would look through it five times, for errors of its end."""
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Each row of a table has its own."""
    tables.leave_fixtures_to_rows(item)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """Run a table."""
    return tables.run(pyfuncitem)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """In the order of ``order.rank``."""
    items.sort(key=lambda item: order.rank(item.nodeid))


@pytest.fixture(scope="session", autouse=True)
def copies():
    """Runs in this process start no fresh interpreters."""
    from tests.copies import use_copies  # here: pytest-xdist's main process runs no test

    use_copies()


@pytest.fixture
def nothing_downloaded(tmp_path, monkeypatch):
    """As in a new checkout, whatever is in data/ of this one: no official dataset is found."""
    monkeypatch.setattr("harness.config.official_data.ROOT", tmp_path / "checkout")
    monkeypatch.chdir(tmp_path)


# The quick loop makes and removes tens of thousands of folders, each some milliseconds on a busy disk; the
# complete suite keeps to the disk.
MEMORY = Path("/dev/shm")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """The groups of --dist loadgroup.

    xdist 3.8 carries a group in the test's name, which pytest 9.2 no longer lets it change.
    """
    if config.getvalue("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadScopeScheduling

    config.option.loadscopereorder = False  # by the number of tests

    class Groups(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            return order.together(nodeid, _is_quick(config))

    return Groups(config, log)
