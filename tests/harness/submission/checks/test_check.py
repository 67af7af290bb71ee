"""``check``: a correct tree has no issue, and each damage has its own."""

import random
import re
import shutil
from collections import Counter

import pytest

from harness.config.benchmark import load_benchmark
from harness.config.options import available_benchmarks
from harness.config.rounds import available_rounds
from harness.submission.checks.check import check_tree, official_name
from harness.submission.checks.issue import RULES
from harness.submission.cli import main
from harness.submission.layout import ScenarioDir
from harness.submission.rules import load_rules
from tests.harness.submission.checks.damages import (
    DAMAGES,
    DETAIL,
    RUN,
    SUMMARY,
    remove,
    rename,
    row,
    set_accuracy,
    text,
)
from tests.harness.submission.trees import RESULTS, SYSTEM, add_error, edit_json, edit_text
from tests.runs import ROOT


def codes(issues):
    """Each code, with its number if that is not one."""
    counts = Counter(issue.code for issue in issues)
    return " ".join(code if n == 1 else f"{code}*{n}" for code, n in sorted(counts.items()))


def test_a_right_tree_has_no_issue(tree):
    assert check_tree(tree) == ()


@pytest.mark.parametrize(("change", "expected"), [d[1:] for d in DAMAGES], ids=[d[0] for d in DAMAGES])
def test_each_damage_has_its_own_issue(tree, change, expected):
    change(tree)
    found = check_tree(tree)
    if expected is None:  # damage that brings others with it
        assert {"scenario", "mode"} & {issue.code for issue in found}
    else:
        assert codes(found) == expected


def test_every_rule_can_be_broken():
    named = {
        code.split("*")[0]
        for *_, expected in DAMAGES
        for code in ("mode" if expected is None else expected).split()
    }
    elsewhere = {"test06-log", "origin"}  # in test_recorded_trees.py and test_build.py
    assert named | elsewhere == set(RULES)


def test_every_rule_is_documented():
    page = (ROOT / "docs/guide/submission.md").read_text()
    assert [code for code, (rule, _) in RULES.items() if f"| `{code}` | {rule} |" not in page] == []


def test_an_unknown_benchmark(tree):
    (tree / RESULTS).rename(tree / RESULTS.parent / "gpt-oss-121b")
    assert [(found.code, found.is_warning) for found in check_tree(tree)] == [("benchmark", False)]


