"""Ways to damage a correct tree, and the issues that each must have."""

import hashlib
import json
import math
import os
from functools import partial
from pathlib import Path
from typing import Any

from harness.config.rounds import seeds_of
from harness.submission.tree.accuracy_files import GAP
from harness.submission.tree.layout import REHEARSAL
from tests import records
from tests.harness.grading.logs import array, entry
from tests.harness.submission.edits import (
    DETAIL,
    ORGANISATION,
    SCORE,
    SUMMARY,
    SYSTEM,
    TREE,
    both,
    changed,
    copied,
    cut,
    error_row,
    fields,
    pattern,
    remove,
    rename,
    row,
    second_row,
    text,
    without_row,
    write,
)
from tests.harness.submission.trees import RESULTS

RUN, ANSWERS = "performance/run_1", "accuracy/mlperf_log_accuracy.json"
OFFLINE, INTERACTIVE = f"Offline/{RUN}", f"Interactive/{RUN}"
MULTI_STREAM = copied("Offline", "MultiStream")
TEST07, TEST09 = f"Offline/TEST07/{RUN}", f"Offline/TEST09/{RUN}"
VERIFY07, VERIFY09 = "Offline/TEST07/verify_accuracy.txt", "Offline/TEST09/verify_output_len.txt"

system = partial(fields, SYSTEM)
power_file = partial(write, f"{ORGANISATION}/systems/made_up_power.yaml")


def error(run, message="completed twice"):
    wording = text(f"{run}/{SUMMARY}", "No errors encountered", "1 ERROR encountered")
    return both(error_row(run, message), wording)


def warning(run, message):
    wording = text(f"{run}/{SUMMARY}", "No warnings encountered", "1 warning encountered")
    return both(error_row(run, message, "warning"), wording)


def audited(run):
    """LoadGen's warning of an audit.config that it found, as in TEST07's logs."""
    found = "Found Audit Config file (audit.config). Overriding TestSettings from audit.config file."
    return warning(run, found)


def score(shown, scenario="Offline"):
    """Another score; the report above it too, where the score is a number."""
    name = f"{scenario}/accuracy/accuracy.txt"
    line = pattern(name, "^'exact_match'.*", f"'exact_match': {shown}")
    if not isinstance(shown, float):
        return line
    above = f"FINAL SCORE: {shown:.2f}% ({shown * 12.83:.2f}/1283.00)"
    return both(line, pattern(name, "^FINAL SCORE.*", above))


def set_number(name, label, value):
    return pattern(name, f"^{label}:.*", f"{label}: {value}")


def score07(value):
    """TEST07's score as the evaluator printed it, and as the official script read it there."""
    return both(
        set_number(VERIFY07, "Accuracy score", value),
        text(VERIFY07, "'exact_match': 65.556", f"'exact_match': {value}"),
    )


def sized(name, size):
    """A file of zeros."""

    def edit(results):
        with (results / name).open("wb") as file:
            file.truncate(size)

    return edit


def in_folder(name, content):
    """A file in folders that are not there yet."""

    def edit(results):
        (results / name).parent.mkdir(parents=True, exist_ok=True)
        (results / name).write_bytes(content)

    return edit


def kept(name, content):
    return write(f"{TREE}/../submission.kept/{RESULTS}/{name}", content)


def full_log(test, tokens, samples=990):
    """A kept accuracy log with outputs of this length, and in the tree what is published of it."""
    content = array(entry(index, range(tokens)) for index in range(samples)).encode()
    answers = f"{test}/{ANSWERS}"
    return both(
        kept(answers, content),
        write(answers, content[:4096] + GAP + content[-4096:]),
        pattern(f"{test}/accuracy/accuracy.txt", "^hash=.*", f"hash={hashlib.sha256(content).hexdigest()}"),
    )


# The recorded run as one of Offline. Its servers and answers were others than those of the tree.
PLAN = json.loads(records.PATH.read_text())["plan"] | {"scenario": "offline"}
OTHERS: dict[str, Any] = {"statistics": None, "loadgen": None, "servers": []}
OF_OFFLINE = {**OTHERS, "plan": PLAN}


def record(result, *deviations):
    return records.verdict(result, "2 queries failed", deviations=deviations, **OF_OFFLINE)


