"""The page's HTML: self-contained, escaped, complete; and the program that writes it."""

import base64
import hashlib
import json
import re
import tarfile
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from harness.analysis.replicas import replica_balance
from harness.analysis.run_files import read_run
from harness.analysis.run_outcome import RunOutcome
from harness.analysis.statistics import statistics
from harness.config.plans import ComplianceSettings
from harness.config.scenario import Scenario
from harness.files import (
    ACCURACY_RESULT,
    DETAIL,
    PROGRESS,
    REPORT,
    REQUESTS,
    RUN_RECORD,
    SERVER_METRICS,
    SUMMARY,
)
from harness.loadgen_logs.summary_and_detail import read_summary
from harness.record.replica_figures import RankFigures
from harness.record.requests_table import requests_table, write_requests
from harness.record.run_events import RunEvent
from harness.record.run_record import ClockPair, Diagnosis, Level, RunRecord, RunVerdict, ServerLoad
from harness.record.server_metrics import MetricsWriter
from harness.report.html import page as page_module
from harness.report.html.page import render
from harness.report.html.run_page import run_page
from report import main
from tests import records
from tests.kit import DATA
from tests.records import ENDED, NEAR, with_plan

HOSTILE = "</script><script>document.title='owned'</script><img src=x onerror=alert(1)>&\"'\u2028"


def page_of(folder):
    return render(run_page(read_run(folder)))


@pytest.fixture
def hostile(tmp_path):
    """A run whose texts of foreign origin attack the page."""
    server = replace(ENDED.servers[0], model=HOSTILE, served_name=HOSTILE, version=HOSTILE)
    record = replace(
        with_plan(ENDED, input_file=Path(HOSTILE.replace("/", "_"))),
        servers=(server,),
        warnings=(HOSTILE,),
        failure_examples={"timeout": (HOSTILE,)},
    )
    return records.folder(tmp_path / "run", records.rows(), record)


def test_the_page_needs_nothing_from_elsewhere_and_runs_its_own_script_alone(hostile):
    html = page_of(hostile)
    assert not re.search(r"(?i)(src|href)\s*=\s*[\"']?\s*(https?:|//)|@import|url\(|\bfetch\(|XMLHttp", html)
    assert "https://" not in html
    assert len(html) < 500_000
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', html)
    assert "default-src 'none'" in policy
    (script,) = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy


@pytest.mark.parametrize("scenario", ["Offline", "Interactive"])
def test_scenario_and_mode_of_an_accuracy_run_of_another_harness(scenario, tmp_path):
    """Its summary has neither; LoadGen runs Interactive as Server."""
    folder = f"submission/closed/MyOrg/results/made_up/gpt-oss-120b/{scenario}/accuracy"
    with tarfile.open(DATA / "submission" / "made_up.tar.xz") as submission:
        for name in (SUMMARY, DETAIL):
            (tmp_path / name).write_bytes(submission.extractfile(f"{folder}/{name}").read())
    named = "Offline" if scenario == "Offline" else "Server"
    page = run_page(read_run(tmp_path))
    assert page.subtitle == f"{named}, AccuracyOnly, from LoadGen's logs"
    assert "LoadGen's times count from the scheduled time" in page.footer


def test_foreign_texts_are_escaped(hostile):
    html = page_of(hostile)
    assert "owned" in html
    assert "<img" not in html
    assert "</script><script>document" not in html
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', html, re.DOTALL)
    assert json.loads(data)["ttft"]["limits"]


@pytest.mark.parametrize(
    ("mode", "test", "bounded"),
    [
        ("performance", None, True),
        ("performance", "TEST09", True),
        ("performance", "TEST07", False),
        ("accuracy", None, False),
    ],
)
def test_bounds_of_test09_are_for_runs_with_its_prompts(tmp_path, mode, test, bounded):
    """compliance/TEST09: "the performance dataset". Accuracy and TEST07 ask for more effort."""
    dataset = ENDED.plan.client.benchmark.dataset(accuracy=False)
    audit = test and ComplianceSettings(test=test, dataset=dataset, settings={}, text="", official=True)
    html = page_of(records.folder(tmp_path / "run", records.rows(), with_plan(ENDED, mode=mode, audit=audit)))
    assert ("TEST09 takes a mean of 1,150.38 to 1,406.02" in html) is bounded


