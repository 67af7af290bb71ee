"""The accuracy run of a point: whom it asks, what it keeps, and that its score is that of a LoadGen run."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from harness.cli.signals import leave_on_signals, signals_kept
from harness.config.benchmark import load_benchmark
from harness.config.client_plan import resolve_client
from harness.config.deadlines import resolve_policy
from harness.dataset.model_tokenizer import load_tokenizer
from harness.dataset.samples import load_samples
from harness.dataset.table import open_table
from harness.endpoints.accuracy import PointAccuracy, read_accuracy
from harness.endpoints.curve import Point
from harness.endpoints.endpoints_options import RehearsalOptions
from harness.endpoints.point_run import write_point_run
from harness.endpoints.run_folder import ACCURACY
from harness.errors import ConfigError, DatasetError, HarnessError, RunError, ServerError
from harness.files import ACCURACY_LOG, sha256_of
from harness.grading.evaluation.references import load_references
from harness.grading.evaluation_options import EvaluationOptions
from harness.grading.evaluator import score
from harness.record.answer_log import read_saved_answers
from sut.drive import serving_urls
from sut.endpoints.accuracy import ANSWERS, plan_accuracy, run_accuracy
from tests.endpoints_kit import point_run
from tests.harness.grading.logs import harmony_ids
from tests.harness.grading.samples import right_answer, solutions
from tests.kit import parameters, wait_until
from tests.runs import ACCURACY as GPT_OSS
from tests.runs import PERFORMANCE, ROOT, SAMPLES, run_mlperf
from tests.stub import Facts, Fault, StubServer, refused_url

NEWS, NEWS_TOKENIZER = SAMPLES / "cnn_sample.json", SAMPLES / "cnn_sample_tokenizer.json"
QUESTIONS, QUESTIONS_TOKENIZER = SAMPLES / "r1_sample.parquet", SAMPLES / "r1_sample_tokenizer.json"
POINT = Point(name="r4", concurrency=4, band="ultra_low", accuracy=True, issue_s=600, passes=1)
OFFLINE = msgspec.structs.replace(POINT, name="offline", offline="dedicated", concurrency=64)
ALIVE = str  # how an engine has ended: not at all
TOKENS = 5


class Watcher:
    """Keeps what it was shown."""

    def __init__(self):
        self.lines, self.warnings, self.stages, self.kept = [], [], [], None

    def earlier(self, first_line):
        self.lines.append(first_line)

    def plan(self, plan, samples, kept, servers, warnings):
        self.kept, self.warnings = kept, list(warnings)

    def progress(self, snapshot):
        pass

    def written(self, done, total):
        pass

    def graded(self, done, total, what):
        self.stages.append(what)


def options(dataset=GPT_OSS, benchmark="gpt-oss-120b", **fields):
    fixed = {"num_workers": 1}
    return RehearsalOptions(input_file=dataset, accuracy_file=dataset, benchmark=benchmark, **fixed | fields)


def run(folder, stub, plan=None, point=POINT, watcher=None):
    url = stub if isinstance(stub, str) else stub.url
    return run_accuracy(plan or plan_of(), point, folder, ((url,), ALIVE), watcher or Watcher())


def plan_of(max_samples=8, **fields):
    return plan_accuracy(options(max_new_tokens=TOKENS, **fields)).first(max_samples)


# --- the same answers, the same score ----------------------------------------------------------


def gpt_oss_text(row):
    return right_answer(row)


def r1_text(row):
    """A thought, then the answer in the words that the published rules look for."""
    answers = {
        "livecodebench": lambda: f"```python\n{solutions()[row.truth]}\n```",
        "gpqa": lambda: f"ANSWER: {row.truth}",
        "mmlu_pro": lambda: f"ANSWER: {row.truth}",
    }
    return "So.</think>\n" + answers.get(row.kind, lambda: rf"$\boxed{{{row.truth}}}$")()


def llama_text(row):
    return row.truth.replace("the", "a") + " It is said."


R1, LLAMA = "deepseek-ai/DeepSeek-R1", "meta-llama/Llama-3.1-8B-Instruct"
MODELS = {
    "gpt-oss-120b": (GPT_OSS, None, gpt_oss_text, Facts()),
    "deepseek-r1": (QUESTIONS, QUESTIONS_TOKENIZER, r1_text, Facts(model=R1, vocab_size=129280)),
    "llama3.1-8b": (NEWS, NEWS_TOKENIZER, llama_text, Facts(model=LLAMA, vocab_size=128256)),
}
pytestmark = pytest.mark.engine  # a minute in all
LONGEST = 128  # what llama may answer; programs of the others are shorter
EACH = list(MODELS)


def answers_of(name):
    """Ids by prompt: two of three rows are answered well, the third with few words."""
    dataset, tokenizer, text, _ = MODELS[name]
    benchmark = load_benchmark(name)
    samples = load_samples(dataset, vocabulary_size=benchmark.vocabulary_size)

    def encoded(words):
        if tokenizer is None:
            return harmony_ids(words)
        return load_tokenizer(tokenizer).encode(words, add_special_tokens=False).ids

    known = {}
    for index, row in enumerate(load_references(dataset, benchmark)):
        words = text(row) if index % 3 else "No idea."
        known.setdefault(
            tuple(samples.tokens(index).tolist()), encoded(words)[: 100 if name == "llama3.1-8b" else None]
        )
    return known


def replaying(name, known=None):
    """A server that gives these answers, of made-up ones by default."""
    known = known or answers_of(name)
    return StubServer(facts=MODELS[name][3], answers=lambda prompt: known[tuple(prompt)])


def scored(name, answers):
    dataset, tokenizer, _, _ = MODELS[name]
    given = EvaluationOptions(
        mlperf_log=answers,
        reference_data=dataset,
        tokenizer=tokenizer and str(tokenizer),
        benchmark=name,
    )
    return score(given, lambda done, total, what: None)


def assert_same_score(name, log, folder, found):
    """Every metric, grade, reason and length, by the official and the strict rules."""
    ours, theirs = scored(name, folder / ANSWERS), scored(name, log)
    assert ours.evaluation.scores == theirs.evaluation.scores
    assert ours.evaluation.lengths == theirs.evaluation.lengths
    assert [one.grades for one in ours.evaluation.graded] == [one.grades for one in theirs.evaluation.graded]
    assert ours.result.warnings == theirs.result.warnings
    expected = {metric.name: metric.value for metric in theirs.result.metrics}
    assert {key: metric.value for key, metric in found.metrics.items()} == pytest.approx(expected, rel=1e-12)
    assert (found.missing, found.samples) == ((), len(ours.evaluation.graded))


@pytest.mark.parametrize("name", EACH)
def test_the_score_is_that_of_a_loadgen_accuracy_run_of_the_same_answers(name, tmp_path, capfd):
    dataset, *_ = MODELS[name]
    with replaying(name) as stub:
        words = ("--accuracy", "--server-url", stub.url, "--benchmark", name, "--input-file", dataset)
        loadgen = run_mlperf(tmp_path, *words, here=capfd)
        assert loadgen.code == 0, loadgen.stdout + loadgen.stderr
        found = run(tmp_path / "r4", stub, plan_accuracy(options(dataset, name)))
    assert_same_score(name, loadgen.log_dir / ACCURACY_LOG, tmp_path / "r4", found)
    assert 5 < next(iter(found.metrics.values())).value < 100  # neither nothing nor everything is right


@pytest.mark.parametrize("name", ["deepseek-r1", "llama3.1-8b"])
def test_answers_of_a_model_in_a_loadgen_run_have_the_same_score(name, tmp_path, capfd):
    """Of the embedded engine, replayed; gpt-oss-120b repeats its prompts, with another answer each time."""
    dataset, *_ = MODELS[name]
    words = ("--accuracy", "--backend", "embedded", "--benchmark", name, "--input-file", dataset)
    loadgen = run_mlperf(tmp_path, *words, here=capfd)
    assert loadgen.code == 0, loadgen.stdout + loadgen.stderr
    plan = plan_accuracy(options(dataset, name))
    known = {tuple(plan.samples.tokens(index).tolist()): ids for index, ids in loadgen.accuracy_log.items()}
    with replaying(name, known) as stub:
        found = run(tmp_path / "r4", stub, plan)
    assert_same_score(name, loadgen.log_dir / ACCURACY_LOG, tmp_path / "r4", found)


# --- what is asked -----------------------------------------------------------------------------


def test_each_row_once_at_the_points_concurrency_unsalted_with_the_rules_parameters(tmp_path):
    most, running = [0], set()

    def gate(request):
        """Four requests wait for each other, so that no fifth can be there."""
        running.add(request.index)
        waiting = [one for one in stub.requests if one.index in running and not one.answered]
        most[0] = max(most[0], len(waiting))
        return request.index == 0 or len(waiting) == 4 or len(stub.requests) > 8

    plan = plan_of()
    with StubServer(gate=gate) as stub:
        found = run(tmp_path, stub, plan)
        sent = stub.requests[1:]
    prompts = [plan.samples.tokens(index).tolist() for index in range(8)]
    assert sorted(request.prompt_ids for request in sent) == sorted(prompts)
    assert most == [4]
    assert {request.body["sampling_params"]["max_new_tokens"] for request in sent} == {TOKENS}
    assert {request.body["sampling_params"]["temperature"] for request in sent} == {1.0}
    assert all(request.streams for request in sent)
    assert found.deviations[0].startswith(f"generation max_new_tokens is {TOKENS}")
    assert not list((tmp_path / "accuracy").glob("*.run"))


def test_a_dedicated_offline_run_has_all_rows_in_flight_and_complete_answers(tmp_path):
    def gate(request):
        return request.index == 0 or len(stub.requests) == 1 + 8

    with StubServer(gate=gate) as stub:
        run(tmp_path, stub, point=OFFLINE)
        assert not any(request.streams for request in stub.requests[1:])


def test_fewer_rows_than_the_dataset_are_marked_and_never_pass(tmp_path):
    with replaying("gpt-oss-120b") as stub:
        found = run(tmp_path, stub, plan_of(2))
    (entry,) = json.loads((tmp_path / ACCURACY).read_text())["accuracy_scores"]
    assert (entry["complete"], entry["total_samples"], found.samples, found.partial) == (False, 2, 2, True)
    assert not found.passed
    assert "2 of 4395 samples" in found.line


def test_other_servers_than_the_points_are_named_in_the_file(tmp_path):
    write_point_run(tmp_path, point_run(POINT))  # its servers have other URLs
    watcher = Watcher()
    with StubServer() as stub:
        found = run(tmp_path, stub, watcher=watcher)
    said = f"accuracy at other servers than the point's: {stub.url}"
    assert said in found.deviations and said in watcher.warnings


def test_the_servers_of_the_point_are_no_deviation_and_another_weight_version_is(tmp_path):
    seen = []

    class Keeping(Watcher):
        def plan(self, plan, samples, kept, servers, warnings):
            seen.extend(servers)

    with StubServer() as stub:
        run(tmp_path / "first", stub, watcher=Keeping())
        for folder, servers in {"same": seen, "changed": [with_weights(seen[0])]}.items():
            (tmp_path / folder).mkdir()
            write_point_run(tmp_path / folder, point_run(POINT, servers=tuple(servers)))
        said = {folder: run(tmp_path / folder, stub).deviations for folder in ("same", "changed")}
    others = {folder: [text for text in texts if "other servers" in text] for folder, texts in said.items()}
    assert others["same"] == []
    assert len(others["changed"]) == 1 and "weight_version v0" in others["changed"][0]


def with_weights(server):
    return msgspec.structs.replace(server, weight_version="v0", trial_s=99.0)


# --- what is kept ------------------------------------------------------------------------------

SCRIPT = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from pathlib import Path
from tests.sut.endpoints.test_accuracy_run import POINT, Watcher, plan_of
from harness.cli.signals import leave_on_signals
from sut.endpoints.accuracy import run_accuracy

if __name__ == "__main__":
    leave_on_signals()
    run_accuracy(plan_of(), POINT, Path(sys.argv[2]), ((sys.argv[1],), str), Watcher())
"""


