"""What a run leaves when it ends: run.json and requests.parquet, its record and the exit code."""

import errno
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from msgspec import structs

from harness.analysis import finish_run
from harness.analysis.finish_run import Observations, finish
from harness.config.scenario import Scenario
from harness.errors import EXIT_INVALID, EXIT_VALID
from harness.files import JOURNAL_DIR
from harness.loadgen_logs.summary_and_detail import read_detail
from harness.record.journal import COUNTS_FILE, LOADGEN_CALL_ROW, LOADGEN_CALLS_FILE, encode_count
from harness.record.outcome import Completion, Failure, FailureKind
from harness.record.output_dir import _RESERVE
from harness.record.run_events import SeenEvent
from harness.record.run_record import EncodedAnswers, RunRecord, ServerLoad
from harness.record.server_changes import ServerChange
from harness.record.server_metrics import MetricsWriter
from harness.report import run_console
from harness.report.run_console import RunConsole, render_summary
from report import main as report_main
from sut.worker.journal_writer import JournalWriter
from tests.kit import full_disk
from tests.records import ENDED, started

RECORDED = Path(__file__).parents[2] / "data/loadgen"
REPLICAS = ["http://a:1", "http://b:2"]
SERVERS = tuple(structs.replace(ENDED.servers[0], url=url) for url in REPLICAS)
RAN = read_detail(RECORDED / "offline_errors/mlperf_log_detail.txt").requested
SAMPLES = 6
MS = 1_000_000
START = 3_600_000 * MS  # the machine has been up for an hour


@pytest.fixture
def log_dir(tmp_path):
    """Six queries answered in 40 ms each, and a summary of LoadGen that says VALID."""
    (tmp_path / JOURNAL_DIR).mkdir()
    add(tmp_path, range(SAMPLES))
    shutil.copy(RECORDED / "offline_valid/mlperf_log_summary.txt", tmp_path)
    shutil.copy(RECORDED / "offline_errors/mlperf_log_detail.txt", tmp_path)
    return tmp_path


