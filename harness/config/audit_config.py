"""audit.config: a compliance test's settings for LoadGen, and the thresholds of its verification.

LoadGen refuses the complete file, with one row in its detail log, when a comment follows a value, and
silently skips ``key=3``. So a user's rows are read and rewritten here, and LoadGen gets a file that it reads
completely.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from harness.config.loadgen_conf import THRESHOLD, ConfKey, parse_conf, read_text
from harness.config.loadgen_settings import PERFORMANCE_MODE, TEST_MODES, Number, settings_of
from harness.errors import ConfigError

_PERFORMANCE = TEST_MODES.index(PERFORMANCE_MODE)
# A threshold's model and scenario do not count: the verification scripts look for the key alone.
_THRESHOLD_ROW = re.compile(rf"^\s*\S+\.(?={THRESHOLD.pattern} =)", re.MULTILINE)
_TEST01_KEYS = {"mode", "accuracy_log_rng_seed", "accuracy_log_sampling_target"}
_TEST06_KEYS = _TEST01_KEYS | {"min_query_count", "min_duration", "sample_concatenate_permutation"}


class AuditConfig(msgspec.Struct, frozen=True):
    """Settings of one test by LoadGen's key, as they apply in one scenario."""

    source: str
    """where they come from, for messages"""
    settings: Mapping[str, Number]
    thresholds: Mapping[str, float]

    def scaled_to(self, samples: int) -> "AuditConfig":
        """The settings for another number of samples: LoadGen issues each once, and waits for no more."""
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

    def render(self, test: str) -> str:
        """The file for LoadGen; the official verification scripts read its thresholds."""
        rows = [f"*.*.{key} = {value}" for key, value in {**self.settings, **self.thresholds}.items()]
        return "\n".join([f"# {test}: settings for LoadGen, then thresholds for the verification", *rows, ""])


def test_named(settings: Mapping[str, Number]) -> str | None:
    """The compliance test whose audit.config has settings of this kind, by LoadGen's key."""
    for key in settings:
        if threshold := THRESHOLD.fullmatch(key):
            return threshold[1].upper()
    if settings.get("performance_issue_same"):
        return "TEST04"
    return {frozenset(_TEST01_KEYS): "TEST01", frozenset(_TEST06_KEYS): "TEST06"}.get(frozenset(settings))


def read_audit_config(
    path: Path, test: str, threshold_keys: Sequence[str], loadgen_scenario: str | None
) -> AuditConfig:
    """A user's file for a test, as it applies in ``loadgen_scenario`` (None: rows for every scenario).

    Raises ConfigError for a row that LoadGen would skip, for another mode and for missing thresholds.
    """
    source = f"--audit-config {path}"
    text = _THRESHOLD_ROW.sub("*.*.", plain_rows(read_text(source, path)))
    conf = parse_conf(text, source, ConfKey("*", loadgen_scenario or ""), "audit")
    for warning in conf.warnings:
        raise ConfigError(warning)
    known = conf.settings
    missing = [key for key in threshold_keys if key not in known]
    if missing:
        raise ConfigError(
            f"{source}: no {' and no '.join(missing)}, which {test} needs for its verdict; "
            "add it, or omit --audit-config to use the official settings"
        )
    if known.get("mode", _PERFORMANCE) != _PERFORMANCE:
        raise ConfigError(f"{source}: mode = {known['mode']}, {test} runs in mode 2, performance")
    settings = {key: value for key, value in known.items() if not THRESHOLD.fullmatch(key)}
    return AuditConfig(str(path), settings, {key: float(known[key]) for key in threshold_keys})


def plain_rows(text: str) -> str:
    """The rows in a form that LoadGen reads: values without comments, and spaces around ``=``.

    Lines keep their numbers, and a line that LoadGen reads already stays as it is.
    """
    return "\n".join(_plain(line) for line in text.split("\n"))


def _plain(line: str) -> str:
    row, mark, comment = line.partition("#")
    if not row.strip():
        return line if comment[:1] in ("", " ") else f"# {comment}"
    name, equals, value = (part.strip() for part in row.partition("="))
    words = [name, equals, value]
    return line if not mark and line.split() == words else " ".join(words).rstrip()


def effective_differences(settings: Mapping[str, Number], effective: Mapping[str, Any]) -> dict[str, str]:
    """One line for each setting that is not as in the audit.config, by its key.

    A setting that the log does not contain is not a difference.
    """
    found = {}
    for key, value in settings.items():
        if key == "min_query_count" and effective.get("scenario") == "Offline":
            line = _too_few_samples(int(value), effective)
        else:
            line = _difference(key, value, effective)
        if line:
            found[key] = line
    return found


def _difference(key: str, value: Number, effective: Mapping[str, Any]) -> str:
    name, expected = _as_logged(key, value, effective)
    if name not in effective or effective[name] == expected:
        return ""
    return f"effective_{name} was {effective[name]}, the audit settings say {expected}"


def _as_logged(key: str, value: Number, effective: Mapping[str, Any]) -> tuple[str, Any]:
    """The name of an effective setting and its value; an empty name where LoadGen logs none."""
    if key == "mode":
        return "test_mode", TEST_MODES[int(value)]
    for setting in settings_of(key, effective.get("scenario")):
        return setting.effective_name, setting.value(value)
    return "", value


def _too_few_samples(asked: int, effective: Mapping[str, Any]) -> str:
    """Compare the size of the query: Offline issues all samples in one."""
    got = effective.get("samples_per_query", 0)
    if isinstance(got, int | float) and got >= asked:
        return ""
    return f"effective_samples_per_query was {got}, the audit settings say {asked}"
