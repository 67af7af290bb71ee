"""kill -9 at any moment of an accuracy run; its command, repeated, ends as if nothing had happened."""

import json
import os
import random
import shutil
import signal
import subprocess
import time
from dataclasses import replace

import psutil
import pytest

from harness.record.answer_log import read_saved_answers
from tests.faults.going import alive, verdict
from tests.kit import any_written, wait_until
from tests.runs import command, quick_conf, run_here, run_mlperf, small_dataset
from tests.stub import Facts, Fault, StubServer, expected_ids

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
    """Each point: one or two kills, then the command again; nothing is lost, nothing twice or sent again."""
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
            sent = len(stub.requests) + dice.randrange(ROWS // 2 if certain else ROWS + 4)

            def caught():
                in_journal = any_written(log_dir, "journal/answers-*.bin")
                return len(stub.requests) >= sent and (in_journal or not certain)  # noqa: B023

            kill_at(caught, dice.uniform(0, 0.1), output, words, conf)
            if verdict(log_dir) == "VALID":
                break
    if verdict(log_dir) == "VALID":
        return 0
    with StubServer() as stub:  # the first may still read what the killed have sent
        run = run_mlperf(output, *arguments(stub, dataset), scenario=scenario)
        sent = len(stub.requests) - 1  # one trial request
    assert run.code == 0, run.stdout + run.stderr
    assert run.accuracy_log == {i: expected_ids(prompt, TOKENS) for i, prompt in enumerate(prompts)}
    resumed = run.record["statistics"]["resumed"]
    assert sent == ROWS - resumed
    assert len(run.requests) == ROWS
    if resumed:
        assert f"resumed: {resumed} of {ROWS} answers" in run.stdout
        assert f": {resumed} of {ROWS} samples" in run.stdout.splitlines()[0]
    return resumed


@pytest.mark.engine
@pytest.mark.parametrize("restarts", [True, False], ids=["started again", "changed in place"])
def test_answers_that_may_be_of_another_model_are_sent_again(tmp_path, restarts):
    """One of two servers is another one from the middle on, and its answers are shorter then."""
    dataset, prompts = small_dataset(tmp_path, rows=ROWS)
    other = Facts(model="openai/gpt-oss-20b", served_name="gpt-oss-20b")
    with StubServer(event_delay_s=0.03) as stays, StubServer(event_delay_s=0.03) as leaves:
        words = (*arguments(stays, dataset), "--retries", 5)
        words = tuple(f"{stays.url},{leaves.url}" if word == stays.url else word for word in words)
        process = subprocess.Popen(
            command(tmp_path, "--user-conf", quick_conf(tmp_path), *words),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        wait_until(lambda: sum(request.answered for request in leaves.requests) > ROWS // 8)
        if restarts:
            leaves.stop()
            again = StubServer(port=leaves.port, facts=other, tokens=TOKENS - 1)
            again.__enter__()
        else:
            leaves.options = replace(leaves.options, facts=other, tokens=TOKENS - 1)
        said, _ = process.communicate(timeout=300)
        if restarts:
            again.stop()
    assert process.returncode == 4, said
    assert "Traceback" not in said and "gpt-oss-120b is now gpt-oss-20b" in said
    log_dir = tmp_path / "offline" / "accuracy"
    (change,) = json.loads((log_dir / "run.json").read_text())["changed"]
    assert (change["url"], change["was"]["model"]) == (leaves.url, "gpt-oss-120b")
    assert ROWS // 8 <= change["answers"] < ROWS
    with StubServer(port=stays.port) as stays, StubServer(port=leaves.port) as leaves:
        second = run_mlperf(tmp_path, *words, "--resume")
        sent = len(stays.requests) + len(leaves.requests) - 2
    assert second.code == 0, second.stdout + second.stderr
    assert second.accuracy_log == {i: expected_ids(prompt, TOKENS) for i, prompt in enumerate(prompts)}
    assert second.record["changed"] == []
    assert sent == change["answers"]


@pytest.mark.engine
@pytest.mark.parametrize("first", [0, 1])
def test_every_server_has_the_model_of_the_answers(tmp_path, capfd, first):
    """In whatever order they are named."""
    dataset, _ = small_dataset(tmp_path, rows=ROWS)
    same, other = (Facts(info={"quantization": name}) for name in ("mxfp4", "fp8"))
    with StubServer(facts=same, faults=[None] * 4 + [Fault.HTTP_500] * ROWS) as stub:
        assert run_mlperf(tmp_path, *arguments(stub, dataset), here=capfd).code == 4
    with StubServer(facts=same) as stays, StubServer(facts=other) as joins:
        words = list(arguments(stays, dataset))
        urls = [stays.url, joins.url]
        words[words.index(stays.url)] = f"{urls[first]},{urls[1 - first]}"
        refused = run_mlperf(tmp_path, *words, here=capfd)
        assert (refused.code, len(stays.requests) + len(joins.requests)) == (2, 0), refused
    assert "quantization mxfp4 is now fp8" in refused.stderr and joins.url in refused.stderr


@pytest.mark.engine
def test_a_repeated_command_sends_failures_again(tmp_path, capfd):
    """The failures that ended a run are sent again, its answers are not; a complete run is left as it is."""
    dataset, prompts = small_dataset(tmp_path, rows=ROWS)
    with StubServer(event_delay_s=0.1, faults=[None] * 12 + [Fault.HTTP_500] * 4) as stub:
        words = arguments(stub, dataset)
        first = run_mlperf(tmp_path, *words, "--max-failures", 2, here=capfd)
        refused = run_here(capfd, tmp_path, *words, "--resume", "--max-new-tokens", TOKENS + 1)
        assert (refused.code, "holds a run with parameters" in refused.stderr) == (2, True)
        dry = run_here(capfd, tmp_path, *words, "--dry-run", "--max-new-tokens", TOKENS + 1)
        assert (dry.code, "would begin anew" in dry.stdout.splitlines()[0]) == (0, True)
        assert "parameters.max_new_tokens" in dry.stdout.splitlines()[0]
    assert (first.code, first.result) == (4, "INVALID")  # the earlier run still lies there, untouched
    assert not (first.log_dir / "attempt.1").exists()
    assert "ended early: " in first.record["verdict"]["reasons"][0]
    answered = first.record["statistics"]["completed"]
    assert answered >= 8
    with StubServer() as stub:
        second = run_mlperf(tmp_path, *arguments(stub, dataset), here=capfd)
        sent = len(stub.requests) - 1
        for flags in ((), ("--resume",), ("--dry-run",)):
            third = run_mlperf(tmp_path, *arguments(stub, dataset), *flags, here=capfd)
            assert (third.code, third.stdout.split(":")[0]) == (0, "complete")
            assert "Result: VALID" in third.stdout and "Score it with: " in third.stdout
        assert len(stub.requests) == 1 + sent
    assert second.code == 0, second.stdout + second.stderr
    assert second.record["statistics"]["resumed"] == answered
    assert f"{answered} of {ROWS}" in second.stdout.splitlines()[0]
    assert sent == ROWS - answered
    assert second.accuracy_log == {i: expected_ids(prompt, TOKENS) for i, prompt in enumerate(prompts)}
    assert (second.log_dir / "attempt.1" / "run.json").is_file()
    rows = second.requests
    assert sum(row["resumed"] for row in rows) == answered
    assert all(row["sent_ns"] is None and row["osl"] == TOKENS for row in rows if row["resumed"])


@pytest.mark.engine
def test_answers_that_cannot_be_continued_are_moved_and_come_back(tmp_path, capfd):
    """Other parameters begin anew; the earlier answers lie where the first line says, and are used again."""
    dataset, _ = small_dataset(tmp_path, rows=ROWS)
    log_dir = tmp_path / "offline" / "accuracy"
    with StubServer(event_delay_s=0.1, faults=[None] * 12 + [Fault.HTTP_500] * 4) as stub:
        run_mlperf(tmp_path, *arguments(stub, dataset), "--max-failures", 2, here=capfd)
    with StubServer() as stub:
        other = run_mlperf(tmp_path, *arguments(stub, dataset), "--max-new-tokens", TOKENS + 1, here=capfd)
        assert other.code == 0
        again = run_mlperf(tmp_path, *arguments(stub, dataset), "--max-new-tokens", TOKENS + 1, "--restart")
        assert again.code == 0 and len(stub.requests) == 2 * (1 + ROWS)
        assert again.stdout.startswith("begins anew") and f"{ROWS} of {ROWS}" in again.stdout.splitlines()[0]
        first_line = other.stdout.splitlines()[0]
        aside = next(path for path in log_dir.parent.glob("accuracy.*") if str(path) in first_line)
        answered = len(read_saved_answers([aside / "journal"], ROWS))
        assert f"{answered} of {ROWS} samples" in first_line
        shutil.rmtree(log_dir)
        aside.rename(log_dir)
        back = run_mlperf(tmp_path, *arguments(stub, dataset), here=capfd)
    assert back.code == 0 and back.record["statistics"]["resumed"] == answered


@pytest.mark.engine
def test_a_performance_run_is_repeated(tmp_path, capfd):
    dataset, _ = small_dataset(tmp_path)
    with StubServer() as stub:
        words = ("--server-url", stub.url, "--input-file", dataset, "--max-new-tokens", TOKENS)
        for _ in range(2):
            run = run_mlperf(tmp_path, *words, here=capfd)
            assert run.code == 0
    (aside,) = run.log_dir.parent.glob("performance.*")
    assert str(aside) in run.stdout.splitlines()[0]


def test_performance_never_resumes(tmp_path, capfd):
    run = run_here(capfd, tmp_path, "--input-file", "any.parquet", "--resume")
    assert run.code == 2
    assert "--resume without --accuracy" in run.stderr


@pytest.mark.engine
def test_answers_are_on_disk_while_the_run_goes_on(tmp_path):
    """Read by another process; the run cannot end, as one query is not answered."""
    dataset, prompts = small_dataset(tmp_path, rows=ROWS)
    journal = tmp_path / "server" / "accuracy" / "journal"
    with StubServer(gate=lambda request: request.index <= 15) as stub:
        words = ("--user-conf", quick_conf(tmp_path, qps=400, duration_ms=0), *arguments(stub, dataset))
        process = subprocess.Popen(
            command(tmp_path, "--scenario", "server", *words),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            wait_until(lambda: journal.exists() and len(read_saved_answers([journal], ROWS)) == 15)
            assert process.poll() is None
            assert len(stub.requests) <= 1 + 15 + 4  # the trial, answered, in flight
        finally:
            process.kill()
            process.wait()
    for index, answer in read_saved_answers([journal], ROWS).items():
        assert answer.output_ids().tolist() == expected_ids(prompts[index], TOKENS)