def add(directory, numbers, outcome=None, name="0", times=None, first_tokens=1):
    """Query 100 + i of sample i, issued at i ms; eight tokens unless ``outcome`` says otherwise."""
    writer = JournalWriter(directory / JOURNAL_DIR, name, int(name))
    good = Completion(np.arange(8, dtype=np.int32), "length")
    for i in numbers:
        issued = START + i * MS
        usual = (issued, issued + MS // 2, issued + 4 * MS, issued + 5 * MS, issued + 40 * MS)
        writer.add(100 + i, i, i % 2, times or usual, 16, first_tokens, outcome or good)
    writer.flush()


def close(log_dir, seen=None, *, accuracy=False, server=False, settings=None, **more):
    """The record after the end; a server run has the limits of gpt-oss-120b: 3 s and 80 ms."""
    limits = {"ttft_latency": 3_000 * MS, "tpot_latency": 80 * MS}
    record = started(
        log_dir=log_dir,
        mode="accuracy" if accuracy else "performance",
        scenario=Scenario.SERVER if server else Scenario.OFFLINE,
        samples=SAMPLES,
        loadgen_settings=(settings or {}) | (limits if server else {}),
    )
    record = structs.replace(record, servers=SERVERS, deviations=("quick",), **more)
    return finish(record, seen or Observations(SAMPLES))


def write_accuracy_log(log_dir, entries):
    """As LoadGen lays it out."""
    row = '{{ "seq_id" : {0}, "qsl_idx" : {0}, "data" : "E8030000", "token_count" : 1 }}'
    rows = [row.format(i) for i in range(entries)]
    (log_dir / "mlperf_log_accuracy.json").write_text("[\n" + ",\n".join(rows) + "\n]\n")


def lose_end(path, size):
    path.write_bytes(path.read_bytes()[:-size])


def run_json(log_dir):
    return json.loads((log_dir / "run.json").read_text())


def requests(log_dir):
    return pq.read_table(log_dir / "requests.parquet").to_pylist()


def test_a_valid_run(log_dir):
    (log_dir / _RESERVE).touch()
    write_accuracy_log(log_dir, 0)  # as LoadGen does in a performance run
    record = close(log_dir)
    assert not (log_dir / _RESERVE).exists()
    assert record.exit_code == EXIT_VALID
    written = run_json(log_dir)
    assert written["verdict"] == {"result": "VALID", "reasons": [], "complete": True}
    assert RunRecord.read(log_dir / "run.json") == record
    assert written["deviations"] == ["quick"]
    assert written["unanswered"] == 0
    assert written["accuracy_log_sha256"] == ""
    assert written["failure_examples"] == {}
    (message,) = written["loadgen_messages"]
    assert message.startswith("4 x n_tokens argument missing")
    assert written["statistics"]["completed"] == SAMPLES
    assert written["statistics"]["ttft"]["percentiles"]["99"] == 5 * MS
    assert written["loadgen"]["result_valid"] is True
    assert written["started"] < written["ended"]


@pytest.mark.parametrize("failed", [False, True])
def test_what_a_valid_run_has_refuted_is_no_warning_of_it(log_dir, failed):
    """A Server run of 30.09 queries/s was VALID, and doubted as Offline had reached 28.03."""
    said = (
        "target_qps is 30, and the same servers reached 28.03 samples/s in Offline (the VALID "
        "run of 2026-11-27 21:50:18 UTC in /r/offline/performance): the queue is likely to grow until a "
        "latency limit is missed; ./mlperf peak finds the rate"
    )
    if failed:
        add(log_dir, range(SAMPLES, SAMPLES + 1), Failure(FailureKind.TRUNCATED, "cut"))
    record = close(log_dir, Observations(SAMPLES + failed), warnings=("resumed: 3", said))
    assert record.verdict.result == ("INVALID" if failed else "VALID")
    assert record.warnings[:2] == (("resumed: 3", said) if failed else ("resumed: 3",))


def test_the_files_are_named(log_dir):
    names = ["run.json", "requests.parquet", "mlperf_log_summary.txt", "mlperf_log_accuracy.json"]
    paths = [str(log_dir / name) for name in names]
    assert list(close(log_dir).files.values()) == paths[:3]
    assert list(close(log_dir, accuracy=True).files.values()) == paths


def test_one_failure_is_exit_code_4_whatever_loadgen_says(log_dir):
    add(log_dir, [6], Failure(FailureKind.HTTP_STATUS, "HTTP 500: boom"), name="1")
    assert close(log_dir, Observations(SAMPLES + 1)).exit_code == EXIT_INVALID
    written = run_json(log_dir)
    assert written["loadgen"]["result_valid"] is True
    assert written["verdict"]["result"] == "INVALID"
    assert written["statistics"]["failures"] == {"http_status": 1}
    assert written["failure_examples"] == {"http_status": ["HTTP 500: boom"]}
    assert requests(log_dir)[-1]["failure_detail"] == "HTTP 500: boom"


def test_how_far_the_clocks_were_slewed_is_judged(log_dir, monkeypatch):
    monkeypatch.setattr(finish_run, "clock_reasons", lambda *_: (f"slewed by {_[-1]} ns",))
    assert close(log_dir, Observations(SAMPLES, slewed_ns=-7)).verdict.reasons == ("slewed by -7 ns",)


def test_examples_are_few_and_different(log_dir):
    add(log_dir, range(6, 20), Failure(FailureKind.TIMEOUT, "no answer in 5 s"), name="1")
    for number in range(20, 26):
        add(log_dir, [number], Failure(FailureKind.CONNECT, f"refused by port {number}"), name="2")
    close(log_dir, Observations(26))
    examples = run_json(log_dir)["failure_examples"]
    assert examples["timeout"] == ["no answer in 5 s"]
    assert examples["connect"] == [f"refused by port {number}" for number in (20, 21, 22)]


def test_a_lost_query_is_failed_whatever_its_journal_says(log_dir):
    record = close(log_dir, Observations(SAMPLES, lost=[(102, 2)]))
    assert record.exit_code == EXIT_INVALID
    found = record.statistics
    assert (found.queries, found.completed, found.failures) == (SAMPLES, SAMPLES - 1, {"worker_lost": 1})
    (lost,) = [row for row in requests(log_dir) if row["query_id"] == 102]
    assert (lost["failure"], lost["last_byte_ns"]) == ("worker_lost", None)


def test_a_lost_query_without_a_row_gets_one(log_dir):
    """Its issue time is not known: the rates are those of the others. Nor is its replica."""
    close(log_dir, Observations(SAMPLES + 1, lost=[(2**63 + 9, 4)]))
    (lost,) = [row for row in requests(log_dir) if row["failure"]]
    assert (lost["query_id"], lost["sample_index"]) == (2**63 + 9, 4)
    assert lost["replica"] not in REPLICAS
    assert run_json(log_dir)["unanswered"] == 0
    assert run_json(log_dir)["statistics"]["duration_ns"] == (SAMPLES - 1 + 40) * MS


def test_an_interrupted_run(log_dir):
    (log_dir / "mlperf_log_summary.txt").write_text("")
    record = close(log_dir, Observations(SAMPLES + 4, interrupted_by="SIGTERM"))
    assert record.exit_code == 143
    written = run_json(log_dir)
    assert written["interrupted_by"] == "SIGTERM"
    assert written["verdict"]["result"] == "INTERRUPTED"
    assert "SIGTERM" in written["verdict"]["reasons"][0]
    assert written["unanswered"] == 4
    assert len(requests(log_dir)) == SAMPLES


@pytest.mark.parametrize(("first_ns", "said"), [(START + 3, "came in one event"), (0, "not streamed")])
def test_answers_without_times_of_tokens_are_a_warning_where_tokens_have_limits(log_dir, first_ns, said):
    """In one event, as through a proxy that buffers: LoadGen's TPOT is 0, and meets any limit."""
    (log_dir / JOURNAL_DIR / "queries-0.bin").unlink()
    add(log_dir, range(SAMPLES), times=(START, START + 1, START + 2, first_ns, START + 3), first_tokens=8)
    (warning,) = close(log_dir, server=True).warnings
    assert said in warning
    assert close(log_dir).warnings == ()
    # An accuracy run has no limits.
    assert not any(said in line for line in close(log_dir, server=True, accuracy=True).warnings)


def test_a_broken_row_is_a_reason(log_dir):
    path = log_dir / JOURNAL_DIR / "queries-0.bin"
    lose_end(path, 7)
    damaged, missing = close(log_dir).verdict.reasons
    assert damaged.startswith("1 row ")
    assert " 6 " in missing and " 5 " in missing


def test_nothing_was_left(tmp_path):
    record = close(tmp_path, Observations(0), server=True)
    assert record.exit_code == EXIT_INVALID
    assert run_json(tmp_path)["verdict"]["result"] == "INVALID"
    assert requests(tmp_path) == []
    assert record.warnings == ()


def looks_well(log_dir):
    (log_dir / "mlperf_log_summary.txt").write_text("\nNo errors encountered during test.\n")
    write_accuracy_log(log_dir, SAMPLES)


def test_an_accuracy_run_is_valid_without_a_result_of_its_summary(log_dir):
    looks_well(log_dir)
    detail = log_dir / "mlperf_log_detail.txt"
    detail.write_text(detail.read_text().replace("PerformanceOnly", "AccuracyOnly"))
    assert close(log_dir, accuracy=True).exit_code == EXIT_VALID
    tool = subprocess.check_output(["sha256sum", log_dir / "mlperf_log_accuracy.json"], text=True)
    assert run_json(log_dir)["accuracy_log_sha256"] == tool.split()[0]


def test_the_settings_in_force_are_recorded(log_dir):
    close(log_dir)
    found = run_json(log_dir)["settings_in_force"]
    assert (found["test_mode"], found["scenario"]) == ("PerformanceOnly", "Offline")
    assert found["generated_query_count"] == 1
    assert not any(key.startswith("result_") for key in found)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, ()),
        ({"min_duration_ms": RAN["min_duration_ms"], "infer_token_latencies": True}, ()),
        ({"offline_expected_qps": RAN["offline_expected_qps"] * (1 + 1e-7)}, ()),  # LoadGen logs six digits
        ({"qsl_rng_seed": RAN["qsl_rng_seed"] + 1}, ("qsl_rng_seed", str(RAN["qsl_rng_seed"] + 1))),
        ({"min_duration_ms": 600_000}, ("min_duration_ms", "600000", str(RAN["min_duration_ms"]))),
        ({"offline_expected_qps": 123.0}, ("offline_expected_qps", "123.0")),
        ({"sample_concatenate_permutation": not RAN["sample_concatenate_permutation"]}, ("permutation",)),
    ],
)
def test_a_setting_that_was_not_in_force_is_a_reason(log_dir, settings, words):
    record = close(log_dir, settings=settings)
    assert record.exit_code == (EXIT_INVALID if words else EXIT_VALID)
    reasons = " ".join(run_json(log_dir)["verdict"]["reasons"])
    assert all(word in reasons for word in words)


