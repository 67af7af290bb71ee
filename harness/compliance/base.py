"""The base class of compliance tests, filled with the figures of a benchmark's definition."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar

import msgspec

from harness.arrays import MOST_DIGITS
from harness.config.audit_config import AuditConfig, read_audit_config
from harness.config.benchmark import Benchmark, DatasetRule
from harness.config.loadgen_settings import Number
from harness.files import unofficial
from harness.grading.evaluation.references import Reference
from harness.loadgen_logs.accuracy_log import AccuracyLog
from harness.loadgen_logs.summary_and_detail import LoadgenDetail
from harness.text import counted

RULE = "=" * 80
PASS_DATASET = "; pass the compliance dataset (datasets/download.sh --what compliance)"
_NUMBER = re.compile(r"\d+\.?\d*|\.\d+")
_TOTAL = re.compile(r"^Total samples(?: evaluated)?: (\d+)[ \t\r]*$", re.MULTILINE)


class TestResult(msgspec.Struct, frozen=True):
    """The verdict of a test on a log."""

    __test__: ClassVar[bool] = False  # so pytest does not take it for a class of tests

    passed: bool
    summary: str
    """one line of figures"""
    verify_text: str
    """the official verification file"""
    scorecard: str = ""
    """accuracy.txt: the evaluator's printout, where the test scores answers, and the warnings"""
    warnings: tuple[str, ...] = ()
    """they need no action"""


class VerifiedFigures(msgspec.Struct, frozen=True):
    """The content of a verification file."""

    passed: bool | None
    """None where the file has no verdict or both verdicts"""
    figure: float | None = None
    samples: int | None = None


class JudgedRun(msgspec.Struct, frozen=True):
    """Inputs of a test's verdict in addition to its log."""

    benchmark: Benchmark
    thresholds: Mapping[str, float]
    """may be those of a user's audit.config"""
    references: tuple[Reference, ...] = ()
    scenario: str | None = None
    """LoadGen's name; None where neither the logs nor the user name it"""


class ComplianceTest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One test of one benchmark: its dataset and its audit settings by LoadGen's key.

    A subclass adds further keys of its definition, and is listed in ``registry.TESTS``.
    """

    name: ClassVar[str]
    verify_file: ClassVar[str] = "verify_accuracy.txt"
    pass_line: ClassVar[str] = "TEST PASS"
    threshold_keys: ClassVar[tuple[str, ...]] = ()
    """the names of the thresholds in an audit.config"""
    every_sample: ClassVar[bool] = True
    """Whether the log must hold every sample exactly once; otherwise LoadGen logs a random part of them. A
    submission then holds the complete accuracy log, and may lack the others."""
    needs_references: ClassVar[bool] = False
    unusual_log: ClassVar[str] = "the log has {form}"
    """the warning about a log that is not in LoadGen's form; ``{form}`` stands for its form"""

    dataset: DatasetRule
    audit: dict[str, int]

    @property
    def fewest_answers(self) -> int:
        """The answers that the log of a submitted run has at least."""
        return self.answers_logged(self.audit)

    def answers_logged(self, settings: Mapping[str, Number]) -> int:
        """The answers that LoadGen logs with these audit settings, of a run of the complete dataset."""
        return min(self.dataset.samples, int(settings.get("accuracy_log_sampling_target", 0)))

    @property
    def thresholds(self) -> dict[str, float]:
        """The official thresholds by ``threshold_keys``."""
        return {}

    @property
    def mean_token_bounds(self) -> tuple[float, float] | None:
        """Lowest and highest mean output length of a performance run; None where the test has none."""
        return None

    @property
    def official_audit(self) -> AuditConfig:
        """The official settings and thresholds, from configs/."""
        return AuditConfig("the official settings", self.audit, self.thresholds)

    def audit_config(self, path: Path | None, loadgen_scenario: str | None) -> AuditConfig:
        """The user's audit.config as it applies in a scenario, or the official one. Raises ConfigError."""
        if path is None:
            return self.official_audit
        return read_audit_config(path, self.name, self.threshold_keys, loadgen_scenario)

    @property
    def unofficial_pass_line(self) -> str:
        """The line for a pass in a verification file that no submission may use."""
        return f"NOT OFFICIAL {self.pass_line.removeprefix('TEST ')}"

    @classmethod
    def verification_in(cls, folder: Path) -> Path:
        """The verification file in a test's folder; a rehearsal's has another name. It need not be there."""
        path = folder / cls.verify_file
        return path if path.is_file() or not unofficial(path).is_file() else unofficial(path)

    def verified_in(self, folder: Path) -> tuple[str, bool] | None:
        """The text of that file with the line of an official pass, and whether it is official.

        None where it cannot be read.
        """
        path = self.verification_in(folder)
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None
        if path.name == self.verify_file:
            return text, True
        return text.replace(self.unofficial_pass_line, self.pass_line), False

    def require_references(self, references: tuple[Reference, ...]) -> None:
        """Raise GradingError for references that the test cannot grade."""

    def judge(self, log: AccuracyLog, run: JudgedRun) -> TestResult:
        """The verdict of the official script on a complete log. Raises GradingError and ConfigError."""
        raise NotImplementedError

    def read(self, text: str) -> VerifiedFigures:
        """The figures of a verification file, of this harness or the official script."""
        passed, failed = (
            re.search(rf"^{words}[ \t\r]*$", text, re.MULTILINE) is not None
            for words in (self.pass_line, "TEST FAIL")
        )
        total = _TOTAL.search(text)
        samples = int(total[1][:MOST_DIGITS]) if total else None
        return VerifiedFigures(passed if passed != failed else None, samples=samples)

    def recheck(self, text: str, scenario: str) -> Iterator[str]:
        """The errors of a submitted verification file, one line each. ``scenario`` is LoadGen's."""
        found = self.read(text)
        if found.passed is not True:
            shown = "TEST FAIL" if found.passed is False else "neither TEST PASS nor TEST FAIL, or both"
            yield f"has {shown}, expected {self.pass_line}"
        yield from self.recheck_figures(text)
        if found.samples is not None and found.samples != self.dataset.samples:
            yield f"{counted(found.samples, 'sample', 'was')} verified, expected {self.dataset.samples}"

    def recheck_figures(self, text: str) -> Iterator[str]:
        """The errors in the figures of a submitted verification file, one line each."""
        yield from ()

    def stated_mean(self, text: str) -> float | None:
        """The mean output length in tokens that a verification file states; None for none."""
        return None

    def cross_check(self, text: str, detail: LoadgenDetail) -> str | None:
        """A line where a verification file is not of the answers whose rates LoadGen logged."""
        mean = self.stated_mean(text)
        if not mean or detail.has_mean_tokens(mean):
            return None
        return f"mean output tokens are {mean}, LoadGen's tokens/s ÷ samples/s is {detail.mean_tokens:.2f}"


def stated_number(text: str, name: str) -> float | None:
    """The number of the last ``name: number`` line; None without one, also where its points make it none."""
    found = re.findall(rf"^{name}: ([\d.]+)[ \t\r]*$", text, re.MULTILINE)
    return float(found[-1]) if found and _NUMBER.fullmatch(found[-1]) else None
