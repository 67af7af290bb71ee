"""``check``: a correct tree has no issue, and each damage has its own."""

import errno
import json
import os
import random
import re
import shutil
from collections import Counter
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from msgspec.structs import replace

from harness.analysis.run_warnings import same_answer_warnings
from harness.config.benchmark import load_benchmark
from harness.config.choices import available_benchmarks
from harness.config.rounds import available_rounds
from harness.config.scenario import Scenario
from harness.dataset.published import other_than_published
from harness.loadgen_logs.summary_and_detail import read_summary
from harness.record.answer_log import encode_answer
from harness.record.journal import FINISH_REASONS
from harness.record.provenance import GitState
from harness.record.resume import version_changes
from harness.record.run_record import ServerLoad
from harness.submission.checks import check
from harness.submission.checks.check import check_contexts, check_tree, official_name
from harness.submission.checks.context import read_logs
from harness.submission.checks.issue import RULES
from harness.submission.tree.cost import Cost
from harness.submission.tree.layout import ScenarioDir
from harness.submission.tree.round_rules import load_rules
from prepare_submission import main
from tests.harness.submission.building import one_line
from tests.harness.submission.checks.damages import (
    ANSWERS,
    BEGAN,
    DAMAGES,
    INTERACTIVE,
    MULTI_STREAM,
    OFFLINE,
    POINTER,
    RUN,
    TEST07,
    TTFT,
    VERIFY07,
    VERIFY09,
    division,
    error,
    power_file,
    score,
)
from tests.harness.submission.checks.official_checker import accepts, needs_official
from tests.harness.submission.edits import (
    DETAIL,
    ORGANISATION,
    SCORE,
    SUMMARY,
    SYSTEM,
    TREE,
    both,
    copied,
    error_row,
    fields,
    pattern,
    remove,
    rename,
    row,
    text,
    without_row,
    write,
)
from tests.harness.submission.trees import RESULTS, run_record
from tests.kit import parameters
from tests.records import ENDED, rows_with
from tests.runs import ROOT


def codes(issues):
    """Each code, with ? for a warning and its number if that is not one."""
    counts = Counter(issue.code + "?" * issue.is_warning for issue in issues)
    return " ".join(code if n == 1 else f"{code}*{n}" for code, n in sorted(counts.items()))


EACH = pytest.mark.parametrize(("change", "expected"), [d[1:] for d in DAMAGES], ids=[d[0] for d in DAMAGES])


@EACH
def test_each_damage_has_its_own_issue(tree, change, expected):
    change(tree / RESULTS)
    found = check_tree(tree)
    if expected is None:  # damage that brings others with it
        assert {"scenario", "mode"} & {issue.code for issue in found}
    else:
        assert codes(found) == expected


@pytest.mark.parametrize(
    ("change", "what"),
    [(score("83,6"), "is no number"), (text(SCORE, "'exact_match': ", "score "), "is missing")],
)
def test_a_line_with_the_score_needs_no_gpu(tree, change, what):
    """The evaluator writes it again."""
    change(tree / RESULTS)
    (issue,) = check_tree(tree)
    assert (issue.code, issue.where.endswith("accuracy.txt")) == ("accuracy", True)
    assert issue.what.startswith(f"'exact_match' {what}, expected a line with 'exact_match': NUMBER")
    assert issue.costs == Cost.MINUTES


def test_a_latency_is_named_as_it_was_measured(tree):
    row(INTERACTIVE, **{TTFT: 2_512_340_000})(tree / RESULTS)
    (issue,) = [issue for issue in check_tree(tree) if issue.code == "latency"]
    assert issue.what.startswith("p99 of TTFT is 2512.34 ms, expected less than 2000")


def test_what_a_run_has_not_satisfied_is_named(tree):
    unmet = text(f"{OFFLINE}/{SUMMARY}", "Min duration satisfied : Yes", "Min duration satisfied : NO")
    (change,) = (damage for name, damage, _ in DAMAGES if name == "INVALID")
    both(change, unmet)(tree / RESULTS)
    (issue,) = [issue for issue in check_tree(tree) if issue.code == "invalid"]
    assert issue.what == "LoadGen's result is INVALID: not satisfied: Min duration"


def test_a_run_of_another_scenario_lacks_no_result(tree):
    """Which it has under another name."""
    copied(f"{INTERACTIVE}/{DETAIL}", f"{OFFLINE}/{DETAIL}")(tree / RESULTS)
    assert [issue.what for issue in check_tree(tree) if ", the result, is " in issue.what] == []