ENDS = {
    "kill": (lambda process, stub: process.kill(), b""),
    "ctrl-c": (lambda process, stub: process.send_signal(signal.SIGINT), b"InterruptedRun: SIGINT"),
    "server-gone": (lambda process, stub: stub.stop(), b"RunError: accuracy of r4: 5 of 8 samples"),
}


@pytest.mark.parametrize("end", ENDS)
def test_a_run_that_was_ended_asks_only_what_is_unanswered(end, tmp_path):
    deed, words = ENDS[end]
    script = tmp_path / "one_point.py"
    script.write_text(SCRIPT)
    folder = tmp_path / "r4"
    with StubServer(gate=lambda request: request.index < 4) as stub:
        command = [sys.executable, str(script), stub.url, str(folder)]
        first = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, start_new_session=True)
        journal = folder / "accuracy/answers.parquet.run/attempt.1/journal"
        wait_until(lambda: journal.exists() and len(read_saved_answers([journal], 8)) == 3)
        deed(first, stub)
        _, said = first.communicate(timeout=300)
    assert first.returncode != 0 and words in said
    assert not (folder / ANSWERS).exists() and read_accuracy(folder, plan_of().benchmark) is None
    watcher = Watcher()
    with StubServer() as stub:
        found = run(folder, stub, watcher=watcher)
        assert len(stub.requests) == 1 + 8 - 3
    assert found.samples == 8
    assert "continues" in watcher.lines[0] and watcher.kept == 3


