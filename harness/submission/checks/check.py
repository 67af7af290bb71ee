"""All checks of a tree, in the order of its folders."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from harness.config.benchmark import Benchmark, Scenario
from harness.submission.checks.accuracy import check_accuracy
from harness.submission.checks.check_context import Subject
from harness.submission.checks.compliance_tests import check_tests
from harness.submission.checks.documents import check_scenario_documents, check_system
from harness.submission.checks.files import check_encoding, check_files, check_repeats
from harness.submission.checks.issue import Complaint
from harness.submission.checks.performance import check_performance
from harness.submission.checks.power import check_power
from harness.submission.checks.run_record import check_records
from harness.submission.layout import FOLDER_OF, Place, benchmarks, places, read_fields, systems
from harness.submission.rules import Rules, Suite, definition_of, load_rules

_UNDEFINED_SCENARIOS = ("multistream",)  # of MLPerf, and of none of our benchmarks


def kept_beside(root: Path) -> Path:
    """Where the files that are kept aside lie, for the tree ``root``."""
    return root.with_name(root.name + ".kept")


def check_tree(
    root: Path, *, round_name: str | None = None, kept: Path | None = None
) -> tuple[Complaint, ...]:
    """Everything that is wrong with a submission, and notes. Raises ConfigError when ``root`` is none.

    ``kept`` holds full accuracy logs and run.json under the tree's own names.
    """
    rules = load_rules()
    found = places(root)
    tree = _Tree(root, rules, round_name or rules.current, kept or kept_beside(root))
    return tuple(dict.fromkeys(tree.complaints(found)))


def subjects_of(root: Path, round_name: str | None = None) -> tuple[Subject, ...]:
    """Every result that is checked. Raises ConfigError when ``root`` is no submission."""
    rules = load_rules()
    return _Tree(root, rules, round_name or rules.current, kept_beside(root)).subjects(places(root))


class _Tree:
    """One tree and the rules of one round."""

    def __init__(self, root: Path, rules: Rules, round_name: str, kept: Path) -> None:
        self._root, self._rules, self._round, self._kept = root, rules, round_name, kept

    def complaints(self, found: Sequence[Place]) -> Iterator[Complaint]:
        for system in systems(self._root):
            yield from check_system(system, self._rules.system)
        for benchmark in benchmarks(self._root):
            yield from self._benchmark(benchmark)
        subjects = self.subjects(found)
        for subject in subjects:
            yield from self._scenario(subject)
        yield from check_files(self._root, self._rules.files.any_bytes)
        yield from check_repeats(self._root, [subject.place for subject in subjects])

    def subjects(self, found: Sequence[Place]) -> tuple[Subject, ...]:
        return tuple(subject for place in found if (subject := self._subject(place)) is not None)

    def _benchmark(self, place: Place) -> Iterator[Complaint]:
        """The folder's name and the scenarios in it."""
        name, where = official_name(place, self._rules), place.name(place.path)
        if name not in self._rules.benchmarks.get(self._round, (name,)):
            text = f"{place.benchmark} is no benchmark of {self._round}; the official checker fails on it"
            yield Complaint("benchmark", where, text)
        elif definition_of(name) is None:
            yield Complaint(
                "benchmark", where, f"{place.benchmark} is not defined here: not checked", note=True
            )
        else:
            suite, rule = self._rules.suite_of(name)
            yield from _scenarios(place, suite, rule)

    def _subject(self, place: Place) -> Subject | None:
        """None for what is not checked; the benchmark's folder has got its line already."""
        name = official_name(place, self._rules)
        benchmark: Benchmark | None = definition_of(name)
        _, suite = self._rules.suite_of(name)
        scenario = place.scenario
        if benchmark is None or scenario is None or (place.binding and scenario not in suite.allowed):
            return None
        seeds = self._rules.seeds_of(self._round, benchmark)
        return Subject(place, benchmark, scenario, self._rules, seeds)

    def _scenario(self, subject: Subject) -> Iterator[Complaint]:
        aside = self._kept / subject.place.path.relative_to(self._root)
        full = aside if aside.is_dir() else None
        yield from check_encoding(subject)
        yield from check_scenario_documents(subject)
        yield from check_performance(subject)
        yield from check_power(subject)
        yield from check_accuracy(subject, full)
        yield from check_tests(subject, full)
        yield from check_records(subject, full)


def official_name(place: Place, rules: Rules) -> str:
    """The benchmark that a folder stands for; open submitters map names of their own in a file."""
    name = rules.aliases.get(place.benchmark, place.benchmark)
    known = any(name in names for names in rules.benchmarks.values())
    if known or place.binding:
        return name
    mapping = read_fields(place.org_path / "model_mapping.json")
    return str(mapping.get(name, name)) if isinstance(mapping, Mapping) else name


def _scenarios(place: Place, suite: str, rule: Suite) -> Iterator[Complaint]:
    """The scenarios of one benchmark on one system."""
    where = place.name(place.path)
    have: set[Scenario] = set()
    for folder in sorted(path.name for path in place.path.iterdir() if path.is_dir()):
        found = Place(place.root, place.division, place.org, place.system, place.benchmark, folder).scenario
        if found is not None and (found in rule.allowed or not place.binding):
            have.add(found)
        elif not place.binding and folder.lower() in _UNDEFINED_SCENARIOS:
            yield Complaint("scenarios", where, f"{folder} is not checked", note=True)
        else:
            expected = ", ".join(FOLDER_OF[name] for name in rule.allowed)
            yield Complaint("scenarios", where, f"{folder} may not be there, expected {expected}")
    if place.binding:
        yield from (Complaint("scenarios", where, what) for what in _missing(place, suite, rule, have))


def _missing(place: Place, suite: str, rule: Suite, have: set[Scenario]) -> Iterator[str]:
    fields = read_fields(place.system_file)
    types = "" if isinstance(fields, str) else str(fields.get("system_type", ""))
    if types and suite not in types.split(","):
        yield f"system_type is {types!r}, and {place.benchmark} is a {suite} benchmark"
        return
    for scenario in rule.required:
        if scenario not in have:
            yield f"{FOLDER_OF[scenario]} is missing"
    if rule.one_of and not have.intersection(rule.one_of):
        yield f"{' or '.join(FOLDER_OF[scenario] for scenario in rule.one_of)} is missing"
