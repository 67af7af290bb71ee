"""--metrics-port: what it serves, where it listens, and that it holds up nothing. The dashboard's names."""

import json
import re
import socket
from datetime import UTC, datetime
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest

import run_compliance
import run_eval
import run_mlperf
from harness.analysis.early_stopping import most_over_limit
from harness.errors import EXIT_USAGE, ConfigError
from harness.files import JOURNAL_DIR, PROGRESS
from harness.progress import progress_files
from harness.progress.lost_run import ValidityRules
from harness.progress.progress_files import OverLimit, ProgressLine, ProgressLog, SlowReplica
from harness.progress.progress_line import Latencies
from sut.supervisor.metrics_port import MetricsServer, metrics, metrics_port, metrics_text, parse_address
from tests import records
from tests.harness.progress.test_progress_files import LIMITS, append, snapshot
from tests.kit import PATIENCE_S
from tests.runs import PERFORMANCE, ROOT, main_here, quick_conf, small_dataset
from tests.stub import StubServer

DASHBOARD = ROOT / "docs/grafana/mlperf_run.json"
HOSTILE = 'a"b\\c\nd'
LINE = ProgressLine(
    time=datetime(2026, 11, 22, tzinfo=UTC),
    elapsed_s=65.0,
    issued=900,
    completed=800,
    failed=2,
    in_flight=98,
    total=1000,
    tokens_per_s=12.5,
    failures={HOSTILE: 2},
    ended_last_minute=700,
    ttft=Latencies(250.0, 500.0),
    over_limit={"TTFT": OverLimit(3, 5, 600.0)},
    slowest=(SlowReplica("http://a:1", 12.0, 1.25),),
    imbalance=1.04,
    stragglers=1,
    lost="2 queries failed (timeout)",
    standing="dp_rank 1 of http://a:1 stands since 0:38",
    silent_s=41.5,
    warned=7,
)
# name and labels as they are written, value
FIGURES = {
    "mlperf_progress_timestamp_seconds": LINE.time.timestamp(),
    "mlperf_elapsed_seconds": 65,
    "mlperf_queries_expected": 1000,
    "mlperf_queries_issued_total": 900,
    "mlperf_queries_completed_total": 800,
    "mlperf_queries_failed_total": 2,
    r'mlperf_failures_total{kind="a\"b\\c\nd"}': 2,
    "mlperf_queries_in_flight": 98,
    "mlperf_lost": 1,
    "mlperf_silent_seconds": 41.5,
    "mlperf_rank_standing": 1,
    "mlperf_warnings_total": 7,
    "mlperf_output_tokens_per_second": 12.5,
    "mlperf_answers_last_minute": 700,
    'mlperf_ttft_seconds{quantile="0.5"}': 0.25,
    'mlperf_ttft_seconds{quantile="0.99"}': 0.5,
    'mlperf_queries_over_limit_total{latency="TTFT"}': 3,
    'mlperf_queries_over_limit_allowed{latency="TTFT"}': 5,
    'mlperf_latency_limit_seconds{latency="TTFT"}': 0.6,
    "mlperf_stragglers": 1,
    "mlperf_imbalance": 1.04,
    'mlperf_slow_replica_tpot_seconds{replica="http://a:1"}': 0.012,
    'mlperf_slow_replica_tpot_ratio{replica="http://a:1"}': 1.25,
}


def get(url):
    with urlopen(url, timeout=PATIENCE_S) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")  # Prometheus's text
        return answer.read().decode()


def port_of(server):
    return urlsplit(server.url).port


def test_the_text_has_the_line_and_each_name_its_type_and_help_before_its_samples():
    rows = [row for row in metrics_text(LINE).splitlines() if not row.startswith("#")]
    assert {name: float(value) for name, value in (row.rsplit(" ", 1) for row in rows)} == FIGURES
    seen = re.findall(r"^# (HELP|TYPE) (\w+) (\w+)", metrics_text(LINE), re.MULTILINE)
    names = list(dict.fromkeys(name.partition("{")[0] for name in FIGURES))
    assert [(word, name) for word, name, _ in seen] == [(w, n) for n in names for w in ("HELP", "TYPE")]
    kinds = {name: kind for word, name, kind in seen if word == "TYPE"}
    assert all((kind == "counter") == name.endswith("_total") for name, kind in kinds.items())


