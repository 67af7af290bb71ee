"""LoadGen's summary for people, and its detail log of ``:::MLLOG`` rows.

Incomplete and empty files are read, too; ``problem`` then describes the damage.
``Result is : VALID`` does not mean free of errors: see also ``errors``.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from harness.arrays import MOST_DIGITS
from harness.config.loadgen_settings import ACCURACY_MODE
from harness.files import GIT_LFS_POINTER, RUN_RECORD
from harness.text import counted

ROW_PREFIX = ":::MLLOG "
MAX_DISTINCT_MESSAGES = 1000
CLOCK_FORMAT = "%m-%d-%Y %H:%M:%S.%f"

_VALID = {"VALID": True, "INVALID": False}
# LoadGen's numbers have 20 digits at most.
_NUMBER = re.compile(r"[-+]?([0-9]{1,40}\.?[0-9]{0,40}([eE][-+]?\d+)?|nan|inf)")
_COUNT = re.compile(r"(No|[0-9]{1,20}) (warning|error)s? encountered", re.IGNORECASE)
_SETTING = re.compile(r"([a-z_]+(?: \((?:ns|ms)\))?)\s*:\s*(\S+)")
# LoadGen's words for the times of a query, in the names of its figures.
TIMES = {"TTFT": "first token latency", "TPOT": "time to output token", "latency": "latency"}
PERCENTS = ("50.00", "90.00", "95.00", "97.00", "99.00", "99.90")  # in their names, too
_ONCE = ("effective_", "requested_", "result_")  # LoadGen writes each such row once
LARGEST = 1e30  # far above all 64-bit numbers of LoadGen; NaN and infinity are not below it
# In the 56 published TEST09 of v6.0 the means of the answers and of LoadGen's rates differ by less than 1e-5.
_MEAN_TOLERANCE = 1e-3
_NO_TIME_NS = 1e18  # LoadGen's figure where a query had no such time is near 2^63


def printed(rate: float) -> str:
    """A rate with the digits of LoadGen's summary, which has two decimals or, in Offline, six digits.

    ``38,646.16``, ``150.874``, ``1,544,950``.
    """
    return f"{rate:,.15g}"


class LoadgenSummary(msgspec.Struct, frozen=True):
    """``mlperf_log_summary.txt``. Accuracy runs write only the counts of warnings and errors."""

    scenario: str | None
    """LoadGen's: "Server" for Interactive"""
    mode: str | None
    result_valid: bool | None
    constraints: Mapping[str, bool]
    """whether each is met: ``"Min duration": True``"""
    recommendations: tuple[str, ...]
    early_stopping: Mapping[str, tuple[str, ...]]
    """verdicts by metric: ``"TTFT": ("Run successful.",)``"""
    figures: Mapping[str, int | float | None]
    """``"99.00 percentile latency (ns)": 1310189423``; None for nan and inf"""
    parameters: Mapping[str, str]
    errors: int | None
    warnings: int | None
    problem: str = ""
    """how an incomplete file is damaged, such as "missing" or "empty\""""

    def percentile_ns(self, name: str, percent: str = "99.00") -> float | None:
        """A percentile of one of TIMES; None where the summary has none or no query had such a time.

        LoadGen's TPOT of a query that failed after its first token is below 0.
        """
        found = self.figures.get(f"{percent} percentile {TIMES[name]} (ns)")
        return None if found is None or not 0 <= found < _NO_TIME_NS else found

    def difference(self, recorded: "LoadgenSummary") -> str:
        """``NAME is 1, the run.json of this run has 2``: the first figure that differs from ``recorded``.

        "" for none. ``recorded``: the summary as run.json has it.
        """
        differing = (
            f"{name} is {self.figures[name]}, the {RUN_RECORD} of this run has {value}"
            for name, value in recorded.figures.items()
            if name in self.figures and self.figures[name] != value
        )
        return next(differing, "")

    @property
    def invalid_line(self) -> str:
        """Which constraints an INVALID run has not satisfied."""
        unmet = [name for name, met in self.constraints.items() if not met]
        reasons = f": {', '.join(unmet)} not satisfied" if unmet else " and names no constraint"
        return f"LoadGen reports INVALID{reasons}"

    @property
    def samples_per_s(self) -> float | None:
        """Offline's rate, in Server that of completed samples; None in SingleStream, which has none."""
        return self._rate("samples")

    @property
    def tokens_per_s(self) -> float | None:
        """The same of output tokens."""
        return self._rate("tokens")

    def _rate(self, what: str) -> float | None:
        names = (f"Completed {what} per second", f"{what.capitalize()} per second")
        return next((rate for name in names if (rate := self.figures.get(name)) is not None), None)

    def limit_ns(self, name: str) -> int | None:
        """The limit of TTFT or TPOT that LoadGen had."""
        text = self.parameters.get(f"{name.lower()}_latency (ns)", "")
        return int(text) or None if text.isdecimal() and len(text) <= MOST_DIGITS else None


class Metadata(msgspec.Struct, frozen=True):
    """What LoadGen says of a row."""

    is_error: bool
    is_warning: bool