def test_another_mode_than_planned_is_a_reason(log_dir):
    """LoadGen ran for performance: what it logged is no accuracy log."""
    write_accuracy_log(log_dir, SAMPLES)
    assert close(log_dir, accuracy=True).exit_code == EXIT_INVALID
    (reason,) = run_json(log_dir)["verdict"]["reasons"]
    assert "PerformanceOnly" in reason and "AccuracyOnly" in reason


def test_reports_are_joined(log_dir):
    close(log_dir)
    assert not any(name.startswith("reported") for name in requests(log_dir)[0])
    calls = [(100, 1, 0, START + 6 * MS), (100, 2, 0, START + 41 * MS), (103, 1, 0, START + 9 * MS)]
    calls.append((102, 3, 0, START + 50 * MS))  # a failure
    np.array(calls, dtype=LOADGEN_CALL_ROW).tofile(log_dir / JOURNAL_DIR / LOADGEN_CALLS_FILE)
    close(log_dir)
    rows = {row["query_id"]: row for row in requests(log_dir)}
    told = {key: (row["reported_first_ns"], row["reported_done_ns"]) for key, row in rows.items()}
    assert told[100] == (START + 6 * MS, START + 41 * MS)
    assert told[103] == (START + 9 * MS, None)
    assert told[102] == (None, START + 50 * MS)
    assert run_json(log_dir)["client_share"]["count"] == 3
    assert told[101] == (None, None)


