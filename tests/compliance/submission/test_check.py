"""``check``: a right tree gets no complaint, and each damage gets its own."""

import json
import random
import re
import shutil

import pytest

from harness.compliance.submission.check import check_tree
from harness.compliance.submission.cli import main
from harness.compliance.submission.complaint import RULES
from tests.compliance.submission.trees import (
    RESULTS,
    SYSTEM,
    add_error,
    edit_json,
    edit_rows,
    edit_text,
    unpack,
)
from tests.runs import ROOT

DETAIL, SUMMARY = "mlperf_log_detail.txt", "mlperf_log_summary.txt"
RUN = "performance/run_1"


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    return unpack(tmp_path_factory.mktemp("made_up"))


@pytest.fixture
def tree(original, tmp_path):
    return shutil.copytree(original, tmp_path / "submission")


def row(run, **values):
    """Change values of one detail log."""
    return lambda tree: edit_rows(tree / RESULTS / run / DETAIL, **values)


def text(name, old, new):
    return lambda tree: edit_text(tree / RESULTS / name, old, new)


def both(*changes):
    def change(tree):
        for one in changes:
            one(tree)

    return change


def remove(name):
    def change(tree):
        path = tree / RESULTS / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()

    return change


def rename(old, new):
    return lambda tree: (tree / RESULTS / old).rename(tree / RESULTS / new)


def error(run):
    def change(tree):
        add_error(tree / RESULTS / run / DETAIL, "completed twice")
        edit_text(tree / RESULTS / run / SUMMARY, "No errors encountered", "1 ERROR encountered")

    return change


def cut(name, share=0.5):
    def change(tree):
        path = tree / RESULTS / name
        path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])

    return change


def system(**fields):
    return lambda tree: edit_json(tree / SYSTEM, **fields)


def set_accuracy(value, scenario="Offline"):
    def change(tree):
        path = tree / RESULTS / scenario / "accuracy/accuracy.txt"
        lines = [
            f"'exact_match': {value}" if line.startswith("'exact_match'") else line
            for line in path.read_text().splitlines()
        ]
        path.write_text("\n".join(lines) + "\n")

    return change


def set_number(name, label, value):
    def change(tree):
        path = tree / RESULTS / name
        lines = [
            f"{label}: {value}" if line.startswith(f"{label}:") else line
            for line in path.read_text().splitlines()
        ]
        path.write_text("\n".join(lines) + "\n")

    return change


def extra(name, size=1, link=False):
    def change(tree):
        path = tree / RESULTS / "Offline" / name
        if link:
            path.symlink_to(tree / SYSTEM)
            return
        with path.open("wb") as file:
            file.truncate(size)

    return change


def kept(name, content):
    def change(tree):
        path = tree.with_name("submission.kept") / RESULTS / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)

    return change


def record(result, *deviations):
    verdict = {"result": result, "reasons": ["2 queries failed"]}
    return json.dumps({"verdict": verdict, "deviations": deviations})


def copied(source, target):
    return lambda tree: shutil.copyfile(tree / RESULTS / source, tree / RESULTS / target)


VALID_SUMMARY = text(f"Offline/{RUN}/{SUMMARY}", "Result is : VALID", "Result is : INVALID")
SERVER_ROWS = {"requested_server_ttft_latency": 3_000_000_000, "requested_server_tpot_latency": 80_000_000}

