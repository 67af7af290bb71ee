"""The settings of an audit.config against the effective settings in LoadGen's detail log."""

from collections.abc import Callable, Mapping
from typing import Any

from harness.compliance.audit_config import Setting

_MODES = ("SubmissionRun", "AccuracyOnly", "PerformanceOnly", "FindPeakPerformance")
# LoadGen's effective setting where its name is not the key's.
_EFFECTIVE = {
    "mode": "test_mode",
    "min_duration": "min_duration_ms",
    "max_duration": "max_duration_ms",
    "performance_sample_count_override": "performance_sample_count",
    "accuracy_sample_count_override": "accuracy_sample_count",
}
_AS_LOGGED: dict[str, Callable[[Setting], Any]] = {
    "mode": lambda value: _MODES[int(value)],
    "performance_issue_unique": bool,
    "performance_issue_same": bool,
    "sample_concatenate_permutation": bool,
    "print_timestamps": bool,
}


def differences(settings: Mapping[str, Setting], effective: Mapping[str, Any]) -> dict[str, str]:
    """One line for each setting that is not as in the audit.config, by its key.

    A setting that the log does not contain is no difference.
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


def _difference(key: str, value: Setting, effective: Mapping[str, Any]) -> str:
    name = _EFFECTIVE.get(key, key)
    expected = _AS_LOGGED[key](value) if key in _AS_LOGGED else value
    if name not in effective or effective[name] == expected:
        return ""
    return f"effective_{name} was {effective[name]}, the audit settings say {expected}"


def _too_few_samples(asked: int, effective: Mapping[str, Any]) -> str:
    """Offline makes one query of all samples: the count of queries is its size there."""
    got = effective.get("samples_per_query", 0)
    if got >= asked:
        return ""
    return f"effective_samples_per_query was {got}, the audit settings say {asked}"
