"""Every change to a passing tree that breaks a rule is an error: of MLCommons's checker, or of ours."""

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from harness.endpoints.checks import log_rules
from harness.endpoints.checks.checked_point import PointFiles
from harness.endpoints.checks.finding import OFFICIAL, OURS, Finding, Severity
from harness.endpoints.checks.official_checker import interpreter
from harness.endpoints.checks.point_rules import check_salt, duration_ms
from harness.endpoints.checks.tree_check import check_tree
from harness.endpoints.planning.rules import load_endpoints_rules
from harness.endpoints.point_run import write_point_run
from harness.endpoints.run_folder import POINT_RUN
from harness.endpoints.samples import SAMPLE, Samples
from harness.yaml_files import read_yaml
from tests import endpoints_kit
from tests.harness.endpoints.checks.passing import (
    LEVELS,
    LOGGED,
    PASSES,
    RESULTS,
    SAMPLES,
    SCORED,
    accuracy,
    rate,
    write,
    write_log,
    write_passing,
)

needs_official = pytest.mark.skipif(interpreter() is None, reason="endpoints-submission-cli is not installed")
Edit = Callable[[dict[str, Any]], Any]


@pytest.fixture(scope="module")
def passing(tmp_path_factory) -> Path:
    return write_passing(tmp_path_factory.mktemp("passing"))


@pytest.fixture
def tree(passing, tmp_path) -> Path:
    return shutil.copytree(passing, tmp_path / "changed", ignore=shutil.ignore_patterns("runs"))


@pytest.fixture
def logged(passing, tmp_path) -> Path:
    """A tree beside the log of a run of it."""
    return shutil.copytree(passing, tmp_path / "logged")


def edit(root: Path, level: int, name: str, change: Edit) -> None:
    path = root / RESULTS / f"r{level}" / name
    content = read_yaml(path) if path.suffix == ".yaml" else json.loads(path.read_text())
    change(content)
    write(path, content)


def everywhere(name: str, change: Edit, levels: Sequence[int] = tuple(LEVELS)) -> Callable[[Path], None]:
    """A change of a file of some points."""

    def changed(root: Path) -> None:
        for level in levels:
            edit(root, level, name, change)

    return changed


def one(name: str, change: Edit, level: int = LOGGED) -> Callable[[Path], None]:
    """A change of a file of one point."""
    return everywhere(name, change, (level,))


def point_of(*keys: str, value: Any) -> Callable[[Path], None]:
    """A value of the point whose log is there."""

    def change(content: dict[str, Any]) -> None:
        for key in keys[:-1]:
            content = content[key]
        content[keys[-1]] = value

    return one("point.yaml", change)


def without(*names: str) -> Callable[[Path], None]:
    """A tree without some points."""

    def change(root: Path) -> None:
        for name in names:
            shutil.rmtree(root / RESULTS / name)

    return change


def removed(level: int, name: str) -> Callable[[Path], None]:
    return lambda root: (root / RESULTS / f"r{level}" / name).unlink()


def renamed(old: Path, new: Path) -> Callable[[Path], Path]:
    return lambda root: (root / old).rename(root / new)


def errors(found: Sequence[Finding], source: str) -> set[str]:
    return {one.rule for one in found if one.severity is Severity.ERROR and one.source == source}


def drafter(content: dict[str, Any]) -> None:
    content["speculative_decoding"] = {"drafter_model_id": "someone/else", "drafter_checksum": "0" * 40}