# damage -> the complaints it gets: (code, how many)
DAMAGES = [
    ("Interactive in a Server folder", rename("Interactive", "Server"), {"scenario": 4}),
    ("Server limits in Interactive", row(f"Interactive/{RUN}", **SERVER_ROWS), {"scenario": 1}),
    ("Server in an Offline folder", copied(f"Interactive/{RUN}/{DETAIL}", f"Offline/{RUN}/{DETAIL}"), None),
    ("an unknown scenario", rename("Interactive", "Interactiv"), {"scenario": 1, "scenarios": 1}),
    ("no Offline", remove("Offline"), {"scenarios": 1}),
    ("no Server, no Interactive", remove("Interactive"), {"scenarios": 1}),
    ("error in performance", error(f"Offline/{RUN}"), {"loadgen-errors": 1}),
    ("error in accuracy", error("Interactive/accuracy"), {"loadgen-errors": 1}),
    ("error in a test", error(f"Interactive/TEST09/{RUN}"), {"loadgen-errors": 1}),
    (
        "errors counted only",
        both(row(f"Offline/{RUN}", num_errors=3), text(f"Offline/{RUN}/{SUMMARY}", "No errors", "3 ERRORS")),
        {"loadgen-errors": 1, "logs-disagree": 1},
    ),
    (
        "INVALID",
        both(VALID_SUMMARY, row(f"Offline/{RUN}", result_validity="INVALID")),
        {"invalid": 1},
    ),
    ("INVALID made VALID by hand", row(f"Offline/{RUN}", result_validity="INVALID"), {"logs-disagree": 1}),
    (
        "latency made better by hand",
        row(f"Offline/{RUN}", result_mean_latency_ns=1),
        {"logs-disagree": 1},
    ),
    ("accuracy log as performance", row(f"Offline/{RUN}", effective_test_mode="AccuracyOnly"), None),
    ("a seed", row(f"Offline/{RUN}", effective_schedule_rng_seed=1), {"seeds": 1}),
    ("a seed in accuracy", row("Offline/accuracy", effective_qsl_rng_seed=1), {"seeds": 1}),
    (
        "no permutation",
        row(f"Offline/{RUN}", effective_sample_concatenate_permutation=False),
        {"settings": 1},
    ),
    ("no token latencies", row(f"Offline/{RUN}", requested_use_token_latencies=False), {"settings": 1}),
    (
        "another percentile",
        row(f"Interactive/{RUN}", effective_target_latency_percentile=0.9),
        {"settings": 1},
    ),
    ("short", row(f"Offline/{RUN}", effective_min_duration_ms=599_999), {"min-duration": 1}),
    (
        "short by the clock",
        row(f"Interactive/{RUN}", power_end="01-01-2020 00:00:00.000"),
        {"min-duration": 1},
    ),
    ("early stopping", row(f"Interactive/{RUN}", early_stopping_met=False), {"early-stopping": 1}),
    ("fewer samples", row(f"Offline/{RUN}", effective_performance_sample_count=6395), {"sample-count": 1}),
    ("a smaller dataset", row(f"Offline/{RUN}", qsl_reported_total_count=6000), {"sample-count": 1}),
    ("an answer missing", row(f"Interactive/{RUN}", result_query_count=6395), {"sample-count": 1}),
    (
        "fewer accuracy samples",
        row("Offline/accuracy", generated_samples_per_query=4394),
        {"sample-count": 1},
    ),
    ("evaluated too few", text("Offline/accuracy/accuracy.txt", ": 4395", ": 4000"), {"sample-count": 1}),
    (
        "660 samples asked for",
        row(f"Offline/{RUN}", effective_samples_per_query=660),
        {"samples-per-query": 1},
    ),
    ("660 samples made", row(f"Offline/{RUN}", generated_samples_per_query=660), {"samples-per-query": 1}),
    ("short answers", row(f"Offline/{RUN}", result_tokens_per_second=1.0), {"mean-tokens": 1}),
    (
        "TTFT at the limit",
        row(f"Interactive/{RUN}", result_first_token_99__00_percentile_latency_ns=2_000_000_000),
        {"latency": 1},
    ),
    (
        "TPOT beyond",
        row(f"Interactive/{RUN}", result_time_per_output_token_99__00_percentile_ns=15_000_001),
        {"latency": 1},
    ),
    (
        "audit in force",
        row(f"Offline/{RUN}", effective_accuracy_log_sampling_target=990),
        {"audit-in-force": 1},
    ),
    ("answers logged", extra(f"{RUN}/mlperf_log_accuracy.json", 5000), {"audit-in-force": 1}),
    (
        "audit not in force",
        row(f"Offline/TEST07/{RUN}", effective_accuracy_log_rng_seed=0),
        {"audit-not-in-force": 1},
    ),
    (
        "too few logged",
        row(f"Offline/TEST09/{RUN}", effective_accuracy_log_sampling_target=6395),
        {"audit-not-in-force": 1},
    ),
    (
        "test with permutation",
        row(f"Offline/TEST09/{RUN}", effective_sample_concatenate_permutation=True),
        {"audit-not-in-force": 1},
    ),
    (
        "test of fewer samples",
        row(f"Offline/TEST07/{RUN}", generated_samples_per_query=989),
        {"sample-count": 1},
    ),
    (
        "test too short",
        both(
            text(
                f"Offline/TEST09/{RUN}/{SUMMARY}", "Min queries satisfied : Yes", "Min queries satisfied : No"
            )
        ),
        {"invalid": 1},
    ),
    ("just below the target", set_accuracy(82.298), {"accuracy": 1}),
    ("just above the target", set_accuracy(82.299), {}),
    ("no score", text("Offline/accuracy/accuracy.txt", "exact_match", "exact"), {"accuracy": 1}),
    ("the same score twice", both(set_accuracy(83.5), set_accuracy(83.5, "Interactive")), {"repeat": 1}),
    (
        "the same log twice",
        copied(
            "Offline/accuracy/mlperf_log_accuracy.json", "Offline/TEST07/accuracy/mlperf_log_accuracy.json"
        ),
        {"repeat": 1},
    ),
    ("no hash", text("Offline/accuracy/accuracy.txt", "hash=", "sum="), {"hash": 1}),
    ("no hash of a test", text("Offline/TEST09/accuracy/accuracy.txt", "hash=", "sum="), {"hash": 1}),
    (
        "not the kept log",
        kept("Offline/accuracy/mlperf_log_accuracy.json", "[]"),
        {"hash": 1, "not-truncated": 1},
    ),
    ("not truncated", extra("accuracy/mlperf_log_accuracy.json", 10_241), {"not-truncated": 1}),
    ("TEST07 missing", remove("Offline/TEST07"), {"test-missing": 1}),
    ("no verify file", remove("Offline/TEST09/verify_output_len.txt"), {"test-missing": 1}),
    (
        "TEST07 failed",
        text("Offline/TEST07/verify_accuracy.txt", "TEST PASS", "TEST FAIL"),
        {"test-failed": 1},
    ),
    (
        "TEST07 below its threshold",
        set_number("Offline/TEST07/verify_accuracy.txt", "Accuracy score", "60.697"),
        {"test-failed": 1},
    ),
    (
        "TEST07 against another threshold",
        set_number("Offline/TEST07/verify_accuracy.txt", "Accuracy threshold", "10"),
        {"test-failed": 1},
    ),
    (
        "TEST09 too long",
        set_number("Offline/TEST09/verify_output_len.txt", "Mean output tokens", "1406.03"),
        {"test-failed": 1},
    ),
    (
        "TEST09 just long enough",
        set_number("Offline/TEST09/verify_output_len.txt", "Mean output tokens", "1150.38"),
        {},
    ),
    (
        "TEST09 of fewer samples",
        set_number("Offline/TEST09/verify_output_len.txt", "Total samples", "6000"),
        {"test-failed": 1},
    ),
    ("detail log cut", cut(f"Offline/{RUN}/{DETAIL}"), {"log-damaged": 1}),
    ("summary empty", cut(f"Offline/{RUN}/{SUMMARY}", 0), {"log-damaged": 1}),
    ("no detail log", remove(f"Interactive/accuracy/{DETAIL}"), {"missing-file": 1}),
    ("no accuracy log", remove("Offline/TEST09/accuracy/mlperf_log_accuracy.json"), {"missing-file": 1}),
    ("no user.conf", remove("Offline/user.conf"), {"missing-file": 1}),
    ("empty README", cut("Offline/README.md", 0), {"missing-file": 1}),
    ("no system", lambda tree: (tree / SYSTEM).unlink(), {"missing-file": 1}),
    ("no src", lambda tree: shutil.rmtree(tree / "closed/MyOrg/src"), {"missing-file": 1}),
    ("a field missing", system(cooling=None), {"system": 1}),
    ("a field empty", system(framework=""), {"system": 1}),
    ("an optional field empty", system(hw_notes=""), {}),
    ("a status of our own", system(status="soon"), {"system": 1}),
    ("another division", system(division="open"), {"system": 1}),
    ("accelerators in words", system(accelerators_per_node="eight"), {"system": 1}),
    (
        "measurements empty",
        lambda tree: edit_json(tree / RESULTS / "Offline/measurements.json", retraining=""),
        {"measurements": 1},
    ),
    ("a link", extra("link.txt", link=True), {"files": 1}),
    ("a space", extra("my notes.txt"), {"files": 1}),
    ("a hidden file", extra(".DS_Store"), {"files": 1}),
    ("a file of 51 MB", extra("big.bin", 51 << 20), {"files": 1}),
    (
        "unofficial run",
        kept(f"Offline/{RUN}/run.json", record("VALID", "dataset has 12 samples")),
        {"deviations": 1},
    ),
    ("INVALID for us", kept("Offline/accuracy/run.json", record("INVALID")), {"run-verdict": 1}),
    ("a run that was killed", kept("Offline/accuracy/run.json", '{"verdict": null}'), {"run-verdict": 1}),
]


