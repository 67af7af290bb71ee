"""Flags to policy: what ends a run early, and what contradicts itself."""

from dataclasses import replace

import pytest

from harness.batch import batch_options
from harness.config.deadlines import (
    FailurePolicy,
    parse_duration,
    resolve_deadlines,
    resolve_policy,
    unused_deadlines,
)
from harness.config.run_options import parse_options
from harness.config.run_plan import resolve_plan
from harness.errors import ConfigError


def flags(*words):
    return parse_options(["--input-file", "perf.parquet", *words])


def policy(*words):
    """The policy of a Server run, whose answers are streamed."""
    return resolve_plan(flags("--scenario", "server", *words)).client.policy


def deadlines(*words, streams=True):
    return resolve_deadlines(flags(*words), streams=streams, max_new_tokens=8)


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
    assert policy(*words) == FailurePolicy(
        max_failures=max_failures, give_up=give_up, progress_s=600.0, retries=0
    )


@pytest.mark.parametrize(
    ("scenario", "first"), [("offline", 10), ("server", 10), ("interactive", 10), ("single-stream", 3)]
)
def test_how_many_queries_may_fail_before_one_completes(scenario, first):
    assert policy("--scenario", scenario).first_failures == first


def test_a_first_token_later_than_the_end():
    with pytest.raises(ConfigError, match="--first-token-timeout is 10 s, more than the 5 s"):
        deadlines("--first-token-timeout", "10", "--timeout", "5")
    found = deadlines("--first-token-timeout", "5", "--timeout", "5", "--stall-timeout", "4")
    assert (found.first_token_s, found.stall_s) == (5, 4)
    # What has no effect is no reason to refuse a run.
    assert deadlines("--first-token-timeout", "10", "--timeout", "5", streams=False).request_s == 5


@pytest.mark.parametrize("streams", [True, False])
def test_deadlines_of_streams_have_no_effect_on_complete_answers(streams):
    found = unused_deadlines(flags("--stall-timeout", "5", "--timeout", "7"), streams=streams)
    assert [line.startswith("--stall-timeout 5 has no effect") for line in found] == [True] * (not streams)


def test_a_flag_that_the_program_does_not_have_is_no_remedy(capsys):
    """Prompts of a file are never streamed: ./mlperf prompts run has no --stream, nor what streams need."""
    words = ["run", "--input", "a", "--output", "b"]
    with pytest.raises(SystemExit):
        batch_options.parse_options([*words, "--stall_timeout=5"])
    assert "--stall_timeout: answers to prompts of a file come complete" in capsys.readouterr().err
    (ours,) = unused_deadlines(replace(batch_options.parse_options(words), stall_timeout=5.0), streams=False)
    (others,) = unused_deadlines(flags("--stall-timeout", "5"), streams=False)
    assert ("--stream" in ours, "--stream on" in others) == (False, True)


@pytest.mark.parametrize("streams", [True, False])
def test_silence_of_complete_answers_is_not_enough(streams):
    assert resolve_policy(flags("--timeout", "7200"), streams=streams).progress_s == 600
    assert resolve_policy(flags("--progress-timeout", "5"), streams=streams).progress_s == 5
    assert resolve_policy(flags(), streams=streams).ask_in_silence is not streams


@pytest.mark.parametrize(
    ("words", "tokens", "expected"),
    [
        ((), 128, 3600.0),
        ((), 10240, 4096.0),
        ((), 32768, 13107.2),  # 5 tokens/s, twice
        (("--timeout", "100"), 32768, 100.0),
    ],
)
def test_the_default_deadline_holds_for_the_longest_answer(words, tokens, expected):
    for streams in (True, False):
        found = resolve_deadlines(flags(*words), streams=streams, max_new_tokens=tokens)
        assert found.request_s == pytest.approx(expected)
        assert found.stall_s == (600.0 if streams else None)


@pytest.mark.parametrize(
    ("words", "wording"),
    [
        (("--max-failures", "0"), "--max-failures is 0, expected 1 to"),
        (("--max-failures", "5", "--no-fail-fast"), "contradict"),
        (("--retries", "-1"), "--retries is -1"),
        (("--retries", "101"), "--retries is 101"),
    ],
)
def test_refused(words, wording):
    with pytest.raises(ConfigError, match=wording):
        resolve_policy(flags(*words), streams=True)


TIMES = [
    "--timeout",
    "--first-token-timeout",
    "--stall-timeout",
    "--progress-timeout",
    "--preflight-timeout",
    "--trial-timeout",
    "--wait-for-servers",
]


@pytest.mark.parametrize("flag", TIMES)
@pytest.mark.parametrize("value", ["0", "-1", "inf", "nan", "5x"])
def test_deadlines_that_are_none(flag, value, capsys):
    with pytest.raises(SystemExit):
        flags(f"{flag}={value}")
    assert f"argument {flag}: {value!r} is not a time" in capsys.readouterr().err


@pytest.mark.parametrize("flag", TIMES)
def test_every_deadline_takes_a_duration(flag):
    assert getattr(flags(flag, "1h30m"), flag.removeprefix("--").replace("-", "_")) == 5400


@pytest.mark.parametrize("value", [0.0, -1.0, float("inf"), float("nan"), 1e9])
def test_deadlines_of_python_are_checked(value):
    options = replace(flags(), timeout=value)
    with pytest.raises(ConfigError, match=r"--timeout is .*expected a positive number"):
        resolve_deadlines(options, streams=True, max_new_tokens=8)


DURATIONS = {None: 0, "30m": 1800, "1h": 3600, "1800": 1800, 1800.0: 1800, "90s": 90, "30min": 1800}
DURATIONS |= {"1h30m": 5400, "1.5H": 5400, " 2m30 ": 150, "1d": 86400, "1.5 h": 5400, "1h 30m": 5400}


@pytest.mark.parametrize(("text", "seconds"), DURATIONS.items())
def test_durations(text, seconds):
    assert parse_duration("--wait-for-servers", text) == seconds


@pytest.mark.parametrize("text", ["", "0", "m", "-5m", "soon", "1x", "nan", "1e3", "9" * 12])
def test_durations_that_are_none(text):
    with pytest.raises(ConfigError, match="--wait-for-servers is"):
        parse_duration("--wait-for-servers", text)


def test_some_replicas_are_enough_where_no_performance_is_measured(tmp_path):
    words = ("--min-replicas", "1")
    (tmp_path / "audit.config").touch()
    for mode in (("--accuracy",), ("--audit-config", str(tmp_path / "audit.config"))):
        assert resolve_plan(flags(*mode, *words)).client.preflight.min_replicas == 1
    with pytest.raises(ConfigError, match=r"--min-replicas .*performance run"):
        resolve_plan(flags(*words))
    with pytest.raises(ConfigError, match="--min-replicas is 0"):
        resolve_plan(flags("--accuracy", "--min-replicas", "0"))
