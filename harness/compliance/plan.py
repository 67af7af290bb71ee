"""The plans of compliance runs: dataset, audit settings and references of every test are checked first."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness.compliance.audit_config import AuditConfig, read_audit_config, shipped
from harness.compliance.cli import ALL_TESTS, ComplianceOptions, files_by_test
from harness.compliance.rules import ComplianceRule, TestName, needed_tests, rule_of
from harness.compliance.verify import Question, load_answers
from harness.config import rule_checks
from harness.config.benchmark import Benchmark, load_benchmark
from harness.config.plan import AuditRun, RunPlan, resolve_plan
from harness.dataset.samples import load_samples, prompt_efforts
from harness.errors import ConfigError, DatasetError


@dataclass(frozen=True, slots=True)
class ComplianceRun:
    """One test: what runs, and what is asked of its logs. ``folder`` is where its verdict goes."""

    plan: RunPlan
    question: Question

    @property
    def test(self) -> TestName:
        """Which test."""
        return self.question.rule.test

    @property
    def folder(self) -> Path:
        """The test's folder."""
        return self.plan.results_dir


def resolve_runs(options: ComplianceOptions) -> tuple[ComplianceRun, ...]:
    """All tests that are to run, in order. Raises ConfigError, DatasetError and GradingError."""
    benchmark = load_benchmark(options.run.benchmark)
    tests = _tests(options.tests, benchmark)
    inputs = files_by_test("--input-file", options.input_files, tests)
    audits = files_by_test("--audit-config", options.audit_configs, tests)
    missing = [test for test in tests if test not in inputs]
    if missing:
        raise ConfigError(f"no dataset for {', '.join(missing)}; add --input-file {missing[0]}=FILE")
    return tuple(_run(options, benchmark, test, inputs[test], audits.get(test)) for test in tests)


def audit_of(rule: ComplianceRule, path: Path | None, loadgen_scenario: str | None) -> AuditConfig:
    """The user's audit.config, or the official settings."""
    return shipped(rule) if path is None else read_audit_config(path, rule.test, loadgen_scenario)


def _tests(asked: Sequence[str], benchmark: Benchmark) -> tuple[TestName, ...]:
    if ALL_TESTS not in asked:
        return tuple(rule_of(benchmark, test).test for test in dict.fromkeys(asked))  # type: ignore[arg-type]
    tests = needed_tests(benchmark)
    if not tests:
        raise ConfigError(f"{benchmark.name} needs no compliance test")
    return tests


def _run(
    options: ComplianceOptions,
    benchmark: Benchmark,
    test: TestName,
    dataset: Path,
    audit_file: Path | None,
) -> ComplianceRun:
    rule = rule_of(benchmark, test)
    official = not options.non_official
    samples, deviations = _dataset(benchmark, rule, dataset)
    if deviations and official:
        raise DatasetError(
            f"{dataset}: not the dataset of {test}: {'; '.join(deviations)}; "
            f"pass {rule.dataset.file}, or add --non-official"
        )
    given = audit_of(rule, audit_file, options.run.scenario.loadgen)
    audit = given if official else given.scaled_to(samples)
    _refuse_crash(audit, samples)
    run = replace(options.run, input_file=dataset)
    plan = resolve_plan(run, _audit_run(rule, given, audit, official))
    references = options.reference_data or dataset
    question = Question(benchmark, rule, audit, plan.log_dir, references, official, own=True, samples=samples)
    if (known := len(load_answers(question))) and known != samples:
        raise DatasetError(f"{references}: {known} references for {samples} samples of {dataset}")
    return ComplianceRun(plan, question)


def _dataset(benchmark: Benchmark, rule: ComplianceRule, path: Path) -> tuple[int, tuple[str, ...]]:
    """Rows, and how the file differs from the test's dataset."""
    samples = load_samples(path, vocabulary_size=benchmark.vocabulary_size)
    markers = benchmark.reasoning_effort_ids
    efforts = prompt_efforts(samples, markers)
    return len(samples), rule_checks.dataset_deviations(rule.dataset, len(samples), efforts, bool(markers))


def _audit_run(rule: ComplianceRule, given: AuditConfig, audit: AuditConfig, official: bool) -> AuditRun:
    changed = [
        f"{rule.test} {key} is {value}, not {given.settings[key]} of {given.source}"
        for key, value in audit.settings.items()
        if given.settings.get(key, value) != value
    ]
    return AuditRun(
        test=rule.test,
        dataset=rule.dataset,
        settings=dict(audit.settings),
        text=audit.render(rule.test),
        official=official,
        deviations=tuple(changed),
    )


def _refuse_crash(audit: AuditConfig, samples: int) -> None:
    """LoadGen reads past the end of its samples; counts of an audit.config come after the usual clamp."""
    count = audit.settings.get("performance_sample_count_override", 0)
    if count > samples:
        raise ConfigError(
            f"{audit.source}: performance_sample_count_override = {count}, the dataset has {samples} rows; "
            "LoadGen would crash: remove the row"
        )