def codes(complaints):
    counts = {}
    for complaint in complaints:
        counts[complaint.code] = counts.get(complaint.code, 0) + 1
    return counts


def test_a_right_tree_gets_no_complaint(tree):
    assert check_tree(tree) == ()


@pytest.mark.parametrize(("change", "expected"), [d[1:] for d in DAMAGES], ids=[d[0] for d in DAMAGES])
def test_each_damage_gets_its_own_complaint(tree, change, expected):
    change(tree)
    found = check_tree(tree)
    if expected is None:  # damage that brings others with it
        assert {"scenario", "mode"} & set(codes(found))
    else:
        assert codes(found) == expected


def test_every_rule_can_be_broken():
    named = {code for _, _, expected in DAMAGES for code in expected or {"mode": 1}}
    assert named | {"benchmark"} == set(RULES)


def test_every_rule_is_documented():
    page = (ROOT / "docs/submission.md").read_text()
    assert [code for code, (rule, _) in RULES.items() if f"| `{code}` | {rule} |" not in page] == []


def test_an_unknown_benchmark(tree):
    (tree / RESULTS).rename(tree / RESULTS.parent / "gpt-oss-121b")
    assert set(codes(check_tree(tree))) == {"benchmark"}


def test_open_needs_neither_target_nor_tests(tree):
    set_accuracy(12.5)(tree)
    for name in ("Offline/TEST07", "Offline/TEST09", "Interactive/TEST07", "Interactive/TEST09"):
        remove(name)(tree)
    edit_json(tree / SYSTEM, division="open")
    (tree / "closed").rename(tree / "open")
    assert check_tree(tree) == ()


