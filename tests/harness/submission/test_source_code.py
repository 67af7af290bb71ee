"""src/ is the code of the runs, out of git: no later commit or changes, nothing that a link leads to."""

import re
import subprocess
import sys

import pytest

from harness.errors import ConfigError
from harness.record.provenance import GitState, git_state
from harness.submission.building import source_code
from harness.submission.building.source_code import copy_source, source_of
from tests.harness.submission.building import build, commit, files, git, one_line
from tests.harness.submission.edits import pattern
from tests.harness.submission.trees import COMMIT, RESULTS
from tests.scripts.test_scripts import FAKE_PYTHON, run, stand_in

SOURCE = "tree/closed/MyOrg/src/gpt-oss-120b"


def change(checkout, text="later\n"):
    (checkout / "README.md").write_text(text)


def of_runs(results, old, new):
    for path in results.rglob("run.json"):
        pattern(path, old, new)(results)


def test_the_checkout_of_another_user(tmp_path, monkeypatch):
    """As a container's user finds it; git's own tests have this variable."""
    (tmp_path / "run.py").write_text("x\n")
    git(tmp_path, "init", "-q")
    one = commit(tmp_path)
    named = {"TEST_ASSUME_DIFFERENT_OWNER": "1", "CONFIG_GLOBAL": "/dev/null", "CONFIG_NOSYSTEM": "1"}
    for name, value in named.items():
        monkeypatch.setenv(f"GIT_{name}", value)
    with pytest.raises(subprocess.CalledProcessError):
        git(tmp_path, "rev-parse", "HEAD")
    state = git_state(tmp_path)
    assert state.commit == one
    monkeypatch.setattr(source_code, "ROOT", tmp_path)
    copy_source(source_of([state]), tmp_path / "src")
    assert files(tmp_path / "src") == ["run.py"]


def test_only_what_git_tracks_is_written(tmp_path, monkeypatch):
    """run_node1.sh with a token, notes, a customer's settings: all had a suffix of code."""
    root = tmp_path / "checkout"
    (root / "tests").mkdir(parents=True)
    for name in ("run.py", "setup.sh", ".hidden", "a name.txt", "tests/test.py"):
        (root / name).write_text("x\n")
    (root / "setup.sh").chmod(0o755)
    (root / "link").symlink_to("/etc/hostname")
    git(root, "init", "-q")
    commit(root)
    (root / "run_node1.sh").write_text("x\n")
    monkeypatch.setattr(source_code, "ROOT", root)
    assert copy_source(source_of([git_state(root)]), tmp_path / "src").links == ("link",)
    assert files(tmp_path / "src") == ["run.py", "setup.sh"]
    assert [(tmp_path / "src" / name).stat().st_mode & 0o777 for name in ("run.py", "setup.sh")] == [
        0o644,
        0o755,
    ]


def test_without_git_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(source_code, "ROOT", tmp_path)
    with pytest.raises(ConfigError, match="git"):
        source_of([])


@pytest.mark.parametrize("committed", [True, False])
def test_later_changes_are_not_published(results, info, tmp_path, checkout, committed):
    had = (checkout / "README.md").read_text()
    change(checkout)
    if committed:
        commit(checkout)
    assert build(results) == 0
    assert (tmp_path / SOURCE / "README.md").read_text() == had
    readme = (tmp_path / "tree" / RESULTS / "Offline/README.md").read_text()
    assert f"harness: commit {COMMIT}, " in readme


def test_the_changes_of_a_run_are_published_after_further_ones(results, info, tmp_path, checkout, capsys):
    change(checkout, "as it ran\n")
    state = git_state(checkout)
    change(checkout)
    of_runs(results, f'"commit": ?"{COMMIT}",\\s*"dirty": ?false,\\s*"tree": ?null', as_json(state))
    assert build(results) == 0
    assert named_in(capsys, "src/gpt-oss-120b ") == "README.md"
    assert (tmp_path / SOURCE / "README.md").read_text() == "as it ran\n"
    assert (
        f"with local changes (tree {state.tree})"
        in (tmp_path / "tree" / RESULTS / "Offline/README.md").read_text()
    )


def named_in(capsys, start):
    """What the one line that begins so names after its colon."""
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith(start)]
    return line.partition(": ")[2]


def as_json(state):
    tree = "null" if state.tree is None else f'"{state.tree}"'
    return f'"commit": "{state.commit}", "dirty": {str(state.dirty).lower()}, "tree": {tree}'


@pytest.mark.parametrize(
    "state", [None, GitState(COMMIT, dirty=True)], ids=["no commit", "changes that were not stored"]
)
def test_runs_that_did_not_record_their_code(results, info, tmp_path, checkout, capsys, state):
    change(checkout)
    if state is None:
        of_runs(results, '"git": ?\\{[^}]*\\}', '"git": null')
    else:
        of_runs(results, f'"commit": ?"{COMMIT}",\\s*"dirty": ?false,\\s*"tree": ?null', as_json(state))
    assert build(results) == 0
    assert "src/gpt-oss-120b " in named_in(capsys, "warning: ")
    assert (tmp_path / SOURCE / "README.md").read_text() == "later\n"
    assert (
        "src/gpt-oss-120b/ is later code" in (tmp_path / "tree" / RESULTS / "Offline/README.md").read_text()
    )