def test_the_dashboard_uses_the_names_that_exist():
    text, names = DASHBOARD.read_text(), {metric.name for metric in metrics(LINE)}
    panels = json.loads(text)["panels"]
    queries = [target["expr"] for panel in panels for target in panel["targets"]]
    for used in (" ".join(queries), text):
        assert set(re.findall(r"mlperf_\w+", used)) == names
    places = [panel["gridPos"] for panel in panels]
    assert len({(place["x"], place["y"]) for place in places}) == len(places)
    assert all(place["x"] + place["w"] <= 24 for place in places)


def test_a_run_serves_its_lines_until_it_ends(tmp_path, caplog):
    """The figures of progress.jsonl, also where the disk takes no line."""
    (tmp_path / JOURNAL_DIR).mkdir()
    (tmp_path / PROGRESS).symlink_to("/dev/full")
    append(tmp_path, records.rows(100))
    with metrics_port("0") as server:
        progress = ProgressLog(
            tmp_path, ValidityRules(LIMITS, most_over_limit(900)), records.REPLICAS, server
        )
        assert get(server.url) == ""
        for second in (5.0, 10.0):
            progress(snapshot(second, issued=900 + int(second)))
            assert f"mlperf_queries_issued_total {900 + int(second)}\n" in get(server.url)
        assert "mlperf_answers_last_minute 100\n" in get(server.url)
        with pytest.raises(HTTPError, match="404"):
            get(server.url + "/other")
        progress.close()  # its lines are written by a thread
    assert len([one for one in caplog.records if PROGRESS in one.getMessage()]) == 1
    with pytest.raises(URLError):
        get(server.url)


def test_a_client_that_says_nothing_delays_no_end():
    server = MetricsServer("0")
    with socket.create_connection(("127.0.0.1", port_of(server))):
        server(LINE)
        server.close()


def test_an_end_right_after_a_request():
    """The thread, back from its client, sees the end before it is woken."""
    server = MetricsServer("0")
    server._closed.set()
    assert get(server.url) == ""
    server._thread.join(PATIENCE_S)
    server.close()


def test_addresses():
    assert parse_address("9400") == ("127.0.0.1", 9400)
    assert parse_address("0.0.0.0:9400") == ("0.0.0.0", 9400)
    assert parse_address("[::1]:65535") == ("::1", 65535)
    assert parse_address("::1:9400") == ("::1", 9400)


@pytest.mark.parametrize(
    "text", ["", "-1", "65536", "http", ":9400", "host:9400", "1.2.3.4:", "9" * 9999, "٣", "9_400"]
)
def test_what_is_no_address(text):
    with pytest.raises(ConfigError):
        parse_address(text)


@pytest.mark.parametrize(
    ("program", "words"),
    [(run_mlperf, []), (run_eval, []), (run_compliance, ["--test", "TEST07", "--non-official", "--dry-run"])],
)
def test_a_port_in_use_is_one_line_before_the_run(program, words, tmp_path, capfd):
    with metrics_port("0") as taken:
        port = str(port_of(taken))
        words = ["--input-file", str(PERFORMANCE), "--output-dir", str(tmp_path), *words]
        code, out, err = main_here(capfd, program.main, [*words, "--metrics-port", port])
    assert (code, out, err.count("\n")) == (EXIT_USAGE, "", 1)
    assert f"--metrics-port {port}" in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.engine
@pytest.mark.parametrize("program", [run_mlperf, run_eval])
def test_a_program_hands_its_lines_over(program, tmp_path, monkeypatch, capfd):
    """While the run lasts: no query is answered before a line has them all."""
    lines = []
    monkeypatch.setattr(progress_files, "_EVERY_S", 0.0)
    monkeypatch.setattr(MetricsServer, "__call__", lambda server, line: lines.append(line))
    dataset, prompts = small_dataset(tmp_path)

    def all_issued():
        return any(line.issued == len(prompts) for line in lines)

    with StubServer(gate=lambda request: request.index == 0 or all_issued()) as stub:
        words = ["--server-url", stub.url, "--input-file", str(dataset), "--max-new-tokens", "5"]
        words += ["--stream", "on", "--output-dir", str(tmp_path / "out"), "--metrics-port", "0"]
        if program is run_mlperf:
            words += ["--user-conf", str(quick_conf(tmp_path)), "--no-report"]
        code, _, err = main_here(capfd, program.main, words)
    assert code == 0, err
    assert all_issued()