@pytest.mark.parametrize(("share_ms", "warnings"), [(29, []), (31, ["the client added 31.00 ms at p99"])])
def test_a_slow_client_is_a_warning_and_no_reason(log_dir, share_ms, warnings):
    """One percent of the TTFT limit of 3 s may be our own."""
    arrived = START + 5 * MS
    calls = [(100 + i, 1, arrived, arrived + share_ms * MS) for i in range(SAMPLES)]
    np.array(calls, dtype=LOADGEN_CALL_ROW).tofile(log_dir / JOURNAL_DIR / LOADGEN_CALLS_FILE)
    record = close(log_dir, server=True)
    assert record.exit_code == EXIT_VALID
    written = run_json(log_dir)
    assert written["client_share"]["percentiles"]["99"] == share_ms * MS
    assert [line[: len(start)] for line, start in zip(written["warnings"], warnings, strict=True)] == warnings
    assert all(line in render_summary(record) for line in warnings)


@pytest.mark.parametrize("accuracy", [False, True])
def test_a_run_that_no_limit_judges_may_have_a_slow_client(log_dir, accuracy):
    """Two seconds of calls that come 200 ms late; the limit of TTFT is 3 s."""
    arrived = START + np.arange(40) * 50 * MS
    calls = [(100 + i, 1, at, at + 200 * MS) for i, at in enumerate(arrived.tolist())]
    np.array(calls, dtype=LOADGEN_CALL_ROW).tofile(log_dir / JOURNAL_DIR / LOADGEN_CALLS_FILE)
    record = close(log_dir, server=True, accuracy=accuracy)
    said = [line for line in record.warnings if "client" in line]
    assert len(said) == (0 if accuracy else 2), said
    assert bool(record.client_load.bottlenecks) is not accuracy


