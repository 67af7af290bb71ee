"""run_endpoints.py run as a user calls it, against stub servers: the walk over all points."""

import json
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tokenizers import AddedToken, Tokenizer
from tokenizers.models import WordLevel

import run_endpoints
from harness.dataset.tokenizer import NAMED_SPECIAL
from harness.endpoints.run_folder import ACCURACY, NOT_A_RESULT_FILE, PAGE, REHEARSAL, RUNS, SUMMARY, TREE
from harness.peak.ladder.steps import NOT_A_RESULT
from sut.endpoints import rehearsal
from tests.kit import full_disk, wait_until
from tests.runs import ROOT, main_here
from tests.stub import Facts, Fault, StubServer

SAMPLES = ROOT / "datasets/samples"
OFFICIAL = shutil.which("endpoints-submission-cli", path=str(Path(sys.executable).parent))
ELECTED = ("--offline", "elected")  # 7 points, none of them with all samples at once


def words(folder, *stubs, accuracy=False, tokens=6):
    given = ["run", "--short", "--input-file", SAMPLES / "perf_sample.parquet", "--output-dir", folder]
    given += ["--max-new-tokens", tokens, "--server-url", ",".join(stub.url for stub in stubs)]
    if accuracy:
        given += ["--system", ROOT / "configs/submission/endpoints.example.toml"]
        given += ["--accuracy-file", SAMPLES / "acc_sample.parquet"]
    return [str(word) for word in given]


