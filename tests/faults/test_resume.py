"""kill -9 at any moment of an accuracy run; --resume ends in a log as if nothing had happened."""

import json
import os
import random
import signal
import subprocess
import time

import psutil
import pytest

from harness.record.answer_log import read_saved_answers
from tests.faults.going import alive
from tests.kit import wait_until
from tests.runs import command, quick_conf, run_here, run_mlperf, small_dataset
from tests.stub import Fault, StubServer, expected_ids

TOKENS = 6
ROWS = 40
POINTS = int(os.environ.get("HARNESS_KILL_POINTS", "8"))


def arguments(stub, dataset):
    return (
        *("--accuracy", "--server-url", stub.url, "--input-file", dataset, "--max-new-tokens", TOKENS),
        *("--max-concurrency", 4, "--num-workers", 2),
    )


def kill_at(moment, wait_s, output, words, conf):
    """Start a run and kill -9 its program ``wait_s`` after ``moment()`` became true."""
    process = subprocess.Popen(
        command(output, "--user-conf", conf, *words),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    while process.poll() is None and not moment():
        time.sleep(0.002)
    time.sleep(wait_s)
    children = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
    process.send_signal(signal.SIGKILL)
    process.wait()
    wait_until(lambda: not alive(children))


@pytest.mark.engine
@pytest.mark.timeout(60 * POINTS)
@pytest.mark.parametrize("scenario", ["offline", "server"])
def test_random_kill_points(tmp_path, scenario):
    """Each point: one or two kills, then --resume; nothing is lost, nothing twice, nothing sent again."""
    dice = random.Random(f"{scenario} {POINTS}")
    kept = []
    for point in range(POINTS):
        output = tmp_path / str(point)
        output.mkdir()
        kept.append(go_on_after(dice, output, scenario, certain=point == 0))
    assert kept[0], "the answers in the journal are sent again"


def go_on_after(dice, output, scenario, certain=False):
    """How many answers were kept; ``certain``: one kill in the middle, with some in the journal."""
    dataset, prompts = small_dataset(output, rows=ROWS)
    conf = quick_conf(output, qps=60, duration_ms=0)
    log_dir = output / scenario / "accuracy"
    with StubServer(
        event_delay_s=0.015, gate=lambda request: not certain or request.index <= ROWS // 2
    ) as stub:
        words = ("--scenario", scenario, *arguments(stub, dataset))
        for _ in range(1 if certain else dice.choice((1, 2))):
            resume = ("--resume",) if (log_dir / "run.json").exists() else ()
            sent = len(stub.requests) + dice.randrange(ROWS // 2 if certain else ROWS + 4)

            def caught():
                in_journal = any(path.stat().st_size for path in log_dir.glob("journal/answers-*.bin"))
                return len(stub.requests) >= sent and (in_journal or not certain)  # noqa: B023

            kill_at(caught, dice.uniform(0, 0.1), output, (*words, *resume), conf)
            if (log_dir / "run.json").exists() and verdict(log_dir) == "VALID":
                break
    with StubServer() as stub:  # the first may still read what the killed have sent
        words = ("--scenario", scenario, *arguments(stub, dataset))
        if not log_dir.exists() or not any(log_dir.rglob("run.json")):
            run = run_mlperf(output, *words, scenario=scenario)
        elif verdict(log_dir) == "VALID":
            return 0
        else:
            run = run_mlperf(output, *words, "--resume", scenario=scenario)
        sent = len(stub.requests) - 1  # one trial request
    assert run.code == 0, run.stdout + run.stderr
    assert run.accuracy_log == {i: expected_ids(prompt, TOKENS) for i, prompt in enumerate(prompts)}
    resumed = run.record["statistics"]["resumed"]
    assert sent == ROWS - resumed
    assert len(run.requests) == ROWS
    if resumed:
        assert f"resumed: {resumed} of {ROWS} answers" in run.stdout
    return resumed


def verdict(log_dir):
    path = log_dir / "run.json"
    record = json.loads(path.read_text()) if path.exists() else {}
    return (record.get("verdict") or {}).get("result")


def broken_off(tmp_path, stub, dataset):
    """A run that ended itself at its failures, with answers in its journal."""
    return run_mlperf(tmp_path, *arguments(stub, dataset), "--max-failures", 2)


CHANGED = [(("--max-new-tokens", TOKENS + 1), "parameters"), (("--max-samples", ROWS - 1), "samples")]


def test_resume_after_failures(tmp_path, capfd):
    """The failures that ended a run are sent again, its answers are not; another run is not resumed."""
    dataset, prompts = small_dataset(tmp_path, rows=ROWS)
    faults = [None] * 12 + [Fault.HTTP_500] * 4
    conf = ("--user-conf", quick_conf(tmp_path), "--resume")
    with StubServer(event_delay_s=0.1, faults=faults) as stub:
        refused = run_here(capfd, tmp_path, *arguments(stub, dataset), *conf)
        assert (refused.code, "holds no run to resume" in refused.stderr) == (2, True)
        first = broken_off(tmp_path, stub, dataset)
        for changed, wording in CHANGED:
            run = run_here(capfd, tmp_path, *arguments(stub, dataset), *conf, *changed)
            assert run.code == 2
            assert f"holds a run with {wording}" in run.stderr
    assert (first.code, first.result) == (4, "INVALID")  # the earlier run still lies there, untouched
    assert not (first.log_dir / "attempt.1").exists()
    assert "ended early: " in first.record["verdict"]["reasons"][0]
    answered = first.record["statistics"]["completed"]
    assert answered >= 8
    with StubServer() as stub:
        second = run_mlperf(tmp_path, *arguments(stub, dataset), "--resume")
        sent = len(stub.requests) - 1
        refused = run_here(capfd, tmp_path, *arguments(stub, dataset), *conf)
    assert (refused.code, "VALID and complete" in refused.stderr) == (2, True)
    assert second.code == 0, second.stdout + second.stderr
    assert second.record["statistics"]["resumed"] == answered
    assert sent == ROWS - answered
    assert second.accuracy_log == {i: expected_ids(prompt, TOKENS) for i, prompt in enumerate(prompts)}
    assert (second.log_dir / "attempt.1" / "run.json").is_file()
    rows = second.requests
    assert sum(row["resumed"] for row in rows) == answered
    assert all(row["sent_ns"] is None and row["osl"] == TOKENS for row in rows if row["resumed"])


def test_performance_never_resumes(tmp_path, capfd):
    dataset, _ = small_dataset(tmp_path)
    run = run_here(capfd, tmp_path, "--input-file", dataset, "--resume")
    assert run.code == 2
    assert "--resume without --accuracy" in run.stderr


def test_answers_are_on_disk_while_the_run_goes_on(tmp_path):
    """Read by another process; the run cannot end, as one query is not answered."""
    dataset, prompts = small_dataset(tmp_path, rows=ROWS)
    journal = tmp_path / "server" / "accuracy" / "journal"
    with StubServer(gate=lambda request: request.index <= 15) as stub:
        words = ("--user-conf", quick_conf(tmp_path, qps=10, duration_ms=0), *arguments(stub, dataset))
        process = subprocess.Popen(
            command(tmp_path, "--scenario", "server", *words),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            wait_until(lambda: journal.exists() and len(read_saved_answers([journal], ROWS)) == 15)
            assert process.poll() is None
        finally:
            process.kill()
            process.wait()
    for index, answer in read_saved_answers([journal], ROWS).items():
        assert answer.output_ids().tolist() == expected_ids(prompts[index], TOKENS)
