"""report.py: folders without a run, the table of all runs, and their overview."""

import csv
import json
import os
import re
import shlex
import shutil

import pytest
from msgspec.structs import replace

from harness.analysis import finish_run
from harness.analysis.run_files import read_run
from harness.analysis.run_outcome import score_line
from harness.compliance.registry import find_test
from harness.config.plans import ComplianceSettings
from harness.config.scenario import Scenario
from harness.files import (
    ACCURACY_RESULT,
    COMPLIANCE_RUN,
    JOURNAL_DIR,
    REPORT,
    REQUESTS,
    ROOT,
    RUN_RECORD,
    atomic_write,
    unofficial,
)
from harness.record.run_record import RunRecord, RunVerdict
from harness.report import run_report
from harness.report.html.headline import outcome_tiles
from harness.report.html.overview_page import overview_page
from harness.report.html.page import Badge, Cell, render
from harness.report.html.run_page import run_page
from harness.report.outcomes import read_outcome, read_outcomes
from harness.report.run_report import add_result, add_verdict, write_report_of
from harness.report.runs_table import as_json
from report import main
from tests import records
from tests.kit import full_disk
from tests.records import ENDED, with_plan

VALID = replace(ENDED, verdict=RunVerdict("VALID", (), True), deviations=())
FAILED = {"exact_match": {"value": 83.1234, "lowest": 84.0, "highest": None, "met": False}}


