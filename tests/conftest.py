"""What every test may rely on, however the suite was started."""

import functools
import gc
import importlib
import os
import re
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
from tests.tables import joined

ROOT = Path(__file__).parents[1]

# Some machines ask Python to keep no bytecode. The suite starts some hundred Pythons, and each would compile
# the harness anew: a third of the quick loop's time.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

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
        path = collection_path.relative_to(ROOT).as_posix()
        return bool(_ALL_WITH_ENGINES.search(_source(path))) or None
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
        with suppress(Exception):  # said where it is collected
            importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config, items):
    """The long tests first: what comes last is short, and leaves no process of pytest-xdist idle."""
    yield
    if hasattr(config, "workerinput"):  # a process of pytest-xdist
        items[:] = joined(items)
    items.sort(key=lambda item: _rank(item.nodeid.partition("::")[0], _server_of(item.nodeid)))


@pytest.fixture(scope="session", autouse=True)
def copies():
    """Runs in this process start no fresh interpreters."""
    from tests.copies import use_copies  # here: pytest-xdist's main process runs no test

    use_copies()


_ALL_WITH_ENGINES = re.compile(r"^pytestmark = \[?\s*pytest\.mark\.engine\b", re.MULTILINE)


@functools.cache
def _source(path):
    return (ROOT / path).read_text()


# The quick loop makes and removes tens of thousands of folders, each some milliseconds on a busy disk; the
# complete suite keeps to the disk.
MEMORY = Path("/dev/shm")

# Fixtures of a session that one process alone makes.
SERVERS = ("sglang_server", "scripted_llama", "scripted_vllm", "llama_server")
_TESTS = re.compile(r"^(?:async )?def (test_\w+)\(([^)]*)\)", re.MULTILINE)
# What takes a process seconds before its first test: the tokenizer's merges; hypothesis, which parses the
# sources of all modules for constants to try.
PREPARED_ONCE = ("gpt_oss_tokenizer", "from hypothesis")
# These take minutes each, or wait, while the others work.
LONGEST = (
    "tests/documents/test_commands.py",
    "tests/programs/test_rehearsal.py",
    "tests/harness/submission/test_full_tree.py",
    "tests/programs/test_campaign.py",
    "tests/programs/test_proxies.py",
    "tests/programs/test_run.py",
    "tests/sut/issuers/test_reporter.py",
)


def _server_of(nodeid):
    """The fixture of SERVERS that a test takes, "" for none."""
    path, _, name = nodeid.partition("::")
    return _servers_of(path).get(name.partition("[")[0], "")


@functools.cache
def _servers_of(path):
    """The fixture of SERVERS by the test that takes it."""
    found = {}
    for name, parameters in _TESTS.findall(_source(path)):
        taken = set(SERVERS) & set(re.findall(r"\w+", parameters))
        if taken:
            found[name] = min(taken, key=SERVERS.index)
    return found


@functools.cache
def _rank(path, server):
    """The place of a module's tests with this server in the order of all."""
    if server == "sglang_server":
        return -1  # together, so that each configuration is started once
    if path in LONGEST:
        return LONGEST.index(path)
    return len(LONGEST) + ("mark.engine" not in _source(path))


@functools.cache
def _together(nodeid, quick):
    """The name of the tests that one process takes: what a module shares is then made once."""
    path = nodeid.partition("::")[0]
    if server := _server_of(nodeid):
        return server
    if any(name in _source(path) for name in PREPARED_ONCE):
        return PREPARED_ONCE[0]
    if "mark.engine" in _source(path) and not quick and 'scope="module"' not in _source(path):
        return nodeid  # may take long
    return path


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
            return _together(nodeid, _is_quick(config))

    return Groups(config, log)
