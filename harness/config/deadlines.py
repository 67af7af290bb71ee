"""Request deadlines and the policy for ending a run early."""

import msgspec

from harness.cli.durations import EXPECTED, seconds_of
from harness.config.run_options import (
    FAILURES_OF_ACCURACY,
    PROGRESS_S,
    REQUEST_S,
    STALL_S,
    TOKEN_S,
    ClientOptions,
)
from harness.errors import ConfigError

# Failures before the first completed query that end the run: it cannot become a result.
# In single-stream they come one after another, and each may wait for its deadline.
FIRST_FAILURES = 10
FIRST_FAILURES_SINGLE_STREAM = 3
_MOST_SECONDS = 1e8  # three years; nanoseconds of it fit the 64 bits of a clock


class Deadlines(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds that a request may take; None: no separate limit.

    Of an answer that is not streamed only the end can be late.
    """

    request_s: float
    """to its end"""
    first_token_s: float | None = None
    """to its first token"""
    stall_s: float | None = None
    """between two receptions after the first token"""


class PreflightLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of what precedes a run: times in seconds, and the number of replicas."""

    questions_s: float
    """for all questions to one server"""
    trial_s: float
    """for its trial request"""
    wait_s: float = 0.0
    """for its start"""
    min_replicas: int | None = None
    """the run begins without the replicas that cannot be used if this number can; None: all are needed"""


class FailurePolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The rules for ending a run early, and for retries."""

    max_failures: int | None
    """failed queries that end it; None: failures alone do not"""
    give_up: bool
    """end it when no replica answers any more, and when the first `first_failures` queries to end all fail"""
    first_failures: int = FIRST_FAILURES
    """where answers come one after another fewer, as each may wait for its deadline"""
    progress_s: float
    """end it when no data has arrived for this time"""
    ask_in_silence: bool = False
    """end it then only if the servers' own pages show no work either"""
    retries: int
    """most retries of a query; waiting for them counts towards its latency"""


def resolve_deadlines(options: ClientOptions, *, streams: bool, max_new_tokens: int) -> Deadlines:
    """The flags' deadlines for answers of ``max_new_tokens`` at most. Raises ConfigError."""
    request_s = _optional_seconds("--timeout", options.timeout)
    stall_s = _optional_seconds("--stall-timeout", options.stall_timeout)
    deadlines = Deadlines(
        request_s=max(REQUEST_S, TOKEN_S * max_new_tokens) if request_s is None else request_s,
        first_token_s=_optional_seconds("--first-token-timeout", options.first_token_timeout),
        stall_s=STALL_S if stall_s is None else stall_s,
    )
    if not streams:
        return Deadlines(request_s=deadlines.request_s)
    if deadlines.first_token_s is not None and deadlines.first_token_s > deadlines.request_s:
        raise ConfigError(
            f"--first-token-timeout is {deadlines.first_token_s:g} s, more than the "
            f"{deadlines.request_s:g} s that --timeout gives a complete answer; lower it or raise --timeout"
        )
    return deadlines


def unused_deadlines(options: ClientOptions, *, streams: bool) -> tuple[str, ...]:
    """A warning for each given deadline that has no effect on answers that are not streamed."""
    named = {
        "--first-token-timeout": options.first_token_timeout,
        "--stall-timeout": options.stall_timeout,
    }
    remedy = " (--stream on)" if options.has_stream_flag else ""
    return tuple(
        f"{flag} {value:g} has no effect: the answers are not streamed{remedy}; only --timeout applies"
        for flag, value in named.items()
        if value is not None and not streams
    )


def resolve_preflight(options: ClientOptions, *, every_replica: bool) -> PreflightLimits:
    """The flags' limits; ``every_replica``: none may be left out, as each is measured. Raises ConfigError."""
    least = options.min_replicas
    if least is not None and least < 1:
        raise ConfigError(f"--min-replicas is {least}, expected at least 1")
    if least is not None and every_replica:
        raise ConfigError(
            "--min-replicas applies to accuracy and compliance runs only: a performance run measures every "
            "replica that --server-url names; omit the flag, or name only replicas that work"
        )
    return PreflightLimits(
        questions_s=_seconds("--preflight-timeout", options.preflight_timeout),
        trial_s=_seconds("--trial-timeout", options.trial_timeout),
        wait_s=parse_duration("--wait-for-servers", options.wait_for_servers),
        min_replicas=least,
    )


def parse_duration(flag: str, text: str | float | None) -> float:
    """Seconds of a duration or its text; 0 where none is given. Raises ConfigError."""
    if text is None:
        return 0.0
    try:
        return _seconds(flag, seconds_of(str(text)))
    except ValueError:
        raise ConfigError(f"{flag} is {text!r}, expected {EXPECTED}") from None


def resolve_policy(
    options: ClientOptions,
    *,
    streams: bool,
    most_failures: int | None = None,
    first_failures: int = FIRST_FAILURES,
) -> FailurePolicy:
    """The flags' policy. Raises ConfigError.

    ``streams``: whether answers come token by token. ``most_failures`` end a run for which no flag says how
    many do.
    """
    progress = _optional_seconds("--progress-timeout", options.progress_timeout)
    return FailurePolicy(
        max_failures=_max_failures(options.fail_fast, options.max_failures, most_failures),
        give_up=options.fail_fast is not False,
        first_failures=first_failures,
        progress_s=PROGRESS_S if progress is None else progress,
        ask_in_silence=not streams,
        retries=_retries(options.retries),
    )


def _max_failures(fail_fast: bool | None, limit: int | None, default: int | None) -> int | None:
    if limit is not None:
        if not 1 <= limit < 1 << 31:
            raise ConfigError(f"--max-failures is {limit}, expected 1 to {(1 << 31) - 1}")
        if fail_fast is False:
            raise ConfigError("--no-fail-fast and --max-failures contradict each other; give one of them")
        return limit
    return {True: FAILURES_OF_ACCURACY, False: None, None: default}[fail_fast]


def _retries(value: int) -> int:
    if not 0 <= value <= 100:
        raise ConfigError(f"--retries is {value}, expected 0 to 100")
    return value


def _optional_seconds(flag: str, value: float | None) -> float | None:
    return None if value is None else _seconds(flag, value)


def _seconds(flag: str, value: float) -> float:
    if not 0 < value <= _MOST_SECONDS:
        raise ConfigError(
            f"{flag} is {value:g}, expected a positive number of seconds, at most {_MOST_SECONDS:g}"
        )
    return value