def test_failed_samples_end_it_without_a_score_and_are_sent_again(tmp_path):
    with StubServer(faults=lambda one: Fault.HTTP_500 if one.index == 3 else None) as stub:
        with pytest.raises(RunError, match=r"1 of 8 samples have no answer .*http_status 1"):
            run(tmp_path, stub)
        assert not (tmp_path / ACCURACY).exists()
    with StubServer() as stub:
        assert run(tmp_path, stub).samples == 8
        assert len(stub.requests) == 2


def test_a_dead_server_is_one_line_and_an_exit_code_of_servers(tmp_path):
    with refused_url() as url, pytest.raises(ServerError) as caught:
        run(tmp_path, url)
    assert caught.value.exit_code == 3
    assert not (tmp_path / ANSWERS).exists()


def of_other_answers(path):
    """As a score that is left where the answers were replaced."""
    digest = sha256_of(path.parents[1] / ANSWERS)
    text = path.read_text()
    assert digest in text
    path.write_text(text.replace(digest, "0" * 64))


def test_what_is_scored_is_neither_asked_nor_scored_again(tmp_path):
    """Other references are another score; without a score the answers are enough."""
    with StubServer() as stub:
        first = run(tmp_path, stub)
    os.utime(tmp_path / ACCURACY, (0, 0))  # as where the wall clock was set back meanwhile
    again = Watcher()
    with refused_url() as url:
        assert run(tmp_path, url, watcher=again) == first
        assert again.stages == []
        others = tmp_path / "others.parquet"
        others.write_bytes(GPT_OSS.read_bytes())
        plan = plan_of(reference_data=others, lcb_data=SAMPLES / "code_sample.jsonl")
        assert run(tmp_path, url, plan).reference_data == str(others)
        for damage in (
            Path.unlink,
            lambda path: path.write_text('{"accuracy_scores": [{"sc'),
            of_other_answers,
        ):
            damage(tmp_path / ACCURACY)
            scored_again = Watcher()
            assert run(tmp_path, url, watcher=scored_again) == first
            assert "outputs" in scored_again.stages