@pytest.mark.parametrize(
    "damage",
    [
        ("ttft_latency (ns)", "ttft"),
        (": 1000000\n", ": " + "9" * 400 + "\n"),
        (": 1000000\n", ": " + "9" * 5000 + "\n"),
    ],
)
def test_a_summary_without_one_of_its_limits_is_shown_without_them(tmp_path, damage):
    """As one that was cut short while it was copied; the page ended with a traceback."""
    path = records.folder(tmp_path, records.rows()) / SUMMARY
    assert "most that pass" in page_of(tmp_path)
    path.write_text(path.read_text().replace(*damage))
    assert "most that pass" not in page_of(tmp_path)


def test_a_trial_of_another_percentile_is_counted_by_it(tmp_path):
    """With the median, in exact arithmetic: of 150 queries 60 may be over a limit."""
    settings = ENDED.settled.loadgen_settings | {"server_target_latency_percentile": 0.5}
    record = with_plan(ENDED, loadgen_settings=settings)
    html = page_of(records.folder(tmp_path, records.rows(150), record))
    assert html.count("of 150 queries over the limit, at most 60 may be.") == 2
    assert "most that pass: 60" in html
    assert not re.search(r"% of [0-9.]+ ms", html)  # a p99 of its limit
    assert (RunOutcome(tmp_path, record).p99_parts, RunOutcome(tmp_path, ENDED).p99_parts.keys()) == (
        {},
        {"TTFT", "TPOT"},
    )
    html = page_of(records.folder(tmp_path, records.rows(150)))
    assert "too few to pass, 459" in html and re.search(r"% of [0-9.]+ ms", html)


@pytest.mark.parametrize("result", ["VALID", "INVALID"])
def test_no_run_is_valid_and_lost(result, tmp_path):
    """LoadGen's TPOT can be a little less than this client's, which the page has."""
    limit_ns = ENDED.limits_ns["TPOT"]
    rows = records.rows()
    rows["osl"], rows["last_byte_ns"] = 101, rows["first_token_ns"] + 100 * limit_ns + 10**7
    html = page_of(records.folder(tmp_path, rows, replace(ENDED, verdict=RunVerdict(result, (), True))))
    assert "900 of 900 queries over the limit" in html
    assert ("could no longer become VALID" in html) is (result == "INVALID")
    assert ("no longer be VALID after a curve" in html) is (result == "INVALID")


def test_a_run_that_was_killed_has_a_page_without_a_verdict(tmp_path):
    """What it has measured until then is there."""
    run = records.folder(tmp_path / "run", records.rows(), replace(ENDED, verdict=None))
    assert "without a verdict" in page_of(run)


def test_the_verdict_can_be_read_without_javascript(tmp_path):
    html = re.sub(
        r"<script.*?</script>", "", page_of(records.folder(tmp_path, records.rows())), flags=re.DOTALL
    )
    # results.cc: final_query_all_samples_done_time is of the query issued last, not of the last to end.
    assert "LoadGen counts until the query issued last has ended" in html
    for text in ("INVALID", "TTFT p99", "early stopping", "Over time", "Distributions", "What ran"):
        assert text in html
    assert html.count('class="chart"') >= 10
    assert html.count("<noscript>") == 1


def test_vendored_files_are_those_of_the_release():
    """sha256 of uPlot 1.6.32's files in the npm registry."""
    assets = Path(page_module.__file__).parent / "assets"
    expected = {
        "uPlot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
        "uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
        "uPlot.LICENSE": "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
    }
    found = {name: hashlib.sha256((assets / name).read_bytes()).hexdigest() for name in expected}
    assert found == expected


def with_metrics(folder, rounds=3, metrics=None):
    """A run whose server said in each round what vLLM said once."""
    load = ServerLoad(
        rounds=rounds,
        servers=1,
        notes=("queue",),
        without={"http://b": HOSTILE},
        levels={"queued": Level(42, 42, 1)},
    )
    records.folder(folder, records.rows(), replace(ENDED, server_load=load))
    with (folder / SERVER_METRICS).open("wb") as file:
        writer = MetricsWriter(file, ["http://a"])
        for number in range(rounds):
            page = metrics or (DATA / "metrics/vllm_busy1.txt").read_bytes()
            writer.add(records.START + number * 5 * 10**9, 0, page)
        writer.close()
    return folder