@pytest.mark.parametrize(("below", "refused"), [(0.0, False), (0.001, True)])
def test_a_score_that_is_the_least_one_passes(tree, below, refused):
    """The rules ask for 99 % of the reference's score, or more."""
    least, _ = load_benchmark("gpt-oss-120b").accuracy["exact_match"].bounds
    score(repr(least - below))(tree / RESULTS)
    assert any(issue.code == "accuracy" for issue in check_tree(tree)) is refused


@needs_official
@pytest.mark.engine
@EACH
def test_what_the_official_checker_refuses_is_an_issue(tree, change, expected):
    change(tree / RESULTS)
    if not accepts(tree):
        assert any(not found.is_warning for found in check_tree(tree))


@pytest.mark.parametrize("run", [OFFLINE, INTERACTIVE, TEST07])
def test_a_row_that_is_missing_is_not_in_the_log(original, run):
    """Another harness may trim its logs; Python's None says nothing to its users."""
    scenario, _, below = run.partition("/")
    (context,) = (one for one in check_contexts(original) if one.dir.folder == scenario)
    logs = read_logs(context, Path(below))
    said = []
    for key in logs.detail.values:
        others = {name: value for name, value in logs.detail.values.items() if name != key}
        context.read[logs.folder] = replace(logs, detail=replace(logs.detail, values=others))
        said += [issue.what for one in check.CHECKS for issue in one(context)]
    assert [what for what in said if "not in the log" in what]
    assert not [what for what in said if re.search(r"\bNone\b", what)]


def test_a_test_without_a_figure_says_so(tree):
    pattern(VERIFY07, "^.*Accuracy score.*$", "")(tree / RESULTS)
    pattern(VERIFY09, "^Mean output tokens.*$", "")(tree / RESULTS)
    said = [issue.what for issue in check_tree(tree)]
    assert "accuracy score is not stated, expected 60.698 to 100" in said
    assert "mean output tokens are not stated, expected 1150.38 to 1406.02" in said


@needs_official
@pytest.mark.engine
def test_it_accepts_the_tree_as_it_is(tree):
    assert accepts(tree)


def test_every_rule_can_be_broken():
    named = {
        code.split("*")[0].removesuffix("?")
        for *_, expected in DAMAGES
        for code in ("mode" if expected is None else expected).split()
    }
    # In test_recorded_trees.py, test_build.py and test_endpoints_run.py.
    elsewhere = {"test06-log", "origin", "failed-requests", "endpoints-benchmark"}
    assert named | elsewhere == set(RULES)


def test_every_rule_is_documented():
    page = (ROOT / "docs/guide/submission.md").read_text()
    assert [code for code, rule in RULES.items() if f"| `{code}` | {rule.text} |\n" not in page] == []


def endpoints_files(scenario):
    names = ("config.yaml", "performance/result_summary.json", "accuracy/accuracy_results.json")
    return (write(f"{scenario}/{name}", "{}\n") for name in names)