def test_energy_is_of_the_answers_of_this_attempt(log_dir):
    """Six answers of eight tokens for 24 J; two of an earlier attempt took other energy."""
    writer = JournalWriter(log_dir / JOURNAL_DIR, "1", 1)
    for i in range(2):
        writer.add_resumed(200 + i, i, 0xFFFF, 16, 800, 1)
    writer.flush()
    with (log_dir / "server_metrics.parquet").open("wb") as file:
        metrics = MetricsWriter(file, ["gpus"])
        for seconds, energy in ((0, 1000), (5, 25_000)):
            page = f'DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{{gpu="0"}} {energy}\n'
            metrics.add(START + seconds * 1000 * MS, 0, page.encode())
        metrics.close()
    seen = Observations(SAMPLES, without_metrics={})
    assert close(log_dir, seen, accuracy=True).server_load.gpus_j_per_token == 24 / (SAMPLES * 8)


def test_servers_without_metrics_are_named(log_dir):
    """No page of metrics was kept, so there is no file of them."""
    why = {"http://a:1": "/metrics answered 404"}
    record = close(log_dir, Observations(SAMPLES, without_metrics=why))
    assert record.server_load == ServerLoad(rounds=0, servers=0, without=why)


@pytest.mark.parametrize(
    ("right_until_ns", "result"), [(START, "INVALID"), (START + 3_600_000 * MS, "VALID")]
)
def test_a_server_that_changed_is_a_reason_where_it_has_answered_since(log_dir, right_until_ns, result):
    change = ServerChange(
        url="http://b:2", replica=1, was={"model": "A"}, now={"model": "B"}, right_until_ns=right_until_ns
    )
    verdict = close(log_dir, Observations(SAMPLES, changes=(change,))).verdict
    assert verdict.result == result
    assert any("http://b:2: model A is now B: its 3 answers" in one for one in verdict.reasons) is (
        result == "INVALID"
    )


def test_the_client_share_is_of_answers_that_arrived_in_this_attempt(log_dir):
    writer = JournalWriter(log_dir / JOURNAL_DIR, "1", 1)
    writer.add_resumed(200, 0, 0, 16, 8, 2)
    writer.flush()
    calls = [(100, 2, START, START + 5 * MS), (200, 2, START, START + MS)]
    np.array(calls, dtype=LOADGEN_CALL_ROW).tofile(log_dir / JOURNAL_DIR / LOADGEN_CALLS_FILE)
    share = close(log_dir, Observations(SAMPLES + 1), accuracy=True).client_share
    assert (share.count, share.min) == (1, 5 * MS)


def test_the_client_share_of_texts_is_that_of_first_tokens(log_dir):
    """Their ends are reported once they are encoded."""
    calls = [(100, 1, START, START + 5 * MS), (100, 2, START, START + 9 * MS)]
    np.array(calls, dtype=LOADGEN_CALL_ROW).tofile(log_dir / JOURNAL_DIR / LOADGEN_CALLS_FILE)
    record = close(log_dir, encoded=EncodedAnswers(tokenizer="t", tokenizer_sha256="0"))
    assert (record.client_share.count, record.client_share.min) == (1, 5 * MS)
    assert record.encoded.delay.min == 9 * MS


