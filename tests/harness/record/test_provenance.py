"""Facts of host and software, against what the system's own tools say."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

from harness.cli import door
from harness.cli.commands import USERS_FOLDER
from harness.git import checkout_command
from harness.record import provenance
from harness.record.provenance import (
    PACKAGES,
    cpu_model,
    gather_provenance,
    git_state,
    host_facts,
    memory_bytes,
    port_range,
    relevant_names,
)
from harness.submission.building import source_code

ROOT = Path(__file__).parents[3]


def git(folder, *arguments):
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    command = ["git", "-C", str(folder), *identity, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_the_command_for_a_commit_works_in_a_shallow_clone(tmp_path):
    (made := tmp_path / "made").mkdir()
    git(made, "init", "-q")
    for text in ("first", "second"):
        (made / "run.py").write_text(text)
        git(made, "add", ".")
        git(made, "commit", "-qm", text)
    first = git(made, "rev-parse", "HEAD^")
    assert checkout_command(made, first) == f"git checkout {first}"
    git(tmp_path, "clone", "-q", "--depth", "1", made.as_uri(), "shallow")
    shallow = tmp_path / "shallow"
    command = checkout_command(shallow, first)
    subprocess.run(command, shell=True, check=True, cwd=shallow, capture_output=True)
    assert (shallow / "run.py").read_text() == "first"
    assert checkout_command(shallow, first) == f"git checkout {first}"


def test_software_and_no_value_of_a_key(monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_secret_value")
    found = gather_provenance()
    assert "hf_secret_value" not in repr(found)
    assert found.packages["numpy"] == np.__version__
    assert found.python == "CPython " + ".".join(map(str, sys.version_info[:3]))


def test_the_folder_of_the_command_is_the_users(tmp_path, monkeypatch):
    """A campaign starts its steps in that of its file, with complete paths."""
    monkeypatch.chdir(tmp_path)
    assert gather_provenance().folder == str(tmp_path)
    monkeypatch.setenv(USERS_FOLDER, "/home/me")
    assert gather_provenance().folder == "/home/me"


def test_every_pinned_run_package_is_asked_for():
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    pinned = {line.partition("==")[0] for name in ("run", "embedded") for line in groups[name]}
    assert set(PACKAGES) == pinned


def test_a_change_within_a_tick_of_the_file_systems_clock_is_stored(tmp_path):
    """The file has the size and the times that the index has of it; the index is as old."""
    git(tmp_path, "init", "-q")
    git(tmp_path, "config", "core.trustctime", "false")
    file, moment = tmp_path / "file", (10**18, 10**18)
    for content in "12":
        file.write_text(content)
        os.utime(file, ns=moment)
        if content == "1":
            git(tmp_path, "add", "file")
            git(tmp_path, "commit", "-qm", "one")
    os.utime(tmp_path / ".git/index", ns=moment)
    changed = git_state(tmp_path)
    assert changed.dirty
    assert git(tmp_path, "show", f"{changed.tree}:file") == "2"


def test_git_state(tmp_path):
    assert git_state(tmp_path) is None
    git(tmp_path, "init", "-q")
    assert git_state(tmp_path) is None
    (tmp_path / "file").write_text("1")
    git(tmp_path, "add", "file")
    git(tmp_path, "commit", "-qm", "one")
    clean = git_state(tmp_path)
    assert (len(clean.commit), clean.dirty) == (40, False)
    (tmp_path / "untracked").write_text("1")
    assert git_state(tmp_path) == clean
    (tmp_path / "file").write_text("2")
    changed = git_state(tmp_path)
    assert (changed.commit, changed.dirty) == (clean.commit, True)
    assert git(tmp_path, "show", f"{changed.tree}:file") == "2"
    assert git(tmp_path, "diff", "--cached") == ""  # the user's index stays as it is
    git(tmp_path, "commit", "-qam", "two")
    assert git_state(tmp_path).tree == changed.tree


def test_the_tree_of_a_folder_inside_of_a_repository(tmp_path):
    git(tmp_path, "init", "-q")
    (tmp_path / "harness").mkdir()
    for name in ("notes", "harness/file"):
        (tmp_path / name).write_text("1")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "one")
    for content in ("1", "2"):
        (tmp_path / "harness/file").write_text(content)
        assert git(tmp_path, "ls-tree", "--name-only", git_state(tmp_path / "harness").tree) == "file"


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone has another user's checkout")
def test_root_leaves_nothing_of_its_own_in_the_git_of_another_user(tmp_path):
    """As in a container: that user's git could not add files any more."""
    git(tmp_path, "init", "-q")
    (tmp_path / "file").write_text("1")
    git(tmp_path, "add", "file")
    git(tmp_path, "commit", "-qm", "one")
    (tmp_path / "file").write_text("2")
    owner = 65534, 65534
    for path in (tmp_path, *tmp_path.rglob("*")):
        os.lchown(path, *owner)
    assert git(tmp_path, "-c", "safe.directory=*", "show", f"{git_state(tmp_path).tree}:file") == "2"
    assert {(one.lstat().st_uid, one.lstat().st_gid) for one in tmp_path.rglob("*")} == {owner}


