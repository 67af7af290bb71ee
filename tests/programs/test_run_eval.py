"""run_eval.py as a user calls it, against a stub server: every row once, in order, whatever happens."""

import json
import re
import shlex
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec import structs

import eval_mlperf_accuracy as grading
import run_eval as program
from harness.dataset.table import open_table
from harness.record.answer_log import encode_answer, read_saved_answers
from harness.rows import attempts
from sut.drive import ended
from sut.rows import run_rows
from tests.kit import full_disk, wait_until
from tests.runs import ROOT, SAMPLES, main_here, run_mlperf, small_dataset, without_waits, write_dataset
from tests.stub import Facts, Fault, StubServer, expected_ids, expected_words, refused_url
from tests.stub.words import text_of, word_ids

TOKENS = 5
COLUMNS = ["model_output", "tok_model_output", "tok_model_output_len", "model_backend", "failure"]


def command(dataset, output, *arguments):
    words = ("--input-file", dataset, "--output-file", output, "--max-new-tokens", TOKENS, *arguments)
    return [sys.executable, str(ROOT / "run_eval.py"), *map(str, words)]


def here(capfd, dataset, output, *arguments):
    """Exit code, stdout and stderr of a run in this process: its imports take longer than these runs."""
    return main_here(capfd, program.main, command(dataset, output, *arguments)[2:])


def refuse(capfd, dataset, output, *arguments):
    """The one line of an error, whose exit code is 2."""
    code, _, stderr = here(capfd, dataset, output, *arguments)
    assert code == 2, stderr
    (line,) = without_waits(stderr)
    return line


def wanted(prompts):
    return [expected_ids(prompt, TOKENS) for prompt in prompts]


def answers(output):
    return [list(ids) for ids in open_table(output).column("tok_model_output")]


def left_behind(output):
    return sorted(path.name for path in output.parent.glob(f"{output.name}*"))


def deepseek_pickle(folder):
    path = folder / "r1.pkl"
    prompts = [[0, 128803, 100 + row, 128804] for row in range(6)]
    columns = {
        "dataset": ["math500", "aime1983"] * 3,
        "ground_truth": ["\\frac{1}{2}", 7, 3.5, None, "x", "y"],
        "tok_input": prompts,
    }
    pd.DataFrame(columns).to_pickle(path)
    return path, prompts


def llama_json(folder):
    path = folder / "cnn.json"
    shutil.copy(SAMPLES / "cnn_sample.json", path)
    return path, [row["tok_input"] for row in json.loads(path.read_text())]


ENGINE = pytest.mark.engine
LLAMA = Facts(model="meta-llama/Llama-3.1-8B-Instruct", vocab_size=128256)
R1 = Facts(model="deepseek-ai/DeepSeek-R1", vocab_size=129280)
BENCHMARKS = [
    ("gpt-oss-120b", Facts(), small_dataset, "out.parquet"),
    pytest.param("llama3.1-8b", LLAMA, llama_json, "out.parquet", marks=ENGINE),
    ("deepseek-r1", R1, deepseek_pickle, "out.pkl"),
]


@pytest.mark.parametrize(
    ("benchmark", "facts", "dataset_in", "name"), BENCHMARKS, ids=lambda value: str(value)[:12]
)
def test_every_row_in_order_with_all_columns(benchmark, facts, dataset_in, name, tmp_path, capfd):
    dataset, prompts = dataset_in(tmp_path)
    output = tmp_path / "new" / name
    with StubServer(facts=facts) as stub:
        code, *said = here(capfd, dataset, output, "--benchmark", benchmark, "--server-url", stub.url)
        requests = stub.requests[1:]  # behind the trial
    assert code == 0, said
    assert "tokenizer does not have" not in said[0]
    assert left_behind(output) == [name]
    table = open_table(output)
    assert list(table.names) == [*open_table(dataset).names, *COLUMNS]
    assert answers(output) == wanted(prompts)
    assert table.column("tok_model_output_len") == [TOKENS] * len(prompts)
    assert table.column("failure") == [None] * len(prompts)
    assert set(table.column("model_backend")) == {"sglang"}
    has_text = {text is not None for text in table.column("model_output")}
    assert has_text == {benchmark == "gpt-oss-120b"}  # of the others there is no tokenizer here
    assert sorted(request.prompt_ids for request in requests) == sorted(prompts)
    temperatures = {request.body["sampling_params"]["temperature"] for request in requests}
    assert temperatures == {1.0 if benchmark == "gpt-oss-120b" else 0.0}
    assert not any(request.streams for request in requests)
    if output.suffix == ".pkl":
        frame = pd.read_pickle(output)
        assert frame["tok_model_output_len"].dtype == "int64"
        assert frame["ground_truth"].tolist() == pd.read_pickle(dataset)["ground_truth"].tolist()


