"""The rules of a cohort, beside the official package and this project's own benchmarks."""

import math
import re

import pytest
from msgspec.structs import replace

from harness.config.benchmark import load_benchmark
from harness.endpoints.accuracy import targets
from harness.endpoints.checks.checked_point import point_of_run
from harness.endpoints.checks.tree_check import check_tree
from harness.endpoints.planning import rules
from harness.endpoints.planning.cohorts import cohort_name, cohort_number, publication
from harness.endpoints.planning.rules import load_endpoints_rules, read_endpoints_rules
from harness.endpoints.tree.build_tree import build_tree
from harness.endpoints.tree.system_file import read_system
from harness.endpoints.view.curve_files import read_curve
from harness.errors import ConfigError
from harness.files import ROOT
from harness.yaml_files import read_yaml
from tests import endpoints_folders as made
from tests import endpoints_kit as kit
from tests.endpoints_kit import curve

RULES = load_endpoints_rules()
OURS = {name: model for name, model in RULES.models.items() if model.benchmark}


@pytest.mark.parametrize("name", OURS)
def test_datasets_and_targets_are_those_of_inference(name):
    """Endpoints took them over from v6.0; the targets of a later round that moves on are not Endpoints'."""
    model, benchmark = RULES.models[name], load_benchmark(OURS[name].benchmark, "v6.0")
    assert model.performance.samples == benchmark.datasets["performance"].samples
    assert model.accuracy.samples == benchmark.datasets["accuracy"].samples
    assert targets(load_benchmark(benchmark.name)) == targets(benchmark)


@pytest.mark.parametrize("name", OURS)
def test_targets_are_those_of_the_official_package(name):
    official = pytest.importorskip("submission_checker.accuracy_targets")
    bounds, samples = official.get_thresholds(name)
    theirs = {metric: (low, math.inf if high is None else high) for metric, (low, high) in bounds.items()}
    own = targets(load_benchmark(OURS[name].benchmark))
    ours = {metric.lower(): limits for metric, limits in own.items()}
    assert ours.items() >= theirs.items()  # theirs has none for the length of deepseek-r1's answers
    assert samples == OURS[name].accuracy.samples


def test_durations_and_datasets_are_those_of_the_official_package():
    official = pytest.importorskip("submission_checker.models.regions")
    results = pytest.importorskip("submission_checker.models.aggregate.point_result")
    for concurrency in (1, 32, 33, 1024, 1100):
        band = official.classify_concurrency(concurrency, official.compute_regions(1024, 1))
        milliseconds = official.min_duration_ms(band, concurrency, agentic=False)
        assert RULES.least_issue_s(concurrency) * 1000 == milliseconds
    sizes = {model.performance.dataset: model.performance.samples for model in OURS.values()}
    sizes |= {model.accuracy.dataset: model.accuracy.samples for model in OURS.values()}
    known = {name: size for name, size in sizes.items() if name in results.MIN_QUERY_COUNT}
    assert known == {name: results.MIN_QUERY_COUNT[name] for name in known}
    assert len(known) == 3


def test_names_and_seeds_are_those_of_the_official_package():
    layout = pytest.importorskip("submission_checker.layout")
    seeds = pytest.importorskip("submission_checker.seed_sets")
    data = seeds.bundled_seed_sets_path().parent
    assert all(layout.canonical_model_name(name) == name for name in RULES.models)
    published = seeds.load_seed_sets(data / "seed_sets.yaml")
    for one in RULES.seed_sets:
        fields = ("scheduler_rng_seed", "sample_index_rng_seed", "model_seed")
        assert {name: getattr(one, name) for name in fields} == published[one.id].seeds
        first = cohort_number(one.cohort)
        window = range(first, first + RULES.adoption_cohorts)
        assert tuple(map(cohort_name, window)) == published[one.id].cohorts
    assert {one.id for one in RULES.seed_sets} == set(published)


def test_the_days_of_cohorts():
    """Those that the submission rules name in section 4.5."""
    days = "10-21", "11-04", "11-18", "12-02", "12-16", "01-06", "01-20"
    first = cohort_number("2026-10-C1")
    assert tuple(f"{publication(one):%m-%d}" for one in range(first, first + 7)) == days


def test_drafters_are_downloaded_at_their_approved_revisions():
    """deepseek-r1's is a part of its model."""
    drafters = pytest.importorskip("submission_checker.drafters")
    listed = read_yaml(drafters.bundled_drafters_path())["drafters"]
    approved = {one["model_id"]: one["weight_checksum"].removeprefix("git-sha1:") for one in listed}
    sources = re.findall(r"\thf-model:(\S+)@(\S+)", (ROOT / "datasets/manifest.tsv").read_text())
    known = {name: revision for name, revision in sources if name in approved}
    assert known == {name: approved[name] for name in known}
    assert len(known) == 2


