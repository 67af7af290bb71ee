"""``check``: a right tree gets no complaint, and each damage gets its own."""

import random
import re
import shutil

import msgspec
import pytest

from harness.benchmark import load_benchmark
from harness.compliance.submission.check import check_tree
from harness.compliance.submission.check_tests import check_tests
from harness.compliance.submission.cli import main
from harness.compliance.submission.complaint import RULES
from harness.compliance.submission.evidence import Subject
from harness.compliance.submission.rules import load_rules
from harness.compliance.submission.tree import places
from tests.compliance.submission.damages import (
    DAMAGES,
    DETAIL,
    RUN,
    SUMMARY,
    remove,
    rename,
    row,
    set_accuracy,
    system,
    text,
)
from tests.compliance.submission.trees import (
    RESULTS,
    SYSTEM,
    add_error,
    edit_json,
    unpack,
)
from tests.runs import ROOT


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    return unpack(tmp_path_factory.mktemp("made_up"))


@pytest.fixture
def tree(original, tmp_path):
    return shutil.copytree(original, tmp_path / "submission")


def codes(complaints):
    counts = {}
    for complaint in complaints:
        counts[complaint.code] = counts.get(complaint.code, 0) + 1
    return counts


def test_a_right_tree_gets_no_complaint(tree):
    assert check_tree(tree) == ()


@pytest.mark.parametrize(("change", "expected"), [d[1:] for d in DAMAGES], ids=[d[0] for d in DAMAGES])
def test_each_damage_gets_its_own_complaint(tree, change, expected):
    change(tree)
    found = check_tree(tree)
    if expected is None:  # damage that brings others with it
        assert {"scenario", "mode"} & set(codes(found))
    else:
        assert codes(found) == expected


def test_every_rule_can_be_broken():
    named = {code for _, _, expected in DAMAGES for code in expected or {"mode": 1}}
    assert named | {"benchmark"} == set(RULES)


def test_every_rule_is_documented():
    page = (ROOT / "docs/submission.md").read_text()
    assert [code for code, (rule, _) in RULES.items() if f"| `{code}` | {rule} |" not in page] == []


def test_an_unknown_benchmark(tree):
    (tree / RESULTS).rename(tree / RESULTS.parent / "gpt-oss-121b")
    assert set(codes(check_tree(tree))) == {"benchmark"}


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


TEST06 = "First token check pass: {}\nEOS check pass: {}\nSample length check pass: {}\n"


@pytest.mark.parametrize(
    ("checks", "failed"),
    [
        (("True", "True", "True"), []),
        (("Skipped", "True", "True"), []),
        (("False", "True", "True"), ["First token check pass is not True or Skipped"]),
        (("True", "False", "False"), ["EOS check pass is not True", "Sample length check pass is not True"]),
    ],
)
def test_test06(tree, checks, failed):
    """The official checker asks for the same three lines."""
    place = places(tree)[0]
    benchmark = msgspec.structs.replace(
        load_benchmark("deepseek-r1"), compliance={"TEST06": {"dataset": "performance"}}
    )
    (place.path / "TEST06").mkdir()
    (place.path / "TEST06/verify_accuracy.txt").write_text(TEST06.format(*checks))
    subject = Subject(place, benchmark, "offline", load_rules(), {})
    found = [complaint for complaint in check_tests(subject, None) if complaint.code == "test-failed"]
    assert [complaint.what for complaint in found] == failed


def test_a_hostile_log_cannot_break_the_line(tree):
    add_error(tree / RESULTS / f"Offline/{RUN}" / DETAIL, "one\ntwo\x1b[31m")
    lines = [str(complaint) for complaint in check_tree(tree) if complaint.code == "loadgen-errors"]
    assert len(lines) == 1
    assert lines[0].isprintable()


def test_no_nonsense_breaks_the_check(original, tmp_path):
    """Values of wrong types, rows taken out, bytes that are no text: complaints, never a traceback."""
    chance = random.Random(7)
    for number in range(40):
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
        for complaint in check_tree(tree):
            assert "\n" not in str(complaint)
        shutil.rmtree(tree)


@pytest.mark.parametrize("name", ["offline", "OFFLINE"])
def test_the_case_of_a_scenario_does_not_matter(tree, name):
    rename("Offline", name)(tree)
    assert check_tree(tree) == ()


def test_an_edge_system_needs_no_server(tree):
    remove("Interactive")(tree)
    system(system_type="edge")(tree)
    assert check_tree(tree) == ()


def test_the_command_says_where_what_rule_and_remedy(tree, capsys):
    row(f"Offline/{RUN}", effective_min_duration_ms=1000)(tree)
    assert main(["check", str(tree)]) == 5
    line, count = capsys.readouterr().out.splitlines()
    where, rest = line.split(": ", 1)
    assert where == f"{RESULTS}/Offline/{RUN}/{DETAIL}"
    assert rest.split("; ") == [
        "[min-duration] effective_min_duration_ms is 1000, expected 600000 or more",
        "rule: a performance run lasts 600 s or longer",
        "remedy: repeat the run with the official min_duration",
    ]
    assert count == "1 complaint"


def test_the_command_on_a_right_tree(tree, capsys):
    assert main(["check", str(tree)]) == 0
    assert capsys.readouterr().out == "no complaints\n"


@pytest.mark.parametrize(
    "arguments", [["check", "{}/nowhere"], ["check", "{}"], ["check", "{}/submission", "--round", "v4.0"]]
)
def test_unusable_input_is_one_line_and_exit_2(tree, tmp_path, capsys, arguments):
    (tmp_path / "empty").mkdir()
    folder = tmp_path if "--round" in arguments else tmp_path / "empty"
    assert main([word.format(folder) for word in arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 1