@ENGINE
@pytest.mark.parametrize(
    ("benchmark", "facts", "dataset_in"),
    [("gpt-oss-120b", Facts(), small_dataset), ("deepseek-r1", R1, deepseek_pickle)],
)
def test_the_requests_are_those_of_an_accuracy_run(benchmark, facts, dataset_in, tmp_path, capfd):
    dataset, prompts = dataset_in(tmp_path)
    with StubServer(facts=facts) as stub:
        words = ("--server-url", stub.url, "--benchmark", benchmark)
        flags = ("--accuracy", *words, "--input-file", dataset, "--max-new-tokens", TOKENS)
        assert run_mlperf(tmp_path, *flags, here=capfd).code == 0
        asked = stub.requests[1:]
        assert here(capfd, dataset, tmp_path / "o.parquet", *words)[0] == 0
        sent = stub.requests[len(asked) + 2 :]
    assert len(sent) == len(prompts)
    assert len({one.body.pop("rid") for one in (*asked, *sent)}) == len(asked) + len(sent)
    assert sorted((str(one.body), one.path) for one in sent) == sorted(
        (str(one.body), one.path) for one in asked
    )


SCORED = [
    ("gpt-oss-120b", "acc_sample.parquet"),
    ("llama3.1-8b", "cnn_sample.json"),
    ("deepseek-r1", "r1_sample.parquet"),
]


@ENGINE
@pytest.mark.parametrize(("benchmark", "sample"), SCORED)
def test_the_embedded_engine_answers_and_its_table_is_scored_as_printed(
    benchmark, sample, tmp_path, capfd, monkeypatch
):
    """With the sample's own tokenizer and programs, which nobody named."""
    monkeypatch.chdir(tmp_path)
    output = tmp_path / "o.parquet"
    where = ("--benchmark", benchmark, "--backend", "embedded", "--num-samples", 12)
    code, stdout, stderr = here(capfd, SAMPLES / sample, output, *where)
    assert code == 0, stdout + stderr
    assert None not in open_table(output).column("model_output")
    (scoring,) = (line for line in stdout.splitlines() if line.startswith("Score it with: "))
    code, stdout, stderr = main_here(capfd, grading.main, shlex.split(scoring)[5:])
    assert code == 5, stderr
    assert "12 samples, the official set has" in stdout


@pytest.mark.engine
@pytest.mark.parametrize("suffix", [".parquet", pytest.param(".pkl", marks=ENGINE)])
def test_a_failed_row_is_in_the_file_and_is_sent_again(suffix, tmp_path, capfd):
    """Of a part of the dataset."""
    dataset, prompts = small_dataset(tmp_path)
    prompts = prompts[3:7]
    output = tmp_path / f"out{suffix}"
    part = ("--skip-samples", 3, "--num-samples", 4)

    def third(request):
        return Fault.HTTP_500 if request.prompt_ids == prompts[2] and request.index else None

    with StubServer(faults=third) as stub:
        words = ("--server-url", stub.url, *part)
        code, said, _ = here(capfd, dataset, output, *words)
        assert code == 4
        assert "--resume" in said.splitlines()[-1]
        changed = refuse(capfd, dataset, output, *words, "--resume", "--num-samples", 3)
        assert "samples 4, this one has 3" in changed
        dry = here(capfd, dataset, output, *words, "--dry-run")[1]
        assert dry.startswith("would continue") and "3 of 4 rows" in dry.splitlines()[0]
    table = open_table(output)
    assert list(map(list, table.column("input_tokens"))) == prompts
    failures = table.column("failure")
    assert [index for index, failure in enumerate(failures) if failure] == [2]
    assert failures[2].startswith("http_status: ")
    for name in COLUMNS[:3]:
        assert [value is None for value in table.column(name)] == [bool(failure) for failure in failures]
    with StubServer() as stub:
        assert here(capfd, dataset, output, "--server-url", stub.url, *part)[0] == 0
        assert [request.prompt_ids for request in stub.requests[1:]] == [prompts[2]]
    assert answers(output) == wanted(prompts)
    assert left_behind(output) == [output.name]


