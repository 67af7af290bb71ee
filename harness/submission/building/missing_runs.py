"""The runs that a submission lacks or cannot use, each with the command that makes it."""

import shlex
from collections.abc import Iterator
from pathlib import Path

import msgspec

from harness.compliance.registry import TESTS
from harness.errors import ConfigError
from harness.files import (
    ACCURACY,
    ACCURACY_LOG,
    ACCURACY_TEXT,
    COMPLIANCE_RUN,
    PERFORMANCE,
    RUN_RECORD,
    unofficial,
)
from harness.loadgen_logs.integrity import damage
from harness.record.run_record import RunRecord
from harness.submission.building.commands import Maker
from harness.submission.building.endpoints_files import endpoints_gaps
from harness.submission.building.find_runs import BenchmarkRuns, ScenarioRuns
from harness.submission.building.gaps import Gap
from harness.submission.tree.cost import Cost
from harness.submission.tree.origins import read_record

_PERFORMANCE, _ACCURACY = "performance", "accuracy"


def missing_runs(found: BenchmarkRuns, rehearsal: bool) -> Iterator[Gap]:
    """Everything that keeps the runs of a benchmark from being submitted, at most one gap for each run."""
    make = Maker(found, rehearsal)
    for run in found.runs:
        if run.is_of_endpoints:
            yield from endpoints_gaps(found.benchmark, run)
            continue
        for name in (_PERFORMANCE, _ACCURACY, *run.tests):
            if (gap := _Run(run, name, make).gap()) is not None:
                yield gap
    if found.none_of:
        yield Gap(
            Cost.GPU_HOURS,
            f"{found.benchmark.name}: no run of {' or '.join(found.none_of)}, closed needs one of them, with "
            "accuracy and tests",
            make.run(found.none_of[0], _PERFORMANCE),
        )


class _Run(msgspec.Struct, frozen=True):
    """One run that a submission needs: ``name`` is its folder, of a compliance test the test's."""

    of: ScenarioRuns
    name: str
    make: Maker

    @property
    def benchmark(self) -> str:
        return self.make.found.benchmark.name

    @property
    def is_test(self) -> bool:
        return self.name in TESTS

    @property
    def folder(self) -> Path:
        """What is moved aside before another run."""
        return self.of.path / self.name

    @property
    def shown(self) -> str:
        return f"{self.benchmark}: {self.of.path.name}/{self.name}"

    def gap(self) -> Gap | None:
        """What is wrong with it, None for nothing."""
        problem = self._problem(self.folder)
        if problem is None:
            return self._judgement()
        aside = self._aside()
        if aside is not None:
            move = shlex.join(["mv", str(aside), str(self.folder)])
            if self.folder.exists():
                move = f"{shlex.join(['mv', str(self.folder), f'{self.folder}.other'])} && {move}"
            return Gap(Cost.MINUTES, f"{self.shown}: {problem}; a usable one lies in {aside}", move)
        record, again = self._record(self.folder), ""
        if isinstance(record, RunRecord) and not self._other(record):
            again = self.make.again(record)
        command = again or self.make.run(self.of.scenario, self.name)
        return Gap(Cost.GPU_HOURS, f"{self.shown}: {problem}", command)

    def _record(self, folder: Path) -> RunRecord | str | None:
        """The record of the run in a folder, the reason why it cannot be read, or None for no record."""
        try:
            return read_record((folder / COMPLIANCE_RUN if self.is_test else folder) / RUN_RECORD)
        except ConfigError as error:
            return str(error)

    def _problem(self, folder: Path) -> str | None:
        """Why a folder holds no usable run; None for one that can be judged."""
        if not folder.is_dir() or not any(folder.iterdir()):
            return "no run"
        record = self._record(folder)
        if isinstance(record, str):
            return record
        if record is not None and (other := self._other(record)):
            return f"holds a run of {other}"
        ended = None if record is None else self._verdict(record)  # why logs may be cut short
        return ended or self._damage(folder) or None

    def _other(self, record: RunRecord) -> str:
        """The benchmark or scenario of a run that is not of this one; "" for one that is."""
        if record.plan.client.benchmark.name != self.benchmark:
            return record.plan.client.benchmark.name
        return "" if record.plan.scenario is self.of.scenario else record.plan.scenario

    def _damage(self, folder: Path) -> str:
        """A log that is missing, cut short or without answers."""
        logs, answers = self._logs(folder)
        needs_logs = not self.is_test or TESTS[self.name].every_sample
        return damage(logs if needs_logs else None, None if self.name == _PERFORMANCE else answers)

    def _logs(self, folder: Path) -> tuple[Path, Path]:
        """Where detail and accuracy log lie; those of a test lie together until it is verified."""
        run = folder / COMPLIANCE_RUN
        if not self.is_test:
            return folder, folder
        if not TESTS[self.name].verification_in(folder).is_file() and (run / ACCURACY_LOG).is_file():
            return run, run
        return folder / PERFORMANCE, folder / ACCURACY

    def _verdict(self, record: RunRecord) -> str | None:
        """A rehearsal needs complete runs, and so do tests; anything else must be VALID."""
        verdict = record.verdict
        if verdict is None:
            return "the run did not end"
        if verdict.result == "VALID" or (verdict.complete and (self.is_test or self.make.rehearsal)):
            return None
        return f"the run is {verdict.result}: {'; '.join(verdict.reasons) or 'no reason is recorded'}"

    def _judgement(self) -> Gap | None:
        """The score or the verdict of a usable run that has none."""
        if self.name == _ACCURACY and not (self.folder / ACCURACY_TEXT).is_file():
            record = self._record(self.folder)
            command = self.make.score(self.of, record if isinstance(record, RunRecord) else None)
            return Gap(Cost.MINUTES, f"{self.shown}: not scored, no {ACCURACY_TEXT}", command)
        if not self.is_test:
            return None
        path = self.folder / TESTS[self.name].verify_file
        if path.is_file() or (self.make.rehearsal and unofficial(path).is_file()):
            return None
        if unofficial(path).is_file():
            text = f"{self.shown}: a rehearsal, no {path.name} (only {unofficial(path).name})"
            return Gap(Cost.GPU_HOURS, text, self.make.run(self.of.scenario, self.name))
        return Gap(
            Cost.MINUTES, f"{self.shown}: not verified, no {path.name}", self.make.verify(self.of, self.name)
        )

    def _aside(self) -> Path | None:
        """The latest usable run of this kind that was moved aside."""
        for folder in sorted(self.of.path.glob(f"{self.name}.*"), reverse=True):
            if isinstance(self._record(folder), RunRecord) and self._problem(folder) is None:
                return folder
        return None
