"""Which tests one process of pytest-xdist takes, and in what order, by the text of their modules."""

import functools
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]

# Fixtures of a session that one process alone makes.
SERVERS = ("sglang_server", "scripted_llama", "scripted_vllm", "llama_server")
_ALL_WITH_ENGINES = re.compile(r"^pytestmark = \[?\s*pytest\.mark\.engine\b", re.MULTILINE)
_TEST = re.compile(r"^(?:async )?def (test_\w+)\(([^)]*)\)", re.MULTILINE)
# What takes a process seconds before its first test, the tokenizer's merges, and what counts tokens with it.
PREPARED_ONCE = ("harmony_tokenizer", "read_events(")
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


def has_engines_alone(path):
    """Whether all tests of a module need an engine or take long."""
    return bool(_ALL_WITH_ENGINES.search(_source(path)))


def rank(nodeid):
    """The place of a test in the order of all. What comes last is short, and leaves no process idle."""
    return _rank(nodeid.partition("::")[0], _server_of(nodeid))


def _server_of(nodeid):
    """The fixture of SERVERS that a test takes, "" for none."""
    path, _, name = nodeid.partition("::")
    return _servers_of(path).get(name.partition("[")[0], "")


@functools.cache
def _servers_of(path):
    """The fixture of SERVERS by the test that takes it."""
    found = {}
    for name, parameters in _TEST.findall(_source(path)):
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
def together(nodeid, quick):
    """The name of the tests that one process takes: what a module shares is then made once."""
    path = nodeid.partition("::")[0]
    if server := _server_of(nodeid):
        return server
    if any(word in _source(path) for word in PREPARED_ONCE):
        return PREPARED_ONCE[0]
    if "mark.engine" in _source(path) and not quick and 'scope="module"' not in _source(path):
        return nodeid  # may take long
    return path


@functools.cache
def _source(path):
    return (ROOT / path).read_text()