class DetailRow(msgspec.Struct, frozen=True):
    """One row of ``mlperf_log_detail.txt``."""

    key: str
    value: Any
    time_ms: float
    metadata: Metadata


_ROW = msgspec.json.Decoder(DetailRow)
# As C++ prints it and JSON has no word for: the scheduled rate of a Server run of one query, 0 divided by 0.
_NO_NUMBER = re.compile(r'"value": -?nan,')


class LoadgenDetail(msgspec.Struct, frozen=True, dict=True):
    """The detail log."""

    values: Mapping[str, Any]
    """by key; where a key repeats the first value counts, as for MLCommons's submission checker"""
    errors: Mapping[str, int]
    """how often each message was logged"""
    warnings: Mapping[str, int]
    """how often each message was logged"""
    problem: str = ""
    """how an incomplete file is damaged, such as "missing" or "empty\""""

    @property
    def error_count(self) -> int:
        """Rows marked as errors, of whatever message."""
        return sum(self.errors.values())

    @cached_property
    def effective(self) -> dict[str, Any]:
        """Settings that LoadGen ran with, without their prefix."""
        return self._with_prefix("effective_")

    @cached_property
    def requested(self) -> dict[str, Any]:
        """Settings that LoadGen was given, without their prefix."""
        return self._with_prefix("requested_")

    def _with_prefix(self, prefix: str) -> dict[str, Any]:
        return {key.removeprefix(prefix): v for key, v in self.values.items() if key.startswith(prefix)}

    def number(self, key: str) -> int | float | None:
        """A row's value; None if there is no row or it holds no finite number."""
        value = self.values.get(key)
        if not isinstance(value, int | float) or isinstance(value, bool):
            return None
        return value if abs(value) <= LARGEST else None

    @property
    def samples_issued(self) -> int | float | None:
        """Samples of all queries that LoadGen generated."""
        queries, each = self.number("generated_query_count"), self.number("generated_samples_per_query")
        return None if queries is None or each is None else queries * each

    @property
    def clock(self) -> tuple[datetime | None, datetime | None]:
        """power_begin and power_end by the clock of the machine."""
        return _time(self.values.get("power_begin")), _time(self.values.get("power_end"))

    @property
    def lasted_s(self) -> float | None:
        """Seconds between power_begin and power_end."""
        begin, end = self.clock
        return None if begin is None or end is None else (end - begin).total_seconds()

    @property
    def mean_tokens(self) -> float | None:
        """Output tokens per sample, from LoadGen's two throughputs."""
        rate, per = self.number("result_tokens_per_second"), self.number("result_samples_per_second")
        if rate is not None and per:
            return rate / per
        rate = self.number("result_completed_tokens_per_second")
        per, count = self.number("result_completed_samples_per_sec"), self.number("result_query_count")
        if rate is None or not per:
            return None
        # The rate of completed samples leaves out one of them, that of tokens leaves out none.
        return rate / per * ((count - 1) / count if count and count > 1 else 1)

    def has_mean_tokens(self, mean: float) -> bool:
        """Whether outputs of this mean length can be the run's; also where LoadGen logged no rates."""
        found = self.mean_tokens
        return found is None or abs(found - mean) <= _MEAN_TOLERANCE * found


def _time(value: object) -> datetime | None:
    try:
        return datetime.strptime(str(value), CLOCK_FORMAT)
    except ValueError:
        return None


def result_lines(path: Path) -> tuple[str, ...]:
    """LoadGen's own result as it wrote it; empty without a file, and of an accuracy run."""
    if not path.is_file():
        return ()
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    end = lines.index("Additional Stats") - 1 if "Additional Stats" in lines else len(lines)
    return tuple(line for line in lines[:end] if line.strip() and not _COUNT.match(line))


def read_summary(path: Path) -> LoadgenSummary:
    """Read a summary file; a missing one gives ``problem="missing"``."""
    if problem := _unreadable(path):
        return parse_summary("", problem=problem)
    return parse_summary(path.read_text(encoding="utf-8", errors="replace"))


def _unreadable(path: Path) -> str:
    """The reason why the path is not a log to read, "" for a file."""
    try:
        if not path.exists():
            return "missing"
        if not path.is_file():  # opening a named pipe would wait for ever
            return "a folder, expected a file" if path.is_dir() else "no plain file"
        with path.open("rb") as file:
            start = file.read(len(GIT_LFS_POINTER))
    except OSError as error:
        return f"unreadable: {error.strerror}"
    return "a git-lfs pointer in place of the file: run git lfs pull" if start == GIT_LFS_POINTER else ""


