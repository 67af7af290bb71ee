"""report.py: folders without a run, and the table of all runs."""

import csv
import json

import pytest
from msgspec.structs import replace

from harness.files import RUN_RECORD
from harness.report.runs_table import COLUMNS
from report import main
from tests import records
from tests.records import ENDED, with_plan


@pytest.mark.parametrize("folder", [".", "none"])
@pytest.mark.parametrize("command", ["html", "watch", "results"])
def test_a_folder_without_a_run_is_one_line(command, folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main([command, folder]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_results_lists_every_run(tmp_path, capsys):
    records.folder(tmp_path / "a", records.rows(20))
    records.folder(
        tmp_path / "b", records.rows(20), with_plan(replace(ENDED, verdict=None, ended=None), mode="accuracy")
    )
    metric = {"exact_match": {"value": 83.1234, "lowest": 84.0, "highest": None, "met": False}}
    records.score(tmp_path / "b", target={"mode": "official", "met": False, "metrics": metric})
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / RUN_RECORD).write_text('{"schema": 1')
    table = tmp_path / "table.csv"
    assert main(["results", str(tmp_path), "--csv", str(table)]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 4
    rows = {row["folder"][-1]: row for row in csv.DictReader(table.open())}
    assert tuple(rows["a"]) == COLUMNS
    assert rows["a"]["result"] == f"{ENDED.verdict.result}, NOT OFFICIAL"
    assert rows["b"]["figure"] == "exact_match 83.123 (NOT met)"
    assert rows["b"]["result"].startswith("not ended")
    assert rows["c"]["result"] == "damaged run.json"
    assert main(["results", str(tmp_path), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 3