def test_the_delay_of_texts_is_of_those_that_arrived_in_this_attempt(log_dir):
    writer = JournalWriter(log_dir / JOURNAL_DIR, "1", 1, counts=True)
    writer.add_resumed(200, 0, 0, 16, 8, 2, 8)
    writer.flush()
    calls = [(100, 2, START, START + 9 * MS), (200, 2, START, START + MS)]
    np.array(calls, dtype=LOADGEN_CALL_ROW).tofile(log_dir / JOURNAL_DIR / LOADGEN_CALLS_FILE)
    encoded = EncodedAnswers(tokenizer="t", tokenizer_sha256="0")
    record = close(log_dir, Observations(SAMPLES + 1), accuracy=True, encoded=encoded)
    assert (record.encoded.delay.count, record.encoded.delay.min) == (1, 9 * MS)
    assert (record.encoded.answers, record.encoded.counted) == (1, 8)


def test_the_servers_own_counts_are_beside_answers_that_came_as_text(log_dir):
    (log_dir / JOURNAL_DIR / COUNTS_FILE.format("0")).write_bytes(encode_count(101, 8, 9))
    close(log_dir, encoded=EncodedAnswers(tokenizer="t", tokenizer_sha256="0"))
    assert {row["query_id"]: row["counted"] for row in requests(log_dir)[:2]} == {100: None, 101: 9}
    assert pq.read_schema(log_dir / "requests.parquet").metadata[b"answers"] == b"text, encoded again with t"
    close(log_dir)
    assert "counted" not in requests(log_dir)[0]


def test_record_twice_gives_the_same(log_dir):
    first = close(log_dir)
    rows = requests(log_dir)
    assert structs.replace(close(log_dir), ended=first.ended) == first
    assert requests(log_dir) == rows
    assert not list(log_dir.glob("*.partial"))


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda d: lose_end(d / "mlperf_log_detail.txt", 400), "mlperf_log_detail.txt is cut short"),
        (lambda d: (d / "mlperf_log_detail.txt").write_text(""), "mlperf_log_detail.txt is empty"),
        (lambda d: (d / "mlperf_log_detail.txt").unlink(), "mlperf_log_detail.txt is missing"),
        (lambda d: lose_end(d / "mlperf_log_accuracy.json", 2), "is cut short after 6 entries, expected 6"),
        (lambda d: lose_end(d / "mlperf_log_accuracy.json", 99), "is cut short after 5 entries, expected 6"),
        (lambda d: write_accuracy_log(d, 5), "has 5 entries, expected 6"),
        (lambda d: (d / "mlperf_log_accuracy.json").unlink(), "mlperf_log_accuracy.json is missing"),
    ],
)
def test_a_log_of_loadgen_is_not_whole(log_dir, damage, reason):
    """LoadGen does not notice a full disk: its summary may be whole and say that all is well."""
    looks_well(log_dir)
    damage(log_dir)
    record = close(log_dir, accuracy=True)
    assert record.exit_code == EXIT_INVALID
    assert any(reason in found for found in record.verdict.reasons)


@pytest.mark.parametrize(
    ("errors", "lost", "asks"),
    [((), "", True), (("ended early: 10 queries have failed",), "", False), ((), "10 were late", False)],
)
def test_a_full_disk_is_no_guess_where_the_cause_is_known(log_dir, errors, lost, asks):
    looks_well(log_dir)
    lose_end(log_dir / "mlperf_log_accuracy.json", 2)
    seen = Observations(SAMPLES, errors=errors, cannot_be_valid=lost)
    reasons = close(log_dir, seen, accuracy=True).verdict.reasons
    assert any("disk full" in reason for reason in reasons) is asks
    assert set(errors) <= set(reasons)