POWER = "Offline/performance"
POWER_FILES = [*(f"power/{name}" for name in load_rules().power.power), "ranging/spl.txt", "run_1/spl.txt"]
TESTS = [f"{scenario}/{test}" for scenario in ("Offline", "Interactive") for test in ("TEST07", "TEST09")]
# Their form is checked, and that the power meter has a sample of the run; the rest is for the power checker.
SAMPLE = f"Time,{BEGAN},Watts,812.5,Volts,229.9\n"
LATER = SAMPLE.replace("11-21-2026", "11-22-2026")
MEASURED = {".json": "{}\n", ".log": "started\n", ".txt": SAMPLE + LATER}
MISSED = f"Interactive/TEST07/{RUN}"
# What may be submitted, and the code and the place of a warning.
TAKEN = {
    "the tree as it is": (both(), []),
    "another benchmark": (rename("", "../whisper"), [("benchmark", "whisper")]),
    "files of Endpoints beside LoadGen's logs, which are checked": (both(*endpoints_files("Offline")), []),
    "power measurements": (
        both(
            copied(OFFLINE, f"{POWER}/ranging"),
            *(write(f"{POWER}/{name}", MEASURED[Path(name).suffix]) for name in POWER_FILES),
        ),
        [("power", f"gpt-oss-120b/{POWER}/power")],
    ),
    "no count of accuracy samples, of an older LoadGen": (
        without_row("Offline/accuracy", "effective_accuracy_sample_count"),
        [],
    ),
    "open, without target and tests": (both(score(12.5), *map(remove, TESTS), division("open")), []),
    "open, with a model that was retrained": (
        both(fields("Offline/measurements.json", retraining="Yes, QAT"), division("open")),
        [],
    ),
    # A compliance test is no measurement: only its own verdict and its coverage count.
    "a test that missed its latencies": (
        both(
            row(MISSED, result_validity="INVALID", early_stopping_met=False),
            text(f"{MISSED}/{SUMMARY}", "Result is : VALID", "Result is : INVALID"),
            text(f"{MISSED}/{SUMMARY}", "stopping satisfied: Yes", "stopping satisfied: NO"),
        ),
        [],
    ),
    "the settings of another run in user.conf": (
        write("Offline/user.conf", "*.Offline.target_qps = 8\n"),
        [("user-conf", "gpt-oss-120b/Offline/user.conf")],
    ),
    "a user.conf that LoadGen refuses": (
        write("Offline/user.conf", "*.Offline.target_qps = nine\n"),
        [("user-conf", "gpt-oss-120b/Offline/user.conf")],
    ),
    "a scenario of MLPerf that none of our benchmarks has": (
        both(MULTI_STREAM, row(f"MultiStream/{RUN}", effective_scenario="MultiStream"), division("open")),
        [("scenarios", "gpt-oss-120b")],
    ),
    "settings of another scenario alone": (
        write("Offline/user.conf", "*.Server.target_qps = 8\n"),
        [("user-conf", "gpt-oss-120b/Offline/user.conf")],
    ),
    "settings of Interactive alone": (
        write("Offline/user.conf", "gpt-oss-120b-interactive.Server.target_qps = 8\n"),
        [("user-conf", "gpt-oss-120b/Offline/user.conf")],
    ),
    "two releases of LoadGen": (
        row(OFFLINE, loadgen_version="6.0.8 @ 0123456789"),
        [("origin", "gpt-oss-120b/Offline")],
    ),
    "the same runs in the open division": (
        both(
            copied(f"{TREE}/closed", f"{TREE}/open"),
            fields(f"{TREE}/open/MyOrg/systems/made_up.json", division="open"),
        ),
        [("repeat", "open")],
    ),
    "open, without hash and permutation": (
        both(
            text(SCORE, "hash=", "sum="),
            row(OFFLINE, effective_sample_concatenate_permutation=False),
            division("open"),
        ),
        [],
    ),
    "a scenario in small letters": (rename("Offline", "offline"), []),
    "a test of another model, whose log can be read": (
        write(f"Offline/TEST01/{RUN}/{DETAIL}", ':::MLLOG {"key": "loadgen_version", "value": "6.0.1"}\n'),
        [],
    ),
    "an archive and a git-lfs pointer among the code": (
        both(
            write(f"{ORGANISATION}/src/model.zip", "PK"),
            write(f"{ORGANISATION}/src/weights.bin", POINTER),
        ),
        [],
    ),
    "a file beside the scenarios": (write("notes.txt", "of all scenarios\n"), []),
}


