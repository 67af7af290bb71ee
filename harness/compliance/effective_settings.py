"""The settings of an audit.config against the effective settings in LoadGen's detail log."""

from collections.abc import Mapping
from typing import Any

from harness.compliance.audit_config import Setting
from harness.config.loadgen_settings import settings_of

_MODES = ("SubmissionRun", "AccuracyOnly", "PerformanceOnly", "FindPeakPerformance")


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
    name, expected = _as_logged(key, value, effective)
    if name not in effective or effective[name] == expected:
        return ""
    return f"effective_{name} was {effective[name]}, the audit settings say {expected}"


def _as_logged(key: str, value: Setting, effective: Mapping[str, Any]) -> tuple[str, Any]:
    """The name of an effective setting and its value; an empty name where LoadGen logs none."""
    if key == "mode":
        return "test_mode", _MODES[int(value)]
    for setting in settings_of(key, effective.get("scenario")):
        return setting.effective_name, setting.value(value)
    return "", value


def _too_few_samples(asked: int, effective: Mapping[str, Any]) -> str:
    """Offline makes one query of all samples: the count of queries is its size there."""
    got = effective.get("samples_per_query", 0)
    if got >= asked:
        return ""
    return f"effective_samples_per_query was {got}, the audit settings say {asked}"