@pytest.mark.parametrize("folder", [".", "none"])
@pytest.mark.parametrize("command", ["show", "watch", "list"])
def test_a_folder_without_a_run_is_one_line(command, folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main([command, folder]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert ("report.py show reads the logs of others" in line) is ((command, folder) == ("list", "."))


def accuracy_run(folder, met=None, of=VALID):
    """An accuracy run that is VALID; scored where ``met`` is given."""
    records.folder(folder, records.rows(20), with_plan(of, mode="accuracy"))
    if met is not None:
        metrics = records.RESULT["target"]["metrics"] if met else FAILED
        records.score(folder, target={"mode": "official", "met": met, "metrics": metrics})
    return folder


def compliance_run(folder, name="TEST09", text=None, official=True):
    """A run of a compliance test, verified where ``text`` is given."""
    dataset = ENDED.plan.client.benchmark.dataset(accuracy=False)
    settings = find_test(ENDED.plan.client.benchmark, name).audit
    audit = ComplianceSettings(test=name, dataset=dataset, settings=settings, text="", official=official)
    run = folder / name / COMPLIANCE_RUN
    records.folder(run, records.rows(20), with_plan(VALID, audit=audit))
    if text is not None:
        path = folder / name / ("verify_output_len.txt" if name == "TEST09" else "verify_accuracy.txt")
        (path if official else unofficial(path)).write_text(text)
    return run


@pytest.fixture
def runs(tmp_path):
    """Runs in both layouts: with and without the benchmark's folder."""
    records.folder(tmp_path / "server/performance", records.rows(20))
    accuracy_run(tmp_path / "gpt-oss-120b/server/accuracy", met=False)
    accuracy_run(tmp_path / "gpt-oss-120b/offline/accuracy")
    compliance_run(tmp_path / "gpt-oss-120b/server", text="Mean output tokens: 1200.50\nTEST FAIL\n")
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / RUN_RECORD).write_text('{"schema": 1')
    attempt = tmp_path / "gpt-oss-120b/offline/accuracy/attempt.1"
    records.folder(attempt, records.rows(20), VALID)
    return tmp_path


def test_list_has_every_run_with_the_verdict_that_counts(runs, capsys):
    assert main(["list", str(runs)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 6  # the earlier attempt is a part of its run
    assert lines[0].endswith("started (UTC)")  # whatever the zone of this machine
    cells = {line.split()[0]: re.split(r"\s{2,}", line) for line in lines}
    assert cells["gpt-oss-120b/server/accuracy"][1:3] == ["SCORE FAIL", "83.1234, target 84.0000"]
    assert cells["gpt-oss-120b/offline/accuracy"][1] == "NOT SCORED"
    assert cells["gpt-oss-120b/server/TEST09"][1] == "TEST09 FAIL"
    assert cells["server/performance"][1:3] == ["INVALID, NOT OFFICIAL", "74.75 tokens/s"]
    assert cells["c"][1] == "DAMAGED run.json"


@pytest.mark.parametrize("folder", [".", "c"])
@pytest.mark.parametrize(
    ("name", "said"),
    [(RUN_RECORD, "is not the record of a run: "), (REQUESTS, "is no requests.parquet of a run, or damaged")],
)
def test_show_names_the_run_without_which_it_goes(runs, monkeypatch, capsys, folder, name, said):
    """Of a folder with others, which are what ``show`` is then told."""
    monkeypatch.chdir(runs)
    if name == REQUESTS:
        records.folder(runs / "c", records.rows(20))
        (runs / "c" / name).write_bytes(b"PAR1")
    assert main(["show", folder]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"c/{name} {said}" in line
    assert line.endswith("; without it: name the folders of the others") is (folder == ".")


def test_list_has_complete_names(tmp_path, capsys):
    """A run that was moved aside was ``...ormance.20261129-171205`` in Offline and in Server."""
    folders = [f"gpt-oss-120b/{scenario}/performance.20261129-171205" for scenario in ("offline", "server")]
    for folder in folders:
        records.folder(tmp_path / folder, records.rows(20))
    assert main(["list", str(tmp_path)]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["run", *folders]


def test_json_and_csv_have_numbers(runs, capsys):
    table = runs / "table.csv"
    assert main(["list", str(runs), "--json", "--csv", str(table)]) == 0
    found = {one["folder"].removeprefix(f"{runs}/"): one for one in json.loads(capsys.readouterr().out)}
    scored = found["gpt-oss-120b/server/accuracy"]
    assert (scored["score"], scored["score_target"], scored["score_met"]) == (83.1234, 84.0, False)
    assert scored["passed"] is False
    slow = found["server/performance"]
    summary = ENDED.loadgen
    assert slow["ttft_p99_ms"] == pytest.approx(summary.percentile_ns("TTFT") / 1e6)
    assert slow["ttft_p99_part_of_limit"] == pytest.approx(
        summary.percentile_ns("TTFT") / ENDED.limits_ns["TTFT"]
    )
    assert (slow["queries"], slow["official"]) == (ENDED.statistics.queries, False)
    assert slow["duration_s"] == ENDED.lasted_s
    assert found["gpt-oss-120b/server/TEST09/run"]["compliance_passed"] is False
    rows = list(csv.DictReader(table.open()))
    assert {row["folder"] for row in rows} == {
        one["folder"] for one in json.loads(as_json(read_outcomes([runs])))
    }
    assert "83.1234" in {row.get("score") for row in rows}


@pytest.mark.parametrize(
    ("text", "official", "passed"),
    [
        ("Mean output tokens: 1300\nMin threshold: 2.5\nMax threshold: 1400\nTEST PASS\n", True, True),
        ("Mean output tokens: 9\nTEST FAIL\n", True, False),
        ("NOT OFFICIAL: few\n\nMean output tokens: 1300\nNOT OFFICIAL PASS\n", False, True),
        ("nothing", True, None),
        (None, True, None),
    ],
)
def test_the_verdict_of_a_compliance_test_is_that_of_its_verification(tmp_path, text, official, passed):
    found = read_outcome(compliance_run(tmp_path, text=text, official=official))
    assert found.compliance is not None
    assert (found.compliance.passed, found.passed) == (passed, passed is True)
    assert found.compliance.official is official
    assert found.compliance.bounds == ("2.5 to 1400" if text and "threshold" in text else "")
    word, status = {True: ("PASS", "good"), False: ("FAIL", "bad"), None: ("NOT VERIFIED", "warn")}[passed]
    assert (found.verdict.text, found.verdict.status) == (f"TEST09 {word}", status)
    assert found.official is official
    tiles = [(tile.value, tile.status) for tile in outcome_tiles(found) if tile.name.startswith("TEST09")]
    figures = {True: [("1300 PASS", "good")], False: [("9 FAIL", "bad")], None: []}
    assert tiles == figures[passed]


def test_a_valid_performance_run_needs_no_score(tmp_path):
    found = read_outcome(records.folder(tmp_path, records.rows(20), VALID))
    assert (found.verdict.text, found.passed, found.official) == ("VALID", True, True)


@pytest.mark.parametrize(
    ("verdict", "word"),
    [
        (RunVerdict("INVALID", ("3 of 74 queries failed: timeout 3",)), "INVALID"),
        (RunVerdict("INTERRUPTED"), "INTERRUPTED"),
        (None, "NOT ENDED"),
    ],
)
def test_the_score_of_a_run_that_is_not_valid_does_not_count(tmp_path, verdict, word):
    folder = accuracy_run(tmp_path / "gpt-oss-120b/offline/accuracy", True, replace(VALID, verdict=verdict))
    found = read_outcome(folder)
    assert (found.verdict.text, found.verdict.status, found.passed) == (word, "bad", False)
    assert found.figure == "exact_match 83.2000, target 82.3000"
    badges = run_page(read_run(folder), found).badges
    assert badges[0].text == word and "good" not in {badge.status for badge in badges}


def test_the_overview_has_verdicts_scores_and_links(runs):
    assert main(["show", str(runs / "gpt-oss-120b/server/accuracy")]) == 0
    page = overview_page(read_outcomes([runs]), runs)
    tables = [table for section in page.sections for table in section.tables]
    cells = [cell for table in tables for row in table.rows for cell in row if isinstance(cell, Cell)]
    assert {"SCORE FAIL", "NOT SCORED", "TEST09 FAIL", "INVALID", "DAMAGED"} <= {cell.text for cell in cells}
    assert {cell.status for cell in cells if cell.text in ("SCORE FAIL", "INVALID")} == {"bad"}
    links = [cell.link for cell in cells if cell.link]
    assert links == ["gpt-oss-120b/server/accuracy/report.html"]
    assert page.badges[0].text.startswith("0 OF 5")
    html = render(page)
    assert 'href="gpt-oss-120b/server/accuracy/report.html"' in html
    assert "uPlot" not in html  # it has no charts


def test_runs_that_were_moved_aside_have_names_of_their_own(tmp_path):
    test, accuracy = compliance_run(tmp_path).parent, accuracy_run(tmp_path / "accuracy")
    for folder in (test, accuracy):
        shutil.copytree(folder, folder.with_name(f"{folder.name}.20261128-101112"))
    (section,) = overview_page(read_outcomes([tmp_path]), tmp_path).sections
    names = {row[1].text for row in section.tables[0].rows}
    assert names == {"TEST09", "TEST09.20261128-101112", "accuracy", "accuracy.20261128-101112"}


def test_runs_of_several_systems_have_their_folders(tmp_path):
    """Eleven rows of the page were named ``performance``."""
    folders = ["h100/server/performance", "h200/server/performance"]
    for folder in folders:
        records.folder(tmp_path / folder, records.rows(20))
    accuracy_run(tmp_path / "h200/server/accuracy")
    (section,) = overview_page(read_outcomes([tmp_path]), tmp_path).sections
    assert sorted(row[1].text for row in section.tables[0].rows) == ["accuracy", *folders]


def test_runs_of_two_scenarios_may_have_one_name(tmp_path):
    for scenario in (Scenario.OFFLINE, Scenario.SERVER):
        record = with_plan(VALID, scenario=scenario)
        records.folder(tmp_path / f"{scenario}/performance", records.rows(20), record)
    (section,) = overview_page(read_outcomes([tmp_path]), tmp_path).sections
    assert [row[1].text for row in section.tables[0].rows] == ["performance"] * 2


def test_a_test_s_page_gets_its_verdict(tmp_path):
    run = compliance_run(tmp_path)
    record = with_plan(RunRecord.read(run / RUN_RECORD), log_dir=run)
    write_report_of(record)
    assert "TEST09 NOT VERIFIED" in (run / REPORT).read_text()
    compliance_run(tmp_path, text="Mean output tokens: 9\nTEST FAIL\n")
    add_verdict(record)
    assert "TEST09 FAIL" in (run / REPORT).read_text()


def test_a_page_that_cannot_be_written_names_the_command_that_writes_it(tmp_path, caplog, capsys):
    """``run`` and ``comply`` have no --output for it."""
    run = accuracy_run(tmp_path, True)
    (run / f"{REPORT}.partial").mkdir()
    write_report_of(with_plan(RunRecord.read(run / RUN_RECORD), log_dir=run))
    (warning,) = caplog.messages
    assert warning.startswith(f"warning: no {REPORT}: {run / REPORT}.partial: ") and "--output" not in warning
    (run / f"{REPORT}.partial").rmdir()
    words = shlex.split(warning.rpartition("; then: ")[2])
    assert main(words[-2:]) == 0
    assert (run / REPORT).is_file()


def test_a_table_of_requests_that_has_no_room_is_named_once(tmp_path, monkeypatch, caplog):
    run = accuracy_run(tmp_path, True)
    (run / JOURNAL_DIR).mkdir()
    (run / REQUESTS).unlink()

    def add(folder, record):
        with atomic_write(folder / REQUESTS):
            full_disk()

    monkeypatch.setattr(finish_run, "add_requests", add)
    assert main(["show", str(run)]) == 0
    said = f"no {REQUESTS}: {run / REQUESTS}: No space left on device; "
    assert [message.startswith(said) for message in caplog.messages] == [True]


def test_a_defect_of_the_page_costs_neither_the_run_nor_its_score(tmp_path, monkeypatch, capsys, caplog):
    run = accuracy_run(tmp_path, True)
    record = with_plan(RunRecord.read(run / RUN_RECORD), log_dir=run)
    write_report_of(record)
    assert capsys.readouterr().out == f"Report: {run / REPORT}\n"
    monkeypatch.setattr(run_report, "page_of", lambda folder: {}["new"])
    write_report_of(record)
    add_result(run, {"exact_match": 80.0})
    assert capsys.readouterr().out == ""
    text = f"a defect of this program (KeyError: 'new'): no {REPORT}"
    assert caplog.messages == [f"warning: {text}"] * 2
    written = json.loads((run / ACCURACY_RESULT).read_text())
    assert written == {"exact_match": 80.0, "accuracy_log_sha256": ""}


def test_a_result_on_a_full_disk_is_a_warning_with_a_remedy(tmp_path, monkeypatch, caplog):
    run = accuracy_run(tmp_path, True)
    monkeypatch.setattr(os, "fsync", full_disk)
    add_result(run, {"exact_match": 80.0})
    why = f"{run / ACCURACY_RESULT}: No space left on device; free space there or choose another folder"
    assert caplog.messages == [f"warning: the result is not in {run / REPORT}: {why}"]


def headline(folder):
    """The page of a run as report.py makes it: its badges and its tiles by name."""
    outcome = read_outcome(folder)
    page = run_page(read_run(folder), outcome)
    return page, {tile.name: tile for tile in page.figures}


@pytest.mark.parametrize(("met", "status"), [(True, "good"), (False, "bad"), (None, "warn")])
def test_the_score_is_in_the_headline(tmp_path, met, status):
    page, tiles = headline(accuracy_run(tmp_path, met))
    assert page.badges[0].status == status
    assert [badge.text for badge in page.badges if badge.status == "good"] == ["SCORE PASS"][: met is True]
    if met is not None:
        (tile,) = [tile for name, tile in tiles.items() if name.startswith("exact_match")]
        assert (tile.status, tile.value.split()[1]) == (("good", "PASS") if met else ("bad", "FAIL"))
    html = render(page)
    assert ('href="#accuracy"' in html) is (met is not None)


def test_a_score_by_the_strict_rules_alone_is_no_pass(tmp_path):
    run = accuracy_run(tmp_path, met=True)
    records.score(run, target=records.RESULT["target"] | {"mode": "strict"})
    assert headline(run)[0].badges[0] == Badge("STRICT SCORE PASS", "warn", "#accuracy")
    assert not read_outcome(run).passed


def test_a_run_that_is_not_scored_names_the_command(tmp_path, capsys):
    folder = accuracy_run(tmp_path)
    assert main(["show", str(folder)]) == 0
    assert "eval_mlperf_accuracy.py --mlperf-log" in (folder / REPORT).read_text()


def test_margins_and_deviations_are_in_the_headline(tmp_path):
    page, tiles = headline(records.folder(tmp_path, records.rows(20)))
    part = ENDED.loadgen.percentile_ns("TTFT") / ENDED.limits_ns["TTFT"]
    assert tiles["TTFT p99, of its limit"].value == f"{part:.1%}"
    assert any(ENDED.deviations[0] in reason for reason in page.reasons)
    links = {badge.text: badge.link for badge in page.badges}
    assert links["NOT OFFICIAL"] == "#deviations"
    html = render(page)
    for link in links.values():
        assert f'id="{link[1:]}"' in html


@pytest.mark.parametrize(("part", "status"), [(0.9, "good"), (0.901, "warn"), (1.0, "warn"), (1.001, "bad")])
def test_a_margin_has_the_colour_of_its_place(tmp_path, part, status):
    figures = {"99.00 percentile first token latency (ns)": part * ENDED.limits_ns["TTFT"]}
    record = replace(ENDED, loadgen=replace(ENDED.loadgen, figures=ENDED.loadgen.figures | figures))
    folder = records.folder(tmp_path, records.rows(20), record)
    _, tiles = headline(folder)
    assert tiles["TTFT p99, of its limit"].status == status
    (section,) = overview_page([read_outcome(folder)], tmp_path).sections
    assert Cell(f"{part:.1%}", status) in section.tables[0].rows[0]


def test_a_limit_of_0_has_no_margin(tmp_path):
    """An earlier run may have one, and no run of its folder was listed."""
    settings = ENDED.settled.loadgen_settings | {"ttft_latency": 0, "tpot_latency": 0}
    record = replace(ENDED, settled=replace(ENDED.settled, loadgen_settings=settings))
    records.folder(tmp_path / "run", records.rows(), record)
    for words in (("list", tmp_path), ("list", tmp_path, "--json"), ("show", tmp_path)):
        assert main([*map(str, words)]) == 0
    assert read_outcome(tmp_path / "run").p99_parts == {}


def test_of_several_metrics_the_missed_one_is_the_figure(tmp_path):
    """llama3.1-8b has five."""
    met = records.RESULT["target"]["metrics"]["exact_match"]
    metrics = {"rouge1": met, "gen_len": met | {"value": 2659.0, "highest": 2400.5, "met": False}}
    records.score(accuracy_run(tmp_path), target={"mode": "official", "met": False, "metrics": metrics})
    assert read_outcome(tmp_path).figure == "gen_len 2,659, at most 2400.5000"
    assert score_line(tmp_path) == "rouge1 83.2000, gen_len 2,659 (NOT met)"


def test_the_score_of_another_run_is_not_shown(tmp_path, capsys):
    """A copy of accuracy_result.json was shown as the score of the run in whose folder it lay."""
    own, other = (
        accuracy_run(tmp_path / name, of=replace(VALID, accuracy_log_sha256=name * 64)) for name in "ab"
    )
    add_result(own, records.RESULT)
    assert read_outcome(own).figure == "exact_match 83.2000, target 82.3000"
    shutil.copy(own / ACCURACY_RESULT, other)
    assert score_line(other) == "" and read_outcome(other).score is None
    assert main(["show", str(other)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{other / ACCURACY_RESULT} is the score of another log (sha256 {'a' * 12})" in line
    assert f" left ({'b' * 12}); score the log of this run" in line
    (other / ACCURACY_RESULT).write_text(json.dumps(records.RESULT))  # it names no log
    assert read_outcome(other).score is not None
    add_result(other, records.RESULT)
    assert read_outcome(other).score is not None
    (own / RUN_RECORD).unlink()  # then no run says which log is its own
    assert score_line(own) != ""


def test_list_writes_the_overview(runs, capsys):
    assert main(["list", str(runs), "--output", str(runs / "index.html")]) == 0
    assert "SCORE FAIL" in (runs / "index.html").read_text()


@pytest.mark.parametrize("command", ["show", "list", "compare"])
def test_a_page_takes_no_other_files_place(command, tmp_path, capsys):
    """``compare --output RUN/run.json`` replaced the record of a run by a page."""
    run = records.folder(tmp_path / "run", records.rows())
    words = [command, *[str(run)] * (2 if command == "compare" else 1), "--output"]
    before = (run / RUN_RECORD).read_bytes()
    assert main([*words, str(run / RUN_RECORD)]) == 2
    assert "run.json: this file is no page, and is not replaced" in capsys.readouterr().err
    assert (run / RUN_RECORD).read_bytes() == before
    (page := tmp_path / "page.html").touch()  # as mktemp does
    assert [main([*words, str(page)]) for _ in range(2)] == [0, 0]
    assert page.stat().st_size


@pytest.mark.parametrize("flag", ["--csv", "--json"])
def test_a_table_takes_no_other_files_place(flag, runs, tmp_path, capsys):
    """``list --csv FILE`` replaced a dataset."""
    dataset = tmp_path / "cnn_eval.json"
    dataset.write_bytes(before := (ROOT / "datasets/samples/cnn_sample.json").read_bytes())
    assert main(["list", str(runs), flag, str(dataset)]) == 2
    line = capsys.readouterr().err
    assert f"is no table of runs, and is not replaced; choose another {flag}" in line
    assert dataset.read_bytes() == before
    (table := tmp_path / "table").touch()
    assert [main(["list", str(runs), flag, str(table)]) for _ in range(2)] == [0, 0]
    assert table.stat().st_size


@pytest.mark.parametrize("flag", ["--output", "--csv", "--json"])
def test_a_name_that_is_too_long_is_wrong_usage(flag, runs, capsys):
    """--json looks whether it is a folder; that was a traceback."""
    with pytest.raises(SystemExit) as ended:
        main(["list", str(runs), flag, f"below/{'é' * 200}"])
    assert ended.value.code == 2
    assert f"argument {flag}" in (line := " ".join(capsys.readouterr().err.split()))
    assert ": a name of 400 bytes, expected at most 255" in line


@pytest.mark.parametrize("flag", ["--output", "--csv"])
def test_a_file_that_is_the_working_directory(flag, runs, capsys):
    assert main(["list", str(runs), flag, "."]) == 2
    assert ".: cannot be written: Is a directory" in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["--output", "--csv", "--json"])
def test_a_full_disk_leaves_the_earlier_file(flag, runs, tmp_path, capsys, monkeypatch):
    path = tmp_path / "x"
    assert main(["list", str(runs), flag, str(path)]) == 0
    earlier = path.read_bytes()
    monkeypatch.setattr(os, "fsync", full_disk)
    assert main(["list", str(runs), flag, str(path)]) == 2
    assert "x: cannot be written: No space left on device" in capsys.readouterr().err
    assert path.read_bytes() == earlier


def test_a_table_for_a_pipe(runs):
    """As a shell's >(command) has one, which no other file may take the place of."""
    receiving, sending = os.pipe()
    assert main(["list", str(runs), "--csv", f"/dev/fd/{sending}"]) == 0
    os.close(sending)
    with os.fdopen(receiving) as lines:
        assert "folder" in lines.readline()


@pytest.mark.parametrize("flag", ["--output", "--csv", "--json"])
def test_a_file_for_which_there_is_no_folder(flag, runs, tmp_path, capsys):
    """The remedy is of a file that the user names, not of a run's folder that was removed."""
    assert main(["list", str(runs), flag, str(tmp_path / "none" / "x")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(f"none/x: cannot be written: No such file or directory; choose another {flag}")
