"""Ways to damage a correct tree, and the issues that each must have."""

import shutil

from tests import records
from tests.harness.submission.trees import (
    RESULTS,
    SYSTEM,
    add_error,
    edit_json,
    edit_rows,
    edit_text,
    repeat_row,
)

DETAIL, SUMMARY = "mlperf_log_detail.txt", "mlperf_log_summary.txt"
RUN = "performance/run_1"


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
    return records.verdict(result, "2 queries failed", deviations=deviations)


def copied(source, target):
    return lambda tree: shutil.copyfile(tree / RESULTS / source, tree / RESULTS / target)


def copied_folder(source, target):
    return lambda tree: shutil.copytree(tree / RESULTS / source, tree / RESULTS / target)


def folder(name):
    return lambda tree: (tree / name).mkdir(parents=True)


def append(name, content, before=False):
    def change(tree):
        path = tree / RESULTS / name
        path.write_bytes(content + path.read_bytes() if before else path.read_bytes() + content)

    return change


def score(line, scenario="Offline"):
    def change(tree):
        path = tree / RESULTS / scenario / "accuracy/accuracy.txt"
        lines = [line if old.startswith("'exact_match'") else old for old in path.read_text().splitlines()]
        path.write_text("\n".join(lines) + "\n")

    return change


def power_file(content):
    return lambda tree: (tree / SYSTEM).with_name(f"{(tree / SYSTEM).stem}_power.yaml").write_text(content)


def earlier_row(run, key, value):
    """A second row of a key before the first."""
    return lambda tree: repeat_row(tree / RESULTS / run / DETAIL, key, value, before=True)


def later_row(run, key, value):
    """A second row of a key behind the first."""
    return lambda tree: repeat_row(tree / RESULTS / run / DETAIL, key, value, before=False)


def network(tree):
    """The division needs another kind of system."""
    edit_json(tree / SYSTEM, division="network")
    (tree / "closed").rename(tree / "network")


TOO_LONG, LOW = b"'tokens_per_sample': 12000\n", b"'exact_match': 80.0\n"
VALID_SUMMARY = text(f"Offline/{RUN}/{SUMMARY}", "Result is : VALID", "Result is : INVALID")
SERVER_ROWS = {"requested_server_ttft_latency": 3_000_000_000, "requested_server_tpot_latency": 80_000_000}

# Damage, and its issues by code with their number.
DAMAGES = [
    ("Interactive in a Server folder", rename("Interactive", "Server"), {"scenario": 4}),
    ("Server limits in Interactive", row(f"Interactive/{RUN}", **SERVER_ROWS), {"scenario": 1}),
    ("Server in an Offline folder", copied(f"Interactive/{RUN}/{DETAIL}", f"Offline/{RUN}/{DETAIL}"), None),
    ("an unknown scenario", rename("Interactive", "Interactiv"), {"scenarios": 2}),
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
    (
        "660 samples made",
        row(f"Offline/{RUN}", generated_samples_per_query=660),
        {"samples-per-query": 1, "cross-check": 1},
    ),
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
    ("the same score twice", both(set_accuracy(83.5), set_accuracy(83.5, "Interactive")), {}),
    (
        "the same hash twice",
        copied("Offline/accuracy/accuracy.txt", "Interactive/accuracy/accuracy.txt"),
        {"repeat": 1},
    ),
    (
        "a test's log beside its folder",
        copied(f"Offline/TEST07/{RUN}/{DETAIL}", f"Offline/TEST07/{DETAIL}"),
        {},
    ),
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
        {"test-failed": 1, "cross-check": 1},
    ),
    (
        "TEST09 just long enough, of another run",
        set_number("Offline/TEST09/verify_output_len.txt", "Mean output tokens", "1150.38"),
        {"cross-check": 1},
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
    (
        "a run that was killed",
        kept("Offline/accuracy/run.json", records.text(verdict=None, deviations=[])),
        {"run-verdict": 1},
    ),
    ("a damaged record", kept("Offline/accuracy/run.json", "{"), {"run-verdict": 1}),
    # Found by the official checker and once not by ours.
    ("SingleStream beside", copied_folder("Interactive", "SingleStream"), {"scenarios": 1}),
    ("a scenario in capitals", rename("Offline", "OFFLINE"), {"scenarios": 2}),
    ("an edge system", system(system_type="edge"), {"scenarios": 1}),
    ("a folder beside benchmarks", folder("closed/MyOrg/results/made_up/old"), {"benchmark": 1}),
    ("a folder beside systems", folder("closed/MyOrg/results/another"), {"missing-file": 1}),
    ("bytes that are no text", append("Offline/accuracy/accuracy.txt", b"caf\xe9\n"), {"encoding": 1}),
    ("bytes in a log", append(f"Offline/{RUN}/{DETAIL}", b"\xe9\n"), {"encoding": 1, "log-damaged": 1}),
    ("long answers", append("Offline/accuracy/accuracy.txt", TOO_LONG, before=True), {"accuracy": 1}),
    ("an earlier score", append("Offline/accuracy/accuracy.txt", LOW, before=True), {"accuracy": 1}),
    ("two blanks", score("'exact_match':  84.0"), {"accuracy": 1}),
    ("a score in quotes", score("'exact_match': '84.0'"), {"accuracy": 1}),
    ("a score that is no number", score("'exact_match': 84.0.1"), {"accuracy": 1}),
    ("no accelerators, as a number", system(accelerators_per_node=0), {"system": 1}),
    ("no accelerators, as text", system(accelerators_per_node="0"), {}),
    ("a network system", system(is_network="True"), {"system": 2}),
    ("not quite a network system", system(is_network="False"), {"system": 1}),
    ("a network system, not as text", system(is_network=True), {"system": 2}),
    ("the network division", network, {"system": 1, "settings": 2}),
    ("a power folder", folder(RESULTS / "Offline/performance/power"), {"power": 4}),
    ("a malformed power file", power_file("PSUs: [1, 2"), {"power": 1}),
    ("a right power file", power_file("PSUs: [1, 2]"), {}),
    (
        "another target latency",
        row(f"Interactive/{RUN}", effective_target_latency_ns=61_000_000_000),
        {"latency": 1},
    ),
    (
        "an earlier row of a seed",
        earlier_row(f"Offline/{RUN}", "effective_schedule_rng_seed", 1),
        {"seeds": 1},
    ),
    ("a later row of a seed", later_row(f"Offline/{RUN}", "effective_schedule_rng_seed", 1), {}),
    # Found by nobody else.
    (
        "samples/s made better by hand",
        row(f"Offline/{RUN}", result_samples_per_second=10.9),
        {"cross-check": 1},
    ),
    (
        "another test's length",
        set_number("Interactive/TEST09/verify_output_len.txt", "Mean output tokens", "1278.00"),
        {"cross-check": 1},
    ),
]