def parse_summary(text: str, problem: str = "") -> LoadgenSummary:
    """The summary's text as values."""
    result, stats, parameters = _sections(text)
    head = dict(_pairs(result))
    counts = {kind.lower(): _count(count) for count, kind in _COUNT.findall(text)}
    return LoadgenSummary(
        scenario=head.get("Scenario"),
        mode=head.get("Mode"),
        result_valid=_VALID.get(head.get("Result is", "")),
        constraints={
            k.removesuffix(" satisfied"): v == "Yes" for k, v in head.items() if k.endswith(" satisfied")
        },
        recommendations=tuple(_bullets(result).get("Recommendations", ())),
        early_stopping=_early_stopping(result),
        figures=_figures([*result, *stats]),
        parameters={m[1]: m[2] for line in parameters if (m := _SETTING.fullmatch(line.strip()))},
        errors=counts.get("error"),
        warnings=counts.get("warning"),
        problem=problem or _summary_problem(text, counts),
    )


def _summary_problem(text: str, counts: Mapping[str, int]) -> str:
    """The count of errors is the last line that LoadGen writes."""
    if not text.strip():
        return "empty"
    return "" if "error" in counts else "cut short"


def _count(word: str) -> int:
    return 0 if word.lower() == "no" else int(word)


def _sections(text: str) -> tuple[list[str], list[str], list[str]]:
    """Lines of the result, of "Additional Stats" and of "Test Parameters Used"."""
    sections: dict[str, list[str]] = {"": [], "Additional Stats": [], "Test Parameters Used": []}
    current = ""
    for line in text.splitlines():
        title = line.strip()
        if title in sections and title:
            current = title
        elif not _COUNT.match(title) and not title.startswith("==="):
            sections[current].append(line)
    return sections[""], sections["Additional Stats"], sections["Test Parameters Used"]


def _pairs(lines: list[str]) -> Iterator[tuple[str, str]]:
    for line in lines:
        name, colon, value = line.partition(":")
        if colon and not name.lstrip().startswith("*"):
            yield name.strip(), value.strip()


def _figures(lines: list[str]) -> dict[str, int | float | None]:
    numbers = {name: value for name, value in _pairs(lines) if _NUMBER.fullmatch(value)}
    return {name: _number(value) for name, value in numbers.items()}


def _number(text: str) -> int | float | None:
    """An integer or a float, None if it is not finite: a float does not hold all nanoseconds exactly."""
    if re.fullmatch(r"[-+]?[0-9]+", text):
        return int(text)
    return value if math.isfinite(value := float(text)) else None


def _bullets(lines: list[str]) -> dict[str, list[str]]:
    """The `` * `` items under each title; an item can run over several lines."""
    found: dict[str, list[str]] = {}
    title = ""
    for line in lines:
        text = line.strip()
        if text.endswith(":"):
            title = text[:-1]
            found[title] = []
        elif title and text.startswith("*"):
            found[title].append(text[1:].strip())
        elif title and text and found[title]:
            found[title][-1] += " " + text
    return found


def _early_stopping(lines: list[str]) -> dict[str, tuple[str, ...]]:
    """Verdicts by metric; the metric is "" where LoadGen names none (Offline, SingleStream)."""
    suffix = "Early Stopping Result"
    return {
        title.removesuffix(suffix).strip(): tuple(items)
        for title, items in _bullets(lines).items()
        if title.endswith(suffix)
    }


def _detail_row(line: str) -> DetailRow | None:
    """None for a line that is not a complete row."""
    if not line.startswith(ROW_PREFIX):
        return None
    try:
        return _ROW.decode(_NO_NUMBER.sub('"value": null,', line.removeprefix(ROW_PREFIX), count=1))
    except (ValueError, RecursionError):
        return None


def read_detail(path: Path) -> LoadgenDetail:
    """Read a detail log; a missing one gives ``problem="missing"``."""
    if problem := _unreadable(path):
        return LoadgenDetail({}, {}, {}, problem)
    values: dict[str, Any] = {}
    errors: Counter[str] = Counter()
    warnings: Counter[str] = Counter()
    broken, repeated = list[int](), list[int]()
    with path.open(encoding="utf-8", errors="replace") as lines:
        for number, row in enumerate(map(_detail_row, lines), 1):
            if row is None:
                broken.append(number)
            elif row.metadata.is_error or row.metadata.is_warning:
                _count_message(errors if row.metadata.is_error else warnings, str(row.value))
            else:
                if row.key in values and row.key.startswith(_ONCE):
                    repeated.append(number)
                values.setdefault(row.key, row.value)
    return LoadgenDetail(values, errors, warnings, _detail_problem(values, broken, repeated))


def _count_message(messages: Counter[str], text: str) -> None:
    known = text in messages or len(messages) < MAX_DISTINCT_MESSAGES
    messages[text if known else "(further messages)"] += 1


def _detail_problem(values: Mapping[str, Any], broken: list[int], repeated: list[int]) -> str:
    if not values:
        return "empty"
    # LoadGen writes this row last, by mode.
    last = "power_end" if values.get("effective_test_mode") == ACCURACY_MODE else "num_errors"
    if last not in values:
        return "cut short"
    if broken:
        return f"damaged: {counted(len(broken), 'incomplete line')}, the first is line {broken[0]}"
    if repeated:
        return f"damaged: {counted(len(repeated), 'row')} a second time, the first is line {repeated[0]}"
    return ""