def test_a_table_of_another_program_or_concurrency_is_not_taken_for_the_answers(tmp_path):
    with StubServer() as stub:
        run(tmp_path, stub)
        other = msgspec.structs.replace(POINT, concurrency=5)
        with pytest.raises(
            ConfigError, match=f"{ANSWERS}: answers at 4 requests in flight, expected 5; move"
        ):
            run(tmp_path, stub, point=other)
        own = (tmp_path / ANSWERS).read_bytes()
        (tmp_path / ANSWERS).write_bytes(GPT_OSS.read_bytes())
        with pytest.raises(ConfigError, match="the file exists; "):
            run(tmp_path, stub)
        for damaged in (own[:-9], b""):
            (tmp_path / ANSWERS).write_bytes(damaged)
            with pytest.raises(ConfigError, match=rf"{ANSWERS}: the file exists and cannot be read \(Parq"):
                run(tmp_path, stub)


def test_signals_work_in_the_next_point(tmp_path):
    """The client ignores them once its rows are answered."""
    with signals_kept():
        leave_on_signals()
        before = signal.getsignal(signal.SIGINT)
        with StubServer() as stub:
            run(tmp_path, stub)
        assert signal.getsignal(signal.SIGINT) is before


# --- bad input ---------------------------------------------------------------------------------


