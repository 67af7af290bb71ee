"""run_batch.py as a user calls it, against a stub server and the embedded engine."""

import io
import re
import signal
import subprocess
import sys

import pytest

import run_batch as program
from harness.batch.batch_options import parse_options
from harness.dataset import tokenizer
from harness.text import legible
from tests.kit import wait_until
from tests.runs import ROOT, main_here, without_waits
from tests.stub import Facts, Fault, StubServer, expected_ids

PROMPTS = ["Hello", "Hello world", "Explain Mindfulness & meditation to a 5-year-old."] * 4
IDS = [[13225], [13225, 2375], [176289, 27985, 39792, 827, 45651, 316, 261, 220, 20, 8204, 12324, 13]] * 4
POSITIONS = 20
WANTED = [expected_ids(ids, POSITIONS + 1 - len(ids)) for ids in IDS]
TIMES = re.compile(
    r"(?m)^warm up elapsed time\(s\): \d+\.\d{6}\n"
    r"elapsed time\(s\): (\d+\.\d{6}), achieved throughput TPS \(tok/s\): (\d+\.\d{6})$"
)


@pytest.fixture
def batch(tmp_path):
    """A folder with the file of prompts."""
    (tmp_path / "input.txt").write_text("\n".join([str(len(PROMPTS)), *PROMPTS, ""]))
    return tmp_path


def here(capfd, folder, *arguments):
    """Exit code, stdout and stderr of a batch in this process."""
    flags = ("--input", folder / "input.txt", "--output", folder / "ids.txt", "-n", POSITIONS)
    return main_here(capfd, program.main, ["run", *map(str, (*flags, *arguments))])


def written(folder):
    *lines, empty, end = (folder / "ids.txt").read_text().split("\n")
    assert (empty, end) == ("", "")
    assert all(line.endswith(" ") for line in lines)
    return [list(map(int, line.split())) for line in lines]


def left_behind(folder):
    return sorted(path.name for path in folder.iterdir())


ENGINE = pytest.mark.engine


@pytest.mark.parametrize("backend", ["sglang", pytest.param("vllm", marks=ENGINE)])
def test_ids_in_the_order_of_the_prompts_with_limits_that_count_them(backend, batch, capfd):
    with StubServer() as stub:
        code, stdout, stderr = here(capfd, batch, "--server-url", stub.url, "--backend", backend, "-s", 7)
        requests = stub.requests[1:]
    assert code == 0, stdout + stderr
    assert written(batch) == WANTED
    assert left_behind(batch) == ["ids.txt", "input.txt"]
    seconds, rate = map(float, TIMES.search(stdout).groups())
    assert seconds * rate == pytest.approx(sum(map(len, WANTED)), rel=1e-3)
    assert sorted(request.prompt_ids for request in requests) == sorted(IDS)
    assert {len(request.prompt_ids) + request.asked_tokens for request in requests} == {POSITIONS + 1}
    sent = [request.body.get("sampling_params", request.body) for request in requests]
    fixed = ("temperature", "top_p", "skip_special_tokens")
    assert {tuple(one[name] for name in fixed) for one in sent} == {(0, 0.9, False)}
    assert [one["stop_token_ids"] for one in sent] == [[199999, 200002]] * len(PROMPTS)
    assert {one.get("sampling_seed", one.get("seed")) for one in sent} == {7}


@ENGINE
def test_failed_prompts_leave_no_file_and_are_sent_again(batch, capfd):
    """Also: answers that end without an end token are named."""

    def second(request):
        return Fault.HTTP_500 if request.index == 2 else None

    with StubServer(faults=second, tokens=3) as stub:
        code, stdout, _ = here(capfd, batch, "--server-url", stub.url)
        failed = stub.requests[2].prompt_ids
        assert code == 4
        assert re.search(r"line \d+ of the prompts: http_status", stdout)
        assert "--resume" in stdout.splitlines()[-1]
        assert left_behind(batch) == ["ids.txt.run", "input.txt"]
        for other, part in ((("-n", 21), "dataset_sha256"), (("-t", 1), "temperature")):
            code, _, stderr = here(capfd, batch, "--server-url", stub.url, "--resume", *other)
            assert (code, part in stderr) == (2, True), stderr
            code, stdout, _ = here(capfd, batch, "--server-url", stub.url, "--dry-run", *other)
            assert (code, stdout.split(",")[0]) == (0, "would begin anew")
            assert part in stdout.splitlines()[0]
    with StubServer(tokens=3) as stub:
        code, stdout, _ = here(capfd, batch, "--server-url", stub.url)
        assert (code, f"{len(PROMPTS) - 1} answers are of earlier attempts" in stdout) == (0, True)
        assert [request.prompt_ids for request in stub.requests[1:]] == [failed]
    assert stdout.startswith("continues the run of ")
    assert f"{len(PROMPTS) - 1} of {len(PROMPTS)}" in stdout.splitlines()[0]
    assert written(batch) == [ids[:3] for ids in WANTED]
    assert "12 answers were stopped by the server without 199999 and 200002 at the end" in stdout


def test_answers_are_kept_where_their_file_cannot_be_written(batch, capfd):
    """The line says so with the command that writes it, and names no flag that would send all again."""
    (batch / "ids.txt.partial").mkdir()
    with StubServer() as stub:
        words = "--server-url", stub.url
        code, stdout, stderr = here(capfd, batch, *words)
        assert code == 4
        assert f"ERROR     {batch}/ids.txt could not be written: " in stdout and "--output" not in stderr
        assert f"{len(PROMPTS)} answers are kept; to resume: " in stdout
        (batch / "ids.txt.partial").rmdir()
        sent = len(stub.requests)
        assert here(capfd, batch, *words)[0] == 0
        assert len(stub.requests) == sent
    assert written(batch) == WANTED