@pytest.mark.parametrize("name", TAKEN)
def test_what_may_be_submitted(tree, capsys, name):
    change, warned = TAKEN[name]
    change(tree / RESULTS)
    found = check_tree(tree)
    assert [(one.code, one.where.split("results/made_up/")[-1]) for one in found if one.is_warning] == warned
    assert len(found) == len(warned)
    assert main(["check", str(tree)]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith(f"no issues{', 1 warning' * len(warned)}")


@pytest.mark.parametrize(
    ("name", "code"), [("660 samples made", "samples-per-query"), ("short answers", "mean-tokens")]
)
def test_what_the_open_division_leaves_open(tree, name, code):
    """Its samples and the length of its answers, whatever else such a log contradicts."""
    (change,) = (damage for one, damage, _ in DAMAGES if one == name)
    both(change, division("open"))(tree / RESULTS)
    assert code not in {issue.code for issue in check_tree(tree)}


def test_runs_of_the_open_division_may_deviate(tree):
    keep(tree, deviations=("dataset has 64 samples",))
    assert codes(check_tree(tree)) == "deviations"
    division("open")(tree / RESULTS)
    kept = tree.with_name(f"{tree.name}.kept")
    (kept / "closed").rename(kept / "open")
    assert check_tree(tree) == ()


def test_runs_of_another_submitter_are_its_own_in_every_division(tree):
    copied(f"{TREE}/closed", f"{TREE}/open")(tree / RESULTS)
    (tree / "open/MyOrg").rename(tree / "open/Other")
    (issue,) = [one for one in check_tree(tree) if one.code == "repeat"]
    assert (issue.where, issue.is_warning) == ("open/Other", False)
    assert re.fullmatch(r"has \d\d logs of the same runs as closed/MyOrg", issue.what)


@pytest.mark.parametrize(("minutes", "is_warning"), [(5, True), (0, False)], ids=["two runs", "one run"])
def test_equal_answers_are_of_two_runs_where_both_have_left_them(tree, minutes, is_warning):
    """Of a server that does not sample; run.json of a copied run is copied, too."""
    results = tree / RESULTS
    both(
        copied(SCORE, SCORE.replace("Offline", "Interactive")),
        copied(f"Offline/{ANSWERS}", f"Interactive/{ANSWERS}"),
    )(results)
    own = re.search(r"hash=(\w{64})", (results / SCORE).read_text())[1]
    before = codes(check_tree(tree))
    for number, name in enumerate(("Offline", "Interactive")):
        kept = tree.with_name(f"{tree.name}.kept") / RESULTS / name / "accuracy"
        kept.mkdir(parents=True)
        record = run_record(results / "Offline/user.conf", "accuracy", scenario=Scenario.parse(name))
        started = ENDED.started + number * timedelta(minutes=minutes)
        replace(record, started=started, accuracy_log_sha256=own).write(kept / "run.json")
    (issue,) = check_tree(tree)
    assert (before, issue.code, issue.is_warning) == ("repeat", "repeat", is_warning)
    (kept / "run.json").unlink()  # without it, nothing shows that there were two
    assert codes(check_tree(tree)) == "repeat"
    replace(record, started=started, accuracy_log_sha256=own).write(kept / "run.json")
    offline = kept.parents[1] / "Offline/accuracy/run.json"
    left = offline.read_bytes()
    offline.write_bytes(left.replace(own.encode(), b"0" * 64))  # of another log than is submitted
    assert codes(check_tree(tree)) == "cross-check repeat"
    offline.write_bytes(left)
    (results / SCORE.replace("Offline", "Interactive")).unlink()  # which says whose answers they are
    (issue,) = [one for one in check_tree(tree) if one.code == "repeat"]
    assert (issue.what, issue.is_warning) == (f"is of the same run as {RESULTS}/Interactive/{ANSWERS}", False)
    assert issue.where == f"{RESULTS}/Offline/{ANSWERS}"


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


AS_PLANNED = "IssueQueryThread 0 Ending early: Max query count reached. query_count 990"


def test_an_end_as_planned_is_a_warning(tree):
    """A submitter may set max_query_count: every sample was issued all the same."""
    both(error(f"Offline/TEST07/{RUN}", AS_PLANNED), error(OFFLINE, AS_PLANNED))(tree / RESULTS)
    found = {found.where.removeprefix(f"{RESULTS}/"): found.is_warning for found in check_tree(tree)}
    assert found == {f"Offline/TEST07/{RUN}/{DETAIL}": True, f"{OFFLINE}/{DETAIL}": False}


@pytest.mark.parametrize(
    "change",
    [
        both(error(TEST07, AS_PLANNED), row(TEST07, generated_samples_per_query=989)),
        both(error(TEST07, AS_PLANNED), error_row(TEST07, "completed twice")),
        both(row(TEST07, num_errors=1), text(f"{TEST07}/{SUMMARY}", "No errors", "1 ERROR")),
    ],
    ids=["a sample was not issued", "another error", "an error without its message"],
)
def test_an_end_that_was_not_planned_is_no_mere_warning(tree, change):
    change(tree / RESULTS)
    (issue,) = [issue for issue in check_tree(tree) if issue.code == "loadgen-errors"]
    assert not issue.is_warning


def test_two_series_of_loadgen_are_no_mere_warning(tree):
    for version in ("5.1.1", "6.1.0"):  # of the others it is 6.0
        row(OFFLINE, loadgen_version=f"{version} @ 0123456789")(tree / RESULTS)
        (issue,) = check_tree(tree)
        assert (issue.code, issue.is_warning) == ("origin", False)


def test_a_hostile_log_cannot_break_the_line(tree):
    error_row(OFFLINE, "one\ntwo\x1b[31m")(tree / RESULTS)
    (line,) = (str(issue) for issue in check_tree(tree) if issue.code == "loadgen-errors")
    assert line.isprintable()


@pytest.mark.engine
def test_no_nonsense_breaks_the_check(tree):
    """Values of wrong types, rows taken out, bytes that are no text: issues, never a traceback."""
    chance = random.Random(7)
    files = sorted(path for path in (tree / "closed").rglob("*") if path.is_file())
    for number in range(24):
        path = chance.choice(files)
        before, lines = path.read_bytes(), path.read_text().splitlines()
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
        path.write_bytes(before)


def test_the_command_prints_where_what_rule_and_remedy(tree, capsys):
    row(OFFLINE, effective_qsl_rng_seed=1000)(tree / RESULTS)
    text(
        f"{OFFLINE}/{SUMMARY}", f"qsl_rng_seed : {load_rules().seeds['qsl_rng_seed']}", "qsl_rng_seed : 1000"
    )(tree / RESULTS)
    assert main(["check", str(tree)]) == 5
    *_, line, count = capsys.readouterr().out.splitlines()
    where, rest = line.split(": ", 1)
    assert where == f"{RESULTS}/{OFFLINE}/{DETAIL}"
    what, rule, remedy = rest.split("; ")
    assert what == f"[seeds] qsl_rng_seed is 1000, expected {load_rules().seeds['qsl_rng_seed']}"
    assert (rule.split(": ")[0], remedy.split(": ")[0]) == ("rule", "remedy")
    assert count.startswith("1 issue (GPU hours: 1), ")


def test_a_warning_is_shown_above_the_count(tree, capsys):
    power_file("PSUs: [1, 2]")(tree / RESULTS)
    assert main(["check", str(tree)]) == 0
    *_, line, count = capsys.readouterr().out.splitlines()
    assert "/systems/made_up_power.yaml: " in line and "lists no component" in line
    assert count.startswith("no issues, 1 warning, ")


def test_issues_are_listed_by_what_they_cost_and_json_has_it(tree, capsys):
    both(
        write("Offline/measurements.json", "{}"),
        remove("Offline/TEST07"),
        text("Offline/accuracy/accuracy.txt", "hash=", "# hash="),
    )(tree / RESULTS)
    assert main(["check", str(tree)]) == 5
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith(("closed/", "to mend"))]
    assert [re.search(r"with (.*) \(|\[(.*?)\]", line).group(1, 2) for line in lines] == [
        ("GPU hours", None),
        (None, "test-missing"),
        ("minutes", None),
        (None, "hash"),
        ("a text edit", None),
        (None, "measurements"),
    ]
    assert main(["check", str(tree), "--json"]) == 5
    found = json.loads(capsys.readouterr().out)
    assert {issue["code"]: issue["cost"] for issue in found["issues"]} == {
        "test-missing": "GPU hours",
        "hash": "minutes",
        "measurements": "a text edit",
    }
    assert [row["scenario"] for row in found["results"]] == ["Interactive", "Offline"]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (both(), ("Server", "is empty", "a text edit")),
        (remove("Interactive"), ("gpt-oss-120b", "Server or Interactive is missing", "GPU hours")),
    ],
)
def test_an_empty_folder_is_one_issue(tree, change, expected):
    both(change, lambda results: (results / "Server/performance/run_1").mkdir(parents=True))(tree / RESULTS)
    (issue,) = check_tree(tree)
    assert (Path(issue.where).name, issue.what, issue.costs) == expected
    assert str(issue).endswith(f"; remedy: {issue.fields()['remedy']}")