def test_an_outage_is_a_reason_before_what_followed_from_it_or_a_warning(log_dir):
    out = SeenEvent(START + 17_000 * MS, "server_out", REPLICAS[0], "/health answered 503")
    said = f"replica {REPLICAS[0]} was out of use from 0:17 (/health answered 503)"
    seen = Observations(SAMPLES, warnings=("a", "out for 9 s"), outages=("out for 9 s",), events=(out,))
    record = close(log_dir, seen)
    assert (record.verdict.reasons, record.warnings) == ((), ("a", "out for 9 s"))
    errors = ("ended early: no server has answered", "worker 1 died")
    seen = structs.replace(seen, errors=errors, issued=SAMPLES + 1, lost=[(9, 4)])
    record = close(log_dir, seen)
    assert record.verdict.reasons[:3] == (seen.errors[0], said, seen.errors[1])
    assert record.warnings == ("a",)


def test_a_run_without_room_for_its_requests_is_as_valid_as_with_them(log_dir):
    """Neither LoadGen's number nor the verdict needs the file; its rows are in the journal."""
    close(log_dir)
    whole = requests(log_dir)
    (log_dir / "requests.parquet").unlink()
    (log_dir / "requests.parquet.partial").mkdir()
    record = close(log_dir)
    assert (record.exit_code, record.verdict.reasons) == (EXIT_VALID, ())
    (warning,) = (text for text in run_json(log_dir)["warnings"] if "requests.parquet" in text)
    assert "Is a directory; check the machine's limits" in warning and "requests" not in record.files
    command, log = re.search(r"; then \S+ (\S+) show (\S+) makes it from the journal$", warning).groups()
    assert (command, log) == ("report.py", str(log_dir))
    (log_dir / "requests.parquet.partial").rmdir()
    assert report_main(["show", str(log_dir)]) == 0
    assert requests(log_dir) == whole and len(whole) == SAMPLES


def test_what_only_explains_a_run_never_costs_its_verdict(log_dir, monkeypatch, capsys, caplog):
    """A defect of ours, as by a page of metrics that nobody has seen before, at the end of a night."""
    missing = {
        "requests_table": "requests.parquet",
        "client_load": "client_load in run.json",
        "client_share": "client_share in run.json",
        "mean_schedule_lag": "schedule_lag_mean_ns in run.json",
        "replica_balance": "balance in run.json",
        "server_load": "server_load in run.json",
        "diagnoses": "diagnoses in run.json",
        "run_warnings": "warnings about its figures",
    }
    whole = close(log_dir)
    (log_dir / "requests.parquet").unlink()
    for name in missing:
        monkeypatch.setattr(finish_run, name, lambda *_, **__: {}["new"])
    monkeypatch.setattr(finish_run, "read_samples", lambda path: ())
    record = close(log_dir, Observations(SAMPLES, warnings=("seen",), without_metrics={}))
    found = [f"a defect of this program (KeyError: 'new'): no {what}" for what in missing.values()]
    assert record.warnings == ("seen", *found)
    assert caplog.messages == [f"warning: {text}" for text in found]
    assert record.verdict == whole.verdict and record.exit_code == EXIT_VALID
    assert "requests" not in record.files and RunRecord.read(log_dir / "run.json") == record
    assert RunConsole().finish(record) == EXIT_VALID
    assert "Result: VALID" in capsys.readouterr().out
    monkeypatch.setattr(run_console, "next_step", {}.__getitem__)
    assert RunConsole().finish(record) == EXIT_VALID
    assert "no summary; the result is in run.json" in caplog.messages[-1]


@pytest.mark.parametrize("name", ["run_verdict", "statistics", "read_journal", "read_detail"])
def test_a_run_that_a_defect_keeps_from_being_judged_is_invalid(log_dir, monkeypatch, capsys, name):
    """Without a verdict it would look like one that was killed, and be made again, night after night."""
    monkeypatch.setattr(finish_run, name, lambda *_: {}["new"])
    record = close(log_dir, Observations(SAMPLES, warnings=("seen",)))
    text = "a defect of this program (KeyError: 'new'): no verdict"
    assert run_json(log_dir)["verdict"] == {"result": "INVALID", "reasons": [text], "complete": False}
    assert (record.exit_code, record.warnings) == (EXIT_INVALID, ("seen", text))
    assert RunConsole().finish(record) == EXIT_INVALID
    assert "Result: INVALID" in capsys.readouterr().out
    assert report_main(["show", str(log_dir)]) == 0


