"""What runs and gradings leave: nobody else can write it, and no planted link is followed."""

import json
import os
import stat
import subprocess
import sys

import pytest

from harness.errors import ConfigError
from harness.files import atomic_write, keep_others_from_writing
from harness.record.output_dir import locked, move_aside_existing
from harness.record.requests_table import write_requests
from tests.harness.grading.logs import write_log
from tests.records import ENDED
from tests.runs import ACCURACY, ROOT, command, evaluator, quick_conf, small_dataset
from tests.stub import StubServer

VICTIM = "what the link points to"


def anyone_may_write(folder):
    return [
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if not path.is_symlink() and path.stat().st_mode & stat.S_IWOTH
    ]


def under_umask_zero(words, **more):
    return subprocess.run(words, capture_output=True, text=True, timeout=100, umask=0, **more)


def run_under_umask_zero(tmp_path, url, *arguments):
    dataset, _ = small_dataset(tmp_path)
    words = command(
        tmp_path / "results", "--input-file", dataset, "--server-url", url, "--stream", "on", *arguments
    )
    done = under_umask_zero([*words, "--max-new-tokens", "4", "--user-conf", str(quick_conf(tmp_path))])
    return done, {path.name for path in (tmp_path / "results").rglob("*")}


def test_a_run_under_umask_zero(tmp_path):
    """LoadGen's own files, the journal and every folder included."""
    with StubServer() as stub:
        done, written = run_under_umask_zero(tmp_path, stub.url, "--accuracy")
    assert done.returncode == 0, done.stderr
    assert {"run.json", "requests.parquet", "mlperf_log_accuracy.json", "journal"} <= written
    assert anyone_may_write(tmp_path / "results") == []


def test_a_grading_under_umask_zero(tmp_path):
    log = write_log(tmp_path / "mlperf_log_accuracy.json", [[200006]] * 3)
    out = tmp_path / "out"
    words = evaluator(log, ACCURACY)
    outputs = {"--output-file": "r.json", "--save-outputs": "o.parquet", "--report": "d.html"}
    words += [word for flag, name in outputs.items() for word in (flag, out / name)]
    words += ["--lcb-data", ROOT / "datasets/samples/code_sample.jsonl"]
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = under_umask_zero([str(word) for word in words], env=environment)
    assert done.returncode == 5, done.stderr
    assert {"r.json", "o.parquet", "d.html"} <= {path.name for path in out.iterdir()}
    assert anyone_may_write(out) == []


def test_a_stricter_umask_stays(tmp_path):
    code = "import os; from harness.files import keep_others_from_writing as k; k(); print(os.umask(0))"
    for umask, expected in ((0, 0o002), (0o027, 0o027), (0o077, 0o077), (0o020, 0o022)):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, cwd=ROOT, umask=umask)
        assert int(done.stdout) == expected
    assert keep_others_from_writing.__doc__


WRITERS = {
    "run.json": ENDED.write,
    "requests.parquet": lambda path: write_requests(path, __import__("pyarrow").table({"a": [1]})),
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


@pytest.mark.parametrize(
    "planted",
    [
        "r.json.part",
        *(pytest.param(name, marks=pytest.mark.engine) for name in ("r.json", "r.programs.jsonl")),
    ],
)
def test_links_beside_the_evaluators_result(planted, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text(VICTIM)
    (tmp_path / planted).symlink_to(victim)
    log = write_log(tmp_path / "mlperf_log_accuracy.json", [[200006]] * 3)
    words = evaluator(log, ACCURACY)
    words += ["--output-file", tmp_path / "r.json", "--lcb-data", ROOT / "datasets/samples/code_sample.jsonl"]
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = subprocess.run(
        [str(w) for w in words], capture_output=True, text=True, timeout=120, env=environment
    )
    assert done.returncode == 5, done.stderr
    assert victim.read_text() == VICTIM
    assert json.loads((tmp_path / "r.json").read_text())["summary"]


def test_a_link_that_comes_in_between_is_an_error(tmp_path):
    (tmp_path / "victim").write_text(VICTIM)
    with pytest.raises(ZeroDivisionError), atomic_write(tmp_path / "a"):
        raise ZeroDivisionError
    assert not (tmp_path / "a").exists()
    with atomic_write(tmp_path / "a") as file:
        file.write(b"x")
    assert (tmp_path / "a").stat().st_mode & 0o022 == 0


@pytest.mark.parametrize("which", ["performance", "."])
def test_a_folder_that_everybody_may_write_to_is_refused(which, tmp_path):
    log_dir = tmp_path / "offline" / "performance"
    log_dir.mkdir(parents=True)
    (tmp_path / "offline" / which).chmod(0o777)
    with pytest.raises(ConfigError, match="everybody may write into"):
        move_aside_existing(log_dir)
    (tmp_path / "offline" / which).chmod(0o1777)
    assert move_aside_existing(log_dir) is None


def test_planted_names_in_and_beside_the_folder_are_not_followed(tmp_path):
    """A file of someone else under a name of ours, such as a link in place of the lock."""
    log_dir = tmp_path / "performance"
    log_dir.mkdir()
    (log_dir / ".reserve").symlink_to(tmp_path / "victim")
    assert move_aside_existing(log_dir) is not None
    (tmp_path / ".performance.lock").symlink_to(tmp_path / "victim")
    with pytest.raises(ConfigError, match="cannot write there"), locked(log_dir):
        pass
    assert not (tmp_path / "victim").exists()
