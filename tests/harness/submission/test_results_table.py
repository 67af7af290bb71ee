"""The table of results, compared with the files' figures and the official checker's results."""

import csv

import pytest
from msgspec.structs import replace

from harness.submission.checks.check import check_contexts
from harness.submission.results_table import compare, summarize, table
from prepare_submission import main
from tests.harness.grading.shared import SHARED_DATA
from tests.harness.submission.building import one_line
from tests.harness.submission.checks.endpoints_results import SUMMARY, change, endpoints, save, summary
from tests.harness.submission.edits import SYSTEM, both, fields, rename, row, write
from tests.harness.submission.trees import RESULTS, copied

ROUND = SHARED_DATA / "mlperf_v6.0"


def test_rows_of_a_tree(tree):
    rows = summarize(check_contexts(tree))
    assert [(row.scenario, row.result, row.unit, row.valid) for row in rows] == [
        ("Interactive", 13665.1, "tokens/s", True),
        ("Offline", 12750.5, "tokens/s", True),
    ]
    interactive, offline = rows
    assert (interactive.ttft_p99_ms, interactive.tpot_p99_ms) == (30.444972, 0.002427)
    assert (offline.ttft_p99_ms, offline.tpot_p99_ms) == (None, None)
    assert offline.accuracy == "exact_match 83.601"
    assert offline.tests == "TEST07 PASS 65.556, TEST09 PASS 1278"
    assert offline.accelerators == 8
    assert offline.each == 12750.5 / 8
    for unknown in ({"accelerators": None}, {"accelerators": 0}, {"result": None}, {"unit": "ms"}):
        assert replace(offline, **unknown).each is None


@pytest.mark.skipif(not ROUND.is_dir(), reason="the published logs are no part of the project")
def test_published_results():
    """The official checker's CSV has these results."""
    found = {(row.system, row.scenario): row.result for row in summarize(check_contexts(ROUND))}
    assert len(found) == 7
    assert found["8xMI355X_2xEPYC_9575F", "Offline"] == 95004.0
    assert found["nebius_b200_n1", "Server"] == 87444.2
    assert found["8xB200-LLM-D-Openshift", "Server"] == 71588.1


def test_csv(tree, tmp_path, capsys):
    assert main(["check", str(tree), "--csv", str(tmp_path / "results.csv")]) == 0
    with (tmp_path / "results.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["scenario"], row["result"], row["accelerators"]) for row in rows] == [
        ("Interactive", "13665.1", "8"),
        ("Offline", "12750.5", "8"),
    ]
    assert main(["check", str(tree), "--csv", str(tmp_path / "results.csv")]) == 0
    capsys.readouterr()
    assert main(["check", str(tree), "--csv", str(tmp_path / "no/folder.csv")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
    (notes := tmp_path / "my_submission.toml").write_text("[system]")
    assert main(["check", str(tree), "--csv", str(notes)]) == 2
    printed = capsys.readouterr()
    assert "is no table of results, and is not replaced" in printed.err and "Interactive" in printed.out
    assert notes.read_text() == "[system]"


def test_a_folder_of_kept_logs_that_is_not_there(tree, tmp_path, capsys):
    """The tree was checked without them."""
    assert main(["check", str(tree), "--kept", str(tmp_path / "tree.keep")]) == 2
    assert "tree.keep: no such folder; " in one_line(capsys)


def test_csv_of_a_folder_whose_name_is_no_utf_8(tree, tmp_path):
    organisation = next((tree / "closed").iterdir())
    organisation.rename(organisation.with_name("My\udcffOrg"))
    assert main(["check", str(tree), "--csv", str(tmp_path / "results.csv")]) == 5
    assert "My\\udcffOrg,made_up" in (tmp_path / "results.csv").read_text()


def test_against_an_earlier_tree_of_the_same_system(tree, tmp_path, capsys):
    earlier = copied(tree, tmp_path / "earlier")
    row("Offline/performance/run_1", result_tokens_per_second=10200.4)(earlier / RESULTS)
    assert main(["check", str(tree), "--against", str(earlier)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[-1] for line in lines if line.startswith("MyOrg ")] == ["+0.0%", "+25.0%"]


@pytest.mark.parametrize(("more", "unused"), [((), True), (("--csv", "results.csv"), False)])
def test_a_comparison_that_is_printed_nowhere(tree, tmp_path, monkeypatch, capsys, more, unused):
    monkeypatch.chdir(tmp_path)
    main(["check", str(tree), "--against", str(tree), "--json", *more])
    assert ("--json prints no comparison" in capsys.readouterr().err) is unused


@pytest.mark.parametrize(
    "damage",
    [
        change(SUMMARY, 2.1e9, "ttft", "early_stopping_percentiles", "99.0"),
        write(f"Interactive/{SUMMARY}", "{"),
    ],
)
def test_a_result_with_the_logs_of_endpoints_is_valid_as_the_check_says(tree, damage):
    both(endpoints("Interactive"), damage)(tree / RESULTS)
    found = {row.scenario: row.valid for row in summarize(check_contexts(tree))}
    assert found == {"Interactive": False, "Offline": True}


def test_a_rehearsed_result_with_the_logs_of_endpoints_is_valid(tree):
    """Its run is short, as LoadGen's are, which says VALID then."""
    seconds = 7
    both(
        endpoints("Interactive"),
        change(SUMMARY, seconds * 10**9, "duration_ns"),
        change(SUMMARY, 6396 / seconds, "qps"),
        change(SUMMARY, 6396 * 1278 / seconds, "tps"),
    )(tree / RESULTS)
    (tree / "closed").rename(tree / "closed.REHEARSAL")
    found = {row.scenario: row.valid for row in summarize(check_contexts(tree))}
    assert found == {"Interactive": True, "Offline": True}


def test_against_an_earlier_result_with_the_logs_of_endpoints(tree, tmp_path, capsys):
    endpoints("Interactive")(tree / RESULTS)
    earlier = copied(tree, tmp_path / "earlier")
    slower = summary()
    slower["tps"] *= 0.8
    slower["output_sequence_lengths"]["total"] *= 0.8
    save(earlier / RESULTS / "Interactive" / SUMMARY, slower)
    main(["check", str(tree), "--against", str(earlier)])
    lines = capsys.readouterr().out.splitlines()
    found = {line.split()[3]: line.split()[-1] for line in lines if line.startswith("MyOrg ")}
    assert found == {"Offline": "+0.0%", "Interactive": "+25.0%"}


@pytest.mark.parametrize(
    ("change", "share", "by"),
    [
        ({"accelerators_per_node": 4}, 0.5, "result per accelerator"),
        ({"accelerator_model_name": "another card"}, None, ""),
    ],
    ids=["of the same accelerator", "with nothing alike"],
)
def test_against_another_system(tree, tmp_path, change, share, by):
    """Per accelerator, and the best of them: a round has many systems."""
    earlier = copied(tree, tmp_path / "earlier")
    named = SYSTEM.replace("made_up", "another")
    both(fields(SYSTEM, **change), rename(SYSTEM, named), rename("../../made_up", "../../another"))(
        earlier / RESULTS
    )
    found = compare(summarize(check_contexts(tree)), summarize(check_contexts(earlier)))
    assert [(one.share, one.by) for one in found] == [(share, by)] * 2
    assert [line.endswith(" another)  -50.0% per accelerator") for line in table(found)][1:] == [bool(by)] * 2