def bad_references(folder):
    short, other, broken = (folder / name for name in ("short.parquet", "other.json", "broken.parquet"))
    import pyarrow.parquet as pq

    pq.write_table(pq.read_table(GPT_OSS).slice(0, 3), short)
    other.write_text(json.dumps([{"dataset": "aime25", "input": "x"}]))
    broken.write_bytes(GPT_OSS.read_bytes()[:1000])
    return short, other, broken, folder / "none.parquet"


def test_bad_references_are_one_line_before_anything_is_sent(tmp_path):
    for path in bad_references(tmp_path):
        with pytest.raises(HarnessError) as caught:
            plan_of(reference_data=path)
        assert caught.value.exit_code == 2
        assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_the_true_answers_are_those_of_the_accuracy_dataset_row_by_row():
    fewer = SAMPLES / "compliance_sample.parquet"
    with pytest.raises(HarnessError, match="96 rows, the accuracy dataset has 30; "):
        plan_accuracy(options(fewer, reference_data=GPT_OSS))
    with pytest.raises(HarnessError, match=r"; pass the accuracy dataset of .* as --accuracy-file, "):
        plan_accuracy(options(SAMPLES / "perf_sample.parquet"))


def test_more_rows_than_the_dataset_has(tmp_path):
    with pytest.raises(DatasetError):
        plan_of(97)


def test_a_tokenizer_of_another_model_is_refused_before_anything_is_sent():
    with pytest.raises(ConfigError):
        plan_of(tokenizer=str(NEWS_TOKENIZER))


# --- the embedded engine -----------------------------------------------------------------------


def test_on_the_embedded_engine_two_points_share_one_server(tmp_path):
    given = options(backend="embedded", max_new_tokens=16)
    plan = plan_accuracy(given).first(12)
    performance = resolve_client(
        given,
        plan.benchmark,
        PERFORMANCE,
        parameters(max_new_tokens=8),
        resolve_policy(given, streams=True),
        tmp_path,
    )
    few = load_samples(PERFORMANCE, vocabulary_size=plan.benchmark.vocabulary_size).part(0, 2)
    with serving_urls(performance, few, plan.longest) as serving:
        found = [
            run_accuracy(plan, point, tmp_path / point.name, serving, Watcher()) for point in (POINT, OFFLINE)
        ]
    assert [one.samples for one in found] == [12, 12]
    for one in found:
        assert isinstance(one, PointAccuracy) and not one.passed and one.duration_s > 0
    ids = open_table(tmp_path / "r4" / ANSWERS).column("tok_model_output")
    assert all(0 < len(row) <= 16 for row in ids)
