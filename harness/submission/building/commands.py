"""The commands that make the runs of a submission, as a submitter types them."""

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from harness.cli.commands import recorded, shown, start_of
from harness.compliance.registry import TESTS, find_test
from harness.config.choices import DEFAULT_BENCHMARK
from harness.config.official_data import downloaded
from harness.config.run_options import DEFAULT_BACKEND
from harness.config.scenario import Scenario
from harness.config.server_urls import folded
from harness.files import ACCURACY_LOG, COMPLIANCE_RUN, ROOT
from harness.record.repeated import ANEW_OR_NOT, without
from harness.record.run_record import RunRecord
from harness.report.next_step import scoring_command
from harness.submission.building.find_runs import BenchmarkRuns, ScenarioRuns, records_in

_TESTS = "run_compliance.py"
_ACCURACY = "accuracy"
# Flags that a run with the same settings is continued without; its results may have been moved since.
_LEFT_OUT = {**ANEW_OR_NOT, "--results": True, "--output-dir": True}


class Maker(msgspec.Struct, frozen=True):
    """Commands for one benchmark. What other runs of it were made with holds for those that are missing."""

    found: BenchmarkRuns
    rehearsal: bool

    def again(self, record: RunRecord) -> str:
        """The command that a run was made with; "" where it is not known."""
        made = record.provenance
        if not made.command:
            return ""
        command = recorded(_here(made.command), made.folder)
        results = ("--results", str(self._results(record.plan.scenario).absolute()))
        return str(command._replace(flags=(*without(command.flags, _LEFT_OUT), *results)))

    def run(self, scenario: Scenario, name: str) -> str:
        """The command of a run; ``name`` is performance, accuracy or a compliance test."""
        words = [*start_of(_TESTS), "--test", name] if name in TESTS else [*start_of("run_mlperf.py")]
        words += [*self._benchmark(), "--scenario", scenario, *self._servers()]
        words += ["--accuracy"] if name == _ACCURACY else []
        words += ["--rehearsal"] if self.rehearsal and name in TESTS else []
        if (like := self._like()) is not None:
            words += ["--user-conf", str(like.plan.user_conf)]
        words += ["--input-file", str(self._dataset(name)), "--results", str(self._results(scenario))]
        return shlex.join(words)

    def score(self, run: ScenarioRuns, record: RunRecord | None) -> str:
        """The command that writes accuracy.txt; ``record`` is that of the accuracy run, where it has one."""
        tokenizer = None if record is None else record.plan.client.tokenizer
        return str(scoring_command(run.accuracy / ACCURACY_LOG, tokenizer))

    def verify(self, run: ScenarioRuns, test: str) -> str:
        """The command that verifies a test that was run."""
        words = [*start_of(_TESTS), "verify", test, *self._benchmark()]
        words += ["--log-dir", str(run.path / test / COMPLIANCE_RUN)]
        if TESTS[test].needs_references:
            words += ["--reference-data", str(self._dataset(test))]
        words += ["--rehearsal"] if self.rehearsal else []
        return shlex.join([*words, "--results", str(run.path)])

    def _results(self, scenario: Scenario) -> Path:
        """What holds the folder of the scenario's runs: another one would hide those that are there."""
        own = (run.path.parent for run in self.found.runs if run.scenario is scenario)
        return next(own, self.found.folder)

    def _benchmark(self) -> list[str]:
        name = self.found.benchmark.name
        return [] if name == DEFAULT_BENCHMARK else ["--benchmark", name]

    def _servers(self) -> list[str]:
        """Backend, API, tokenizer and addresses of the latest run.

        An embedded engine has another address in each.
        """
        if (like := self._like()) is None:
            return []
        client = like.plan.client
        words = [] if client.backend == DEFAULT_BACKEND else ["--backend", client.backend]
        words += [] if client.api is None else ["--api", client.api]
        words += [] if client.tokenizer is None else ["--tokenizer", client.tokenizer]
        if client.backend != "embedded" and client.server_urls:
            words += ["--server-url", folded(client.server_urls, len(client.server_urls))]
        return words

    def _dataset(self, name: str) -> Path:
        """The dataset of another run of this kind, or the official one where it is, or is downloaded to."""
        for record in self._records():
            if (record.plan.mode if record.plan.audit is None else record.plan.audit.test) == name:
                return record.plan.client.input_file
        benchmark = self.found.benchmark
        if name in TESTS:
            found = downloaded(find_test(benchmark, name).dataset.file, Path())
        else:
            found = downloaded(benchmark.dataset(accuracy=name == _ACCURACY).file, Path())
        return shown(found.absolute() if found.exists() else ROOT / found)

    def _like(self) -> RunRecord | None:
        """The latest of these."""
        return max(self._records(), key=lambda record: record.started, default=None)

    def _records(self) -> Iterator[RunRecord]:
        """Runs of the benchmark; for a submission those by the rules, since a trial has other servers."""
        folders = dict.fromkeys(run.path for run in self.found.runs)
        every = (record for folder in folders for record in records_in(folder))
        ours = (one for one in every if one.plan.client.benchmark.name == self.found.benchmark.name)
        return (one for one in ours if self.rehearsal or not one.deviations)


def _here(arguments: Sequence[str]) -> list[str]:
    """A run's sys.argv with this checkout's program of that name: the run may be of another checkout."""
    program, *flags = arguments
    own = ROOT / Path(program).name
    return [str(own) if own.is_file() else program, *flags]