def test_code_that_git_does_not_have_is_refused(results, info, tmp_path, capsys):
    of_runs(results, COMMIT, "0" * 40)
    assert build(results) == 2
    assert f" commit {'0' * 40}; " in one_line(capsys)
    assert not (tmp_path / "tree").exists()


def test_a_committed_secret_stops_the_build_until_it_is_removed(results, info, tmp_path, checkout, capsys):
    """Of other files the later version is not published."""
    key = "hf_" + "aB3" * 11
    (checkout / "run.sh").write_text(f"export HF_TOKEN={key}\n")
    of_runs(results, COMMIT, commit(checkout))
    assert build(results) == 2
    assert "src/gpt-oss-120b/run.sh:1 " in (said := one_line(capsys))
    assert key not in said
    change(checkout)
    (checkout / "run.sh").write_text("export HF_TOKEN=$(cat token)\n")
    assert build(results) == 0
    assert named_in(capsys, "src/gpt-oss-120b ") == "run.sh"
    assert (tmp_path / SOURCE / "run.sh").read_text() == "export HF_TOKEN=$(cat token)\n"
    assert (tmp_path / SOURCE / "README.md").read_text() != "later\n"
    readme = (tmp_path / "tree" / RESULTS / "Offline/README.md").read_text()
    assert re.search("^- files of src/gpt-oss-120b/ .*: run.sh$", readme, re.MULTILINE)
    (checkout / "run.sh").unlink()
    assert build(results, "--force") == 0
    assert not (tmp_path / SOURCE / "run.sh").exists()


@pytest.mark.engine
@pytest.mark.parametrize("same", [True, False])
def test_a_second_system_has_its_own_code(results, info, tmp_path, checkout, same):
    build(results)
    had = (tmp_path / SOURCE / "README.md").read_bytes()
    if not same:
        change(checkout)
        later = commit(checkout)
        of_runs(results, COMMIT, later)
    info.write_text(info.read_text().replace('"made_up"', '"another"'))
    build(results)
    names = ["gpt-oss-120b"] if same else ["gpt-oss-120b", f"gpt-oss-120b-{later[:12]}"]
    assert sorted(path.name for path in (tmp_path / SOURCE).parent.iterdir()) == names
    assert (tmp_path / SOURCE / "README.md").read_bytes() == had
    readme = (tmp_path / "tree/closed/MyOrg/results/another/gpt-oss-120b/Offline/README.md").read_text()
    assert f"its code is src/{names[-1]}/" in readme
    assert f"cp -r ../../../../src/{names[-1]} " in readme


def test_scenarios_of_two_commits_have_a_folder_each(results, info, tmp_path, checkout):
    change(checkout)
    later = commit(checkout)
    of_runs(results / "offline", COMMIT, later)
    assert build(results) == 0
    found = {path.name: (path / "README.md").read_text() for path in (tmp_path / SOURCE).parent.iterdir()}
    assert len(found) == 2
    for scenario in ("Interactive", "Offline"):
        readme = (tmp_path / "tree" / RESULTS / scenario / "README.md").read_text()
        (named,) = [name for name in found if f"its code is src/{name}/" in readme]
        assert (found[named] == "later\n") == (scenario == "Offline")


def test_force_replaces_code_that_nobody_else_has(results, info, tmp_path, checkout):
    build(results)
    change(checkout)
    of_runs(results, COMMIT, commit(checkout))
    assert build(results, "--force") == 0
    assert [path.name for path in (tmp_path / SOURCE).parent.iterdir()] == ["gpt-oss-120b"]
    assert (tmp_path / SOURCE / "README.md").read_text() == "later\n"


@pytest.mark.engine
def test_the_source_can_be_set_up(tmp_path):
    """Without the tests and hidden files; setup.sh finds what it reads, and the programs start."""
    copy_source(source_of([]), tmp_path / "src")
    found = files(tmp_path / "src")
    assert {"run_mlperf.py", "sut/loadgen/binding.py", "configs/user.conf"} <= {*found}
    assert not [name for name in found if name.startswith(("tests/", ".")) or name.endswith(".pyc")]
    python = stand_in(tmp_path / "bin", "python3.12", FAKE_PYTHON)
    calls = tmp_path / "calls"
    done = run(tmp_path / "src/setup.sh", cwd=tmp_path / "src", PYTHON=str(python), PIP_CALLS=str(calls))
    assert done.returncode == 0, done.stderr
    assert "requirements/run.txt" in calls.read_text()
    for program in ("run_mlperf.py", "run_compliance.py", "eval_mlperf_accuracy.py", "prepare_submission.py"):
        words = [sys.executable, tmp_path / "src" / program, "--help"]
        assert subprocess.run(words, cwd=tmp_path, capture_output=True).returncode == 0, program