def keep(tree, run=RUN, **fields):
    """The run.json of an Offline run, with other fields, beside the tree."""
    kept = tree.with_name(f"{tree.name}.kept") / RESULTS / "Offline" / run
    kept.mkdir(parents=True)
    replace(run_record(tree / RESULTS / "Offline/user.conf"), **fields).write(kept / "run.json")


@pytest.mark.parametrize(
    ("mean", "differs"),
    [(22.5178, False), (22.54, True), (None, False)],  # None: no query was answered
)
def test_a_score_of_another_run_than_the_kept_record(tree, mean, differs):
    """Such as accuracy.txt of the other scenario, which has the same model and dataset."""
    keep(tree, "accuracy", statistics=replace(ENDED.statistics, osl_mean=mean))
    found = [(issue.code, issue.where.partition("Offline/")[2]) for issue in check_tree(tree)]
    assert found == [("cross-check", "accuracy/accuracy.txt")] * differs


@pytest.mark.parametrize("run", [RUN, "TEST07", "TEST09"])
def test_logs_of_another_run_than_the_kept_record(tree, run):
    """Mean output lengths of two runs may be equal; a latency in ns is not."""
    folder = run if run == RUN else f"{run}/{RUN}"
    own = read_summary(tree / RESULTS / "Offline" / folder / SUMMARY)
    keep(tree, run, loadgen=own)
    assert check_tree(tree) == ()
    slowest = own.figures["Max latency (ns)"] + 1
    shutil.rmtree(tree.with_name(f"{tree.name}.kept"))
    keep(tree, run, loadgen=replace(own, figures=own.figures | {"Max latency (ns)": slowest}))
    (issue,) = check_tree(tree)
    assert (issue.code, issue.where.partition("Offline/")[2]) == ("cross-check", f"{folder}/{SUMMARY}")
    assert issue.what.endswith(f"the run.json of this run has {slowest}")


