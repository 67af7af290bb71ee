"""Flags to policy: what ends a run early, and what contradicts itself."""

import pytest

from harness.cli import parse_arguments
from harness.errors import ConfigError
from harness.policy import FailurePolicy, resolve_deadlines, resolve_policy


def flags(*words):
    return parse_arguments(["--input-file", "perf.parquet", *words])


@pytest.mark.parametrize(
    ("words", "max_failures", "give_up"),
    [
        ((), None, True),
        (("--accuracy",), 10, True),
        (("--fail-fast",), 10, True),
        (("--accuracy", "--no-fail-fast"), None, False),
        (("--no-fail-fast",), None, False),
        (("--max-failures", "3"), 3, True),
        (("--accuracy", "--max-failures", "1"), 1, True),
        (("--fail-fast", "--max-failures", "99"), 99, True),
    ],
)
def test_when_failures_end_a_run(words, max_failures, give_up):
    assert resolve_policy(flags(*words), streams=True) == FailurePolicy(
        max_failures=max_failures, give_up=give_up, progress_s=600.0, retries=0
    )


@pytest.mark.parametrize(
    ("scenario", "first"), [("offline", 10), ("server", 10), ("interactive", 10), ("single-stream", 3)]
)
def test_how_many_queries_may_fail_before_one_completes(scenario, first):
    assert resolve_policy(flags("--scenario", scenario), streams=True).first_failures == first


def test_a_first_token_later_than_the_end():
    with pytest.raises(ConfigError, match="--first-token-timeout is 10 s, more than the 5 s"):
        resolve_deadlines(flags("--first-token-timeout", "10", "--timeout", "5"))
    assert resolve_deadlines(flags("--first-token-timeout", "5", "--timeout", "5")).first_token_s == 5


def test_progress_of_whole_answers_waits_as_long_as_a_request_may_take():
    assert resolve_policy(flags("--timeout", "7200"), streams=False).progress_s == 7200
    assert resolve_policy(flags("--timeout", "7200"), streams=True).progress_s == 600
    assert resolve_policy(flags("--progress-timeout", "5"), streams=False).progress_s == 5


@pytest.mark.parametrize(
    ("words", "wording"),
    [
        (("--max-failures", "0"), "--max-failures is 0, expected 1 to"),
        (("--max-failures", "5", "--no-fail-fast"), "contradict"),
        (("--retries", "-1"), "--retries is -1"),
        (("--retries", "101"), "--retries is 101"),
        (("--progress-timeout", "0"), "--progress-timeout is 0"),
        (("--progress-timeout", "nan"), "--progress-timeout is nan"),
    ],
)
def test_refused(words, wording):
    with pytest.raises(ConfigError, match=wording):
        resolve_policy(flags(*words), streams=True)


@pytest.mark.parametrize("flag", ["--timeout", "--first-token-timeout", "--stall-timeout"])
@pytest.mark.parametrize("value", ["0", "-1", "inf", "nan"])
def test_deadlines_that_are_none(flag, value):
    with pytest.raises(ConfigError, match=f"{flag} is .*expected a positive number"):
        resolve_deadlines(flags(f"{flag}={value}"))