def test_a_test_may_miss_its_latencies(tree):
    """A compliance test is no measurement: only its own verdict and its coverage count."""
    name = f"Interactive/TEST07/{RUN}"
    row(name, result_validity="INVALID", early_stopping_met=False)(tree)
    text(f"{name}/{SUMMARY}", "Result is : VALID", "Result is : INVALID")(tree)
    assert check_tree(tree) == ()


def test_a_hostile_log_cannot_break_the_line(tree):
    add_error(tree / RESULTS / f"Offline/{RUN}" / DETAIL, "one\ntwo\x1b[31m")
    lines = [str(complaint) for complaint in check_tree(tree) if complaint.code == "loadgen-errors"]
    assert len(lines) == 1
    assert lines[0].isprintable()


def test_no_nonsense_breaks_the_check(original, tmp_path):
    """Values of wrong types, rows taken out, bytes that are no text: complaints, never a traceback."""
    chance = random.Random(7)
    for number in range(40):
        tree = shutil.copytree(original, tmp_path / str(number))
        path = chance.choice([path for path in sorted((tree / "closed").rglob("*")) if path.is_file()])
        lines = path.read_text().splitlines()
        kind = number % 4
        if kind == 0:
            path.write_bytes(chance.randbytes(500))
        elif kind == 1:
            path.write_text("\n".join(line for line in lines if chance.random() > 0.3))
        else:
            word = chance.choice(["null", '"nonsense"', "[]", "{}", "-1", "NaN", "true", "1e400"])
            path.write_text(
                "\n".join(re.sub(r'"value": [^,]+,', f'"value": {word},', line) for line in lines)
            )
        for complaint in check_tree(tree):
            assert "\n" not in str(complaint)
        shutil.rmtree(tree)


@pytest.mark.parametrize("name", ["offline", "OFFLINE"])
def test_the_case_of_a_scenario_does_not_matter(tree, name):
    rename("Offline", name)(tree)
    assert check_tree(tree) == ()


def test_an_edge_system_needs_no_server(tree):
    remove("Interactive")(tree)
    system(system_type="edge")(tree)
    assert check_tree(tree) == ()


def test_the_command_says_where_what_rule_and_remedy(tree, capsys):
    row(f"Offline/{RUN}", effective_min_duration_ms=1000)(tree)
    assert main(["check", str(tree)]) == 5
    line, count = capsys.readouterr().out.splitlines()
    where, rest = line.split(": ", 1)
    assert where == f"{RESULTS}/Offline/{RUN}/{DETAIL}"
    assert rest.split("; ") == [
        "[min-duration] effective_min_duration_ms is 1000, expected 600000 or more",
        "rule: a performance run lasts 600 s or longer",
        "remedy: repeat the run with the official min_duration",
    ]
    assert count == "1 complaints"


def test_the_command_on_a_right_tree(tree, capsys):
    assert main(["check", str(tree)]) == 0
    assert capsys.readouterr().out == "no complaints\n"


@pytest.mark.parametrize(
    "arguments", [["check", "{}/nowhere"], ["check", "{}"], ["check", "{}/submission", "--round", "v4.0"]]
)
def test_unusable_input_is_one_line_and_exit_2(tree, tmp_path, capsys, arguments):
    (tmp_path / "empty").mkdir()
    folder = tmp_path if "--round" in arguments else tmp_path / "empty"
    assert main([word.format(folder) for word in arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 1
