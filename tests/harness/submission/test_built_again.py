"""A build into a folder that exists replaces what was built there, and nothing else."""

import errno
import fcntl
import hashlib
import os
from pathlib import Path

import pytest

from harness.errors import ConfigError
from harness.staging import Move, foreign_files, put_in_place, staging
from tests.harness.submission.building import build, files, one_line, write_info
from tests.harness.submission.edits import text, write
from tests.harness.submission.trees import RESULTS, SYSTEM
from tests.kit import without_permissions


def content(folder):
    return {name: (folder / name).read_bytes() for name in files(folder)}


def test_the_same_runs_give_the_same_tree(results, info, tmp_path):
    build(results)
    before = content(tmp_path / "tree"), content(tmp_path / "tree.kept")
    assert build(results) == 0
    assert (content(tmp_path / "tree"), content(tmp_path / "tree.kept")) == before
    assert not list(tmp_path.glob(".tree*"))


@pytest.mark.engine
def test_what_has_changed_since_is_replaced(results, info, tmp_path):
    build(results)
    text("offline/accuracy/accuracy.txt", "83.", "84.")(results)
    write_info(tmp_path, cooling="water")
    build(results)
    assert "84." in (tmp_path / "tree" / RESULTS / "Offline/accuracy/accuracy.txt").read_text()
    assert '"cooling": "water"' in (tmp_path / "tree" / SYSTEM).read_text()


HANDS = {
    "an edited file": text(f"tree/{RESULTS}/Offline/README.md", "Offline", "Offline, by hand"),
    "an edited description": text(f"tree/{SYSTEM}", "made up", "by hand"),
    "a file of another": write(f"tree/{RESULTS}/Offline/stray.txt", "by hand"),
    "a tree built elsewhere": lambda folder: (folder / "tree.kept/built.sha256").unlink(),
}


@pytest.mark.engine
@pytest.mark.parametrize("change", HANDS.values(), ids=HANDS)
def test_other_files_are_replaced_only_by_force(results, info, tmp_path, capsys, change):
    build(results)
    change(tmp_path)
    before = content(tmp_path / "tree")
    capsys.readouterr()
    assert build(results) == 2
    assert "--force" in one_line(capsys)
    assert content(tmp_path / "tree") == before
    assert build(results, "--force") == 0
    assert not any(b"by hand" in found for found in content(tmp_path / "tree").values())


def test_files_beside_stay(results, info, tmp_path):
    build(results)
    beside = [tmp_path / "tree/closed/MyOrg/results/other/gpt-oss-120b/note", tmp_path / "tree/README.md"]
    for path in beside:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("of another\n")
    build(results)
    assert [path.read_text() for path in beside] == ["of another\n"] * 2


def test_a_file_system_without_permissions_has_the_same_tree(results, info, tmp_path, capsys, monkeypatch):
    build(results)
    before = content(tmp_path / "tree"), content(tmp_path / "tree.kept")
    without_permissions(monkeypatch)
    capsys.readouterr()
    assert build(results) == 0
    assert (content(tmp_path / "tree"), content(tmp_path / "tree.kept")) == before
    assert capsys.readouterr().err.count("takes no permissions (Operation not permitted)") == 1


@pytest.fixture
def staged(tmp_path):
    """A tree with one built file, and a later build of it; a function that makes its moves."""
    tree, kept, folder = (tmp_path / name for name in ("tree", "tree.kept", "staged"))

    def moves(*names, content):
        for name in names:
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        return [Move(folder / name, tree / name) for name in names]

    put_in_place(moves("a/x", content="first"), folder, tree, kept)
    return tree, kept, folder, moves


def test_a_move_that_fails_undoes_the_others(staged):
    tree, kept, folder, moves = staged
    (tree / "b").write_text("a file where a folder must be")
    with pytest.raises(OSError, match="b"):
        put_in_place(moves("a/x", "b/y", content="second"), folder, tree, kept)
    assert (tree / "a/x").read_text() == "first"
    assert list(foreign_files(tree, kept, [tree / "a"])) == []


def test_a_move_that_fails_puts_back_what_it_replaces(staged):
    tree, kept, folder, moves = staged
    (move,) = moves("a/x", content="second")
    move.staged.unlink()
    with pytest.raises(FileNotFoundError):
        put_in_place([move], folder, tree, kept)
    assert (tree / "a/x").read_text() == "first"


def test_a_build_that_was_killed_between_two_moves_is_no_obstacle(staged):
    """Its files are known before the first move: whichever of the two there is, it was built here."""
    tree, kept, folder, moves = staged
    (tree / "b").write_text("a file where a folder must be")
    with pytest.raises(OSError, match="b"):
        put_in_place(moves("a/x", "b/y", content="second"), folder, tree, kept)
    (tree / "a/x").write_text("second")
    assert list(foreign_files(tree, kept, [tree / "a"])) == []
    (tree / "a/x").write_text("third")
    assert list(foreign_files(tree, kept, [tree / "a"])) == ["a/x"]


def test_a_link_that_leads_nowhere_was_not_built(staged):
    tree, kept, *_ = staged
    (tree / "a/link").symlink_to("gone")
    assert list(foreign_files(tree, kept, [tree / "a"])) == ["a/link"]


def test_the_record_of_what_was_built_is_what_sha256sum_writes(staged):
    tree, kept, *_ = staged
    digest = hashlib.sha256((tree / "a/x").read_bytes()).hexdigest()
    assert (kept / "built.sha256").read_text() == f"{digest}  a/x\n"


def test_what_a_killed_build_staged_is_removed(tmp_path):
    left = tmp_path / ".tree.building/tree/closed"
    left.mkdir(parents=True)
    with staging(tmp_path / "tree") as folder:
        assert list(folder.iterdir()) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        ((), ""),
        ((".tree.building/a",), ""),
        (("run.json",), "{}/run.json: "),
        (("run.json", ".tree.building/a"), ""),
    ],
)
def test_a_path_is_named_once_and_of_a_copy_not_the_source(tmp_path, names, shown):
    first, second = (*(str(tmp_path / name) for name in names), None, None)[:2]
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), first, None, second)
    with pytest.raises(ConfigError) as refused, staging(tmp_path / "tree"):
        raise full
    why = f"{shown.format(tmp_path)}No space left on device; free space there or choose another folder"
    assert str(refused.value) == f"--output {tmp_path / 'tree'}: {why}"


def test_two_builds_at_once_are_refused(tmp_path):
    with staging(tmp_path / "tree") as folder:
        (folder / "file").touch()
        with pytest.raises(ConfigError, match="another build"), staging(tmp_path / "tree"):
            pass
        assert (folder / "file").exists()
    lock = Path(tmp_path / ".tree.lock")
    with lock.open("w") as left:  # the lock of a build that was killed is free
        fcntl.flock(left, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with staging(tmp_path / "tree"):
        pass
