"""All checks of a tree, in the order of its folders."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from harness.benchmark import available_benchmarks, load_benchmark
from harness.compliance.submission.check_accuracy import check_accuracy
from harness.compliance.submission.check_documents import check_scenario_documents, check_system, is_edge
from harness.compliance.submission.check_files import check_files, check_repeats
from harness.compliance.submission.check_performance import check_performance
from harness.compliance.submission.check_record import check_records
from harness.compliance.submission.check_tests import check_tests
from harness.compliance.submission.complaint import Complaint
from harness.compliance.submission.evidence import Subject
from harness.compliance.submission.rules import Rules, load_rules
from harness.compliance.submission.tree import FOLDER_OF, Place, places


def kept_beside(root: Path) -> Path:
    """Where the files that are kept aside lie, for the tree ``root``."""
    return root.with_name(root.name + ".kept")


def check_tree(
    root: Path, *, round_name: str | None = None, kept: Path | None = None
) -> tuple[Complaint, ...]:
    """Everything that is wrong with a submission. Raises ConfigError when ``root`` is none.

    ``kept`` holds full accuracy logs and run.json under the tree's own names.
    """
    rules = load_rules()
    found = places(root)
    kept = kept or kept_beside(root)
    complaints = list(_complaints(root, found, rules, round_name or rules.current, kept))
    return tuple(dict.fromkeys(complaints))


def _complaints(
    root: Path, found: Sequence[Place], rules: Rules, round_name: str, kept: Path
) -> Iterator[Complaint]:
    for place in {place.system_file: place for place in found}.values():
        yield from check_system(place, rules.system)
    for place in {place.path.parent: place for place in found}.values():
        yield from _scenarios(place, found, rules)
    for place in found:
        yield from _check_place(place, rules, round_name, kept)
    yield from check_files(root, rules.files.any_bytes)
    yield from check_repeats(root, found)


def _check_place(place: Place, rules: Rules, round_name: str, kept: Path) -> Iterator[Complaint]:
    scenario = place.scenario
    if place.benchmark not in available_benchmarks():
        known = ", ".join(available_benchmarks())
        text = f"{place.benchmark} is not known, expected {known}: not checked"
        yield Complaint("benchmark", place.name(place.path.parent), text)
        return
    if scenario is None:
        text = f"{place.folder} is no scenario, expected {', '.join(FOLDER_OF.values())}: not checked"
        yield Complaint("scenario", place.name(place.path), text)
        return
    benchmark = load_benchmark(place.benchmark)
    subject = Subject(place, benchmark, scenario, rules, rules.seeds_of(round_name, benchmark))
    aside = kept / place.path.relative_to(place.root)
    full = aside if aside.is_dir() else None
    yield from check_scenario_documents(subject)
    yield from check_performance(subject)
    yield from check_accuracy(subject, full)
    yield from check_tests(subject, full)
    yield from check_records(subject, full)


def _scenarios(place: Place, found: Sequence[Place], rules: Rules) -> Iterator[Complaint]:
    """Closed results of one benchmark on one system."""
    if place.division != "closed" or place.benchmark not in available_benchmarks() or is_edge(place):
        return
    folder = place.path.parent
    have = {other.scenario for other in found if other.path.parent == folder}
    for scenario in rules.scenarios.required:
        if scenario not in have:
            yield Complaint("scenarios", place.name(folder), f"{FOLDER_OF[scenario]} is missing")
    if not have.intersection(rules.scenarios.one_of):
        names = " or ".join(FOLDER_OF[scenario] for scenario in rules.scenarios.one_of)
        yield Complaint("scenarios", place.name(folder), f"{names} is missing")
