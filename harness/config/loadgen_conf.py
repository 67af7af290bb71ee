"""Reads LoadGen conf files and reports what LoadGen skips in silence.

LoadGen skips unknown models, scenarios and keys, and ``key=3`` without spaces, without a word
(mlperf::TestSettings::FromConfig); a night can be lost to a typo. A row that was meant to rule this run, and
that LoadGen skips or reads as another number, is an error; any other row that it skips is a warning.
"""

import difflib
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from harness.config.loadgen_settings import SETTINGS, Number, settings_of
from harness.config.scenario import LOADGEN_SCENARIOS
from harness.errors import ConfigError
from harness.grouping import by_key
from harness.text import counted

# Models in LoadGen 6.0's own mlperf.conf.
MODELS = frozenset(
    [
        "3d-unet",
        "bert",
        "deepseek-r1",
        "deepseek-r1-interactive",
        "dlrm",
        "dlrm-v2",
        "dlrm-v3",
        "gpt-oss-120b",
        "gpt-oss-120b-interactive",
        "gptj",
        "llama2-70b",
        "llama2-70b-interactive",
        "llama3_1-405b",
        "llama3_1-405b-interactive",
        "llama3_1-8b",
        "llama3_1-8b-edge",
        "llama3_1-8b-interactive",
        "mixtral-8x7b",
        "pointpainting",
        "qwen3-vl-235b-a22b",
        "resnet50",
        "retinanet",
        "rgat",
        "rnnt",
        "ssd-mobilenet",
        "stable-diffusion-xl",
        "wan-2.2-t2v-a14b",
        "whisper",
        "yolo",
    ]
)

# Keys that FromConfig reads from a user.conf. An audit.config holds ``mode`` too.
USER_KEYS = frozenset(setting.conf_key for setting in SETTINGS if not setting.internal)
# A row of an audit.config for the verification script of a compliance test; LoadGen skips it.
THRESHOLD = re.compile(r"(test\d\d)_\w+")

# Rows of published files that LoadGen never reads, and the rows to write instead.
_INSTEAD = {
    "performance_sample_count": "remove the row; LoadGen's own key is performance_sample_count_override",
    "mode": "--accuracy decides the mode; remove the row",
    "target_duration": "write min_duration",
} | {
    setting.conf_key: "it comes from LoadGen's own mlperf.conf; remove the row"
    for setting in SETTINGS
    if setting.internal
}
# The key that a scenario has in place of another.
_COUNTERPART = {
    ("SingleStream", "target_qps"): "write target_latency, the expected ms of one query",
    ("MultiStream", "target_qps"): "write target_latency, the expected ms of one query",
}
_SIMILAR = 0.72  # difflib's ratio of gpt-oss to gpt-oss-120b is 0.74

# Of other spellings LoadGen makes other numbers: 6e5 is 6, 010 is 8, -1 is 2^64 - 1.
_WHOLE = re.compile(r"\+?(-?0{1,20}|0{0,20}[1-7]|[1-9][0-9]{0,19}|0[xX][0-9a-fA-F]{1,16})(\.0*)?")
_HEXADECIMAL = r"0x([0-9a-f]+(\.[0-9a-f]*)?|\.[0-9a-f]+)(p[+-]?[0-9]+)?"
_DECIMAL = r"([0-9]+(\.[0-9]*)?|\.[0-9]+)(e[+-]?[0-9]+)?"
_ANY_NUMBER = re.compile(rf"[+-]?({_HEXADECIMAL}|{_DECIMAL}|inf|infinity|nan)", re.IGNORECASE)
# Beyond these, products of rates, times and counts are no finite numbers.
_LEAST_RATE, _MOST_RATE = 1e-12, 1e12
_SPACES = " \t\r\v\f"

ConfKind = Literal["user", "mlperf", "audit"]


class ConfKey(msgspec.Struct, frozen=True):
    """LoadGen's model key and scenario of the run for which a conf file is read."""

    model_key: str
    scenario: str
    interactive: bool = False


