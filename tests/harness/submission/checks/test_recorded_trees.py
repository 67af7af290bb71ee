"""Closed submissions of other benchmarks: accepted as they are, and by whom not when damaged."""

import csv
import re
import shutil
import subprocess
from functools import partial

import pytest
from msgspec.structs import replace

from harness.submission.checks.check import check_contexts, check_tree
from harness.submission.results_table import compare, summarize
from tests.harness.submission.checks.damages import error
from tests.harness.submission.checks.official_checker import accepts, needs_official
from tests.harness.submission.edits import (
    SCORE,
    SUMMARY,
    SYSTEM,
    both,
    changed,
    fields,
    pattern,
    remove,
    row,
    text,
    without_row,
    write,
)
from tests.harness.submission.trees import CNN_ARCHIVE, R1_ARCHIVE, copied, run_record, unpack
from tests.made_up.cnn import DATACENTER, EDGE

R1 = "deepseek-r1"
LEAST, MOST = {DATACENTER: 7350880, EDGE: 2746002}, {DATACENTER: 8984408, EDGE: 3356224}  # characters


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    return unpack(tmp_path_factory.mktemp("made_up"), CNN_ARCHIVE, R1_ARCHIVE)


@pytest.fixture
def tree_of(originals, tmp_path):
    """A copy of a benchmark's tree, changed."""

    def copy(benchmark, change):
        tree = copied(originals / benchmark, tmp_path / "submission")
        change(results(tree, benchmark))
        return tree

    return copy


def results(tree, benchmark):
    return tree / "closed/MyOrg/results/made_up" / benchmark


def test_equal_answers_of_a_greedy_model_to_the_samples_of_a_test_are_a_warning(tree_of):
    """LoadGen draws the same ones in Server and Interactive; this server answers them in the same order."""
    (issue,) = check_tree(tree_of(R1, both()))
    assert (issue.code, issue.is_warning) == ("repeat", True)


def test_equal_answers_of_a_greedy_model_to_a_dataset_are_a_warning(tree_of):
    """An answer of llama3.1-8b is nearly always as long as it may be, so that the order is equal, too."""

    def copy(results):
        for name in ("accuracy.txt", "mlperf_log_accuracy.json"):
            shutil.copyfile(results / "Server/accuracy" / name, results / "Interactive/accuracy" / name)

    issues = check_tree(tree_of(DATACENTER, copy))
    assert {(issue.code, issue.is_warning) for issue in issues} == {("repeat", True)}


@pytest.mark.parametrize("own", [True, False])
def test_the_log_of_test06_is_compared_with_the_kept_record(tree_of, own):
    """It is submitted complete, without a hash."""
    tree = tree_of(R1, both())
    folder = results(tree, R1) / "Offline"
    left = subprocess.check_output(["sha256sum", results(tree, R1) / TEST06_LOG], text=True).split()[0]
    kept = tree.with_name("submission.kept") / folder.relative_to(tree) / "TEST06"
    kept.mkdir(parents=True)
    record = run_record(folder / "user.conf", "TEST06", R1)
    replace(record, accuracy_log_sha256=left if own else "0" * 64).write(kept / "run.json")
    found = [issue.where.partition("Offline/")[2] for issue in check_tree(tree) if issue.code != "repeat"]
    assert found == ([] if own else [TEST06_LOG.removeprefix("Offline/")])


def test_a_table_shows_the_scores_and_not_what_bounds_lengths(tree_of):
    rows = summarize(check_contexts(tree_of(R1, both())))
    assert {row.accuracy.split()[0] for row in rows} == {"exact_match"}
    assert not any("," in row.accuracy for row in rows)


def score(metric, value, scenario="Offline"):
    """Another number in accuracy.txt."""
    return pattern(f"{scenario}/accuracy/accuracy.txt", rf"('{metric}': '?)[\d.]+", rf"\g<1>{value}")


def length(bound, beyond=0, shown="{}"):
    """Another sum of output lengths: the bound of the tree's benchmark, or beyond it."""
    return lambda results: score("gen_len", shown.format(bound[results.name] + beyond))(results)


def renamed(metric, name="other"):
    return text(SCORE, f"'{metric}'", f"'{name}'")


def consistency(check, old):
    return text("Offline/TEST06/verify_accuracy.txt", f"{check}: {old}", f"{check}: False")


def faster(factor):
    """Offline's tokens per second in both files."""

    def edit(results):
        summary = (results / OFFLINE / SUMMARY).read_text()
        found = re.search("^Tokens per second: (.*)$", summary, re.MULTILINE)
        rate = float(f"{float(found[1]) * factor:.6g}")
        text(f"{OFFLINE}/{SUMMARY}", found[0], f"Tokens per second: {rate:g}")(results)
        row(OFFLINE, result_tokens_per_second=rate)(results)

    return edit