def folder(name):
    return lambda results: (results / name).mkdir(parents=True)


def before(name, content):
    """Bytes at the start of a file."""
    return changed(name, lambda old: content + old)


def after(name, content):
    return changed(name, lambda old: old + content)


def in_place(name, make):
    """Something else in place of a file or folder."""

    def edit(results):
        remove(name)(results)
        make(results / name)

    return edit


def link(target):
    return lambda path: path.symlink_to(target)


def division(name):
    """The tree in another division."""
    return both(system(division=name), rename(f"{TREE}/closed", f"{TREE}/{name}"))


TTFT = "result_first_token_99__00_percentile_latency_ns"
TPOT = "result_time_per_output_token_99__00_percentile_ns"
NETWORK_SUT = "Network SUT: made_up"
PERMUTATION = "effective_sample_concatenate_permutation"
SEED, LOG_SEED = "effective_schedule_rng_seed", "effective_accuracy_log_rng_seed"
SEEDS_6_0 = {f"effective_{name}": seed for name, seed in seeds_of("v6.0").items()}
LOGGED, PER_QUERY = "effective_accuracy_log_sampling_target", "effective_samples_per_query"
POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0123' * 16}\nsize 123456\n"
BEGAN = "11-21-2026 13:53:02.000"  # a second after power_begin of Offline
OF_R1 = PLAN | {"benchmark": PLAN["benchmark"] | {"name": "deepseek-r1"}}
OF_ANOTHER = records.verdict("VALID", plan=OF_R1, **OTHERS)
OF_SERVER = records.verdict("VALID", **OTHERS)
OF_ANSWERS = records.verdict("VALID", loadgen=None, servers=[], plan=PLAN, accuracy_log_sha256="0" * 64)
KILLED = records.text(verdict=None, deviations=[], **OF_OFFLINE)
TOO_LONG, LOW = b"'tokens_per_sample': 12000\n", b"'exact_match': 80.0\n"
COUNTED = text(f"{OFFLINE}/{SUMMARY}", "No errors", "3 ERRORS")
TOO_FEW = text(f"{TEST09}/{SUMMARY}", "queries satisfied : Yes", "queries satisfied : No")
OTHER_LENGTH = set_number("Interactive/TEST09/verify_output_len.txt", "Mean output tokens", "1278.00")
NO_LOGS = both(*(remove(f"Interactive/{run}/{DETAIL}") for run in (RUN, "accuracy")))
VALID_SUMMARY = text(f"{OFFLINE}/{SUMMARY}", "Result is : VALID", "Result is : INVALID")
SERVER_ROWS = {"requested_server_ttft_latency": 3_000_000_000, "requested_server_tpot_latency": 80_000_000}