ENDS = {
    "kill": (lambda process, stub: process.kill(), -9, ""),
    "ctrl-c": (lambda process, stub: process.send_signal(signal.SIGINT), 130, "--resume"),
    "server-gone": (lambda process, stub: stub.stop(), 4, "no server has answered"),
}


@pytest.mark.engine
def test_rows_of_a_server_that_has_changed_are_sent_again(tmp_path, capfd):
    """It names other weights from its fourth answer on, and its answers are shorter."""

    def changing(request):
        if request.index == 4:
            stub.options = replace(stub.options, facts=Facts(weight_version="v2"), tokens=TOKENS - 1)
        return True

    dataset, prompts = small_dataset(tmp_path)
    output = tmp_path / "out.parquet"
    words = ("--max-concurrency", 1)
    with StubServer(gate=changing) as stub:
        code, stdout, _ = here(capfd, dataset, output, "--server-url", stub.url, *words)
        other = refuse(capfd, dataset, output, "--server-url", stub.url, *words, "--resume")
    assert code == 4 and not output.exists()
    assert f"its {len(prompts)} answers of this run may be of either" in stdout
    assert "weight_version default, this one has v2" in other
    with StubServer() as stub:
        assert here(capfd, dataset, output, "--server-url", stub.url, *words, "--resume")[0] == 0
        assert len(stub.requests) == len(prompts) + 1
    assert answers(output) == wanted(prompts)


def test_all_rows_with_an_error_end_with_the_command_that_continues(tmp_path, capfd, monkeypatch):
    """The file's name has the time: the command that was typed begins another run."""
    monkeypatch.chdir(tmp_path)
    dataset, _ = small_dataset(tmp_path)
    with StubServer() as stub, monkeypatch.context() as patch:
        words = ["--input-file", str(dataset), "--max-new-tokens", str(TOKENS), "--server-url", stub.url]
        patch.setattr(run_rows, "ended", ended_with_an_error)
        patch.setattr(sys, "argv", ["run_eval.py", *words])
        code, stdout, _ = main_here(capfd, program.main, words)
    last = stdout.splitlines()[-1]
    assert (code, last.partition(": ")[0]) == (4, "12 answers are kept; to resume")
    continuing = shlex.split(last.partition(": ")[2])[2:]
    assert continuing[-1] == "--resume" and main_here(capfd, program.main, continuing)[0] == 0


@contextmanager
def ended_with_an_error(run):
    with ended(run) as seen:
        yield structs.replace(seen, errors=("worker 0 has died",))


@pytest.mark.engine
@pytest.mark.parametrize("end", ["kill", *(pytest.param(name, marks=ENGINE) for name in list(ENDS)[1:])])
def test_an_ended_run_is_resumed_without_sending_anything_twice(end, tmp_path, capfd):
    deed, code, words = ENDS[end]
    dataset, prompts = small_dataset(tmp_path, rows=30)
    output = tmp_path / "out.parquet"
    limits = ("--max-concurrency", 2, "--num-workers", 1)
    with StubServer(gate=lambda request: request.index < 12) as stub:
        first = subprocess.Popen(
            command(dataset, output, "--server-url", stub.url, *limits),
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True,
        )  # fmt: skip
        journal = tmp_path / "out.parquet.run/attempt.1/journal"
        wait_until(lambda: journal.exists() and len(read_saved_answers([journal], 30)) == 11)
        deed(first, stub)
        said, _ = first.communicate(timeout=300)
    assert (first.returncode, words in said) == (code, True)
    assert end == "kill" or "--resume" in said.splitlines()[-1]
    assert not output.exists()
    with StubServer() as stub:
        assert here(capfd, dataset, output, "--server-url", stub.url, *limits)[0] == 0
        assert len(stub.requests) - 1 == 30 - 11
    assert answers(output) == wanted(prompts)


def test_answers_are_kept_where_their_file_cannot_be_written(tmp_path, capfd, monkeypatch):
    dataset, prompts = small_dataset(tmp_path)
    output = tmp_path / "out.parquet"
    (tmp_path / "out.parquet.part").mkdir()
    with StubServer() as stub:
        monkeypatch.setattr(sys, "argv", command(dataset, output, "--server-url", stub.url)[1:])
        code, stdout, _ = here(capfd, dataset, output, "--server-url", stub.url)
    assert code == 4
    assert f"{output} could not be written: " in stdout
    assert stdout.rpartition("12 answers are kept; to resume: ")[2].count(str(output)) == 1
    (tmp_path / "out.parquet.part").rmdir()
    with refused_url() as url:
        assert here(capfd, dataset, output, "--server-url", url)[0] == 0
    assert answers(output) == wanted(prompts)