@pytest.mark.parametrize("run", ["accuracy", "TEST07", "TEST09"])
def test_the_warnings_in_accuracy_txt_are_repeated(tree, run):
    text = tree / RESULTS / "Offline" / run.removesuffix("accuracy") / "accuracy/accuracy.txt"
    lines = ["WARNING: 2 outputs go on behind their end", "WARNING:root:of a logger", "no WARNING: here"]
    text.write_text("\n".join((*lines, text.read_text())))
    (issue,) = check_tree(tree)
    assert (issue.is_warning, tree / issue.where) == (True, text)
    assert issue.what == "2 outputs go on behind their end"


@pytest.mark.parametrize("run", ["accuracy", "TEST07", "TEST09"])
def test_a_log_that_is_not_the_one_of_the_kept_record(tree, run):
    """Mean lengths agree where every answer is as long as it may be."""
    text = tree / RESULTS / "Offline" / run.removesuffix("accuracy") / "accuracy/accuracy.txt"
    own = re.search(r"hash=(\w{64})", text.read_text())[1]
    keep(tree, run, accuracy_log_sha256=own)
    assert check_tree(tree) == ()
    text.write_text(text.read_text().replace(own, "5" * 64))
    (issue,) = check_tree(tree)
    assert (issue.code, issue.is_warning, Path(issue.where)) == ("cross-check", False, text.relative_to(tree))
    assert "has the hash 555555555555…" in issue.what and f"this run has {own[:12]}…" in issue.what
    text.write_text(text.read_text().replace("hash=", "sum="))
    assert codes(check_tree(tree)) == "hash"


@pytest.mark.parametrize(
    ("servers", "settings", "warned"),
    [
        (1, {"tp_size": 1, "dp_size": 8}, ""),  # the system has 8
        (1, {"tp_size": 8, "dp_size": 8, "enable_dp_attention": True}, ""),
        (1, {"tp_size": 4, "dp_size": 4, "enable_dp_attention": True}, "the servers of the run used 4"),
        (2, {"tp_size": 2, "pp_size": 2}, ""),
        (2, {"tp_size": 1, "dp_size": 8}, "the servers of the run used 16"),
        (1, {"tp_size": 4}, "the servers of the run used 4"),
        (1, {"tp_size": 4, "pp_size": "auto"}, ""),  # unknown
        (1, {"tp_size": 4, "dp_size": "auto"}, ""),
        (1, {"version": "0.5.23 (Rust server)"}, ""),
        (1, {"version": "0.5.2"}, "the servers of the run reported version 0.5.2"),
        (1, {"version": "5.23"}, "the servers of the run reported version 5.23"),
        (
            1,
            {"version": "0.5.24"},
            "framework is 'SGLang 0.5.23', the servers of the run reported version 0.5.24",
        ),
        (1, {}, ""),
    ],
)
def test_a_system_that_is_not_of_the_servers(tree, servers, settings, warned):
    """A description of one node in the tree of two, or of the last round."""
    server = run_record(tree / RESULTS / "Offline/user.conf").servers[0]
    server = replace(server, settings=settings, version=settings.get("version", "0.5.23"))
    keep(tree, servers=(server,) * servers)
    found = [(one.code, one.is_warning, one.what) for one in check_tree(tree)]
    assert [(code, is_warning) for code, is_warning, _ in found] == [("cross-check", True)] * bool(warned)
    assert all(warned in what for *_, what in found)


@pytest.mark.parametrize("framework", ["sglang_0.5.2_cu129", "SGLang v.0.5.2"])
def test_a_version_within_other_words_is_that_of_the_servers(tree, framework):
    fields(SYSTEM, framework=framework)(tree / RESULTS)
    server = run_record(tree / RESULTS / "Offline/user.conf").servers[0]
    keep(tree, servers=(replace(server, version="0.5.2"),))
    assert not check_tree(tree)


@pytest.mark.parametrize("name", ["number_of_nodes", "accelerators_per_node"])
def test_a_system_without_a_number_is_not_compared_with_the_servers(tree, name):
    fields(SYSTEM, **{name: ""})(tree / RESULTS)
    server = run_record(tree / RESULTS / "Offline/user.conf").servers[0]
    keep(tree, servers=(replace(server, settings={"tp_size": 4}, version="0.5.23"),))
    assert codes(check_tree(tree)) == "system"