OFFLINE, SINGLE = "Offline/performance/run_1", "SingleStream/performance/run_1"
P90 = "result_90.00_percentile_latency_ns"
skipped = text("Server/TEST06/verify_accuracy.txt", "token check pass: True", "token check pass: Skipped")
TEST06 = "Offline/TEST06/performance/run_1"
LOG_SEED, PERMUTED = "effective_accuracy_log_rng_seed", "effective_sample_concatenate_permutation"
TEST06_LOG = "Offline/TEST06/accuracy/mlperf_log_accuracy.json"
answers = partial(write, TEST06_LOG)  # of which truncate_accuracy_log.py leaves everything


def offline_log(results):
    """The log of Offline, which has no first tokens, in Server."""
    shutil.copyfile(results / TEST06_LOG, results / TEST06_LOG.replace("Offline", "Server"))


def endless(log):
    """All answers, without the bracket behind them: MLCommons's script of the test cannot load it."""
    return log.rstrip().removesuffix(b"]")


counted = changed(TEST06_LOG, lambda log: re.sub(rb'("token_count" : )(\d+)', rb"\g<1>1\2", log, count=1))
no_hex = changed(TEST06_LOG, lambda log: log.replace(b'"data" : "', b'"data" : "zz', 1))
ANSWER = '{ "seq_id" : 0, "qsl_idx" : 0, "data" : "01000000" }'
TRUNCATED = f"[\n{9000 * 'x'}\n\n...\n\n{4000 * 'x'}\n]\n"
BOTH, ALL = (DATACENTER, EDGE), (DATACENTER, EDGE, R1)
WITH_TEST06 = (DATACENTER, R1)
# Benchmarks, damage, our issue's code or None, whether MLCommons's checker refuses it too.
DAMAGES = {
    "as it is": (BOTH, both(), None, False),
    "Server alone": ((DATACENTER, R1), remove("Interactive"), None, False),
    "Interactive alone": ((DATACENTER, R1), remove("Server"), None, False),
    "gen_len missing": (BOTH, renamed("gen_len"), "accuracy", True),
    "gen_len just long enough": (BOTH, length(LEAST), None, False),
    "gen_len just short enough": (BOTH, length(MOST), None, False),
    "gen_len too low": (BOTH, length(LEAST, -1), "accuracy", True),
    "gen_len too high": (BOTH, length(MOST, 1), "accuracy", True),
    "gen_len in quotes": (BOTH, length(MOST, shown="'{}'"), "accuracy", True),
    "gen_len of numpy": (BOTH, length(MOST, shown="np.int64({})"), "accuracy", True),
    "rouge1 too low": (BOTH, score("rouge1", 38.39), "accuracy", True),
    "rouge2 too low": (BOTH, score("rouge2", 15.7), "accuracy", True),
    "rougeL too low": (BOTH, score("rougeL", 24.2), "accuracy", True),
    "rougeLsum too low": (BOTH, score("rougeLsum", 35.4), "accuracy", True),
    "rougeLsum missing": (BOTH, renamed("rougeLsum"), "accuracy", True),
    "exact_match too low": ((R1,), score("exact_match", 80.5446179), "accuracy", True),
    "exact_match missing": ((R1,), renamed("exact_match"), "accuracy", True),
    "tokens_per_sample too low": ((R1,), score("tokens_per_sample", 3497.604659), "accuracy", True),
    "too many tokens": ((R1,), score("tokens_per_sample", 4274.850141, "Server"), "accuracy", True),
    "tokens_per_sample missing": ((R1,), renamed("tokens_per_sample"), "accuracy", True),
    "mean-accuracy of an older page": ((R1,), renamed("exact_match", "mean-accuracy"), "accuracy", True),
    "fewer samples in the dict": ((R1,), score("num-samples", 4387), "sample-count", False),
    "fewer samples scored": ((R1,), text(SCORE, "evaluated: 4388", "evaluated: 4387"), "sample-count", False),
    "no accuracy.txt": (ALL, remove("Offline/accuracy/accuracy.txt"), "missing-file", True),
    "no TEST06": (WITH_TEST06, remove("Offline/TEST06"), "test-missing", True),
    "two ends": ((DATACENTER,), consistency("EOS check pass", "True"), "test-failed", True),
    "first token": ((DATACENTER,), consistency("First token check pass", "Skipped"), "test-failed", True),
    "length of samples": (
        (DATACENTER,),
        consistency("Sample length check pass", "True"),
        "test-failed",
        True,
    ),
    "no log of TEST06": ((DATACENTER,), remove(TEST06_LOG), "missing-file", False),
    "no answers in TEST06": ((DATACENTER,), answers("[\n]\n"), "test06-log", False),
    "answers cut": ((DATACENTER,), answers(f"[\n{ANSWER[:-9]}"), "test06-log", False),
    "answers truncated": ((DATACENTER,), answers(TRUNCATED), "test06-log", False),
    "answers without their end": ((DATACENTER,), changed(TEST06_LOG, endless), "test06-log", False),
    "one answer": (WITH_TEST06, answers(f"[\n{ANSWER}\n]\n"), "test06-log", False),
    "answers of Offline in Server": ((DATACENTER,), offline_log, "cross-check", False),
    "another length than counted": ((DATACENTER,), counted, "cross-check", False),
    "answers that are no hex": ((DATACENTER,), no_hex, "test06-log", False),
    "first token skipped": ((DATACENTER,), skipped, "test-failed", False),
    "TEST06 without its seed": (WITH_TEST06, row(TEST06, **{LOG_SEED: 0}), "audit-not-in-force", False),
    "an error in TEST06": (WITH_TEST06, error(TEST06), "loadgen-errors", False),
    "permuted samples in TEST06": ((DATACENTER,), row(TEST06, **{PERMUTED: True}), None, False),
    "more tokens per second": ((R1,), faster(1.2), "cross-check", False),
    "fewer tokens per second": ((R1,), faster(0.1), "cross-check", False),
    "more than the limit": ((DATACENTER,), faster(1.1), "cross-check", False),
    "no percentile": ((EDGE,), without_row(SINGLE, P90), "invalid", True),
    "a percentile of 0": ((EDGE,), row(SINGLE, **{P90.replace(".", "__"): 0}), "invalid", True),
    "no estimate": ((EDGE,), without_row(SINGLE, "early_stopping_latency_ss"), "cross-check", True),
    "no Offline": (ALL, remove("Offline"), "scenarios", True),
    "no SingleStream": ((EDGE,), remove("SingleStream"), "scenarios", True),
    "edge system": (WITH_TEST06, fields(SYSTEM, system_type="edge"), "scenarios", True),
    "datacenter system": ((EDGE,), fields(SYSTEM, system_type="datacenter"), "scenarios", True),
}
CASES = [(benchmark, name) for name, damage in DAMAGES.items() for benchmark in damage[0]]