def test_a_disk_that_is_full_before_the_first_row_is_said_of_the_file(tmp_path, capfd, monkeypatch):
    monkeypatch.setattr(attempts, "write_json", full_disk)
    dataset, _ = small_dataset(tmp_path)
    with StubServer() as stub:
        line = refuse(capfd, dataset, tmp_path / "out.parquet", "--server-url", stub.url)
    assert "out.parquet.run/settings.json: cannot be written: No space left on device; free space" in line


@ENGINE
def test_a_run_killed_while_it_wrote_needs_no_server(tmp_path, capfd):
    """All answers are in the journals: the file is written from them."""
    dataset, prompts = small_dataset(tmp_path)
    output = tmp_path / "out.parquet"
    with StubServer(faults=lambda request: Fault.HTTP_500 if request.index == 1 else None) as stub:
        assert here(capfd, dataset, output, "--server-url", stub.url)[0] == 4
    (failed,) = (row for row, failure in enumerate(open_table(output).column("failure")) if failure)
    journal = tmp_path / "out.parquet.run/attempt.2/journal"
    journal.mkdir(parents=True)
    ids = expected_ids(prompts[failed], TOKENS)
    record = encode_answer(failed, 1, np.array(ids, "<i4").tobytes())
    (journal / "answers-worker0.bin").write_bytes(record)
    output.unlink()
    with refused_url() as url:
        assert here(capfd, dataset, output, "--server-url", url, "--resume")[0] == 0
    assert answers(output) == wanted(prompts)


@pytest.mark.engine
def test_other_rows_begin_anew_beside_the_earlier_ones(tmp_path, capfd):
    dataset, prompts = small_dataset(tmp_path)
    output = tmp_path / "out.parquet"
    with StubServer(faults=lambda request: Fault.HTTP_500 if request.index == 1 else None) as stub:
        assert here(capfd, dataset, output, "--server-url", stub.url)[0] == 4
    with StubServer() as stub:
        words = ("--server-url", stub.url, "--num-samples", 3)
        code, stdout, _ = here(capfd, dataset, output, *words)
    assert code == 0 and answers(output) == wanted(prompts[:3])
    (aside,) = tmp_path.glob("out.parquet.run.*")
    assert str(aside) in stdout.splitlines()[0] and "11 of 12 rows" in stdout.splitlines()[0]
    assert len(open_table(aside / "out.parquet").column("failure")) == 12
    assert len(read_saved_answers([aside / "attempt.1/journal"], 12)) == 11


@pytest.mark.parametrize("killed", [False, True])
def test_a_complete_file_is_left_as_it_is(killed, tmp_path, capfd, monkeypatch):
    """No server is there. Other settings are refused, as the file names those it was made with; one with a
    failed row is not complete, where its folder was removed. A kill may have left a part of that folder."""
    dataset, prompts = small_dataset(tmp_path)
    output = tmp_path / "out.parquet"
    with StubServer() as stub, monkeypatch.context() as patch:
        if killed:
            patch.setattr(shutil, "rmtree", lambda folder, **flags: None)
        assert here(capfd, dataset, output, "--server-url", stub.url)[0] == 0
    assert (tmp_path / "out.parquet.run").exists() is killed
    with refused_url() as url:
        for flags in ((), ("--resume",), ("--dry-run",)):
            code, stdout, _ = here(capfd, dataset, output, "--server-url", url, *flags)
            assert (code, stdout.split(":")[0], stdout.count("\n")) == (0, "complete", 1)
        few = refuse(capfd, dataset, output, "--server-url", url, "--num-samples", 3)
        assert "the file exists with the answers of a run with samples 12, this one has 3; choose" in few
        few = refuse(capfd, dataset, output, "--server-url", url, "--num-samples", 3, "--resume")
        assert "out.parquet has the answers of a run with samples 12, this one has 3; give the same" in few
        if not killed:
            assert "the file exists" in refuse(capfd, dataset, output, "--server-url", url, "--restart")
        assert answers(output) == wanted(prompts)
        table = pq.read_table(output)
        place = table.column_names.index("tok_model_output_len")
        some = pa.array([None, *[TOKENS] * 11], pa.int32())
        pq.write_table(table.set_column(place, "tok_model_output_len", some), output)
        assert "the file exists" in refuse(capfd, dataset, output, "--server-url", url)