def test_an_archive_in_a_repository_of_others_is_of_no_commit(tmp_path, monkeypatch):
    """run.json named a commit without the harness, and messages said to check it out."""
    git(tmp_path, "init", "-q")
    git(tmp_path, "commit", "-qm", "one", "--allow-empty")
    (archive := tmp_path / "harness").mkdir()
    (archive / "pyproject.toml").write_bytes((ROOT / "pyproject.toml").read_bytes())
    assert git_state(tmp_path) is not None
    assert git_state(archive) is None
    for module in (provenance, source_code, door):
        monkeypatch.setattr(module, "ROOT", archive)
    assert provenance.reader_of({"provenance": {"git": {"commit": "0" * 40}}}) == ""
    assert "git" in source_code.without_git() and "commit" not in door.version()


@pytest.fixture
def asked_anew():
    provenance._own_state.cache_clear()
    yield
    provenance._own_state.cache_clear()


def test_later_runs_of_a_process_are_of_the_code_of_its_first(asked_anew, monkeypatch, tmp_path):
    monkeypatch.setattr(provenance, "ROOT", tmp_path)
    git(tmp_path, "init", "-q")
    git(tmp_path, "commit", "-qm", "one", "--allow-empty")
    first = gather_provenance().git
    git(tmp_path, "commit", "-qm", "two", "--allow-empty")
    assert first is not None and gather_provenance().git == first != git_state(tmp_path)


def test_without_git(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert git_state(ROOT) is None


def test_host():
    found = host_facts()
    assert found.hostname == os.uname().nodename
    assert found.open_files_limit == int(subprocess.check_output("ulimit -n", shell=True))
    assert found.affinity == tuple(sorted(os.sched_getaffinity(0)))
    if found.memory_bytes is not None:
        assert found.memory_bytes == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def test_a_system_without_proc(tmp_path):
    found = host_facts(tmp_path, tmp_path)
    assert (found.cpu_model, found.memory_bytes, found.local_port_range) == (None, None, None)
    assert (found.somaxconn, found.clock_source) == (None, None)


@pytest.mark.parametrize(
    ("text", "found"), [("32768\t60999\n", (32768, 60999)), ("", None), ("1", None), ("a b", None)]
)
def test_port_range(text, found):
    assert port_range(text) == found


def test_proc_texts():
    x86 = "processor\t: 0\nmodel name\t: AMD EPYC 9575F\n\nmodel name\t: other\n"
    assert cpu_model(x86) == "AMD EPYC 9575F"
    assert cpu_model("processor : 0\nBogoMIPS : 50\n") is None
    assert memory_bytes("MemTotal:       16384 kB\nMemFree: 1 kB\n") == 16_777_216


def test_names_of_variables_that_can_change_a_run():
    names = dict.fromkeys(["HTTPS_PROXY", "no_proxy", "OMP_NUM_THREADS", "OPENAI_API_KEY", "HOME"], "x")
    assert relevant_names(names) == ("HTTPS_PROXY", "OMP_NUM_THREADS", "no_proxy")