# Damage, and the codes of its issues, with ? of a warning (None: brings others with it).
DAMAGES = [
    ("Interactive in a Server folder", rename("Interactive", "Server"), "scenario*4"),
    ("Server limits in Interactive", row(INTERACTIVE, **SERVER_ROWS), "logs-disagree scenario"),
    (
        "Server limits in Interactive, and TTFT between",
        row(INTERACTIVE, **SERVER_ROWS, **{TTFT: 2_500_000_000}),
        "cross-check logs-disagree scenario",
    ),
    (
        "a limit and a rate of 400 digits",
        row(INTERACTIVE, requested_server_ttft_latency=10**400, result_scheduled_samples_per_sec=10**400),
        "logs-disagree settings",
    ),
    ("Server in an Offline folder", copied(f"{INTERACTIVE}/{DETAIL}", f"{OFFLINE}/{DETAIL}"), None),
    ("an unknown scenario", rename("Interactive", "Interactiv"), "scenarios*2"),
    ("an unknown benchmark", rename("", "../gpt-oss-121b"), "benchmark"),
    ("no Offline", remove("Offline"), "scenarios"),
    ("no Server, no Interactive", remove("Interactive"), "scenarios"),
    ("error in performance", error(OFFLINE), "loadgen-errors"),
    ("error in accuracy", error("Interactive/accuracy"), "loadgen-errors"),
    ("error in a test", error(f"Interactive/TEST09/{RUN}"), "loadgen-errors"),
    ("errors counted only", both(row(OFFLINE, num_errors=3), COUNTED), "loadgen-errors logs-disagree"),
    ("INVALID", both(VALID_SUMMARY, row(OFFLINE, result_validity="INVALID")), "invalid"),
    ("INVALID made VALID by hand", row(OFFLINE, result_validity="INVALID"), "logs-disagree"),
    ("latency made better by hand", row(OFFLINE, result_mean_latency_ns=1), "cross-check logs-disagree"),
    ("accuracy log as performance", row(OFFLINE, effective_test_mode="AccuracyOnly"), None),
    ("a seed", row(OFFLINE, effective_schedule_rng_seed=1), "logs-disagree seeds"),
    ("a seed in accuracy", row("Offline/accuracy", effective_qsl_rng_seed=1), "seeds"),
    ("seeds of the last round", row("Offline/accuracy", **SEEDS_6_0), "seeds"),
    ("no permutation", row(OFFLINE, effective_sample_concatenate_permutation=False), "settings"),
    ("no token latencies", row(OFFLINE, requested_use_token_latencies=False), "settings"),
    ("a percentile of Server in Offline", row(OFFLINE, effective_target_latency_percentile=0.9), ""),
    ("another percentile", row(INTERACTIVE, effective_target_latency_percentile=0.9), "settings"),
    ("short", row(OFFLINE, effective_min_duration_ms=599_999), "logs-disagree min-duration"),
    ("short by the clock", row(INTERACTIVE, power_end="01-01-2020 00:00:00.000"), "cross-check min-duration"),
    ("early stopping", row(INTERACTIVE, early_stopping_met=False), "early-stopping logs-disagree"),
    ("fewer samples", row(OFFLINE, effective_performance_sample_count=6395), "logs-disagree sample-count"),
    ("a smaller dataset", row(OFFLINE, qsl_reported_total_count=6000), "sample-count"),
    ("an answer missing", row(INTERACTIVE, result_query_count=6395), "sample-count"),
    ("fewer accuracy samples", row("Offline/accuracy", generated_samples_per_query=4394), "sample-count"),
    ("evaluated too few", text(SCORE, ": 4395", ": 4000"), "sample-count"),
    ("660 samples asked for", row(OFFLINE, **{PER_QUERY: 660}), "logs-disagree samples-per-query"),
    ("660 samples made", row(OFFLINE, generated_samples_per_query=660), "cross-check samples-per-query"),
    ("short answers", row(OFFLINE, result_tokens_per_second=1.0), "cross-check logs-disagree mean-tokens"),
    ("TTFT at the limit", row(INTERACTIVE, **{TTFT: 2_000_000_000}), "cross-check latency logs-disagree"),
    ("no TTFT", without_row(INTERACTIVE, TTFT.replace("__", ".")), "latency logs-disagree"),
    ("TPOT beyond", row(INTERACTIVE, **{TPOT: 15_000_001}), "cross-check latency logs-disagree"),
    ("audit in force", row(OFFLINE, **{LOGGED: 990}), "audit-in-force logs-disagree"),
    ("an audit.config found", audited(OFFLINE), "audit-in-force"),
    ("another warning", warning(OFFLINE, "Ending early: Max query count reached."), ""),
    ("no accuracy log of a performance run", remove(f"{OFFLINE}/mlperf_log_accuracy.json"), ""),
    ("answers logged", sized(f"{OFFLINE}/mlperf_log_accuracy.json", 5000), "audit-in-force"),
    ("audit not in force", row(TEST07, **{LOG_SEED: 0}), "audit-not-in-force logs-disagree"),
    ("too few logged", row(TEST09, **{LOGGED: 6395}), "audit-not-in-force logs-disagree"),
    ("test with permutation", row(TEST09, **{PERMUTATION: True}), "audit-not-in-force"),
    ("test of fewer samples", row(TEST07, generated_samples_per_query=989), "cross-check sample-count"),
    ("test too short", TOO_FEW, "invalid logs-disagree"),
    ("just below the target", score(82.298), "accuracy"),
    ("just above the target", score(82.299), ""),
    ("more than 100 %", score(835.1), "accuracy"),
    ("no score", text(SCORE, "exact_match", "exact"), "accuracy"),
    ("the same score twice", both(score(83.5), score(83.5, "Interactive")), ""),
    ("the same hash twice", copied(SCORE, "Interactive/accuracy/accuracy.txt"), "repeat"),
    ("a test's log beside its folder", copied(f"{TEST07}/{DETAIL}", f"Offline/TEST07/{DETAIL}"), ""),
    ("the same log twice", copied(f"Offline/{ANSWERS}", f"Offline/TEST07/{ANSWERS}"), "repeat"),
    ("no hash", text(SCORE, "hash=", "sum="), "hash"),
    ("a hash that is cut", pattern(SCORE, "^(hash=.{63}).", r"\1"), "hash"),
    ("no hash of a test", text("Offline/TEST09/accuracy/accuracy.txt", "hash=", "sum="), "hash"),
    ("not the kept log", kept(f"Offline/{ANSWERS}", "[]"), "hash not-truncated"),
    ("the full log of a test", full_log("Offline/TEST07", 17), ""),
    ("the full log of a test in Interactive", full_log("Interactive/TEST07", 17), ""),
    ("the full log of another run", full_log("Offline/TEST07", 18), "cross-check"),
    ("not truncated", sized(f"Offline/{ANSWERS}", 10_241), "not-truncated"),
    ("TEST07 missing", remove("Offline/TEST07"), "test-missing"),
    ("no verify file", remove(VERIFY09), "test-missing"),
    ("TEST07 failed", text(VERIFY07, "TEST PASS", "TEST FAIL"), "test-failed"),
    ("TEST07 below its threshold", score07("60.697"), "test-failed"),
    ("TEST07 with another score", set_number(VERIFY07, "Accuracy score", "60.698"), "cross-check"),
    (
        "TEST07 of another run",
        text(VERIFY07, "Output tokens: mean 17.00", "Output tokens: mean 17.03"),
        "cross-check",
    ),
    ("TEST07 at its threshold", score07("60.698"), ""),
    ("TEST07 of more than 100 %", score07("655.56"), "test-failed"),
    ("TEST07 with two points in its score", set_number(VERIFY07, "Accuracy score", "61.69.8"), "test-failed"),
    ("TEST07 against another threshold", set_number(VERIFY07, "Accuracy threshold", "10"), "test-failed"),
    ("TEST07 without a threshold", pattern(VERIFY07, "^Accuracy threshold:.*\\n", ""), ""),
    ("TEST09 too long", set_number(VERIFY09, "Mean output tokens", "1406.03"), "cross-check*2 test-failed"),
    ("TEST09 just long enough", set_number(VERIFY09, "Mean output tokens", "1150.38"), "cross-check*2"),
    ("TEST09 of fewer samples", set_number(VERIFY09, "Total samples", "6000"), "test-failed"),
    ("TEST09 of samples of 5000 digits", set_number(VERIFY09, "Total samples", "6" * 5000), "test-failed"),
    ("a score of samples of 5000 digits", text(SCORE, ": 4395", ": " + "6" * 5000), "sample-count"),
    ("detail log cut", cut(f"{OFFLINE}/{DETAIL}"), "log-damaged"),
    ("summary empty", cut(f"{OFFLINE}/{SUMMARY}", 0), "log-damaged"),
    ("no detail log", remove(f"Interactive/accuracy/{DETAIL}"), "missing-file"),
    (
        "no logs of either harness",
        both(NO_LOGS, write("Interactive/config.yaml", "{}")),
        "missing-file*2",
    ),
    ("no accuracy log", remove(f"Offline/TEST09/{ANSWERS}"), "missing-file"),
    ("no user.conf", remove("Offline/user.conf"), "missing-file"),
    ("an empty user.conf", cut("Offline/user.conf", 0), "missing-file"),
    ("empty README", cut("Offline/README.md", 0), "missing-file"),
    ("no system", remove(SYSTEM), "missing-file"),
    ("no src", remove(f"{ORGANISATION}/src"), "missing-file"),
    ("an empty src", both(remove(f"{ORGANISATION}/src"), folder(f"{ORGANISATION}/src")), "missing-file"),
    ("a field missing", system(cooling=None), "system"),
    ("a field empty", system(framework=""), "system"),
    ("an optional field empty", system(hw_notes=""), ""),
    ("notes that are a list", system(sw_notes=["tuned", "by hand"]), "system"),
    ("notes that are a number", system(hw_notes=8, sw_notes="tuned"), "system"),
    ("a number that joins no notes", system(hw_notes=8, sw_notes=""), ""),
    ("a status of our own", system(status="soon"), "system"),
    ("another division", system(division="open"), "system"),
    ("accelerators in words", system(accelerators_per_node="eight"), "system"),
    ("measurements empty", fields("Offline/measurements.json", retraining=""), "measurements"),
    ("a model retrained", fields("Offline/measurements.json", retraining="Yes, QAT"), "measurements?"),
    ("a token in src", write(f"{ORGANISATION}/src/run.sh", f"export HF_TOKEN=hf_{'aB3' * 11}\n"), "secret"),
    ("a link", lambda results: (results / "Offline/link.txt").symlink_to(results / SYSTEM), "files"),
    ("a space", write("Offline/my notes.txt", "1"), "files"),
    ("a hidden file", write("Offline/.DS_Store", "1"), "files"),
    ("a file of 51 MB", sized("Offline/big.bin", 51 << 20), "files"),
    ("unofficial run", kept(f"{OFFLINE}/run.json", record("VALID", "dataset has 12 samples")), "deviations"),
    ("INVALID for us", kept("Offline/accuracy/run.json", record("INVALID")), "run-verdict"),
    ("a run that was killed", kept("Offline/accuracy/run.json", KILLED), "run-verdict"),
    ("a test's run INVALID for us", kept("Offline/TEST07/run.json", record("INVALID")), ""),
    (
        "no accuracy.txt beside its record",
        both(remove(SCORE), kept("Offline/accuracy/run.json", OF_ANSWERS)),
        "missing-file",
    ),
    (
        "a system that is no JSON beside a record",
        both(pattern(SYSTEM, r"\n}$", ",\n}"), kept(f"{OFFLINE}/run.json", record("VALID"))),
        "malformed",
    ),
    (
        "measurements cut off beside a record",
        both(cut("Offline/measurements.json"), kept(f"{OFFLINE}/run.json", record("VALID"))),
        "malformed",
    ),
    ("a damaged record", kept("Offline/accuracy/run.json", "{"), "run-verdict"),
    # Found by the official checker and once not by ours.
    ("SingleStream beside", copied("Interactive", "SingleStream"), "scenarios"),
    ("a scenario in capitals", rename("Offline", "OFFLINE"), "scenarios*2"),
    ("an edge system", system(system_type="edge"), "scenarios"),
    ("a folder beside benchmarks", folder("../old"), "benchmark"),
    ("a folder beside systems", folder("../../another"), "missing-file"),
    ("bytes that are no text", after(SCORE, b"caf\xe9\n"), "encoding"),
    ("bytes in a log", after(f"{OFFLINE}/{DETAIL}", b"\xe9\n"), "encoding log-damaged"),
    ("long answers", before(SCORE, TOO_LONG), "accuracy"),
    ("an earlier score", before(SCORE, LOW), "accuracy cross-check"),
    ("two blanks", score(" 84.0"), "accuracy"),
    ("a score in quotes", score("'84.0'"), "accuracy"),
    ("a score that is no number", score("84.0.1"), "accuracy"),
    # MLCommons's generate_final_report.py ends with an error for these four, and reads the fifth.
    ("processors in words", system(host_processors_per_node="2 (1 on the switch node)"), "system"),
    ("a quote before a comma", system(hw_notes='runs in "Max-Q" mode, capped'), "system"),
    ("a quote at the end", system(system_name='rack of 19"'), "system"),
    (
        "a quote in one note, a comma in the other",
        system(hw_notes='19" racks', sw_notes="tuned, by hand"),
        "system",
    ),
    ("a quote", system(hw_notes='19" racks'), ""),
    (
        "counts as 8.0",
        system(number_of_nodes=1.0, accelerators_per_node=8.0, host_processors_per_node=2.0),
        "",
    ),
    ("half a node", system(number_of_nodes=1.5), "system"),
    ("no accelerators, as a number", system(accelerators_per_node=0), "system"),
    ("no accelerators, as text", system(accelerators_per_node="0"), ""),
    ("a network system", system(is_network="True"), "system*2"),
    ("not quite a network system", system(is_network="False"), "system"),
    ("a network system, not as text", system(is_network=True), "system*2"),
    ("the network division", division("network"), "settings*2 system"),
    (
        "the network division with its SUT",
        both(row(OFFLINE, sut_name=NETWORK_SUT), row(INTERACTIVE, sut_name=NETWORK_SUT), division("network")),
        "logs-disagree*2 system",
    ),
    ("a power folder", folder("Offline/performance/power"), "power*3 power?"),
    ("a malformed power file", power_file("PSUs: [1, 2"), "power"),
    ("a power file without components", power_file("PSUs: [1, 2]"), "power?"),
    ("a power file with a 13th month", power_file("Rack: {made: 2026-13-01}"), "power"),
    ("power supplies without watts", power_file("Rack: {PSUs: [1, 2], Min PSUs Needed: 1}"), "power"),
    ("no watts", system(system_power_capacity=0), "system"),
    ("watts as text", system(system_power_capacity="10 kW"), "system"),
    ("watts", system(system_power_capacity=10_200.5), ""),
    ("another target latency", row(INTERACTIVE, effective_target_latency_ns=61_000_000_000), "latency"),
    ("a target latency in Offline", row(OFFLINE, effective_target_latency_ns=61_000_000_000), ""),
    ("a target latency at its bound", row(INTERACTIVE, effective_target_latency_ns=60_000_000_000), ""),
    ("no target latency", without_row(INTERACTIVE, "effective_target_latency_ns"), "latency"),
    ("a target latency that is no number", row(INTERACTIVE, effective_target_latency_ns="1 min"), "latency"),
    ("rows without LoadGen's mark", text(f"{OFFLINE}/{DETAIL}", ":::MLLOG ", ""), "log-damaged"),
    (
        "a first row without LoadGen's mark",
        changed(f"Interactive/accuracy/{DETAIL}", lambda log: log.replace(b":::MLLOG ", b"", 1)),
        "log-damaged",
    ),
    ("an earlier row of a seed", second_row(OFFLINE, SEED, 1, before=True), "log-damaged"),
    ("a later row of a seed", second_row(OFFLINE, SEED, 1, before=False), "log-damaged"),
    ("no result", without_row(OFFLINE, "result_tokens_per_second"), "invalid logs-disagree mean-tokens"),
    (
        "a result of 0",
        row(OFFLINE, result_tokens_per_second=0),
        "cross-check invalid logs-disagree mean-tokens",
    ),
    ("a result that is no number", row(OFFLINE, result_tokens_per_second=math.nan), "log-damaged"),
    ("no query asked for", row(OFFLINE, effective_min_query_count=0), "logs-disagree sample-count"),
    ("a submitter without results", folder(f"{ORGANISATION}/../Other/documentation"), "missing-file"),
    (
        "an open mapping that is no JSON",
        write(f"{TREE}/open/My/model_mapping.json", "{"),
        "malformed missing-file",
    ),
    ("a folder as a detail log", in_place(f"Interactive/accuracy/{DETAIL}", Path.mkdir), "files log-damaged"),
    ("a folder as accuracy.txt", in_place(SCORE, Path.mkdir), "files missing-file"),
    ("a file as a folder", in_place("Offline/TEST07", Path.touch), "test-missing"),
    ("another model's test", in_folder("Offline/TEST01/verify_accuracy.txt", b"\xff"), "encoding"),
    ("its empty log", in_folder(f"Offline/TEST01/{RUN}/{DETAIL}", b""), ""),
    ("its broken log", in_folder(f"Offline/TEST04/{RUN}/{DETAIL}", b":::MLLOG {\n"), "log-damaged"),
    ("its log without keys", in_folder(f"Offline/TEST04/{RUN}/{DETAIL}", b":::MLLOG {}\n"), "log-damaged"),
    (
        "its log nested deeper than Python reads",
        in_folder(f"Offline/TEST01/{RUN}/{DETAIL}", b":::MLLOG " + b"[" * 100_000),
        "log-damaged",
    ),
    ("another file for its log", in_folder(f"Offline/TEST01/{RUN}/{DETAIL}", b"x\n"), "log-damaged"),
    ("files that nobody reads", in_folder("Offline/TEST07/config.yml", b"\xff["), ""),
    # Found by nobody else.
    ("a pipe as a log", in_place(f"{OFFLINE}/{SUMMARY}", os.mkfifo), "files log-damaged"),
    ("a link that leads nowhere", in_place(f"{OFFLINE}/{DETAIL}", link("gone")), "files missing-file"),
    ("a link to itself", in_place(SCORE, link("accuracy.txt")), "files missing-file"),
    ("accuracy.txt as a git-lfs pointer", write(SCORE, POINTER), "accuracy files hash"),
    ("a detail log as a git-lfs pointer", write(f"{OFFLINE}/{DETAIL}", POINTER), "files log-damaged"),
    ("a detail log twice", changed(f"{OFFLINE}/{DETAIL}", lambda log: log + log), "log-damaged"),
    ("a trailing comma", pattern(SYSTEM, r"\n}$", ",\n}"), "malformed"),
    ("a byte order mark", before(SYSTEM, b"\xef\xbb\xbf"), "malformed"),
    ("no node", system(number_of_nodes="0"), "system"),
    ("nodes of more digits than int() takes", system(number_of_nodes="9" * 5000), "system"),
    ("a blank for the nodes", system(number_of_nodes=" "), "system"),
    ("a README of a blank", write("Offline/README.md", " \n"), "missing-file"),
    ("measurements of a blank", fields("Offline/measurements.json", retraining=" "), "measurements"),
    ("measurements cut off", cut("Offline/measurements.json"), "malformed"),
    ("a pipe as a README", in_place("Offline/README.md", os.mkfifo), "files missing-file"),
    ("a scenario that is not checked", both(MULTI_STREAM, division("open")), "scenario scenarios?"),
    ("a decimal comma", score("83,6"), "accuracy"),
    ("another score than in the report", score("85.0"), "cross-check"),
    (
        "another percentage in the report",
        pattern(SCORE, r"^FINAL SCORE: [\d.]+%", "FINAL SCORE: 80.00%"),
        "cross-check",
    ),
    ("other points in the report", pattern(SCORE, r"\([\d.]+/", "(900.00/"), "cross-check"),
    (
        "user.conf of another benchmark",
        write("Offline/user.conf", "llama3_1-8b.Offline.target_qps = 9\n"),
        "user-conf",
    ),
    ("LoadGen of another round", row(OFFLINE, loadgen_version="5.1.0 @ 0123456789"), "origin"),
    ("samples of a power meter", write(f"{OFFLINE}/spl.txt", "1"), "power"),
    ("a ranging run", folder("Offline/performance/ranging"), "power"),
    ("a file beside the divisions", write(f"{TREE}/README.md", "1"), ""),
    ("a file beside the submitters", write(f"{TREE}/closed/README.md", "1"), ""),
    ("a space beside the divisions", write(f"{TREE}/tools/my notes.txt", "1"), ""),
    ("a division in capitals", folder(f"{TREE}/Open"), "files"),
    ("an archive beside the divisions", write(f"{TREE}/submission.zip", "PK"), "files"),
    ("a tarball beside the divisions", write(f"{TREE}/submission.tar.gz", "PK"), "files"),
    ("a tarball of a run", write(f"{OFFLINE}.tar.gz", "PK"), "files"),
    ("a rehearsal beside the divisions", folder(f"{TREE}/closed{REHEARSAL}"), "files"),
    ("an archive beside results", write(f"{ORGANISATION}/submission.tgz", "PK"), "files"),
    ("a record left over", write(f"{OFFLINE}/run.json", "{}"), "files"),
    ("a compiled file", write(f"{ORGANISATION}/src/main.pyc", "1"), "files"),
    ("runs of another benchmark", kept(f"{OFFLINE}/run.json", OF_ANOTHER), "origin"),
    ("a run of another scenario", kept("Offline/accuracy/run.json", OF_SERVER), "origin"),
    ("a copied system", copied("../../made_up", "../../copy"), "missing-file repeat"),
    ("TTFT below 0", row(INTERACTIVE, result_first_token_min_latency_ns=-1), "cross-check logs-disagree"),
    ("samples/s made better", row(OFFLINE, result_samples_per_second=10.9), "cross-check*2 logs-disagree"),
    ("another test's length", OTHER_LENGTH, "cross-check"),
]