@pytest.mark.engine
def test_a_file_that_was_named_by_the_time_is_continued(tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    dataset, prompts = small_dataset(tmp_path)
    words = ["--input-file", str(dataset), "--max-new-tokens", str(TOKENS), "--server-url"]
    with StubServer(faults=lambda request: Fault.HTTP_500 if request.index == 1 else None) as stub:
        assert main_here(capfd, program.main, [*words, stub.url])[0] == 4
    (output,) = (tmp_path / "mlperf_results/gpt-oss-120b/run_eval").glob("*.parquet")
    with StubServer() as stub:
        code, stdout, _ = main_here(capfd, program.main, [*words, stub.url])
        assert len(stub.requests) == 2
    assert (code, stdout.split(" ")[0]) == (0, "continues")
    assert answers(output) == wanted(prompts)


def test_servers_that_cannot_be_used_leave_nothing_behind(tmp_path, capfd):
    dataset, _ = small_dataset(tmp_path)
    output = tmp_path / "out.parquet"
    with refused_url() as url:
        code, _, stderr = here(capfd, dataset, output, "--server-url", url)
    assert (code, len(without_waits(stderr))) == (3, 1)
    assert left_behind(output) == []


def test_a_dry_run_sends_nothing_and_leaves_nothing(tmp_path, capfd, monkeypatch):
    """Where no file is named, the answers go into one that is named by dataset and time."""
    monkeypatch.chdir(tmp_path)
    dataset, _ = small_dataset(tmp_path)
    with StubServer() as stub:
        words = ("--input-file", dataset, "--server-url", stub.url, "--async", "--dry-run")
        code, stdout, _ = main_here(capfd, program.main, list(map(str, words)))
        assert stub.requests == []
    assert (code, list(tmp_path.iterdir())) == (0, [dataset])
    assert "--async has no effect" in stdout
    assert re.search(
        rf"{tmp_path}/mlperf_results/gpt-oss-120b/run_eval/dataset_\d{{8}}_\d{{6}}\.parquet\n", stdout
    )


REFUSED = [
    ("out.csv", (), "expected .parquet"),
    ("dataset.parquet", (), "this file is the input; choose another name"),
    ("dataset.parquet/out.parquet", (), "cannot be written"),
    ("out.parquet", ("--skip-samples", 12), "12 rows"),
    ("out.parquet", ("--skip-samples", -1), "--skip-samples is -1"),
    ("out.parquet", ("--num-samples", 13), "12 rows"),
    ("out.parquet", ("--num-samples", 0), "--max-samples is 0"),
    ("out.parquet", ("--resume",), "no run to resume"),
    ("broken.parquet", ("--resume",), "settings.json"),
    ("out.parquet", ("--tokenizer", "nowhere"), "--tokenizer nowhere"),
    ("out.parquet", ("--backend", "embedded", "--server-url", "http://localhost:1"), "--server-url"),
]


@pytest.mark.parametrize(("name", "arguments", "words"), REFUSED)
def test_refusals(name, arguments, words, tmp_path, capfd):
    (tmp_path / "broken.parquet.run").mkdir()
    (tmp_path / "broken.parquet.run/settings.json").write_text("{")
    dataset, _ = small_dataset(tmp_path)
    assert words in refuse(capfd, dataset, tmp_path / name, *arguments)


@ENGINE
def test_texts_that_lack_a_part_are_no_success_however_often_it_is_repeated(tmp_path, capfd):
    prompts = [word_ids()[row * 30 : row * 30 + 15] for row in range(8)]
    dataset, output = write_dataset(tmp_path / "words.parquet", prompts), tmp_path / "out.parquet"
    with StubServer(
        answers=lambda prompt: expected_words(prompt, 200),
        returns_ids=False,
        text=lambda ids: text_of(ids[: len(ids) * 4 // 5] if len(ids) == 200 else ids),
    ) as stub:
        words = ("--server-url", stub.url, "--backend", "openai", "--api", "completions-text")
        for _ in range(2):
            sent = len(stub.requests)
            code, stdout, stderr = here(capfd, dataset, output, *words, "--max-new-tokens", 256)
            assert (code, "text of answers is missing" in stdout) == (4, True), stdout + stderr
            assert re.search(r"8 answers are kept; to begin anew: .* --restart$", stdout.strip())
        assert len(stub.requests) == sent > len(prompts)  # nothing is left to send
    assert output.exists()
