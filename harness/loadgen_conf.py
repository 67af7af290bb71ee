"""Reads LoadGen conf files as strictly as LoadGen reads them leniently.

LoadGen skips unknown models, scenarios and keys, and ``key=3`` without spaces, without a word
(mlperf::TestSettings::FromConfig); a night can be lost to a typo. Here each of these is an error.
"""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from harness.errors import ConfigError

SCENARIO_NAMES = ("SingleStream", "MultiStream", "Server", "Offline")

# Models that LoadGen 6.0's own mlperf.conf knows.
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

# Keys that FromConfig reads from a user.conf, with the scenarios under which it looks them up
# (LoadGen 6.0, test_settings_internal.cc). ``mode`` is not among them: --accuracy decides.
_IN_ALL = (
    "use_token_latencies infer_token_latencies token_latency_scaling_factor min_duration max_duration "
    "min_query_count max_query_count performance_issue_unique performance_issue_same "
    "performance_issue_same_index performance_sample_count_override accuracy_sample_count_override "
    "sample_concatenate_permutation print_timestamps accuracy_log_rng_seed accuracy_log_sampling_target"
)
_KEY_SCENARIOS = dict.fromkeys(_IN_ALL.split(), SCENARIO_NAMES) | {
    "ttft_latency": ("Server",),
    "tpot_latency": ("Server",),
    "coalesce_queries": ("Server",),
    "max_async_queries": ("Server",),
    "target_qps": ("Server", "Offline"),
    "samples_per_query": ("MultiStream",),
    "target_latency": ("SingleStream", "MultiStream", "Server"),
    "target_latency_percentile": ("SingleStream", "MultiStream", "Server"),
}
USER_KEYS = frozenset(_KEY_SCENARIOS)
_DECIMAL_KEYS = ("target_qps", "target_latency", "target_latency_percentile")

# Of other spellings LoadGen makes other numbers: 6e5 is 6, 010 is 8, -1 is 2^64 - 1.
_WHOLE = re.compile(r"0|[1-9][0-9]*|0[xX][0-9a-fA-F]+")
_DECIMAL = re.compile(r"[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?")
_MOST_DIGITS = 20  # of 2^64 - 1; Python refuses to read thousands of them
_SPACES = " \t\r\v\f"


@dataclass(frozen=True, slots=True)
class ConfRow:
    """One ``model.Scenario.key = value`` line."""

    line: int
    model: str
    scenario: str
    key: str
    value: float


def read_conf(path: Path, *, user: bool = True) -> tuple[ConfRow, ...]:
    """All rows of a conf file. Raises ConfigError for whatever LoadGen would refuse or silently drop.

    A user.conf may hold only the keys that LoadGen reads from one; an mlperf.conf (not ``user``) holds more.
    """
    try:
        text = path.read_bytes().decode()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot read the LoadGen conf: {error}") from error
    rows = [
        _row(f"{path}:{number}", number, words, user)
        for number, line in enumerate(text.split("\n"), start=1)
        if not _is_comment(words := _words(line))
    ]
    return tuple(rows)


def check_audit_config(path: Path) -> None:
    """Refuse a file for which LoadGen drops rows, or the whole of it, without a word. Raises ConfigError.

    Values are not looked at: thresholds of the verification stand there too.
    """
    try:
        lines = path.read_bytes().decode().split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--audit-config {path}: cannot be read: {error}") from error
    for number, line in enumerate(lines, start=1):
        words = _words(line)
        if not _is_comment(words) and (len(words) != 3 or words[1] != "="):
            raise ConfigError(
                f"--audit-config {path}:{number}: got {line.strip()!r}; it wants '*.*.key = number' with "
                "spaces and no comment behind it, and drops the rest: mend the line, or use run_compliance.py"
            )


def applying(rows: Iterable[ConfRow], model_key: str, scenario: str) -> tuple[ConfRow, ...]:
    """The rows that LoadGen applies to one model and scenario."""
    return tuple(row for row in rows if row.model in ("*", model_key) and row.scenario in ("*", scenario))


def _words(line: str) -> list[str]:
    """Split as C++ streams do: at ASCII white space only."""
    return [word for word in re.split(f"[{_SPACES}]+", line) if word]


def _is_comment(words: list[str]) -> bool:
    """LoadGen skips what follows a ``#`` that stands alone, and harmlessly reads ``#key = 5``."""
    if not words or words[0] == "#":
        return True
    return words[0].startswith("#") and (len(words) == 1 or (len(words) == 3 and words[1] == "="))


def _row(where: str, number: int, words: list[str], user: bool) -> ConfRow:
    if len(words) != 3 or words[1] != "=":
        raise ConfigError(
            f"{where}: got {' '.join(words)!r}, expected 'model.Scenario.key = number' with spaces around "
            "'=', and comments on lines of their own that begin with '# '"
        )
    name = words[0].rsplit(".", 2)
    if len(name) != 3:
        raise ConfigError(f"{where}: got key {words[0]!r}, expected 'model.Scenario.key'")
    model, scenario, key = name
    _check_names(where, model, scenario)
    if user:
        _check_key(where, scenario, key)
    return ConfRow(number, model, scenario, key, _number(where, key, words[2]))


def _number(where: str, key: str, text: str) -> float:
    decimal = key in _DECIMAL_KEYS
    if decimal and _DECIMAL.fullmatch(text):
        value = float(text)
        if 0 < value < math.inf or (value == 0 and key == "target_latency"):
            return value
        raise ConfigError(f"{where}: {key} = {text}, expected more than 0")
    if not decimal and len(text) <= _MOST_DIGITS and _WHOLE.fullmatch(text) and int(text, 0) < 1 << 64:
        return float(int(text, 0))
    if _WHOLE.fullmatch(text.lstrip("+-")) or _DECIMAL.fullmatch(text.lstrip("+-")):
        raise ConfigError(f"{where}: LoadGen reads {text} as another number; write plain digits")
    raise ConfigError(f"{where}: value {text!r} is not a number that LoadGen takes")


def _check_names(where: str, model: str, scenario: str) -> None:
    if model != "*" and model not in MODELS:
        raise ConfigError(
            f"{where}: LoadGen knows no model {model!r} and would skip the row; "
            f"expected * or one of {', '.join(sorted(MODELS))}"
        )
    if scenario == "Interactive":
        raise ConfigError(
            f"{where}: LoadGen has no Interactive scenario; write .Server. under the -interactive key"
        )
    if scenario != "*" and scenario not in SCENARIO_NAMES:
        raise ConfigError(
            f"{where}: scenario {scenario!r} is unknown to LoadGen; "
            f"expected * or one of {', '.join(SCENARIO_NAMES)}"
        )


def _check_key(where: str, scenario: str, key: str) -> None:
    scenarios = _KEY_SCENARIOS.get(key)
    if scenarios is None:
        raise ConfigError(
            f"{where}: LoadGen reads no key {key!r} from a user.conf and would skip it; check the spelling"
        )
    if scenario != "*" and scenario not in scenarios:
        raise ConfigError(
            f"{where}: LoadGen reads {key} for {', '.join(scenarios)} only and would skip it for {scenario}"
        )