@pytest.mark.parametrize("name", ["run_verdict", "statistics", "read_journal", "read_detail"])
@pytest.mark.parametrize(
    ("error", "text"),
    [
        (
            OSError(errno.EIO, os.strerror(errno.EIO), "a.bin"),
            "a.bin: Input/output error; the disk reports errors",
        ),
        (MemoryError(), "out of memory; free memory"),
    ],
)
def test_a_run_whose_files_cannot_be_read_has_a_verdict(log_dir, monkeypatch, name, error, text):
    """It had none, and the line of the error named no log: it looked like one that was killed."""

    def refuse(*_):
        raise error

    monkeypatch.setattr(finish_run, name, refuse)
    record = close(log_dir, Observations(SAMPLES, warnings=("seen",)))
    (reason,) = run_json(log_dir)["verdict"]["reasons"]
    assert reason.startswith(f"no verdict: {text}") and reason.endswith("LoadGen's logs are as it wrote them")
    assert (record.exit_code, record.verdict.result, record.warnings) == (EXIT_INVALID, "INVALID", ("seen",))
    assert RunConsole().finish(record) == EXIT_INVALID
    assert report_main(["show", str(log_dir)]) == 0


def test_memory_that_stays_missing_costs_no_verdict(log_dir, monkeypatch):
    """What was read before is not looked at again."""

    def refuse(*_):
        raise MemoryError

    monkeypatch.setattr(finish_run, "run_verdict", refuse)
    monkeypatch.setattr(finish_run, "run_warnings", refuse)
    assert close(log_dir).verdict.reasons[0].startswith("no verdict: out of memory")


def test_memory_that_is_missing_for_the_requests_costs_no_verdict(log_dir, monkeypatch):
    def refuse(*_, **__):
        raise MemoryError

    monkeypatch.setattr(finish_run, "requests_table", refuse)
    record = close(log_dir)
    assert (record.exit_code, record.verdict.reasons) == (EXIT_VALID, ())
    assert "no requests.parquet, which no figure of the run needs: out of memory" in " ".join(record.warnings)


def test_a_journal_with_fewer_rows_makes_no_requests(log_dir):
    """Such a file would look complete."""
    record = close(log_dir)
    (log_dir / "requests.parquet").unlink()
    counted = structs.replace(record.statistics, queries=SAMPLES + 1)
    structs.replace(record, statistics=counted).write(log_dir / "run.json")
    assert report_main(["show", str(log_dir)]) == 0
    assert not (log_dir / "requests.parquet").exists()


def test_the_disk_has_not_taken_a_log_of_loadgen(log_dir, monkeypatch):
    """As on a thin volume that was full for a while: what is read of it is the kernel's copy."""
    log, sync = (log_dir / "mlperf_log_detail.txt").stat().st_ino, os.fsync

    def fsync(descriptor):
        if os.fstat(descriptor).st_ino == log:
            full_disk()
        sync(descriptor)

    assert close(log_dir).exit_code == EXIT_VALID
    monkeypatch.setattr(os, "fsync", fsync)
    record = close(log_dir)
    assert record.exit_code == EXIT_INVALID
    (reason,) = record.verdict.reasons
    assert reason.startswith(f"{log_dir}/mlperf_log_detail.txt could not be written: No space left on ")


@pytest.mark.parametrize(("signal", "result"), [(None, "INVALID"), ("SIGTERM", "INTERRUPTED")])
def test_the_record_cannot_be_written(log_dir, signal, result):
    (log_dir / "run.json").mkdir()
    record = close(log_dir, Observations(SAMPLES, interrupted_by=signal))
    assert record.verdict.result == result
    *_, reason = record.verdict.reasons
    assert reason.startswith(f"{log_dir}/run.json could not be written: Is a directory; ")
    assert len(requests(log_dir)) == SAMPLES
