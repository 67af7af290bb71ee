"""The lock files hold what pyproject.toml pins, by hash, and name no place; nothing runs foreign code."""

import ast
import functools
import json
import re
import tomllib

import pytest

from scripts.check_audit import packages_of, report
from tests.runs import ROOT

LOCKS = ("run", "programs", "embedded", "vocabulary", "pytorch", "score", "test")
TREES = ("harness", "sut", "scripts", "benchmarks")


def pinned(group):
    """Package and version of a dependency group, included groups too."""
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    found = {}
    for entry in groups[group]:
        if isinstance(entry, dict):
            found |= pinned(entry["include-group"])
        else:
            name, version = entry.split("==")
            found[name] = version
    return found


@functools.cache
def locked(name):
    """Package to version and hashes."""
    text = (ROOT / f"requirements/{name}.txt").read_text()
    blocks = re.split(r"\n(?=[a-z])", "\n" + text.replace(" \\\n", " "))[1:]
    found = {}
    for block in blocks:
        package, version = re.match(r"([a-z0-9-]+)==([^ ;]+)", block).groups()
        found[package] = (version, re.findall(r"--hash=(\S+)", block))
    return found


@pytest.mark.parametrize("name", LOCKS)
def test_lock_holds_the_pins_by_hash_and_no_place(name):
    versions = {package: version for package, (version, _) in locked(name).items()}
    assert pinned(name).items() <= versions.items(), "run scripts/lock.sh"
    for package, (_, hashes) in locked(name).items():
        assert hashes, package
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", one) for one in hashes), package
    text = (ROOT / f"requirements/{name}.txt").read_text()
    assert "://" not in text and "index-url" not in text and "find-links" not in text


def test_the_locks_agree():
    for name in ("run", "programs", "embedded", "vocabulary"):
        assert locked(name).items() <= locked("test").items()


def test_a_gpu_node_gets_nothing_that_it_does_not_use():
    assert (
        not {"torch", "scipy", "pandas", "xllamacpp", "gguf", "bpe-openai", "pytest"} & locked("run").keys()
    )


FINE, SKIPPED = {"name": "a", "version": "1", "vulns": []}, {"name": "a", "skip_reason": "?"}


@pytest.mark.parametrize(
    ("packages", "code", "line"),
    [
        ([FINE], 0, "audit: 1 packages looked up, 0 known vulnerabilities"),
        ([SKIPPED], 0, "audit skipped: no vulnerability data for any package"),
        ([FINE | {"vulns": [{"id": "X-1", "fix_versions": ["2"]}]}], 1, "a 1: X-1, fixed in 2"),
        ([SKIPPED, FINE | {"name": "b"}], 0, "audit: not looked up: a"),
    ],
)
def test_check_audit(packages, code, line):
    assert report(packages)[0] == code
    assert line in report(packages)[1]


def test_each_lock_is_audited_and_each_package_reported_once():
    """Locks that hold no more than another one are not looked up again."""
    script = (ROOT / "scripts/audit.sh").read_text()
    audited = set(re.search(r"for lock in (.+); do", script)[1].split())
    everything = {path.stem for path in (ROOT / "requirements").glob("*.txt")}
    covered = {name for name in everything if locked(name).items() <= locked("test").items()}
    assert audited | covered == everything
    results = [{"dependencies": [FINE, SKIPPED]}, {"dependencies": [FINE, FINE | {"version": "2"}]}]
    text = "\n".join(json.dumps(result, indent=1) for result in results)
    assert [package.get("version") for package in packages_of(text)] == ["1", None, "2"]


# Calls that run or build code from data. The jail runs model-written code, which is what it is for.
RUNS_CODE = {"eval", "exec", "compile"}
LOADERS = {"load", "loads", "read_pickle", "Unpickler", "full_load", "unsafe_load"}
LOADING_MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "joblib", "torch", "yaml"}
ALLOWING = {"trust_remote_code", "allow_pickle"}
SUSPECT = re.compile(r"(?<!re\.)\b(?:" + "|".join(RUNS_CODE | LOADING_MODULES | ALLOWING) + r")\b")
JAIL = "harness/grading/sandbox/jail/"


def test_nothing_runs_code_of_others_outside_of_the_jail():
    """Two readers unpickle, and override find_class; numpy's and yaml's loaders of code are not used at all.

    The jail keeps the compiled form of the program that it runs anyway.
    """
    ran, loaded, allowed, unpicklers = set(), set(), [], {}
    for path in sorted(path for tree in TREES for path in (ROOT / tree).rglob("*.py")):
        name, text = path.relative_to(ROOT).as_posix(), path.read_text()
        if not SUSPECT.search(text):
            continue  # parsing takes longer than all else here
        if "pickle.Unpickler)" in text:
            unpicklers[name] = "def find_class" in text
        for call in (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)):
            if getattr(call.func, "id", "") in RUNS_CODE:
                ran.add(name)
            if isinstance(call.func, ast.Attribute) and call.func.attr in LOADERS:
                loaded |= {name} if getattr(call.func.value, "id", "") in LOADING_MODULES else set()
            allowed += [(name, word.arg) for word in call.keywords if word.arg in ALLOWING]
    inside = {name for name in ran if name.startswith(JAIL)}
    assert (ran - inside, bool(inside)) == (set(), True)
    assert {name for name in loaded if not name.startswith(JAIL)} == set()
    assert allowed == []
    readers = ("harness/dataset/pickle_records.py", "harness/grading/livecodebench/release.py")
    assert unpicklers == dict.fromkeys(readers, True)


def test_the_scripts_that_start_a_server_do_so_for_deepseek_r1_alone():
    """test_run_server.py has the flags of each benchmark."""
    scripts = [path for folder in ("sglang", "datasets", "scripts") for path in (ROOT / folder).rglob("*.sh")]
    assert len(scripts) > 4
    found = [path.relative_to(ROOT).as_posix() for path in scripts if "trust-remote-code" in path.read_text()]
    assert found == ["sglang/run_server.sh"]
    assert not [path.name for path in scripts if "trust_remote_code" in path.read_text()]