def started(given):
    command = [sys.executable, ROOT / "run_endpoints.py", *given]
    return subprocess.Popen(command, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def complete(folder):
    """The points that are complete, in the order of the plan."""
    rehearsal = folder / "endpoints"
    plan = json.loads((rehearsal / REHEARSAL).read_text())["curve"]["points"]
    return [one["name"] for one in plan if (rehearsal / RUNS / one["name"] / SUMMARY).is_file()]


def generated(stub):
    return [request for request in stub.requests if request.prompt_ids]


@pytest.mark.engine
@pytest.mark.timeout(600)
def test_a_short_rehearsal_is_a_tree_that_the_official_checker_accepts(tmp_path, capfd, monkeypatch):
    """Also: the accuracy run with all rows at once has as many in flight as the client holds."""
    monkeypatch.setattr(rehearsal, "client_holds", lambda client, servers: 3)
    with StubServer(event_delay_s=0.01) as stub:  # so that each answer has a TPOT on a busy machine, too
        code, stdout, stderr = main_here(capfd, run_endpoints.main, words(tmp_path, stub, accuracy=True))
        assert code == 0, stdout + stderr
        sent = len(generated(stub))
        again = main_here(capfd, run_endpoints.main, words(tmp_path, stub, accuracy=True))
        assert again[0] == 0, again
        assert "8 of 8 points are complete" in again[1]
        assert len(generated(stub)) == sent
    folder = tmp_path / "endpoints"
    assert len(complete(tmp_path)) == 8
    scored = json.loads((folder / RUNS / "offline" / ACCURACY).read_text())["accuracy_scores"]
    assert {entry["concurrency"] for entry in scored} == {3}
    assert "0 errors" in stdout
    for file in (PAGE, NOT_A_RESULT_FILE, REHEARSAL):
        assert NOT_A_RESULT in (folder / file).read_text()
    (submission,) = (folder / TREE).glob("*/*/")
    assert "not-an-MLPerf-result" in submission.name
    if OFFICIAL is None:
        pytest.skip("endpoints-submission-cli is not installed")
    checked = subprocess.run(
        [OFFICIAL, "check-submission", submission], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout
    assert "0 error(s)" in checked.stdout
    for run in (folder / RUNS).glob("[!.]*"):
        upload = [OFFICIAL, "runs", "create", "--path", run, "--dry-run"]
        assert subprocess.run(upload, capture_output=True, check=False).returncode == 0
    viewer = Path(sys.executable).with_name("mlperf-viz")
    export = [viewer, folder / TREE, "--strict", "--export", tmp_path / "bundle.json"]
    assert subprocess.run(export, capture_output=True, check=False).returncode == 0


@pytest.mark.engine
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("end", "codes"), [("SIGINT", {130}), ("SIGKILL", {-9}), ("server", {3, 4})])
def test_it_continues_where_it_was_cut_off(end, codes, tmp_path, capfd):
    """In the third point: the first two are not run again."""
    with StubServer(event_delay_s=0.02) as stub:
        rehearsal = started([*words(tmp_path, stub), *ELECTED])
        folder = tmp_path / "endpoints" / RUNS
        third = lambda: len(list(folder.glob("*/journal"))) == 3  # noqa: E731
        wait_until(lambda: third() or rehearsal.poll() is not None)
        if end == "server":
            stub.stop()
        else:
            rehearsal.send_signal(signal.Signals[end])
        stdout, stderr = rehearsal.communicate()
    assert rehearsal.returncode in codes, stdout + stderr
    before = complete(tmp_path)
    assert len(before) == 2
    times = [(folder / name / SUMMARY).stat().st_mtime_ns for name in before]
    if end != "SIGKILL":
        assert "repeat the command" in stdout + stderr
        assert "Traceback" not in stderr
    with StubServer() as stub:
        code, stdout, stderr = main_here(capfd, run_endpoints.main, [*words(tmp_path, stub), *ELECTED])
    assert "2 of 7 points are complete" in stdout, stdout + stderr
    assert [(folder / name / SUMMARY).stat().st_mtime_ns for name in before] == times
    assert len(complete(tmp_path)) == 7
    assert code == 5  # without an accuracy dataset it is no submission


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (("--c-max", 32), ("C_max is 32", "more than 32")),
        (("--c-max", 4096), ("samples", "4096", "--c-max")),
        (("--c-max", 64, "--c-min", 33), ("C_min is 33",)),
        (("--seed-set", "Z"), ("--seed-set Z", "A")),
        (("--target-cohort", "soon"), ("'soon'", "2026-10-C1")),
        (("--system", "missing.toml"), ("missing.toml", "example.toml")),
        (("--system", "late.toml"), ("2026-12-C1", "2026-10-C1 to 2026-12-C0", "--seed-sets")),
        (("--accuracy-file", "missing.parquet"), ("missing.parquet",)),
        (("--concurrency", "1,2,3"), ("3",)),
        (("--max-new-tokens", 1), ("max_new_tokens is 1", "--max-new-tokens")),
        (("--tokenizer", SAMPLES / "cnn_sample_tokenizer.json"), ("token 199998", "omit --tokenizer")),
    ],
)
def test_a_plan_that_cannot_be_is_one_line(flags, named, tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    example = (ROOT / "configs/submission/endpoints.example.toml").read_text()
    Path("late.toml").write_text(example.replace('"2026-12-C0"', '"2026-12-C1"'))
    with StubServer() as stub:
        given = [*words(tmp_path, stub), *map(str, flags)]
        code, _stdout, stderr = main_here(capfd, run_endpoints.main, given)
        assert not generated(stub)
    assert code == 2
    lines = [line for line in stderr.splitlines() if "error: " in line]
    assert len(lines) == 1, stderr
    assert all(word in lines[0] for word in named), lines[0]
    assert not (tmp_path / "endpoints").exists()


def test_a_defect_of_the_page_ends_no_rehearsal(tmp_path, capfd, caplog, monkeypatch):
    monkeypatch.setattr(rehearsal._Walk, "to_the_end", lambda walk: walk._page() or 0)
    monkeypatch.setattr(rehearsal, "write_endpoints_page", lambda folder: {}["new"])
    with StubServer() as stub:
        assert main_here(capfd, run_endpoints.main, words(tmp_path, stub))[0] == 0
    assert f"warning: a defect of this program (KeyError: 'new'): no {PAGE}" in caplog.messages


def test_a_full_disk_is_a_line_with_the_file_and_a_remedy(tmp_path, capfd, monkeypatch):
    monkeypatch.setattr(rehearsal._Walk, "_point", full_disk)
    monkeypatch.setattr(rehearsal, "write_endpoints_page", full_disk)
    with StubServer() as stub:
        code, stdout, stderr = main_here(capfd, run_endpoints.main, words(tmp_path, stub))
    why = "No space left on device; free space there or choose another folder"
    assert f"WARNING   the page was not written: {tmp_path}/endpoints/{PAGE}: {why}\n" in stdout + stderr
    (error,) = (line for line in stderr.splitlines() if "error: " in line)
    assert re.search(rf": (r\d+|offline): {tmp_path}/endpoints/runs/\1: {why}; repeat the command", error)
    assert code == 4


def test_a_disk_that_is_full_before_the_first_point_is_said_of_the_folder(tmp_path, capfd, monkeypatch):
    monkeypatch.setattr(rehearsal, "write_rehearsal", full_disk)
    with StubServer() as stub:
        code, _, stderr = main_here(capfd, run_endpoints.main, words(tmp_path, stub))
    (error,) = (line for line in stderr.splitlines() if "error: " in line)
    assert f"--results {tmp_path}/endpoints: cannot write there: No space left on device; free" in error
    assert code == 2


def test_a_point_without_an_answer_ends_the_rehearsal(tmp_path, capfd):
    """All points were run like it, and the tree then refused the folders of all of them."""
    with StubServer(faults=lambda one: Fault.HTTP_500 if one.index > 0 else None) as stub:
        given = [*words(tmp_path, stub), "--no-fail-fast"]
        code, stdout, stderr = main_here(capfd, run_endpoints.main, given)
        assert code == 4, stdout + stderr
        (error,) = (line for line in stderr.splitlines() if "error: " in line)
        assert re.search(r": r40: no request was completed: http_status .*; repeat the command", error)
        assert [one.name for one in (tmp_path / "endpoints" / RUNS).glob("r*")] == ["r40"]
    assert complete(tmp_path) == []


def test_flags_of_accuracy_runs_have_no_effect_without_any(tmp_path, capfd):
    with StubServer() as stub:
        given = [*words(tmp_path, stub), "--dry-run", "--reference-data", "nowhere", "--allow-unsandboxed"]
        code, stdout, stderr = main_here(capfd, run_endpoints.main, given)
    assert code == 0, stderr
    found = re.findall(r"WARNING +(--[a-z-]+) has no effect: without --accuracy-file", stdout)
    assert found == ["--reference-data", "--allow-unsandboxed"]


def test_c_max_is_that_of_a_rehearsal_only_while_that_continues(tmp_path, capfd, monkeypatch):
    """Of other servers, other answers, another tokenizer or the forms alone it is another number, for
    another cohort it is the same. C_min is a request for each data-parallel rank."""
    monkeypatch.setattr(rehearsal._Walk, "to_the_end", lambda walk: 0)

    def ran(stub, *more, tokens=6):
        given = [word for word in words(tmp_path, stub, tokens=tokens) if word != "--short"]
        return main_here(capfd, run_endpoints.main, [*given, *more])

    with StubServer(facts=Facts(dp_size=4)) as stub:
        assert ran(stub, "--c-max", "48")[0] == 0
        code, stdout, stderr = ran(stub, "--dry-run", "--target-cohort", "2026-12-C0")
        assert code == 0 and "C_min 4, C_max 48 (that of the rehearsal that continues)" in stdout, stderr
        other = Tokenizer(WordLevel({text: token for token, text in NAMED_SPECIAL.items()}, "?"))
        other.add_special_tokens([AddedToken(text) for text in NAMED_SPECIAL.values()])
        other.save(str(tmp_path / "tokenizer.json"))
        counted = ("--tokenizer", str(tmp_path / "tokenizer.json"))
        for more, tokens in (((), 7), (counted, 6)):
            code, stdout, stderr = ran(stub, "--dry-run", *more, tokens=tokens)
            assert code == 2 and "--c-max is not given" in stderr, stdout
        main_here(capfd, run_endpoints.main, words(tmp_path, stub))  # the forms, up to 40
        code, stdout, stderr = ran(stub, "--dry-run")
        assert code == 2 and "--c-max is not given" in stderr, stdout
