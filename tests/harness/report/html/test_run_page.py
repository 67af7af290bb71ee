"""The page's HTML: self-contained, escaped, complete; and the program that writes it."""

import base64
import hashlib
import json
import re
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from harness.analysis.run_files import read_run
from harness.files import ACCURACY_RESULT, REPORT, REQUESTS, RUN_RECORD, SERVER_METRICS, SUMMARY
from harness.record.run_record import Level, ServerLoad
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


def test_foreign_texts_are_escaped(hostile):
    html = page_of(hostile)
    assert "owned" in html
    assert "<img" not in html
    assert "</script><script>document" not in html
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', html, re.DOTALL)
    assert json.loads(data)["ttft"]["limits"]


def test_the_verdict_can_be_read_without_javascript(tmp_path):
    html = re.sub(
        r"<script.*?</script>", "", page_of(records.folder(tmp_path, records.rows())), flags=re.DOTALL
    )
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
    assert section.tables[0].rows[0][1:] == ("42", "42", "100%")
    html = page_of(tmp_path)
    assert "owned" in html
    assert "<img" not in html


def test_the_network_of_each_server(tmp_path):
    network = {"http://a": NEAR, "http://b": replace(NEAR, retransmitted=3)}
    folder = records.folder(tmp_path, records.rows(), replace(ENDED, network=network))
    (table,) = section_of("network", folder).tables
    assert [row[0] for row in table.rows] == ["http://a", "http://b"]
    assert (table.marked, table.rows[1][1], table.rows[1][9]) == ({1}, "0.200", "3")


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
    assert "INVALID" in page_of(records.folder(tmp_path, records.failed(records.rows(20), *range(20))))


def test_the_program_writes_a_page_for_each_run(tmp_path, capsys):
    folders = [
        records.folder(tmp_path / name / "performance", records.rows()) for name in ("offline", "server")
    ]
    assert main(["html", str(tmp_path)]) == 0
    assert all((folder / REPORT).stat().st_size < 500_000 for folder in folders)
    assert capsys.readouterr().out.split() == [str(folder / REPORT) for folder in folders]


@pytest.mark.parametrize(
    ("name", "damaged"),
    [(REQUESTS, b"PAR1 cut short"), (RUN_RECORD, b'{"schema": 1, "pl'), (ACCURACY_RESULT, b"{}")],
)
def test_what_cannot_be_read_is_one_line(tmp_path, capsys, name, damaged):
    folder = records.folder(tmp_path / "run", records.rows())
    (folder / name).write_bytes(damaged)
    assert main(["html", str(folder)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert name in line
    assert not (folder / REPORT).exists()