@pytest.mark.parametrize(
    ("stated", "quantization", "warned"),
    [
        ("mxfp4", "mxfp4", False),
        ("fp16", "fp8", True),
        ("FP8", "modelopt_fp4", True),
        ("mxfp4", "w8a8_int8", True),
        ("fp4, fp8", "petit_nvfp4", False),
        ("fp4", "w4afp8", False),  # its activations have 8 bits
        ("fp8", "modelopt", False),
        ("fp8", "quark", False),
        ("as published", "fp8", False),
        ("fp8", None, False),  # the checkpoint may be quantized
    ],
)
def test_weights_that_are_not_those_of_the_servers(tree, stated, quantization, warned):
    fields("Offline/measurements.json", weight_data_types=stated)(tree / RESULTS)
    server = run_record(tree / RESULTS / "Offline/user.conf").servers[0]
    settings = {} if quantization is None else {"quantization": quantization}
    keep(tree, servers=(replace(server, settings=settings),))
    found = [(one.code, one.is_warning, one.where) for one in check_tree(tree)]
    assert found == [("cross-check", True, f"{RESULTS}/Offline/measurements.json")] * warned


def test_prompts_from_a_cache_across_queries_are_a_warning_to_the_end(tree):
    """Counts of vLLM 0.33.0 with a KV connector; its options had not shown that."""
    counts = {"external_cached_tokens": 7936.0, "prompt_tokens": 11_636.0}
    keep(tree, server_load=ServerLoad(rounds=13, servers=1, counts=counts))
    (issue,) = check_tree(tree)
    assert (issue.code, issue.is_warning) == ("deviations", True)
    assert "7,936 prompt tokens, 68.2% of all" in issue.what


def other_data():
    benchmark = load_benchmark("gpt-oss-120b")
    rule = benchmark.datasets["performance"]
    return other_than_published(benchmark.name, rule, ROOT / "datasets/samples/perf_sample.parquet")


def same_answers():
    rows = rows_with(200, sample_index=np.arange(200) % 50, osl=9, finish=FINISH_REASONS.index("stop"))
    (warning,) = same_answer_warnings(parameters(), rows)
    return warning


def other_commit():
    """src/ has the code of the last attempt alone."""
    earlier = GitState("1" * 40, dirty=False)
    with TemporaryDirectory() as folder:
        attempt = Path(folder, "attempt.1")
        (attempt / "journal").mkdir(parents=True)
        (attempt / "journal/answers-0.bin").write_bytes(encode_answer(0, 1, bytes(4)))
        replace(ENDED, provenance=replace(ENDED.provenance, git=earlier)).write(attempt / "run.json")
        (warning,) = version_changes(Path(folder), ENDED)
    return warning


@pytest.mark.parametrize("made", [other_data, same_answers, other_commit])
def test_a_warning_about_the_rules_stays_one_to_the_end(tree, made):
    keep(tree, warnings=("resumed: 3 of 64 answers are of an earlier attempt", warning := made()))
    (issue,) = check_tree(tree)
    assert (issue.code, issue.is_warning, issue.what) == ("deviations", True, warning)


def test_a_deviation_that_the_logs_show_is_one_issue(tree):
    row(OFFLINE, effective_min_duration_ms=1000)(tree / RESULTS)
    deviations = ("LoadGen min_duration_ms is 1000, the rules say 600000", "dataset has 64 samples")
    keep(tree, deviations=deviations)
    found = {(issue.code, issue.what) for issue in check_tree(tree)}
    assert ("min-duration", "effective_min_duration_ms is 1000, expected 600000 or more") in found
    assert [what for code, what in found if code == "deviations"] == ["dataset has 64 samples"]


OLD = f"{ORGANISATION}/compliance/made_up/gpt-oss-120b/Offline"
# What is missing, and where it lies instead: from the benchmark's folder.
MISPLACED = [
    ("Offline/TEST07", "Offline/TEST7"),
    ("Offline/user.conf", "Offline/User.conf"),
    (f"{ORGANISATION}/src", f"{ORGANISATION}/code"),
    (SYSTEM, SYSTEM.replace("made_up", "Made-up")),
    (SYSTEM, SYSTEM.replace("made_up", "8xH200")),  # the folder of results was renamed
    ("Offline/TEST07", f"{OLD}/TEST07"),
    ("Offline/measurements.json", f"{OLD.replace('compliance', 'measurements')}/made_up_Offline.json"),
]


@pytest.mark.parametrize(("expected", "found"), MISPLACED)
def test_a_file_under_another_name_is_found(tree, expected, found):
    """As v5.1 had them, or mistyped: nothing needs to be run again."""
    results = tree / RESULTS
    (results / found).parent.mkdir(parents=True, exist_ok=True)
    rename(expected, found)(results)
    (issue,) = check_tree(tree)
    names = [Path(os.path.normpath(RESULTS / name)).as_posix() for name in (expected, found)]
    assert issue.where == names[0] and names[1] in issue.what
    assert names[0] in issue.remedy and issue.remedy in str(issue)