def section_of(name, folder):
    (section,) = [one for one in run_page(read_run(folder)).sections if one.id == name]
    return section


def test_what_the_servers_said(tmp_path):
    section = section_of("server", with_metrics(tmp_path))
    assert section.lines[0] == "Queue."
    requests, cache = section.charts
    assert [series.values.tolist() for series in requests.series] == [[16] * 3, [42] * 3]
    assert requests.x[0] == pytest.approx(0, abs=1)
    assert np.diff(requests.x).tolist() == pytest.approx([5, 5])
    assert cache.series[0].values.tolist() == pytest.approx([0.0488296] * 3, rel=1e-4)
    _, levels, _ = section.tables
    assert levels.rows[0][1:] == ("42", "42", "100%")
    html = page_of(tmp_path)
    assert "owned" in html
    assert "<img" not in html


def test_the_network_of_each_server(tmp_path):
    network = {"http://a": NEAR, "http://b": replace(NEAR, retransmitted=3)}
    folder = records.folder(tmp_path, records.rows(), replace(ENDED, network=network))
    (table,) = section_of("network", folder).tables
    assert [row[0] for row in table.rows] == ["http://a", "http://b"]
    assert (table.marked, table.rows[1][1], table.rows[1][9]) == ({1}, "0.200", "3")


def test_servers_that_were_left_out_have_a_row_for_each_reason(tmp_path):
    left_out = {"http://a1:1": "refused", "http://a2:1": "refused", "http://b:1": "another model"}
    folder = records.folder(tmp_path, records.rows(), replace(ENDED, left_out=left_out))
    table = section_of("provenance", folder).tables[2]
    assert list(table.rows) == [("2", "http://a[1-2]:1", "refused"), ("1", "http://b:1", "another model")]


def test_metrics_that_are_gone_or_damaged(tmp_path):
    path = with_metrics(tmp_path) / SERVER_METRICS
    for damage in (lambda: path.write_bytes(b"PAR1"), path.unlink):
        damage()
        section = section_of("server", tmp_path)
        assert section.lines
        assert not section.charts


def test_long_runs_keep_their_charts_short(tmp_path):
    folder = with_metrics(tmp_path, rounds=2000, metrics=b"vllm:num_requests_running 7\n")
    (chart,) = section_of("server", folder).charts
    assert len(chart.x) == len(chart.series[0].values) == 500
    assert set(chart.series[0].values.tolist()) == {7.0}


def test_a_scored_run_shows_its_score(tmp_path):
    folder = records.folder(tmp_path, records.rows())
    records.score(folder, warnings=[HOSTILE])
    html = page_of(folder)
    for text in ("83.2000", "200 of 240", "Target met", "missing"):
        assert text in html


@pytest.mark.parametrize("kept", [{SUMMARY}, {RUN_RECORD}, {SUMMARY, RUN_RECORD}, {SUMMARY, REQUESTS}])
def test_parts_that_are_missing_are_left_out_and_named(tmp_path, kept):
    folder = records.folder(tmp_path, records.rows())
    for name in {SUMMARY, RUN_RECORD, REQUESTS} - kept:
        (folder / name).unlink()
    html = page_of(folder)
    for name in {RUN_RECORD, REQUESTS} - kept:
        assert f"There is no {name}" in html


def test_a_run_without_an_answer_has_a_page(tmp_path):
    """LoadGen counts failed queries to the completed samples."""
    rows = records.failed(records.rows(20), *range(20))
    folder = records.folder(tmp_path, rows, replace(ENDED, statistics=statistics(rows)))
    assert "INVALID" in page_of(folder)
    tiles = {tile.name: tile.value for tile in run_page(read_run(folder)).figures}
    assert tiles["completed samples per second, failed ones too"] == "40.46"
    assert tiles["queries failed"] == "20"
    assert tiles["completed tokens per second"]  # failed ones have none
    figures = run_page(read_run(records.folder(tmp_path / "good", records.rows(20)))).figures
    assert not any("failed" in tile.name for tile in figures)