def test_a_file_that_another_run_has_written_meanwhile_is_kept(batch, capfd):
    """Two batches with one output: the first one ends when the second one sends its trial request."""
    output = batch / "ids.txt"

    def first_ends(request):
        output.write_text("1 \n\n")

    with StubServer(faults=first_ends) as stub:
        code, _, stderr = here(capfd, batch, "--server-url", stub.url)
        assert len(stub.requests) == 1
    assert (code, "the file exists" in stderr) == (2, True), stderr
    assert output.read_text() == "1 \n\n"
    assert left_behind(batch) == ["ids.txt", "input.txt"]


def test_a_dry_run(batch, capfd):
    with StubServer() as stub:
        code, stdout, _ = here(capfd, batch, "--server-url", stub.url, "--dry-run")
        assert stub.requests == []
    assert (code, left_behind(batch)) == (0, ["input.txt"])
    assert "20 positions" in stdout


@ENGINE
def test_the_embedded_engine(batch, capfd):
    code, stdout, stderr = here(capfd, batch, "--backend", "embedded")
    assert code == 0, stdout + stderr
    answers = written(batch)
    whole = [len(ids) + len(answer) == POSITIONS + 1 for ids, answer in zip(IDS, answers, strict=True)]
    ended = [answer[-1] in (199999, 200002) for answer in answers]
    assert all(one or other for one, other in zip(whole, ended, strict=True))
    assert answers[:3] == answers[3:6]  # greedy


@pytest.mark.parametrize("backend", ["sglang", pytest.param("vllm", marks=ENGINE)])
def test_generate_shows_the_text(backend, capfd):
    prompt = tokenizer.encode("Hello world")
    text = legible(tokenizer.decode(expected_ids(prompt, POSITIONS - 1)))
    with StubServer(event_delay_s=0.001) as stub:
        where = ("--server-url", stub.url, "--backend", backend, "-n", POSITIONS)
        code, stdout, stderr = main_here(capfd, program.main, ["generate", "Hello world", *map(str, where)])
        (request,) = stub.requests
    assert (code, stdout) == (0, f"{text}\n"), stderr
    assert request.prompt_ids == prompt
    assert request.streams


def test_generate_asks_for_no_more_than_the_servers_context(capfd):
    with StubServer(facts=Facts(context_length=3)) as stub:
        code, _, stderr = main_here(
            capfd, program.main, ["generate", "Hello world", "--server-url", stub.url]
        )
        (request,) = stub.requests
    assert (code, "a context of 3 tokens" in stderr) == (0, True)
    assert len(request.prompt_ids) + request.asked_tokens == 3


def test_a_talk_says_first_that_the_environment_chose_its_backend(capfd, monkeypatch):
    monkeypatch.setenv("MLPERF_BACKEND", "vllm")
    code, _, stderr = main_here(capfd, program.main, ["chat", "a", "--model", "7b"])
    first, error = stderr.splitlines()
    assert first == "WARNING: --backend vllm is taken from MLPERF_BACKEND in the environment"
    assert (code, "--model 7b" in error) == (2, True)


def test_a_chat_of_lines_and_a_failure(capfd, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"Hello\n\nworld\nagain\n")))
    with StubServer(faults=lambda request: Fault.HTTP_500 if request.index == 2 else None, tokens=9) as stub:
        where = ("--server-url", stub.url, "-y", "Be brief.", "--reasoning", "low")
        code, _, stderr = main_here(capfd, program.main, ["chat", *where])
        prompts = [tokenizer.decode(request.prompt_ids) for request in stub.requests]
    assert code == 4
    (line,) = without_waits(stderr)
    assert line.startswith("run_batch.py: error: ")
    assert [prompt.count("<|start|>user") for prompt in prompts] == [1, 2, 3]
    assert "Reasoning: low" in prompts[0]
    assert "again" in prompts[2]  # the empty line asked nothing


@ENGINE
def test_ctrl_c_ends_the_answer_and_not_the_program():
    with StubServer(event_delay_s=0.05) as stub:
        command = [sys.executable, str(ROOT / "run_batch.py"), "generate", "--server-url", stub.url]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        process.stdin.write("Hello\n")
        process.stdin.flush()
        wait_until(lambda: stub.requests)
        assert process.stdout.read(5)
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate("", timeout=60)
    assert (process.returncode, without_waits(stderr)) == (0, [])
    assert stdout.endswith("\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("generate", "", "--server-url"), "the prompt is empty"),
        (("generate", "a b c d", "-n", 3, "--server-url"), "prompt of 4 tokens, 3 positions"),
        (("chat", "a", "-n", 30, "--server-url"), "conversation of 68 tokens, 30 positions"),
        (("generate", "a", "--model", "7b", "--server-url"), "--model 7b"),
        (("chat", "a", "-t", -1, "--server-url"), "temperature is -1"),
        (("chat", "a", "--backend", "embedded", "--server-url"), "remove --server-url"),
        (("chat", "--server-url"), "stdin: byte 2 of a line is not UTF-8"),
    ],
)
def test_what_a_talk_refuses(words, message, capfd, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"a\xff\n")))
    with StubServer() as stub:
        code, _, stderr = main_here(capfd, program.main, [*map(str, words), stub.url])
    assert (code, message in stderr, len(without_waits(stderr))) == (2, True, 1)


def test_the_prompt_may_follow_the_url():
    given = parse_options(["generate", "--server-url", "http://a:1", "Hello"])
    assert (given.prompt, given.server_url) == ("Hello", ("http://a:1",))
