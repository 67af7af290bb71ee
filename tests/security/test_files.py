"""What runs and gradings leave: nobody else can write it, and no planted link is followed."""

import json
import os
import resource
import stat
from pathlib import Path

import pyarrow as pa
import pytest

import eval_mlperf_accuracy
import run_mlperf
from harness.errors import ConfigError
from harness.files import atomic_write, keep_others_from_writing
from harness.record.output_dir import locked, move_aside_existing
from harness.record.requests_table import write_requests
from tests.harness.grading.logs import write_log
from tests.records import ENDED
from tests.runs import ACCURACY, ROOT, command, evaluator, main_here, quick_conf, small_dataset
from tests.stub import StubServer

VICTIM = "what the link points to"


def anyone_may_write(folder):
    return [
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if not path.is_symlink() and path.stat().st_mode & stat.S_IWOTH
    ]


@pytest.fixture
def umask_zero():
    before = os.umask(0)
    yield
    os.umask(before)


def test_a_run_under_umask_zero(tmp_path, umask_zero, capfd):
    """LoadGen's own files, the journal and every folder included."""
    dataset, _ = small_dataset(tmp_path)
    results = tmp_path / "results"
    with StubServer() as stub:
        words = command(
            results, "--input-file", dataset, "--server-url", stub.url, "--user-conf", quick_conf(tmp_path),
            "--stream", "on", "--accuracy", "--max-new-tokens", 4,
        )  # fmt: skip
        code, _, err = main_here(capfd, run_mlperf.main, words[2:])
    assert code == 0, err
    written = {path.name for path in results.rglob("*")}
    assert {"run.json", "requests.parquet", "mlperf_log_accuracy.json", "journal"} <= written
    assert anyone_may_write(results) == []


def test_a_grading_under_umask_zero_beside_planted_links(tmp_path, umask_zero, capfd, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    victim, results, out = tmp_path / "victim", tmp_path / "results", tmp_path / "out"
    victim.write_text(VICTIM)
    results.mkdir(0o755)
    out.mkdir(0o755)
    for planted in ("r.json", "r.json.part", "r.programs.jsonl"):
        (results / planted).symlink_to(victim)
    log = write_log(tmp_path / "mlperf_log_accuracy.json", [[200006]] * 3)
    words = [*evaluator(log, ACCURACY), "--lcb-data", ROOT / "datasets/samples/code_sample.jsonl"]
    words += ["--output-file", results / "r.json", "--save-outputs", out / "o.parquet"]
    words += ["--report", out / "d.html"]
    code, _, err = main_here(capfd, eval_mlperf_accuracy.main, list(map(str, words[2:])))
    assert code == 5, err
    assert victim.read_text() == VICTIM
    assert json.loads((results / "r.json").read_text())["summary"]
    assert {"o.parquet", "d.html"} <= {path.name for path in out.iterdir()}
    assert anyone_may_write(results) == anyone_may_write(out) == []


@pytest.mark.parametrize(("umask", "kept"), [(0, 0o002), (0o027, 0o027), (0o077, 0o077), (0o020, 0o022)])
def test_a_stricter_umask_stays(umask, kept):
    before = os.umask(umask)
    keep_others_from_writing()
    assert os.umask(before) == kept


WRITERS = {
    "run.json": ENDED.write,
    "requests.parquet": lambda path: write_requests(path, pa.table({"a": [1]})),
}


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("planted", ["", ".partial"])
def test_planted_links_are_replaced_not_followed(name, planted, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text(VICTIM)
    link = tmp_path / (name + planted)
    link.symlink_to(victim)
    WRITERS[name](tmp_path / name)
    assert victim.read_text() == VICTIM
    assert (tmp_path / name).is_file() and not (tmp_path / name).is_symlink()
    assert not (tmp_path / (name + ".partial")).exists()


def test_an_error_leaves_no_file_and_others_cannot_write_one(tmp_path):
    with pytest.raises(ZeroDivisionError), atomic_write(tmp_path / "a"):
        raise ZeroDivisionError
    assert not (tmp_path / "a").exists()
    with atomic_write(tmp_path / "a") as file:
        file.write(b"x")
    assert (tmp_path / "a").stat().st_mode & 0o022 == 0


def test_a_file_that_has_no_room_is_named(tmp_path):
    """write(2) names none, and a line without the file leads to no disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large") as failed, atomic_write(tmp_path / "a") as file:
            file.write(b"xx")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (failed.value.filename, list(tmp_path.iterdir())) == (str(tmp_path / "a"), [])


def test_a_device_is_written_to_and_stays_one():
    """Not /dev/null: with the fault, and as root, this would take it from the machine."""
    terminal, side = os.openpty()
    device = Path(os.ttyname(side))
    with atomic_write(device) as file:
        file.write(b"x")
    assert os.read(terminal, 1) == b"x"
    assert device.is_char_device()


@pytest.mark.parametrize("which", ["performance", "."])
def test_a_folder_that_everybody_may_write_to_is_refused(which, tmp_path):
    log_dir = tmp_path / "performance"
    log_dir.mkdir()
    (tmp_path / which).chmod(0o777)
    with pytest.raises(ConfigError, match="everybody may write into"):
        move_aside_existing(log_dir)
    (tmp_path / which).chmod(0o1777)
    assert move_aside_existing(log_dir) is None


def test_planted_names_in_and_beside_the_folder_are_not_followed(tmp_path):
    """A file of someone else under a name of ours, such as a link in place of the lock."""
    log_dir = tmp_path / "performance"
    log_dir.mkdir()
    (log_dir / ".reserve").symlink_to(tmp_path / "victim")
    move_aside_existing(log_dir)
    assert not (log_dir / ".reserve").is_symlink()
    (tmp_path / ".performance.lock").symlink_to(tmp_path / "victim")
    with pytest.raises(ConfigError, match="cannot write there"), locked(log_dir):
        pass
    assert not (tmp_path / "victim").exists()