def test_what_the_query_issued_last_costs(tmp_path):
    """The recorded summary has 86.10 scheduled and 40.46 completed samples per second."""
    page = run_page(read_run(records.folder(tmp_path, records.rows(20))))
    (line,) = (line for one in page.sections for line in one.lines if line.startswith("Scheduled "))
    assert line.startswith("Scheduled 86.1 samples/s, completed 40.46: ")
    assert line.endswith(" which costs 53.0% of the scheduled rate.")


def test_the_queries_that_are_needed_are_counted(tmp_path):
    html = page_of(records.folder(tmp_path, records.rows(1)))
    assert "1 query is too few to pass, 459 are needed." in html


def test_the_program_writes_a_page_for_each_run(tmp_path, capsys):
    folders = [
        records.folder(tmp_path / name / "performance", records.rows()) for name in ("offline", "server")
    ]
    assert main(["show", str(tmp_path)]) == 0
    assert all((folder / REPORT).stat().st_size < 500_000 for folder in folders)
    assert capsys.readouterr().out.split() == [str(folder / REPORT) for folder in folders]
    assert main(["show", str(tmp_path), "--output", str(tmp_path / "one.html")]) == 2
    assert "the folders have 2" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "damaged"),
    [(REQUESTS, b"PAR1 cut short"), (RUN_RECORD, b'{"schema": 1, "pl'), (ACCURACY_RESULT, b"{}")],
)
def test_what_cannot_be_read_is_one_line(tmp_path, capsys, name, damaged):
    folder = records.folder(tmp_path / "run", records.rows())
    (folder / name).write_bytes(damaged)
    assert main(["show", str(folder)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert name in line
    assert not (folder / REPORT).exists()


def hung(folder, scenario="server", lines=True):
    """A run of 30 s of answers that waited for 44 more queries until it was ended after 600 s."""
    record = replace(
        with_plan(ENDED, scenario=Scenario(scenario)),
        unanswered=44,
        clock=ClockPair(ENDED.started, records.START),
        ended=ENDED.started + timedelta(seconds=600),
    )
    records.folder(folder, records.rows(900), record)
    if lines:
        seen = [
            {"time": (ENDED.started + timedelta(seconds=second)).isoformat(), "in_flight": 44}
            for second in range(100, 600, 5)
        ]
        damaged = '{"of": ' + "[" * 10_000 + '\n{"time": "2026'
        (folder / PROGRESS).write_text("".join(json.dumps(line) + "\n" for line in seen) + damaged)
    return folder


def chart_of(name, folder):
    return next(chart for chart in section_of("time", folder).charts if chart.id == name)


def test_counts_are_drawn_at_the_moment_that_they_are_of(tmp_path):
    """They were drawn half an interval too early: of an Offline run 61 at a moment with 64 in flight."""
    rows = records.rows(900)
    folder = records.folder(tmp_path, rows)
    issued, ended = ((rows[name] - rows["issued_ns"].min()) / 1e9 for name in ("issued_ns", "last_byte_ns"))
    chart = chart_of("in-flight", folder)
    counts = [((issued <= moment) & (moment < ended)).sum() for moment in chart.x]
    assert chart.series[0].values.tolist() == counts
    chart, limit = chart_of("budget", folder), read_run(folder).limits["TTFT"]
    late = issued[rows["first_token_ns"] - rows["issued_ns"] > limit * 1e9]
    assert chart.series[0].values.tolist() == [(late + limit <= moment).sum() for moment in chart.x]
    assert counts[-1] == 0 < max(counts)


@pytest.mark.parametrize("lines", [True, False])
def test_queries_without_an_answer_are_in_flight_until_the_end_of_the_run(tmp_path, lines):
    chart = chart_of("in-flight", hung(tmp_path, lines=lines))
    total, waiting = (series.values for series in chart.series)
    assert chart.x[-1] == pytest.approx(600, abs=20)
    assert (total[-1], waiting[-1]) == (44, 44)
    assert (np.diff(waiting) >= 0).all()
    assert set(total[chart.x > 120].tolist()) == {44}
    assert chart_of("tokens", tmp_path).series[0].values[-1] == 0
    tiles = {tile.name.split(",")[0]: tile.value for tile in run_page(read_run(tmp_path)).figures}
    assert tiles["duration"] == "10:00"
    assert tiles["queries without an answer"] == "44"


def test_a_run_that_ended_before_it_began_by_its_clock_has_no_duration(tmp_path):
    path = hung(tmp_path, lines=False) / RUN_RECORD
    record = RunRecord.read(path)
    replace(record, ended=record.started - timedelta(seconds=90)).write(path)
    assert not [tile for tile in run_page(read_run(tmp_path)).figures if "duration" in tile.name]


def test_offline_issues_all_queries_at_its_start(tmp_path):
    chart = chart_of("in-flight", hung(tmp_path, scenario="offline", lines=False))
    assert set(chart.series[1].values.tolist()) == {44}


def test_axes_end_with_the_last_answer_where_all_queries_have_one(tmp_path):
    record = replace(ENDED, unanswered=0, ended=ENDED.started + timedelta(hours=1))
    assert chart_of("in-flight", records.folder(tmp_path, records.rows(900), record)).x[-1] < 60


def test_a_few_replicas_have_a_line_each(tmp_path):
    tokens, tpot = section_of("replicas", records.folder(tmp_path, records.rows(slow=2))).charts
    assert [series.label for series in tpot.series] == [
        "replica0:30000",
        "replica1:30000",
        "replica2:30000",
    ]
    medians = [np.nanmedian(series.values) for series in tpot.series]
    assert medians == pytest.approx([40, 40, 52], rel=0.01)
    made = sum(series.values.sum() for series in tokens.series) * (tokens.x[1] - tokens.x[0])
    assert made == pytest.approx(records.rows(slow=2)["osl"].sum(), rel=0.05)


def test_of_many_replicas_those_that_differ_are_drawn_beside_the_median(tmp_path):
    made = records.rows(9000)
    made["replica"] = np.arange(9000) % 30
    slow = made["replica"] == 17
    made["last_byte_ns"][slow] += ((made["osl"][slow] - 1) * 2e7).astype(np.int64)
    urls = [f"http://node{number}:1" for number in range(30)]
    records.folder(tmp_path, made, replace(ENDED, balance=replica_balance(made, urls, None)))
    write_requests(tmp_path / REQUESTS, requests_table(made, urls))
    _, tpot = section_of("replicas", tmp_path).charts
    assert [len(tpot.series), tpot.series[0].label, tpot.series[-1].label] == [5, "node17:1", "median of all"]
    assert np.nanmedian(tpot.series[0].values) == pytest.approx(60, rel=0.01)
    assert np.nanmedian(tpot.series[-1].values) == pytest.approx(40, rel=0.01)


@pytest.mark.parametrize(("rounds", "style"), [(5, "points"), (200, "line")])
def test_few_readings_are_not_joined(tmp_path, rounds, style):
    chart = section_of("server", with_metrics(tmp_path, rounds=rounds)).charts[0]
    assert {series.style for series in chart.series} == {style}
    assert (f"{rounds} readings" in chart.note) is (style == "points")


def test_an_empty_summary_is_said_once(tmp_path):
    verdict = RunVerdict("INVALID", ("ended early", "LoadGen's summary is empty"), False)
    folder = records.folder(tmp_path, records.rows(), replace(ENDED, verdict=verdict))
    (folder / SUMMARY).write_text("")
    assert sum("summary is empty" in reason for reason in run_page(read_run(folder)).reasons) == 1


EVENTS = (
    RunEvent(at_s=17.0, kind="server_out", server="http://n1:1", text="not reachable"),
    RunEvent(at_s=20.5, kind="lost", text=HOSTILE),
)


def test_events_are_marked_on_every_time_axis(tmp_path):
    folder = with_metrics(tmp_path)
    replace(RunRecord.read(folder / RUN_RECORD), events=EVENTS).write(folder / RUN_RECORD)
    page = run_page(read_run(folder))
    timed = [chart for section in page.sections for chart in section.charts if chart.x_axis == "seconds"]
    assert {"rates", "in-flight", "ttft", "replica-tokens", "server-requests"} <= {one.id for one in timed}
    for chart in timed:
        marks = [(limit.label, limit.value, limit.axis) for limit in chart.limits if limit.event]
        assert marks == [("1", 17.0, "x"), ("2", 20.5, "x")]
    (table,) = section_of("time", folder).tables
    assert [row[:3] for row in table.rows] == [("1", "0:17", "http://n1:1"), ("2", "0:20", "-")]
    assert "<img" not in render(page)
    others = [chart for section in page.sections for chart in section.charts if chart.x_axis != "seconds"]
    assert not any(limit.event for chart in others for limit in chart.limits)


def test_events_and_ranks_of_a_run_without_an_answer_are_shown(tmp_path):
    load = ServerLoad(rounds=3, servers=1, ranks=(rank(0, 0.98), rank(1, 0.02)))
    record = replace(ENDED, events=EVENTS, server_load=load, unanswered=44)
    folder = records.folder(tmp_path, records.rows(0), record)
    assert len(section_of("time", folder).tables[0].rows) == 2
    assert len(section_of("server", folder).tables[0].rows) == 2


def rank(number, share):
    return RankFigures(
        server="http://a",
        rank=number,
        running=3.0,
        queued=None,
        kv_use=0.5,
        tokens_per_s=1000 * share,
        share=share,
    )


def test_ranks_have_a_table_the_least_busy_first(tmp_path):
    levels = {"running": Level(3, 3, 1)}  # the mean of the ranks: their server has 9 requests
    ranks = (rank(0, 0.49), rank(1, 0.02), rank(2, 0.49))
    load = ServerLoad(rounds=3, servers=1, ranks=ranks, levels=levels, counts={"plain_steps": 7})
    folder = records.folder(tmp_path, records.rows(), replace(ENDED, server_load=load))
    table, level, count = section_of("server", folder).tables
    assert level.header[0].startswith("of a server or data-parallel rank")
    assert count.rows == [("decoding steps without a CUDA graph", "7")]
    assert [row[1] for row in table.rows] == ["1", "0", "2"]
    assert table.rows[0] == ("http://a", "1", "3.0", "-", "50%", "20.0", "2.0%")
    assert table.marked == {0}


def test_stragglers_are_not_called_absent_where_they_were_not_judged(tmp_path):
    folder = records.folder(tmp_path, records.rows())
    (line,) = [line for line in section_of("replicas", folder).lines if "tragglers" in line]
    assert "not judged" in line
    assert "60 s needed" in line


@pytest.mark.parametrize("valid", [True, False])
def test_a_diagnosis_follows_the_reasons(tmp_path, valid):
    diagnosis = Diagnosis(from_s=28.0, text="saturated: in flight grows")
    verdict = RunVerdict("VALID", (), True) if valid else RunVerdict("INVALID", ("the cause", "more"), True)
    rows = records.rows()
    record = replace(ENDED, verdict=verdict, diagnoses=(diagnosis,), deviations=(), loadgen=None)
    folder = records.folder(tmp_path, rows, replace(record, statistics=statistics(rows)))
    reasons = run_page(read_run(folder)).reasons
    shown = "from 0:28 on saturated: in flight grows"
    assert reasons == (() if valid else ("the cause", "more", shown))
    assert any(shown in line for line in section_of("verdict", folder).lines) is valid


def test_files_of_another_run_are_named_beside_the_verdict(tmp_path):
    """The page has its verdict from run.json, LoadGen's figures and the charts from the files beside it."""
    rows, valid = records.rows(), replace(ENDED, verdict=RunVerdict("VALID"))
    folder = records.folder(tmp_path, rows, valid)
    logs, table, *_ = run_page(read_run(folder)).reasons
    assert logs.startswith("mlperf_log_summary.txt is of another run: Completed samples per second is ")
    assert table.startswith("requests.parquet is of another run: it has 900 queries and ")
    own = read_summary(folder / "mlperf_log_summary.txt")
    figures = statistics(rows)
    for resumed, one in ((0, figures), (5, replace(figures, queries=905, resumed=5))):
        replace(valid, loadgen=own, statistics=one).write(folder / "run.json")
        assert not any("of another run" in line for line in run_page(read_run(folder)).reasons), resumed