def half_a_pass(content: dict[str, Any]) -> None:
    content |= {"n_samples_issued": SAMPLES // 2, "n_samples_completed": SAMPLES // 2}


def failed(content: dict[str, Any]) -> None:
    content["n_samples_failed"] = 500
    content["n_samples_completed"] -= 500


def seven_more(content: dict[str, Any]) -> None:
    content["n_samples_issued"] += 7
    content["n_samples_completed"] += 7


def lasts(seconds: float, *, claimed: bool) -> Callable[[Path], None]:
    """A run of this length with the same rates; ``claimed``: its block still says 1 200 s."""

    def change(root: Path) -> None:
        def shorter(content: dict[str, Any]) -> None:
            tokens = content["output_sequence_lengths"]
            tokens["total"] = round(tokens["total"] * seconds * 1e9 / content["duration_ns"])
            content["duration_ns"] = round(seconds * 1e9)

        edit(root, 512, "result_summary.json", shorter)
        if not claimed:
            edit(root, 512, "point.yaml", lambda it: it["steady_state"]["window"].update(duration_s=seconds))

    return change


def scored(**fields: Any) -> Callable[[Path], None]:
    """Fields of the accuracy run of the point whose log is there."""
    return one("accuracy_results.json", lambda it: it["accuracy_scores"][0].update(fields))


def copied(name: str, source: int, target: int) -> Callable[[Path], None]:
    def change(root: Path) -> None:
        (root / RESULTS / f"r{target}" / name).write_bytes(
            (root / RESULTS / f"r{source}" / name).read_bytes()
        )

    return change


CAUGHT = {
    "wrong seed": (point_of("runtime_settings", "runtime", "model_seed", value=42), "seed-runtime-match"),
    "unknown seed set": (
        everywhere("point.yaml", lambda it: it.update(seed_set="Z")),
        "seed-set-membership",
    ),
    "no point in Low": (without("r8"), "low-concurrency-coverage"),
    "no point in Medium": (without("r32", "r64"), "med-concurrency-coverage"),
    "Poisson": (point_of("runtime_settings", "load_pattern", value="poisson"), "load-pattern"),
    "a window of two passes": (
        point_of("steady_state", "window", "super_pass_end", value=1),
        "steady-state-consistency",
    ),
    "accuracy of 70": (
        lambda root: write(root / RESULTS / "r64/accuracy_results.json", accuracy(70.0)),
        "accuracy-gate",
    ),
    "no accuracy in a band": (removed(64, "accuracy_results.json"), "accuracy-coverage"),
    "issued is not completed and failed": (
        one("result_summary.json", lambda it: it.update(n_samples_failed=5)),
        "metric-consistency-accounting",
    ),
    "tokens doubled": (
        one("result_summary.json", lambda it: it["output_sequence_lengths"].update(total=25584000), 1024),
        "tps-utilization",
    ),
    "no TPOT": (one("result_summary.json", lambda it: it.pop("tpot")), "metric-consistency-tpot-p90"),
    "no Offline": (without(f"r{SAMPLES}"), "offline-point-present"),
    "a drafter that is not approved": (one("point.yaml", drafter), "approved-drafter"),
    "no warm-up": (one("point.yaml", lambda it: it.pop("warmup")), "warmup-present"),
    "another GPU in one point": (
        one("system_desc.json", lambda it: it["node_types"][0].update(driver="570")),
        "system-description-consistency",
    ),
    "half a pass": (one("result_summary.json", half_a_pass, 512), "min-query-count"),
    "the model's folder": (
        renamed(RESULTS, RESULTS.with_name("gpt-oss")),
        "model-name-consistency",
    ),
}
# The detector cut off a pass as ramp-up, and counts the window's from 0 after it.
RAMPED = endpoints_kit.headline(
    endpoints_kit.point_run(endpoints_kit.curve().points[3], passes=PASSES, completed=PASSES * SAMPLES)
) | {"n_super_passes": PASSES + 1}
LET_THROUGH = {
    "300 s instead of 1 200 s": (lasts(300.0, claimed=False), "issue-time"),
    "300 s, and the block claims 1 200 s": (lasts(300.0, claimed=True), "issue-time"),
    "min_duration_ms of 300 000": (
        point_of("runtime_settings", "min_duration_ms", value=300_000),
        "min-duration",
    ),
    "7 samples more than passes": (one("result_summary.json", seven_more, 512), "whole-passes"),
    "500 failed": (one("result_summary.json", failed, 512), "failures"),
    "no steady state": (one("point.yaml", lambda it: it.pop("steady_state")), "steady-state"),
    "drifting up": (point_of("steady_state", "verdict", value="drifting_up"), "steady-state"),
    "salt off": (point_of("runtime_settings", "salt", value=False), "salt"),
    "salted accuracy": (point_of("runtime_settings", "accuracy", value={"salt": True}), "accuracy-salt"),
    "a salt of 32 bits": (point_of("runtime_settings", "salt", value={"bits": 32}), "salt"),
    "a steady state that is not the summary's": (
        one("result_summary.json", lambda it: it.update(steady_state=RAMPED)),
        "steady-state-differs",
    ),
    "no window": (point_of("steady_state", "window", value={}), "steady-state-differs"),
    "a window before the run": (
        point_of("steady_state", "window", "super_pass_start", value=-1),
        "steady-state-differs",
    ),
    "a window beyond the run": (
        point_of("steady_state", "window", "super_pass_end", value=4),
        "steady-state-differs",
    ),
    "super-passes of another size": (
        point_of("steady_state", "window", "super_pass_size", value=100),
        "steady-state-differs",
    ),
    "no TTFT percentiles": (one("result_summary.json", lambda it: it["ttft"].pop("percentiles")), "ttft"),
    "no TTFT": (one("result_summary.json", lambda it: it.pop("ttft")), "ttft"),
    "no output tokens": (
        one("result_summary.json", lambda it: it.update(output_sequence_lengths={})),
        "output-tokens",
    ),
    "no word on whether it is complete": (
        one("result_summary.json", lambda it: it.update(complete=None)),
        "incomplete",
    ),
    "config.yaml of another concurrency": (
        one("config.yaml", lambda it: it["settings"]["load_pattern"].update(target_concurrency=128)),
        "config-differs",
    ),
    "the summary of another point": (copied("result_summary.json", 512, 256), "copied"),
    "the score of another point": (copied("accuracy_results.json", 8, LOGGED), "copied"),
    "the accuracy of another point": (
        one("accuracy_results.json", lambda it: it["accuracy_scores"][0].update(concurrency=8)),
        "copied",
    ),
    "a score under another name": (scored(score={"exact": 83.5}), "accuracy"),
    "a score of a part of the answers": (scored(complete=False), "accuracy"),
    "a score without an answer": (scored(response_counts={"missing": 1}), "accuracy"),
    "another precision in one point": (point_of("model_precision", value="FP8"), "points-differ"),
    "another C_max in one point": (point_of("max_supported_concurrency", value=2048), "points-differ"),
    "another division in one point": (point_of("division", value="RDI"), "points-differ"),
    "another cohort in one point": (point_of("target_cohort", value="2026-12-C0"), "points-differ"),
    "folder r1000 for 1 024": (renamed(RESULTS / "r1024", RESULTS / "r1000"), "folder-name"),
}


@pytest.mark.engine
@needs_official
def test_the_passing_tree_passes(logged):
    found = check_tree(logged)
    assert [str(one) for one in found if one.severity is Severity.ERROR] == []
    assert any(one.source == OFFICIAL for one in found)


@pytest.mark.engine
@needs_official
@pytest.mark.parametrize("change", CAUGHT)
def test_mlcommons_s_checker_catches(tree, change):
    make, rule = CAUGHT[change]
    make(tree)
    assert rule in errors(check_tree(tree), OFFICIAL)


@pytest.mark.parametrize("change", LET_THROUGH)
def test_ours_catches_what_mlcommons_s_lets_through(tree, change):
    make, rule = LET_THROUGH[change]
    make(tree)
    found = check_tree(tree, officially=False)
    assert rule in errors(found, OURS)
    (error, *_) = [one for one in found if one.rule == rule and one.severity is Severity.ERROR]
    assert all((error.path, error.got, error.expected, error.remedy, error.section))


AGENTIC_UNSALTED = {"enable_salt": False}
SAID = {
    "a score of a part, where config.yaml alone names the model": (
        lambda root: [
            change(root)
            for change in (scored(complete=False), one("point.yaml", lambda it: it.update(model_name="")))
        ],
        ("accuracy", Severity.ERROR),
    ),
    "an interrupted run": (
        one("result_summary.json", lambda it: it.update(complete=False, state="interrupted")),
        ("incomplete", Severity.ERROR),
    ),
    "a window without a size, of a dataset that nothing describes": (
        lambda root: [
            change(root)
            for change in (
                point_of("steady_state", "window", value={"super_pass_start": 0, "super_pass_end": 3}),
                point_of("dataset", value="own"),
                one("config.yaml", lambda it: it["datasets"][0].pop("samples")),
            )
        ],
        ("steady-state-differs", Severity.ERROR),
    ),
    "a score in another form": (
        lambda root: write(root / RESULTS / f"r{LOGGED}/accuracy_results.json", {"accuracy_scores": 83.5}),
        ("unreadable", Severity.ERROR),
    ),
    "an interrupted run of a client that does not say whether it is complete": (
        one("result_summary.json", lambda it: (it.pop("complete"), it.update(state="interrupted"))),
        ("incomplete", Severity.ERROR),
    ),
    "an interrupted run of a client that writes its state in capitals": (
        one("result_summary.json", lambda it: (it.pop("complete"), it.update(state="INTERRUPTED"))),
        ("incomplete", Severity.ERROR),
    ),
    "an agentic dataset without salt": (
        lambda root: [
            change(root)
            for change in (
                one("point.yaml", lambda it: it["runtime_settings"].pop("salt")),
                one("config.yaml", lambda it: it["datasets"][0].update(agentic_inference=AGENTIC_UNSALTED)),
            )
        ],
        ("salt", Severity.ERROR),
    ),
    "a TTFT of 0": (
        one("result_summary.json", lambda it: it["ttft"]["percentiles"].update({"90.0": 0.0})),
        ("ttft", Severity.ERROR),
    ),
    "an anomaly": (
        point_of("steady_state", "verdict", value="anomaly"),
        ("steady-state", Severity.WARNING),
    ),
    "too few passes": (
        point_of("steady_state", "status", value="insufficient_passes"),
        ("super-passes", Severity.ERROR),
    ),
    "a window of three passes": (
        point_of("steady_state", "window", "super_pass_end", value=2),
        ("super-passes", Severity.ERROR),
    ),
    "no number of requests": (
        one("result_summary.json", lambda it: it.pop("n_samples_issued")),
        ("whole-passes", Severity.UNKNOWN),
    ),
    "no request at all, where section 6.4 wants a positive multiple of the dataset": (
        one("result_summary.json", lambda it: it.update(n_samples_issued=0)),
        ("whole-passes", Severity.ERROR),
    ),
    "no number of failures": (
        one("result_summary.json", lambda it: it.update(n_samples_failed="many")),
        ("failures", Severity.ERROR),
    ),
    "no token in any point, of which the utilization would be a part of nothing": (
        everywhere("result_summary.json", lambda it: it["output_sequence_lengths"].update(total=0)),
        ("output-tokens", Severity.ERROR),
    ),
    "no duration": (
        one("result_summary.json", lambda it: it.pop("duration_ns")),
        ("issue-time", Severity.ERROR),
    ),
    "no duration of Offline, whose rate is compared with C_max's": (
        one("result_summary.json", lambda it: it.pop("duration_ns"), SAMPLES),
        ("issue-time", Severity.ERROR),
    ),
}


@pytest.mark.parametrize("change", SAID)
def test_what_else_ours_says(tree, change):
    make, expected = SAID[change]
    make(tree)
    assert expected in {(one.rule, one.severity) for one in check_tree(tree, officially=False)}


def test_the_one_point_that_differs_is_named(tree):
    point_of("max_supported_concurrency", value=2048)(tree)
    named = [
        (one.path, one.expected) for one in check_tree(tree, officially=False) if one.rule == "points-differ"
    ]
    where = f"{RESULTS.relative_to('tree')}/r{LOGGED}/point.yaml"
    assert named == [(where, "1024 as in the other points")]
    (tree / RESULTS / f"r{LOGGED}/point.yaml").write_text("[")
    found = {one.rule for one in check_tree(tree, officially=False)}
    assert "unreadable" in found and "points-differ" not in found


def test_a_client_need_not_say_that_a_run_is_complete(tree):
    one("result_summary.json", lambda it: (it.pop("complete"), it.pop("state")))(tree)
    assert errors(check_tree(tree, officially=False), OURS) == set()


def test_what_a_window_lacks_is_named(tree):
    point_of("steady_state", "window", value={})(tree)
    said = [one.got for one in check_tree(tree, officially=False) if one.rule == "steady-state-differs"]
    lacks = "super_pass_start, super_pass_end, super_pass_size, duration_s"
    assert said == [f"the status is windowable, but the window has no {lacks}"]


def test_too_few_passes_have_no_window(tree):
    """Section 4.4 of the rules: only the numbers of a windowable point are its window's."""
    point_of("steady_state", "status", value="insufficient_passes")(tree)
    point_of("steady_state", "window", value={})(tree)
    assert errors(check_tree(tree, officially=False), OURS) == {"super-passes"}


def test_a_headline_does_not_say_whether_its_only_super_pass_is_complete(tree):
    of_point = {"status": "partial_dataset", "verdict": "not found"}
    one("point.yaml", lambda it: it.update(steady_state=of_point))(tree)
    summary = {"found": False, "superpass_size": SAMPLES, "n_super_passes": 1, "n_post_warmup": 1}
    one("result_summary.json", lambda it: it.update(steady_state=summary))(tree)
    assert "steady-state-differs" not in errors(check_tree(tree, officially=False), OURS)
    summary["found"] = True
    one("result_summary.json", lambda it: it.update(steady_state=summary))(tree)
    assert "steady-state-differs" in errors(check_tree(tree, officially=False), OURS)


def test_a_window_of_a_run_whose_headline_has_too_few_passes_for_one(tree):
    summary = {"found": False, "superpass_size": SAMPLES, "n_super_passes": 1, "n_post_warmup": 1}
    one("result_summary.json", lambda it: it.update(steady_state=summary))(tree)
    differs = [one for one in check_tree(tree, officially=False) if one.rule == "steady-state-differs"]
    assert "status is windowable" in {one.got for one in differs}


def test_the_super_passes_of_the_run_are_named(tree):
    point_of("steady_state", "window", "super_pass_end", value=4)(tree)
    assert "4 super-passes as in the run" in {one.expected for one in check_tree(tree, officially=False)}


def test_the_accuracy_run_of_offline_or_of_an_unknown_concurrency_has_its_own(tree):
    """Section 4.3 of the rules: that of another point is made at the concurrency of its performance run."""
    for level in (SAMPLES, LOGGED):
        edit(tree, level, "accuracy_results.json", lambda it: it["accuracy_scores"][0].update(concurrency=8))
    one("point.yaml", lambda it: it.pop("concurrency"))(tree)
    assert "copied" not in errors(check_tree(tree, officially=False), OURS)


def test_equal_scores_without_a_duration_may_be_of_two_runs(tree):
    everywhere("accuracy_results.json", lambda it: it["accuracy_scores"][0].pop("duration_s"), SCORED)(tree)
    assert errors(check_tree(tree, officially=False), OURS) == set()


def test_a_model_without_a_benchmark_has_no_targets_here(tree):
    everywhere("point.yaml", lambda it: it.update(model_name="kimi-k3"))(tree)
    everywhere("config.yaml", lambda it: it["submission_ref"].update(model="kimi-k3"))(tree)
    scored(score={"exact": 0.1})(tree)
    assert errors(check_tree(tree, officially=False), OURS) == set()


def test_a_model_that_the_rules_do_not_have_has_no_benchmark_either(tree):
    everywhere("point.yaml", lambda it: it.update(model_name="of-no-rules"))(tree)
    found = {one.rule for one in check_tree(tree, officially=False)}
    assert "config-differs" in found and not found & {"sampling", "accuracy"}


@pytest.mark.engine
@needs_official
@pytest.mark.parametrize("change", LET_THROUGH)
def test_mlcommons_s_checker_lets_it_through(tree, change):
    LET_THROUGH[change][0](tree)
    assert errors(check_tree(tree), OFFICIAL) == set()


OURS_TOO = {
    "config.yaml of other seeds": (
        lambda it: (it.pop("submission_ref"), it["settings"]["runtime"].update(scheduler_random_seed=1)),
        "config-differs",
    ),
    "config.yaml of another set of seeds": (
        lambda it: it["submission_ref"].update(ruleset="mlperf-endpoints-v1.0-2026-10-C1-B"),
        "config-differs",
    ),
    "config.yaml of another model": (
        lambda it: (it.pop("submission_ref"), it["model_params"].update(name="deepseek-ai/DeepSeek-R1")),
        "config-differs",
    ),
    "config.yaml of Poisson": (
        lambda it: it["settings"]["load_pattern"].update(type="poisson"),
        "load-pattern",
    ),
    "streaming off": (lambda it: it["model_params"].update(streaming="off"), "streaming"),
    "config.yaml of another minimum": (
        lambda it: it["settings"]["runtime"].update(min_duration_ms=1_300_000),
        "config-differs",
    ),
    "a short minimum": (lambda it: it["settings"]["runtime"].update(min_duration_ms="300s"), "min-duration"),
    "a minimum that is no time": (
        lambda it: it["settings"]["runtime"].update(min_duration_ms="soon"),
        "min-duration",
    ),
    "answers of 1024 tokens, the client's default": (
        lambda it: it["model_params"].update(max_new_tokens=1024),
        "sampling",
    ),
    "greedy": (lambda it: it["model_params"].update(temperature=0.0), "sampling"),
    "a warm-up without salt": (
        lambda it: it["settings"].update(warmup={"enabled": True, "salt": False}),
        "warm-up",
    ),
    "salted accuracy": (
        lambda it: it["datasets"].append({"name": "acc", "type": "accuracy", "salt": True}),
        "accuracy-salt",
    ),
    "salted agentic accuracy": (
        lambda it: it["datasets"].append(
            {"name": "acc", "type": "accuracy", "agentic_inference": {"enable_salt": True}}
        ),
        "accuracy-salt",
    ),
}


@pytest.mark.parametrize("change", OURS_TOO)
def test_a_configuration_that_is_not_the_point_s(tree, change):
    make, rule = OURS_TOO[change]
    edit(tree, LOGGED, "config.yaml", make)
    assert rule in errors(check_tree(tree, officially=False), OURS)


UNKNOWN_SALT = "no file declares the salt, and no log shows it"


@pytest.mark.parametrize(
    ("declared", "issued", "prompts", "said"),
    [
        ({"bits": 64}, None, None, []),
        ({"bits": 63}, None, None, ["r64/point.yaml: 63 bits are declared"]),
        ({"bits": 0}, None, None, ["r64/point.yaml: the salt is declared to be off"]),
        ({"enabled": False}, None, None, ["r64/point.yaml: the salt is declared to be off"]),
        (True, None, None, []),
        (True, 10, 9, ["r64: 1 of 10 performance requests repeat the prompt of another"]),
        (None, None, None, [f"r64: {UNKNOWN_SALT}"]),
        (None, SAMPLES, SAMPLES, [f"r64: {UNKNOWN_SALT}"]),  # prompts of one pass differ without it, too
        (None, SAMPLES + 1, SAMPLES + 1, []),
    ],
)
def test_a_salt_of_64_bits_in_each_request(declared, issued, prompts, said):
    """Section 2.9.5.1 of the rules."""
    point = {"dataset": "mlperf_gpt_oss_performance", "runtime_settings": {"salt": declared}}
    found = check_salt(PointFiles(Path(), Path("r64"), None, point), issued, prompts)
    assert [f"{one.path}: {one.got}" for one in found] == said


def test_the_salt_of_performance_is_none_of_accuracy(tree):
    edit(tree, LOGGED, "config.yaml", lambda it: it["datasets"][0].update(salt=128))
    edit(tree, LOGGED, "config.yaml", lambda it: it["datasets"].append({"name": "acc", "type": "accuracy"}))
    assert "accuracy-salt" not in errors(check_tree(tree, officially=False), OURS)


@pytest.mark.parametrize(
    ("seeds", "named"),
    [
        ({}, []),
        ({"scheduler_random_seed": 1}, ["scheduler_random_seed is 1"]),
        ({"dataloader_random_seed": None}, ["dataloader_random_seed is missing"]),
    ],
)
def test_without_a_ruleset_the_seeds_of_the_configuration_count(tree, seeds, named):
    """The official client takes them from there; which of them differs is named, and no other."""
    edit(tree, LOGGED, "config.yaml", lambda it: it["submission_ref"].pop("ruleset"))
    edit(tree, LOGGED, "config.yaml", lambda it: it["settings"]["runtime"].update(seeds))
    found = [one.got for one in check_tree(tree, officially=False) if one.rule == "config-differs"]
    assert found == [f"settings.runtime.{one}" for one in named]


def test_a_point_without_seeds_has_none_to_compare(tree):
    edit(tree, LOGGED, "config.yaml", lambda it: it["submission_ref"].pop("ruleset"))
    point_of("runtime_settings", "runtime", value={})(tree)
    assert "config-differs" not in errors(check_tree(tree, officially=False), OURS)


def test_a_configuration_that_names_no_model_is_of_none(tree):
    edit(
        tree,
        LOGGED,
        "config.yaml",
        lambda it: (it["submission_ref"].pop("model"), it["model_params"].pop("name")),
    )
    assert "config-differs" not in errors(check_tree(tree, officially=False), OURS)


@pytest.mark.parametrize(
    ("stated", "ms"),
    [
        *((600_000, 6e5), ("600000", 6e5), ("500ms", 500), ("600s", 6e5), ("20m", 1.2e6), ("1.5h", 5.4e6)),
        *(("soon", None), ("600 years", None), (True, None), (None, None)),
    ],
)
def test_a_duration_of_the_configuration(stated, ms):
    """As the official client takes them: ms, or with a unit."""
    assert duration_ms(stated) == ms


@pytest.mark.parametrize(
    ("target", "ruleset", "expected"),
    [
        ("2026-12-C0", "2026-10-C1-A", set()),
        ("2026-12-C1", "2026-10-C1-A", {"that of seed set A for 2026-12-C1"}),
        (None, "2026-10-C1-A", set()),
        (None, "2026-10-C1-B", {"that of seed set A"}),
    ],
)
def test_a_set_of_seeds_is_for_later_cohorts_too(tree, target, ruleset, expected):
    """The client names the cohort of its publication, whatever the submission's is, or where none is yet."""
    everywhere("point.yaml", lambda it: it.update(target_cohort=target))(tree)
    named = {"ruleset": f"mlperf-endpoints-v1.0-{ruleset}"}
    everywhere("config.yaml", lambda it: it["submission_ref"].update(named))(tree)
    found = [one for one in check_tree(tree, officially=False) if one.rule == "config-differs"]
    assert {one.expected for one in found} == expected


def of_september(settings):
    """As the official client writes them since: the shortest time is Poisson's alone, under another name."""
    settings["runtime"].pop("min_duration_ms")
    settings["runtime"] |= {"min_issue_duration_ms": None, "max_issue_duration_ms": None}
    settings["client"]["stream_all_chunks"] = False  # its default, and a matter of its processes


@pytest.mark.parametrize("least_ms", [None, 1_200_000])
def test_settings_of_the_client_of_september_2026(tree, least_ms):
    """Whoever wrote point.yaml gave the shortest time or did not."""
    everywhere("config.yaml", lambda it: of_september(it["settings"]))(tree)
    everywhere(
        "point.yaml",
        lambda it: it["runtime_settings"].update(stream_all_chunks=False, min_duration_ms=least_ms),
    )(tree)
    assert errors(check_tree(tree, officially=False), OURS) == set()


def test_offline_below_the_point_of_c_max(tree):
    edit(tree, SAMPLES, "result_summary.json", lambda it: it["output_sequence_lengths"].update(total=10**6))
    assert "offline-throughput" in errors(check_tree(tree, officially=False), OURS)


@pytest.mark.parametrize(("part", "found"), [(0.979, 1), (0.981, 0)])
def test_offline_reaches_98_percent_of_the_point_of_c_max(tree, part, found):
    """Section 5.7.2 of the rules."""
    top = json.loads((tree / RESULTS / "r1024/result_summary.json").read_text())
    rate = part * top["output_sequence_lengths"]["total"] / top["duration_ns"]

    def reached(summary: dict[str, Any]) -> None:
        summary["output_sequence_lengths"]["total"] = round(rate * summary["duration_ns"])

    edit(tree, SAMPLES, "result_summary.json", reached)
    rules = [one.rule for one in check_tree(tree, officially=False)]
    assert rules.count("offline-throughput") == found


def test_offline_is_not_compared_with_a_point_that_has_no_rate(tree):
    one("result_summary.json", lambda it: it.pop("duration_ns"), 1024)(tree)
    assert "offline-throughput" not in errors(check_tree(tree, officially=False), OURS)


def test_offline_is_of_the_dataset_s_samples(tree):
    edit(tree, SAMPLES, "point.yaml", lambda it: it.update(concurrency=1000))
    found = [str(one) for one in check_tree(tree, officially=False) if one.rule == "offline-concurrency"]
    assert len(found) == 2 and "6,396" in found[0] and "1,024" in found[1]


@pytest.mark.parametrize(
    ("c_max", "expected"), [(SAMPLES, []), (SAMPLES + 1, [f"C_max {SAMPLES + 1:,} or more"])]
)
def test_offline_has_the_declared_c_max_in_flight(tree, c_max, expected):
    everywhere("system_desc.json", lambda it: it.update(max_supported_concurrency=c_max))(tree)
    found = check_tree(tree, officially=False)
    assert [one.expected for one in found if one.rule == "offline-concurrency"] == expected


def test_a_tps_utilization_within_the_official_tolerance_or_none(tree):
    edit(tree, LOGGED, "system_desc.json", lambda it: it.update(tps_utilization=it["tps_utilization"] + 0.05))
    (error,) = [one for one in check_tree(tree, officially=False) if one.severity is Severity.ERROR]
    own = rate(LOGGED) / max(map(rate, LEVELS))
    assert (error.rule, error.expected) == ("tps-utilization", f"{own:.4f}")
    edit(tree, LOGGED, "system_desc.json", lambda it: it.pop("tps_utilization"))
    found = [one.got for one in check_tree(tree, officially=False) if one.rule == "tps-utilization"]
    assert found == ["tps_utilization is missing"]


def log_of(root: Path) -> Path:
    return root / f"runs/r{LOGGED}/events.jsonl"


CLAIMED = {
    "another state": (
        point_of("steady_state", "state", value={"tpot_p50": "rising"}),
        ("state is {'tpot_p50': 'rising'}", "{'tpot_p50': 'steady'} as in the log"),
    ),
}


def recount(monkeypatch) -> None:
    """More tokens than any summary has, of a log whose run folder lacks what counts them."""
    samples = np.zeros(1, SAMPLE)
    samples["output_tokens"] = 10**9
    monkeypatch.setattr(log_rules, "recounted", lambda *_: samples)


@pytest.mark.parametrize("change", CLAIMED)
def test_a_claim_that_the_log_does_not_bear_out(logged, change, monkeypatch):
    make, expected = CLAIMED[change]
    make(logged)
    stated = read_yaml(logged / RESULTS / f"r{LOGGED}/point.yaml")["steady_state"]
    recomputed = stated | {"state": {"tpot_p50": "steady"}}
    recount(monkeypatch)
    monkeypatch.setattr(log_rules, "recomputed_block", lambda *_: recomputed)
    found = check_tree(logged, officially=False)
    assert expected in {(one.got, one.expected) for one in found if one.rule == "steady-state-differs"}


@pytest.mark.parametrize(
    ("cohort", "said"), [(None, "truncated"), ("2025-01-C0", "no rules for submissions to 2025-01-C0")]
)
def test_a_record_of_ours_that_cannot_be_read_is_a_warning(logged, cohort, said):
    """Or that is of a cohort without rules here."""
    folder = log_of(logged).parent
    seeds = replace(endpoints_kit.SEEDS, cohort=cohort or "")
    plan = endpoints_kit.curve(seeds=seeds)
    write_point_run(folder, endpoints_kit.point_run(plan.points[3], plan))
    if cohort is None:
        (folder / POINT_RUN).write_text("{")
    (one,) = [one for one in check_tree(logged, officially=False) if one.severity is Severity.WARNING]
    assert (one.rule, one.path) == ("unreadable", f"r{LOGGED}/{POINT_RUN}") and said in one.got


@pytest.mark.engine
def test_the_log_decides_whatever_the_files_claim(logged):
    write_log(log_of(logged), seconds=300.0)
    found = check_tree(logged, officially=False)
    assert errors(found, OURS) == {"issue-time", "steady-state-differs"}
    (span,) = [one for one in found if one.rule == "steady-state-differs"]
    assert (span.got, span.expected) == ("duration_s is 1224.0", "300.0 as in the log")


@pytest.mark.engine
def test_a_log_of_other_counts(logged):
    write_log(log_of(logged), count=4 * SAMPLES + 7)
    assert errors(check_tree(logged, officially=False), OURS) == {"log-differs", "whole-passes"}


def test_a_log_of_prompts_without_salt(logged):
    write_log(log_of(logged), salted=False)
    found = check_tree(logged, officially=False)
    assert errors(found, OURS) == {"salt"}
    assert "19,188 of 25,584" in next(one.got for one in found if one.rule == "salt")


def test_failures_that_only_the_log_has(logged):
    lines = log_of(logged).read_text().splitlines(keepends=True)
    event = {"event_type": "error.generic", "timestamp_ns": 1, "sample_uuid": "sample5", "data": None}
    lines.insert(len(lines) - 1, json.dumps(event) + "\n")
    lines = [line for line in lines if '"sample.issued"' in line or '"sample6"' not in line]
    log_of(logged).write_text("".join(lines))
    found = check_tree(logged, officially=False)
    assert errors(found, OURS) == {"failures", "log-differs"}
    assert "streaming" not in {one.rule for one in found}  # one that never ended has no answer
    (text,) = [one.got for one in found if one.rule == "failures"]
    assert text == "1 of 25,584 requests failed, 1 never ended"


def test_answers_that_were_not_streamed(logged):
    lines = log_of(logged).read_text().splitlines(keepends=True)
    log_of(logged).write_text("".join(line for line in lines if "sample.recv_first" not in line))
    edit(logged, LOGGED, "result_summary.json", lambda it: it.update(duration_ns=it["duration_ns"] - 10**10))
    found = check_tree(logged, officially=False)
    assert errors(found, OURS) == {"streaming", "log-differs", "steady-state-differs"}


def test_the_steady_state_is_recomputed(logged, monkeypatch):
    stated = read_yaml(logged / RESULTS / f"r{LOGGED}/point.yaml")["steady_state"]
    asked = []

    def recompute(_: Samples, samples: int, least_s: float) -> dict[str, Any]:
        asked.append((samples, least_s))
        return stated | {"verdict": "drifting_up", "status": "insufficient_passes"}

    recount(monkeypatch)
    monkeypatch.setattr(log_rules, "recomputed_block", recompute)
    found = check_tree(logged, officially=False)
    assert asked == [(SAMPLES, load_endpoints_rules().least_issue_s(LOGGED))]
    differ = [(one.got, one.expected) for one in found if one.rule == "steady-state-differs"]
    assert differ == [
        ("status is windowable", "insufficient_passes as in the log"),
        ("verdict is STEADY STATE", "drifting_up as in the log"),
    ]
    for name in ("super_pass_start", "super_pass_end"):
        moved = stated | {"window": stated["window"] | {name: stated["window"][name] + 1}}
        monkeypatch.setattr(log_rules, "recomputed_block", lambda *_, moved=moved: moved)
        (differs,) = [
            one.got for one in check_tree(logged, officially=False) if one.rule == "steady-state-differs"
        ]
        assert differs == f"window.{name} is {stated['window'][name]}"
    counted = stated["window"]["n_samples"]
    # Some count answers alone.
    for part, expected in (
        (0.995, set()),
        (0.985, {"steady-state-differs"}),
        (1.015, {"steady-state-differs"}),
    ):
        fewer = stated | {"window": stated["window"] | {"n_samples": round(part * counted)}}
        monkeypatch.setattr(log_rules, "recomputed_block", lambda *_, fewer=fewer: fewer)
        found = check_tree(logged, officially=False)
        assert errors(found, OURS) == expected
    edit(logged, LOGGED, "point.yaml", lambda it: it["steady_state"]["window"].pop("n_samples"))
    edit(logged, LOGGED, "point.yaml", lambda it: it["steady_state"].pop("state"))
    monkeypatch.setattr(log_rules, "recomputed_block", lambda *_: stated)
    assert errors(check_tree(logged, officially=False), OURS) == set()


@pytest.mark.parametrize("lacking", ["size", "concurrency"])
def test_a_steady_state_of_unknown_size_or_concurrency_is_not_recomputed(logged, lacking, monkeypatch):
    recount(monkeypatch)
    if lacking == "size":
        point_of("steady_state", "window", value={"super_pass_start": 0, "super_pass_end": 3})(logged)
        point_of("dataset", value="own")(logged)
        one("config.yaml", lambda it: it["datasets"][0].pop("samples"))(logged)
    else:
        one("point.yaml", lambda it: it.pop("concurrency"))(logged)
    found = [one for one in check_tree(logged, officially=False) if one.rule == "not-recomputed"]
    assert any(one.got.endswith("the dataset's size or the concurrency is not known") for one in found)


def test_what_was_not_recomputed_is_said(logged):
    silent = [one for one in check_tree(logged, officially=False) if one.severity is Severity.UNKNOWN]
    assert {one.path for one in silent if "events.jsonl" in one.got} == {
        f"{RESULTS.relative_to('tree')}/r{level}" for level in LEVELS if level != LOGGED
    }
