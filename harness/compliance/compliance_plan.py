"""Plans of compliance runs. Dataset, audit settings and references of every test are checked first."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from harness.compliance.base import ComplianceTest
from harness.compliance.compliance_options import ALL_TESTS, ComplianceOptions, files_by_test
from harness.compliance.registry import find_test, needed_tests, unused_references
from harness.compliance.verify import VerifyRequest, load_answers
from harness.config import rule_checks
from harness.config.audit_config import AuditConfig
from harness.config.benchmark import Benchmark, load_benchmark
from harness.config.official_data import downloaded, fetching, official_dataset
from harness.config.plans import ComplianceSettings, RunPlan
from harness.config.run_plan import resolve_plan
from harness.dataset.samples import load_samples, prompt_efforts
from harness.errors import ConfigError, DatasetError


class ComplianceRun(msgspec.Struct, frozen=True):
    """One test: the plan of its run, and how the logs are verified. ``folder`` gets the verdict."""

    plan: RunPlan
    request: VerifyRequest

    @property
    def test(self) -> str:
        """The name of the test."""
        return self.request.test.name

    @property
    def folder(self) -> Path:
        """The test's folder."""
        return self.plan.results_dir


def resolve_runs(options: ComplianceOptions) -> tuple[ComplianceRun, ...]:
    """All tests to run, in order; the benchmark may need none. Raises HarnessError."""
    benchmark = load_benchmark(options.run.benchmark, options.run.round)
    if not (tests := _tests(options.tests, benchmark)):
        return ()
    inputs = files_by_test("--input-file", options.input_files, tests)
    audits = files_by_test("--audit-config", options.audit_configs, tests)
    unused = unused_references(options.reference_data, tests)
    options = replace(options, run=replace(options.run, warnings=(*options.run.warnings, *unused)))
    return tuple(
        _run(options, benchmark, find_test(benchmark, name), inputs.get(name), audits.get(name))
        for name in tests
    )


def _tests(asked: Sequence[str], benchmark: Benchmark) -> tuple[str, ...]:
    if ALL_TESTS not in asked:
        return tuple(find_test(benchmark, name).name for name in dict.fromkeys(asked))
    return needed_tests(benchmark)


def _run(
    options: ComplianceOptions,
    benchmark: Benchmark,
    test: ComplianceTest,
    given_dataset: Path | None,
    audit_file: Path | None,
) -> ComplianceRun:
    dataset = given_dataset or official_dataset(benchmark, test.dataset)
    official = not options.non_official
    samples, deviations = _dataset(benchmark, test, dataset)
    if deviations and official:
        raise DatasetError(
            f"{dataset}: not the dataset of {test.name}: {'; '.join(deviations)}; "
            f"pass {downloaded(test.dataset.file, Path())} ({fetching(benchmark.name)}), or add --rehearsal"
        )
    given = test.audit_config(audit_file, options.run.scenario.loadgen)
    audit = given if official else given.scaled_to(samples)
    _refuse_crash(audit, samples)
    changed = given.differences(test.official_audit)
    run = replace(options.run, input_file=dataset, warnings=(*options.run.warnings, *changed))
    plan = resolve_plan(run, _audit_run(test, given, audit, audit_file, official))
    references = options.reference_data or dataset
    request = VerifyRequest(
        benchmark, test, audit, plan.client.log_dir, references, official, own=True, samples=samples
    )
    if (known := len(load_answers(request))) and known != samples:
        raise DatasetError(
            f"{references}: {known} references for {samples} samples of {dataset}; omit --reference-data"
        )
    return ComplianceRun(plan, request)


def _dataset(benchmark: Benchmark, test: ComplianceTest, path: Path) -> tuple[int, tuple[str, ...]]:
    """The number of rows, and how the file differs from the test's dataset."""
    samples = load_samples(path, vocabulary_size=benchmark.vocabulary_size)
    markers = benchmark.reasoning_effort_ids
    efforts = prompt_efforts(samples, markers)
    return len(samples), rule_checks.dataset_deviations(test.dataset, len(samples), efforts, bool(markers))


def _audit_run(
    test: ComplianceTest, given: AuditConfig, audit: AuditConfig, file: Path | None, official: bool
) -> ComplianceSettings:
    changed = [
        f"{test.name} {key} is {value}, not {given.settings[key]} of {given.source}"
        for key, value in audit.settings.items()
        if given.settings.get(key, value) != value
    ]
    return ComplianceSettings(
        test=test.name,
        dataset=test.dataset,
        settings=dict(audit.settings),
        text=audit.render(test.name),
        file=file,
        official=official,
        deviations=tuple(changed),
    )


def _refuse_crash(audit: AuditConfig, samples: int) -> None:
    """LoadGen would read past the end of its samples: it clamps counts before it reads an audit.config."""
    count = audit.settings.get("performance_sample_count_override", 0)
    if count > samples:
        raise ConfigError(
            f"{audit.source}: performance_sample_count_override = {count}, the dataset has {samples} rows; "
            "LoadGen would crash: remove the row"
        )