class ConfRow(msgspec.Struct, frozen=True):
    """One ``model.Scenario.key = value`` line."""

    line: int
    model: str
    scenario: str
    key: str
    value: Number


class Conf(msgspec.Struct, frozen=True):
    """A file as LoadGen reads it for one run: the rows that apply, and a line for what it skips."""

    rows: tuple[ConfRow, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def settings(self) -> dict[str, Number]:
        """The value in force of each key: LoadGen takes the most exact row, and of equals the last."""
        ranked = sorted(self.rows, key=lambda row: (row.scenario != "*", row.model != "*"))
        return {row.key: row.value for row in ranked}


class _Skipped(msgspec.Struct, frozen=True):
    """A row that LoadGen skips. ``meant`` names the key that it was to set for this run, or is empty."""

    line: int
    reason: str
    meant: str
    correction: str


def read_conf(path: Path, run: ConfKey, kind: ConfKind = "user") -> Conf:
    """The rows of a file that apply to ``run``.

    Raises ConfigError for a file that LoadGen refuses, for a number that it would read as another one, and
    for a row that was meant to rule this run and that it would skip.
    """
    return parse_conf(read_text(str(path), path), str(path), run, kind)


def source_of(key: str, run: ConfKey, user: Path, mlperf: Path | None) -> str:
    """The file that decides on a setting, the user.conf where none has it, as a message names it.

    Raises ConfigError as ``read_conf``.
    """
    if mlperf is None or key in read_conf(user, run).settings:
        return str(user)
    return f"--mlperf-conf {mlperf}" if key in read_conf(mlperf, run, "mlperf").settings else str(user)


def with_rows(text: str, comment: str, rows: Iterable[str]) -> str:
    """A conf file with further rows at its end: of equally exact rows LoadGen takes the last."""
    return "\n".join([text.rstrip("\n"), "", f"# {comment}", *rows, ""])


def without_rows(text: str, comment: str) -> str:
    """The file without the rows that ``with_rows`` has added under this comment."""
    return text.rpartition(f"\n# {comment}\n")[0] or text


def read_text(source: str, path: Path) -> str:
    """The text of a conf file, which messages call ``source``. Raises ConfigError."""
    try:
        return path.read_bytes().decode()
    except OSError as error:
        raise ConfigError(f"{source}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{source}: not a text file: {error}") from error


def parse_conf(text: str, source: str, run: ConfKey, kind: ConfKind) -> Conf:
    """``read_conf`` of a text; messages name ``source`` and the line."""
    if text.startswith("\ufeff"):
        raise ConfigError(
            f"{source}:1: a byte order mark, with which LoadGen skips the row or refuses the file; "
            "save it as UTF-8 without one"
        )
    found = list(_rows(text, source, run, kind))
    rows = tuple(row for row in found if isinstance(row, ConfRow))
    skipped = [row for row in found if isinstance(row, _Skipped)]
    known = {row.key for row in rows}
    for row in skipped:
        if row.meant and row.meant not in known:
            raise ConfigError(f"{source}:{row.line}: {row.reason}; did you mean {row.correction!r}?")
    return Conf(rows, tuple(_warnings(source, skipped)))


def _rows(text: str, source: str, run: ConfKey, kind: ConfKind) -> Iterator[ConfRow | _Skipped]:
    """The rows that apply to the run, and those that LoadGen skips; not those that are for other runs."""
    for number, line in enumerate(text.split("\n"), start=1):
        if not (words := _words(line)):
            continue
        _check_syntax(f"{source}:{number}", words)
        if not words[0].startswith("#"):  # LoadGen harmlessly reads ``#key = 5``
            yield from _row(f"{source}:{number}", number, words, run, kind)


def _words(line: str) -> list[str]:
    """Split as C++ streams do, at ASCII white space only, up to a ``#`` before the value."""
    words = [word for word in re.split(f"[{_SPACES}]+", line) if word]
    return words[: words.index("#")] if "#" in words[:2] else words


def _check_syntax(where: str, words: list[str]) -> None:
    """Refuse what makes LoadGen refuse the complete file, whatever the row is for. Raises ConfigError."""
    if len(words) > 1 and words[1] != "=":
        raise ConfigError(
            f"{where}: got {' '.join(words)!r}, expected 'model.Scenario.key = number' with spaces around "
            "'=', and comments on separate lines that begin with '# '; LoadGen refuses the file"
        )
    for value in words[2:]:
        if not _ANY_NUMBER.fullmatch(value):
            remark = "; put the comment on a separate line" if value.startswith("#") else ""
            if words[0].startswith("#"):
                remark = "; a comment begins with '# '"
            raise ConfigError(f"{where}: value {value!r} is not a number; LoadGen refuses the file{remark}")


def _row(
    where: str, number: int, words: list[str], run: ConfKey, kind: ConfKind
) -> Iterator[ConfRow | _Skipped]:
    """What a row is; nothing for one that is right and for other runs."""
    name = words[0].partition("=")[0] if len(words) < 3 else words[0]
    model, scenario, key = _parts(name)
    right_model, right_scenario = _model(model, scenario, run, kind), _scenario(scenario, run)
    right_key = _key(key, right_scenario or scenario, kind)
    if len(words) > 2 and name == f"{right_model}.{right_scenario}.{right_key}":
        if model in ("*", run.model_key) and scenario in ("*", run.scenario):
            yield ConfRow(number, model, scenario, key, _number(where, key, words[2:], run.scenario))
        return
    meant = (
        right_model in ("*", run.model_key)
        and right_scenario in ("*", run.scenario)
        and right_key is not None
    )
    value = words[2] if len(words) > 2 else words[0].partition("=")[2] or "NUMBER"
    yield _Skipped(
        number,
        _reason(words, name, kind),
        (right_key or "") if meant else "",
        f"{right_model}.{right_scenario}.{right_key} = {value}",
    )


def _parts(name: str) -> tuple[str, str, str]:
    """Model, scenario and key; what is missing stands for all."""
    parts = name.rsplit(".", 2)
    if len(parts) == 3:
        return parts[0], parts[1], parts[2]
    if len(parts) == 1:
        return "*", "*", parts[0]
    return ("*", *parts) if _near(parts[0], LOADGEN_SCENARIOS) else (parts[0], "*", parts[1])  # type: ignore[return-value]


def _model(model: str, scenario: str, run: ConfKey, kind: ConfKind) -> str | None:
    """The model of LoadGen's that a row names or means, None where that is none."""
    if kind == "audit":
        return "*" if model in ("*", run.model_key) else None
    of_this = ("*", run.model_key.removesuffix("-interactive"))  # under "*" the row would be Server's, too
    if run.interactive and scenario.lower() == "interactive" and model in of_this:
        return run.model_key
    if model == "*" or model in MODELS:
        return model
    return _near(model, sorted(MODELS | {run.model_key}))


def _scenario(scenario: str, run: ConfKey) -> str | None:
    if scenario == "*" or scenario in LOADGEN_SCENARIOS:
        return scenario
    if scenario.lower() == "interactive":
        return run.scenario if run.interactive else None
    return _near(scenario, LOADGEN_SCENARIOS)


def _key(key: str, scenario: str, kind: ConfKind) -> str | None:
    """The key that LoadGen reads for the scenario, or that is meant; None where it reads none."""
    if kind == "mlperf":
        return key
    if kind == "audit" and (key == "mode" or THRESHOLD.fullmatch(key)):
        return key
    if key in USER_KEYS:
        return key if scenario == "*" or settings_of(key, scenario) else None
    readable = [name for name in sorted(USER_KEYS) if scenario == "*" or settings_of(name, scenario)]
    return _near(key, readable, 0.85)


def _near(word: str, known: Iterable[str], similar: float = _SIMILAR) -> str | None:
    """The known word of which ``word`` is a misspelling."""
    lower = {name.lower(): name for name in known}
    found = difflib.get_close_matches(word.lower(), lower, 1, similar)
    return lower[found[0]] if found else None


def _reason(words: list[str], name: str, kind: ConfKind) -> str:
    """The reason why LoadGen skips the row, and the row to write instead."""
    if len(words) < 3:
        return f"LoadGen skips {words[0]!r}, since it expects 'model.Scenario.key = number' with spaces"
    if name.count(".") < 2:
        return f"LoadGen skips {name!r}, since it expects 'model.Scenario.key'"
    model, scenario, key = name.rsplit(".", 2)
    if kind == "audit" and model != "*":
        return f"LoadGen reads an audit.config for model '*' only and skips rows for {model!r}"
    if model != "*" and model not in MODELS:
        dotless = model.replace(".", "_")
        spelled = f"; it spells it {dotless!r}" if dotless in MODELS else ""
        return f"LoadGen knows no model {model!r} and skips its rows{spelled}"
    if scenario.lower() == "interactive":
        return (
            "LoadGen has no scenario Interactive and skips such rows; write .Server. under the model's "
            "-interactive key"
        )
    if scenario != "*" and scenario not in LOADGEN_SCENARIOS:
        return f"LoadGen knows no scenario {scenario!r} and skips its rows"
    if places := [name for name in LOADGEN_SCENARIOS if key in USER_KEYS and settings_of(key, name)]:
        remedy = _COUNTERPART.get((scenario, key), "remove the row")
        return f"LoadGen reads {key} for {', '.join(places)} only and skips it for {scenario}; {remedy}"
    remedy = f"; {_INSTEAD[key]}" if key in _INSTEAD else ""
    file = "an audit.config" if kind == "audit" else "a user.conf"
    return f"LoadGen reads no key {key!r} from {file} and skips the row{remedy}"


def _warnings(where: str, skipped: Iterable[_Skipped]) -> Iterable[str]:
    """One line for each reason, with the first line number that has it."""
    for reason, numbers in by_key((row.reason, row.line) for row in skipped).items():
        yield f"{where}:{numbers[0]}: {reason}{and_more(numbers)}"


def and_more(rows: Sequence[int]) -> str:
    """The end of a warning that names the first of some rows."""
    return f" (and {counted(len(rows) - 1, 'more such row')})" if len(rows) > 1 else ""


def _number(where: str, key: str, words: list[str], scenario: str) -> Number:
    """The value of a row that applies. Raises ConfigError where LoadGen would take another number."""
    text = words[0]
    if len(words) > 1:
        raise ConfigError(f"{where}: got {len(words)} values, expected one; LoadGen takes {words[-1]}")
    kinds = {setting.kind for setting in settings_of(key, scenario) or settings_of(key)}
    if float in kinds or THRESHOLD.fullmatch(key):
        value, expected = _decimal(text), "a finite number, 0 or more"
        if key in ("target_qps", "target_latency"):
            is_right = _LEAST_RATE <= value <= _MOST_RATE
            expected = f"a number from {_LEAST_RATE:g} to {_MOST_RATE:g}"
        else:
            is_right = 0 <= value < math.inf
        if not is_right:
            raise ConfigError(f"{where}: {key} = {text}, expected {expected}")
        return value
    bound, remedy = (2, "0 or 1") if bool in kinds else (1 << 64, "plain digits")  # 2 may be true or false
    if (found := _WHOLE.fullmatch(text)) and (whole := int(found[1], 16 if _is_hex(text) else 10)) < bound:
        return whole
    raise ConfigError(f"{where}: {key} = {text}, which LoadGen reads as another number; write {remedy}")


def _decimal(text: str) -> float:
    try:
        return float.fromhex(text) if _is_hex(text) else float(text)
    except OverflowError:
        return math.inf


def _is_hex(text: str) -> bool:
    return "x" in text.lower()