@pytest.mark.parametrize(("benchmark", "name"), CASES)
def test_a_damage_has_its_issue(tree_of, benchmark, name):
    _, change, code, _ = DAMAGES[name]
    found = check_tree(tree_of(benchmark, change))
    assert code in {one.code for one in found if not one.is_warning} if code else found == ()


@needs_official
@pytest.mark.engine
@pytest.mark.parametrize(("benchmark", "name"), CASES)
def test_what_the_official_checker_says_of_it(tree_of, benchmark, name):
    _, change, _, refused = DAMAGES[name]
    assert accepts(tree_of(benchmark, change)) is not refused


def inferred(results):
    """Copies of SingleStream's folder in the place of Offline's, as the rules of edge systems allow."""
    shutil.rmtree(results / "Offline")
    shutil.copytree(results / "SingleStream", results / "Offline")


def test_an_edge_result_of_offline_may_be_inferred_from_single_stream(tree_of):
    tree = tree_of(EDGE, inferred)
    (issue,) = check_tree(tree)
    assert (issue.code, issue.is_warning) == ("scenario", True)
    assert issue.where.endswith("Offline/performance/run_1") and "samples/s" in issue.what
    rows = summarize(check_contexts(tree))
    assert [(row.scenario, row.result, row.unit) for row in rows] == [
        ("Offline", 9.05765, "samples/s"),
        ("SingleStream", pytest.approx(142.547989), "ms"),
    ]


def test_samples_are_not_compared_with_tokens(tree_of):
    """An inferred result with the earlier one of a run, whose figure has another unit."""
    tree = tree_of(EDGE, both())
    earlier = summarize(check_contexts(tree))
    inferred(results(tree, EDGE))
    found = compare(summarize(check_contexts(tree)), earlier)
    assert [(one.row.scenario, one.share) for one in found] == [("Offline", None), ("SingleStream", 1.0)]


def test_a_run_of_another_system_is_not_inferred_from(tree_of):
    def other_system(results):
        other = shutil.copytree(results.parent, results.parent.with_name("other")) / results.name
        inferred(other)
        shutil.rmtree(other / "SingleStream")

    repeats = {one.where for one in check_tree(tree_of(EDGE, other_system)) if one.code == "repeat"}
    assert any("/other/" in where and "Offline" in where for where in repeats), repeats


@needs_official
@pytest.mark.engine
def test_the_official_checker_infers_it_too(tree_of):
    tree = tree_of(EDGE, inferred)
    assert accepts(tree)
    rows = csv.DictReader(tree.with_name("submission.csv").read_text().splitlines())
    assert [(row["Scenario"], row["Result"], row["Units"]) for row in rows] == [
        ("Offline", "9.05765", "Tokens/s"),
        ("SingleStream", "142.547989", "Latency (ms)"),
    ]


def test_a_copy_of_another_scenario_is_not_inferred_where_the_rules_have_none(tree_of):
    def copy(results):
        shutil.rmtree(results / "SingleStream")
        shutil.copytree(results / "Offline", results / "SingleStream")

    codes = {one.code for one in check_tree(tree_of(EDGE, copy)) if not one.is_warning}
    assert {"scenario", "repeat"} <= codes