def test_two_cohorts_a_month_follow_each_other():
    numbers = [
        cohort_number(f"{year}-{month:02}-C{half}")
        for year in (2026, 2027)
        for month in range(1, 13)
        for half in (0, 1)
    ]
    assert numbers == list(range(numbers[0], numbers[0] + 48))
    assert cohort_name(cohort_number("2026-12-C1") + 1) == "2027-01-C0"


@pytest.mark.parametrize(
    "name", ["2026-13-C0", "2026-10-C2", "2026-10", "v1.0", "2026-10-C1 ", "٢026-10-C1", ""]
)
def test_what_is_no_cohort_is_one_line(name):
    with pytest.raises(ConfigError, match="expected one such as 2026-10-C1"):
        cohort_number(name)


def test_a_cohort_has_the_latest_rules_before_it():
    assert load_endpoints_rules("2027-01-C0").cohort == RULES.cohort
    with pytest.raises(ConfigError, match="the first are those of 2026-10-C1"):
        load_endpoints_rules("2026-10-C0")


@pytest.fixture
def later_rules(tmp_path, monkeypatch):
    """Writes those of a later cohort, beside the present ones; the value is the number that differ."""
    present = ROOT / "configs/endpoints/2026-10-C1.toml"
    differs = r"(?m)^((?:ultra_low_)?issue_s|fewest_points|adoption_cohorts|[a-z_]+_seed) = [0-9]+"
    text, found = re.subn(differs, r"\1 = 99999", present.read_text())
    text, datasets = re.subn('(?<=dataset = ")', "later_", text)
    folder = tmp_path / "rules"
    folder.mkdir()
    (folder / present.name).write_bytes(present.read_bytes())

    def write():
        (folder / "2027-01-C0.toml").write_text(text)
        load_endpoints_rules.cache_clear()
        return found + datasets

    monkeypatch.setattr(rules, "_FOLDER", folder)
    load_endpoints_rules.cache_clear()
    yield write
    load_endpoints_rules.cache_clear()


def test_a_curve_is_judged_by_the_rules_that_it_was_planned_by(later_rules, tmp_path):
    """Also where those of a later cohort come: by the page, the check, and its tree."""
    folder = made.rehearsal(tmp_path, ("r1", "r1024"))
    system = read_system(kit.write_system(folder))
    seen = []
    for output in (tmp_path / "before", tmp_path / "after"):
        tree = build_tree([folder], system, output)
        points = sorted(path.read_text() for path in output.rglob("point.yaml"))
        found = check_tree(output, officially=False)
        seen.append((tree.missing, points, [one for one in found if one.rule != "not-recomputed"]))
        assert later_rules() == 13
    assert rules.rules_of(None).issue_s == 99999
    assert seen[0] == seen[1]
    curve = read_curve(folder)
    assert curve.rules.issue_s == point_of_run(folder, curve.points[-1].folder).required_s == RULES.issue_s


def test_a_curve_has_the_rules_of_the_cohort_that_was_asked_for_before_that_of_its_seeds(
    tmp_path, monkeypatch
):
    """A set of seeds may be taken for cohorts after that of its publication (section 4.6)."""
    text = (rules._FOLDER / "2026-10-C1.toml").read_text()
    for cohort in ("2026-10-C1", "2026-12-C0"):
        (tmp_path / f"{cohort}.toml").write_text(text.replace('"2026-10-C1"', f'"{cohort}"', 1))
    monkeypatch.setattr(rules, "_FOLDER", tmp_path)
    monkeypatch.setattr(rules, "load_endpoints_rules", load_endpoints_rules.__wrapped__)
    seeds = replace(curve().seeds, published="2026-10-C1")
    found = [rules.rules_of(replace(curve(), seeds=replace(seeds, cohort=one))) for one in ("2026-12-C0", "")]
    assert [one.cohort for one in found] == ["2026-12-C0", "2026-10-C1"]


def test_a_benchmark_that_endpoints_has_not_is_one_line():
    assert RULES.model_name("llama3.1-8b") == "llama3_1-8b"
    with pytest.raises(ConfigError, match=r"expected one of gpt-oss-120b, deepseek-r1, llama3.1-8b"):
        RULES.model_name("llama3.1-8b-edge")


def test_the_benchmark_of_a_point_is_that_of_its_own_model():
    """A file config.yaml of another model is a finding, and not the point's."""
    config = {"model_params": {"name": "openai/gpt-oss-120b"}}
    found = [RULES.benchmark_of_point(point, config) for point in ({"model_name": "llama3_1-8b"}, {})]
    assert [one and one.name for one in found] == ["llama3.1-8b", "gpt-oss-120b"]


def test_a_misspelt_rule_is_one_line(tmp_path):
    path = tmp_path / "rules.toml"
    path.write_text("window_pases = 4\n")
    with pytest.raises(ConfigError, match=r"rules.toml: .*window_pases"):
        read_endpoints_rules(path)
