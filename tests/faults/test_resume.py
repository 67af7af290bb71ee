"""kill -9 at any moment of an accuracy run; --resume ends in a log as if nothing had happened."""

import json
import os
import random
import signal
import subprocess
import time

import pytest

from harness.record.answer_log import kept_answers
from tests.runs import FinishedRun, command, quick_conf, run_here, run_mlperf, small_dataset
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
    process.send_signal(signal.SIGKILL)
    process.wait()


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
        kept.append(go_on_after(dice, output, scenario))
    assert any(kept), "every kill came before the first answer: the test has shown nothing"


def go_on_after(dice, output, scenario):
    dataset, prompts = small_dataset(output, rows=ROWS)
    conf = quick_conf(output, qps=60, duration_ms=0)
    log_dir = output / scenario / "accuracy"
    with StubServer(event_delay_s=0.015) as stub:
        words = ("--scenario", scenario, *arguments(stub, dataset))
        for _ in range(dice.choice((1, 2))):
            resume = ("--resume",) if (log_dir / "run.json").exists() else ()
            sent = len(stub.requests) + dice.randrange(ROWS + 4)
            kill_at(lambda: len(stub.requests) >= sent, dice.uniform(0, 0.1), output, (*words, *resume), conf)  # noqa: B023
            if (log_dir / "run.json").exists() and verdict(log_dir) == "VALID":
                break
        before = len(stub.requests)
        if not log_dir.exists() or not any(log_dir.rglob("run.json")):
            run = run_mlperf(output, *words, scenario=scenario)
        elif verdict(log_dir) == "VALID":
            return 0
        else:
            run = run_mlperf(output, *words, "--resume", scenario=scenario)
        sent = len(stub.requests) - before - 1  # one trial request
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


def test_resume_after_failures(tmp_path):
    """The failures that ended a run are sent again, its answers are not."""
    dataset, prompts = small_dataset(tmp_path, rows=ROWS)
    faults = [None] * 12 + [Fault.HTTP_500] * 4
    with StubServer(event_delay_s=0.1, faults=faults) as stub:
        first = broken_off(tmp_path, stub, dataset)
    assert first.code == 4
    assert "ended early: " in first.record["verdict"]["reasons"][0]
    answered = first.record["statistics"]["completed"]
    assert answered >= 8
    with StubServer() as stub:
        second = run_mlperf(tmp_path, *arguments(stub, dataset), "--resume")
        sent = len(stub.requests) - 1
    assert second.code == 0, second.stdout + second.stderr
    assert second.record["statistics"]["resumed"] == answered
    assert sent == ROWS - answered
    assert second.accuracy_log == {i: expected_ids(prompt, TOKENS) for i, prompt in enumerate(prompts)}
    assert (second.log_dir / "attempt.1" / "run.json").is_file()
    rows = second.requests
    assert sum(row["resumed"] for row in rows) == answered
    assert all(row["sent_ns"] is None and row["osl"] == TOKENS for row in rows if row["resumed"])


CHANGED = [
    (("--max-new-tokens", TOKENS + 1), "parameters"),
    (("--max-samples", ROWS - 1), "samples"),
]


def test_another_run_is_not_gone_on_with(tmp_path, capfd):
    """One run that broke off refuses them all."""
    dataset, _ = small_dataset(tmp_path, rows=ROWS)
    faults = [None] * 20 + [Fault.HTTP_500] * 4
    with StubServer(faults=faults) as stub:
        first = broken_off(tmp_path, stub, dataset)
        for changed, wording in CHANGED:
            words = ("--user-conf", quick_conf(tmp_path), *arguments(stub, dataset), "--resume", *changed)
            run = run_here(capfd, tmp_path, *words)
            assert run.code == 2
            assert f"holds a run with {wording}" in run.stderr
    assert first.result == "INVALID"  # the earlier run still lies there, untouched
    assert not (first.log_dir / "attempt.1").exists()


def test_nothing_to_resume(tmp_path, capfd):
    dataset, _ = small_dataset(tmp_path)
    with StubServer() as stub:
        again = (*arguments(stub, dataset), "--user-conf", quick_conf(tmp_path), "--resume")
        run = run_here(capfd, tmp_path, *again)
        assert run.code == 2
        assert "holds no run to resume" in run.stderr
        whole = run_mlperf(tmp_path, *arguments(stub, dataset))
        assert whole.code == 0
        refused = run_here(capfd, tmp_path, *again)
    assert refused.code == 2
    assert "VALID and complete" in refused.stderr


def test_performance_never_resumes(tmp_path, capfd):
    dataset, _ = small_dataset(tmp_path)
    run = run_here(capfd, tmp_path, "--input-file", dataset, "--resume")
    assert run.code == 2
    assert "--resume without --accuracy" in run.stderr


def test_answers_are_on_disk_within_a_second(tmp_path):
    """Read by another process while the run goes on."""
    dataset, prompts = small_dataset(tmp_path, rows=ROWS)
    conf = quick_conf(tmp_path, qps=10, duration_ms=0)
    with StubServer(event_delay_s=0.001) as stub:
        words = command(tmp_path, "--scenario", "server", "--user-conf", conf, *arguments(stub, dataset))
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            while len(stub.requests) < 15:
                time.sleep(0.02)
            sent = len(stub.requests) - 1
            time.sleep(1.0)
            process.kill()
        finally:
            process.wait()
    finished = FinishedRun(process.returncode, "", "", tmp_path / "server" / "accuracy")
    kept = kept_answers([finished.log_dir / "journal"], ROWS)
    assert len(kept) >= sent
    for index, answer in kept.items():
        assert answer.output_ids().tolist() == expected_ids(prompts[index], TOKENS)