def test_power_measurements_have_their_form_and_a_sample_of_the_run(tree):
    """One that is later, and one of no power."""
    samples = "Time\nTime,now,Watts,1\n" + LATER + SAMPLE.replace("812.5", "0")
    files = {"power/client.json": "{", "power/client.log": "", "run_1/spl.txt": samples}
    for change in (
        TAKEN["power measurements"][0],
        *(write(f"{POWER}/{name}", files[name]) for name in files),
    ):
        change(tree / RESULTS)
    found = {issue.where.partition(f"{POWER}/")[2] for issue in check_tree(tree) if not issue.is_warning}
    assert found == {*files}


def test_power_measurements_with_a_file_of_another(tree):
    TAKEN["power measurements"][0](tree / RESULTS)
    rename(f"{POWER}/ranging/spl.txt", f"{POWER}/ranging/notes.txt")(tree / RESULTS)
    found = [(one.code, one.what) for one in check_tree(tree) if not one.is_warning]
    assert found == [("power", "missing: spl.txt"), ("power", "not expected: notes.txt")]


@pytest.mark.parametrize(
    ("change", "is_missing"),
    [
        (both(), True),
        (fields(SYSTEM, system_power_capacity=10_200.5), False),
        (power_file("Rack: {PSUs: [{PowerCapacityWatts: 800}], Min PSUs Needed: 1}"), False),
    ],
)
def test_power_measurements_need_the_design_power(tree, change, is_missing):
    both(TAKEN["power measurements"][0], change)(tree / RESULTS)
    (issue,) = check_tree(tree)
    assert ("the design power is missing" in issue.what) is is_missing


def test_a_division_is_no_tree(tree, capsys):
    for name in ("closed", "closed/MyOrg/results"):
        assert main(["check", str(tree / name)]) == 2
        assert one_line(capsys).endswith(f" {tree}\n")


def test_an_entry_that_cannot_be_read_ends_no_other_check(tree, monkeypatch):
    """The kernel's answer to a user who may not read; root may read everything."""
    path = tree / RESULTS / "Offline/performance/power"

    def denied(context):
        if context.dir.folder == "Offline":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        yield from ()

    monkeypatch.setattr(check, "CHECKS", (denied, *check.CHECKS))
    remove("Offline/TEST09")(tree / RESULTS)
    issues = check_tree(tree)
    assert codes(issues) == "files test-missing"
    assert f"{RESULTS}/Offline/performance/power" in {issue.where for issue in issues}


def test_issues_stand_below_the_table_with_its_submitters(tree, capsys):
    remove("Offline/user.conf")(tree / RESULTS)
    assert main(["check", str(tree)]) == 5
    head, *rows, heading, issue, count = capsys.readouterr().out.splitlines()
    assert head.split()[:2] == ["submitter", "system"]
    assert [line.split()[:2] for line in rows] == [["MyOrg", "made_up"]] * 2
    assert heading == "to mend with minutes (1):"
    unseen = "2 results checked without run.json of each run, which shows deviations and origin"
    assert "[missing-file]" in issue and count == f"1 issue (minutes: 1), {unseen}"
    for run, said in ((RUN, unseen), ("accuracy", unseen), ("TEST07", unseen), ("TEST09", None)):
        keep(tree, run)
        main(["check", str(tree)])
        said = said or unseen.replace("2 results", "1 result")
        assert capsys.readouterr().out.endswith(f", {said}\n")
    assert counts_in_json(tree, capsys) == {"not_checked": 0, "without_run_json": 1}


def test_what_is_not_checked_is_counted(tree, capsys):
    rename("", "../whisper")(tree / RESULTS)
    assert main(["check", str(tree)]) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith(", 2 results not checked")
    assert counts_in_json(tree, capsys) == {"not_checked": 2, "without_run_json": 0}


def counts_in_json(tree, capsys):
    main(["check", str(tree), "--json"])
    return {name: value for name, value in json.loads(capsys.readouterr().out).items() if type(value) is int}


@pytest.mark.parametrize("arguments", [["check", "{}/nowhere"], ["check", "{}"]])
def test_unusable_input_is_one_line_and_exit_2(tree, tmp_path, capsys, arguments):
    (tmp_path / "empty").mkdir()
    assert main([word.format(tmp_path / "empty") for word in arguments]) == 2
    assert one_line(capsys)