def test_another_benchmark_is_a_warning(tree, capsys):
    (tree / RESULTS).rename(tree / RESULTS.parent / "whisper")
    assert main(["check", str(tree)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "no issues, 1 warning"


@pytest.mark.parametrize("name", ["Interactive", "Online"])
def test_the_endpoints_layout_is_a_warning(tree, capsys, name):
    """submission_structure.md: config.yaml, result_summary.json and accuracy_results.json instead of logs."""
    rename("Interactive", name)(tree)
    folder = tree / RESULTS / name
    for run in ("performance", "accuracy"):
        for path in [path for path in (folder / run).rglob("*") if path.is_file()]:
            path.unlink()
    for path in ("config.yaml", "performance/result_summary.json", "accuracy/accuracy_results.json"):
        (folder / path).write_text("{}\n")
    assert [(found.where, found.is_warning) for found in check_tree(tree)] == [(f"{RESULTS}/{name}", True)]
    assert main(["check", str(tree)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "no issues, 1 warning"


def test_missing_logs_are_no_endpoints_layout(tree):
    for run in ("performance/run_1", "accuracy"):
        remove(f"Interactive/{run}/{DETAIL}")(tree)
    (tree / RESULTS / "Interactive/config.yaml").write_text("{}\n")
    assert codes(check_tree(tree)) == "missing-file*2"


def test_power_measurements_are_a_warning(tree):
    """Their files must be there; what they say is not checked."""
    rules, folder = load_rules().power, tree / RESULTS / "Offline/performance"
    shutil.copytree(folder / "run_1", folder / "ranging")
    (folder / "power").mkdir()
    names = [("power", name) for name in rules.power] + [("ranging", "spl.txt"), ("run_1", "spl.txt")]
    for run, name in names:
        (folder / run / name).write_text("1\n")
    found = [found for found in check_tree(tree) if found.code == "power"]
    assert [(found.where, found.is_warning) for found in found] == [
        (f"{RESULTS}/Offline/performance/power", True)
    ]


NAMES = [
    ("closed", "llama3_1-8b", None, "llama3.1-8b"),
    ("closed", "llama3_1-8b-edge", None, "llama3.1-8b-edge"),
    ("closed", "ours", '{"ours": "gpt-oss-120b"}', "ours"),
    ("open", "ours", '{"ours": "gpt-oss-120b"}', "gpt-oss-120b"),
    ("open", "ours", "[1]", "ours"),
]


@pytest.mark.parametrize(("division", "folder", "mapping", "name"), NAMES)
def test_names_of_benchmarks(tmp_path, division, folder, mapping, name):
    """As the official checker maps them."""
    folder = ScenarioDir(tmp_path, division, "MyOrg", "made_up", folder, "Offline")
    folder.org_path.mkdir(parents=True)
    if mapping is not None:
        (folder.org_path / "model_mapping.json").write_text(mapping)
    assert official_name(folder, load_rules()) == name


def test_every_round_knows_our_benchmarks():
    for name in available_rounds():
        rules, ours = load_rules(name), [load_benchmark(one, name) for one in available_benchmarks()]
        assert {benchmark.name for benchmark in ours if benchmark.official} <= set(rules.benchmarks)
        for benchmark in ours:
            assert benchmark.round == name
            assert rules.seeds.items() <= benchmark.loadgen.settings.items()


def test_an_end_as_planned_is_a_warning(tree):
    """A submitter may set max_query_count: every sample was issued all the same."""
    message = "IssueQueryThread 0 Ending early: Max query count reached. query_count 990"
    for name in (f"Offline/TEST07/{RUN}", f"Offline/{RUN}"):
        add_error(tree / RESULTS / name / DETAIL, message)
        edit_text(tree / RESULTS / name / SUMMARY, "No errors encountered", "1 ERROR encountered")
    found = {found.where.removeprefix(f"{RESULTS}/"): found.is_warning for found in check_tree(tree)}
    assert found == {f"Offline/TEST07/{RUN}/{DETAIL}": True, f"Offline/{RUN}/{DETAIL}": False}


def test_an_older_loadgen_logs_no_count_of_accuracy_samples(tree):
    path = tree / RESULTS / "Offline/accuracy" / DETAIL
    lines = [line for line in path.read_text().splitlines() if "effective_accuracy_sample_count" not in line]
    path.write_text("\n".join(lines) + "\n")
    assert check_tree(tree) == ()


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
    lines = [str(issue) for issue in check_tree(tree) if issue.code == "loadgen-errors"]
    assert len(lines) == 1
    assert lines[0].isprintable()


def test_no_nonsense_breaks_the_check(original, tmp_path):
    """Values of wrong types, rows taken out, bytes that are no text: issues, never a traceback."""
    chance = random.Random(7)
    for number in range(24):
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
        for issue in check_tree(tree):
            assert "\n" not in str(issue)
        shutil.rmtree(tree)


def test_a_scenario_in_small_letters(tree):
    """The official checker takes it; with capitals only it fails."""
    rename("Offline", "offline")(tree)
    assert check_tree(tree) == ()


def test_the_command_prints_where_what_rule_and_remedy(tree, capsys):
    row(f"Offline/{RUN}", effective_min_duration_ms=1000)(tree)
    assert main(["check", str(tree)]) == 5
    line, *_, count = capsys.readouterr().out.splitlines()
    where, rest = line.split(": ", 1)
    assert where == f"{RESULTS}/Offline/{RUN}/{DETAIL}"
    what, rule, remedy = rest.split("; ")
    assert what.startswith("[min-duration] ")
    assert "1000" in what
    assert "600000" in what
    assert (rule.split(": ")[0], remedy.split(": ")[0]) == ("rule", "remedy")
    assert count == "1 issue"


@pytest.mark.parametrize("arguments", [["check", "{}/nowhere"], ["check", "{}"]])
def test_unusable_input_is_one_line_and_exit_2(tree, tmp_path, capsys, arguments):
    (tmp_path / "empty").mkdir()
    assert main([word.format(tmp_path / "empty") for word in arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 1
