"""audit.config: a compliance test's settings for LoadGen, and the thresholds of its verification.

LoadGen drops the whole file, with one row in its detail log, when a value has a comment behind it, and skips
``key=3`` without a word. So a file is read here, and LoadGen gets one that it reads wholly.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from harness.compliance.rules import THRESHOLDS, ComplianceRule, TestName
from harness.config.loadgen_conf import USER_KEYS
from harness.config.scenario import LOADGEN_SCENARIOS
from harness.errors import ConfigError

_MOST_DIGITS = 40  # beyond a few hundred python has no number for them
_PERFORMANCE = 2  # LoadGen's number of the mode
_LOADGEN_KEYS = USER_KEYS | {"mode"}
_THRESHOLD_KEYS = frozenset(key for keys in THRESHOLDS.values() for key in keys)
_TEST01_KEYS = {"mode", "accuracy_log_rng_seed", "accuracy_log_sampling_target"}
_TEST06_KEYS = _TEST01_KEYS | {"min_query_count", "min_duration", "sample_concatenate_permutation"}

Setting = int | float


@dataclass(frozen=True, slots=True)
class AuditConfig:
    """One test's settings by LoadGen's key, as they hold in one scenario; ``source`` says whose they are."""

    source: str
    settings: Mapping[str, Setting]
    thresholds: Mapping[str, float]

    def scaled_to(self, samples: int) -> "AuditConfig":
        """For another number of samples: each is issued once, so LoadGen may not wait for more queries."""
        asked = self.settings.get("min_query_count", samples)
        if not self.settings.get("performance_issue_unique") or asked == samples:
            return self
        return replace(self, settings={**self.settings, "min_query_count": samples})

    def differences(self, other: "AuditConfig") -> tuple[str, ...]:
        """Settings and thresholds that are not those of ``other``."""
        mine, theirs = ({**one.settings, **one.thresholds} for one in (self, other))
        changed = [key for key in sorted(mine.keys() | theirs.keys()) if mine.get(key) != theirs.get(key)]
        unset = "not set"
        return tuple(
            f"{key} is {mine.get(key, unset)} in {self.source}, {theirs.get(key, unset)} in {other.source}"
            for key in changed
        )

    def render(self, test: TestName) -> str:
        """The file for LoadGen; the official verification scripts read its thresholds."""
        rows = [f"*.*.{key} = {value}" for key, value in {**self.settings, **self.thresholds}.items()]
        return "\n".join([f"# {test}: settings for LoadGen, then thresholds for the verification", *rows, ""])


def test_named(settings: Mapping[str, Setting]) -> str | None:
    """The compliance test whose audit.config has settings of this kind, by LoadGen's key."""
    for test, keys in THRESHOLDS.items():
        if keys and settings.keys() & set(keys):
            return test
    if settings.get("performance_issue_same"):
        return "TEST04"
    return {frozenset(_TEST01_KEYS): "TEST01", frozenset(_TEST06_KEYS): "TEST06"}.get(frozenset(settings))


def shipped(rule: ComplianceRule) -> AuditConfig:
    """The official settings, of configs/."""
    return AuditConfig("the official settings", rule.settings, rule.thresholds)


def read_audit_config(path: Path, test: TestName, loadgen_scenario: str | None) -> AuditConfig:
    """A user's file, as it holds in ``loadgen_scenario`` (None: only rows for every scenario hold).

    Raises ConfigError for whatever LoadGen would drop, for another mode and for thresholds that are missing.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--audit-config {path}: cannot be read: {error}") from error
    rows = list(_rows(path, lines))
    general = {key: value for scenario, key, value in rows if scenario == "*"}
    special = {key: value for scenario, key, value in rows if scenario == loadgen_scenario}
    known = {**general, **special}
    thresholds = {key: float(known.pop(key)) for key in sorted(known.keys() & _THRESHOLD_KEYS)}
    missing = [key for key in THRESHOLDS[test] if key not in thresholds]
    if missing:
        raise ConfigError(
            f"--audit-config {path}: no {' and no '.join(missing)}, which {test} is held against; "
            "add it, or omit --audit-config to use the official settings"
        )
    if known.get("mode", _PERFORMANCE) != _PERFORMANCE:
        raise ConfigError(
            f"--audit-config {path}: mode = {known['mode']}, {test} runs in mode 2, performance"
        )
    chosen = {key: thresholds[key] for key in THRESHOLDS[test]}
    return AuditConfig(str(path), {key: _whole(value) for key, value in known.items()}, chosen)


def _rows(path: Path, lines: list[str]) -> Iterator[tuple[str, str, Setting]]:
    """Scenario, key and value of each row; comments may stand behind a value."""
    for number, line in enumerate(lines, start=1):
        text = line.split("#", 1)[0].strip()
        if text:
            yield _row(f"--audit-config {path}:{number}", text)


def _row(where: str, text: str) -> tuple[str, str, Setting]:
    name, _, value = (part.strip() for part in text.partition("="))
    model, dot, rest = name.partition(".")
    scenario, _, key = rest.partition(".")
    if not dot or not key or not value:
        raise ConfigError(f"{where}: got {text!r}, expected '*.*.key = number'")
    if key in _THRESHOLD_KEYS:
        return "*", key, _number(where, value)
    if key not in _LOADGEN_KEYS:
        raise ConfigError(f"{where}: LoadGen reads no key {key!r} from an audit.config; check the spelling")
    if model != "*" or scenario not in ("*", *LOADGEN_SCENARIOS):
        raise ConfigError(
            f"{where}: LoadGen reads an audit.config for model * only, and for the scenarios "
            f"{', '.join(LOADGEN_SCENARIOS)} or *; got {model}.{scenario}"
        )
    return scenario, key, _number(where, value)


def _number(where: str, text: str) -> Setting:
    if len(text) > _MOST_DIGITS:
        raise ConfigError(f"{where}: a value of {len(text)} characters is not a number that LoadGen takes")
    try:
        return int(text, 0)
    except ValueError:
        pass
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ConfigError(f"{where}: value {text!r} is not a number")
    return value


def _whole(value: Setting) -> Setting:
    return int(value) if float(value).is_integer() and not isinstance(value, int) else value
