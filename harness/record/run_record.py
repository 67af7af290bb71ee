"""run.json as a value: what was run, on what, and what came of it.

``RunRecord`` is the only writer and the only reader of the file. docs/reference/run_json.md is generated from
the types and their descriptions.
"""

import json
import math
import time
from datetime import UTC, datetime
from itertools import takewhile
from pathlib import Path
from typing import Any, Literal, Self

import msgspec
import numpy as np

from harness.cli.signals import SignalName, exit_code_after
from harness.config.loadgen_settings import (
    LEAST_PERCENTILE,
    MOST_PERCENTILE,
    SERVER_PERCENTILE,
    limits_ns,
)
from harness.config.plans import RunPlan
from harness.errors import ConfigError
from harness.files import atomic_write
from harness.loadgen_logs.summary_and_detail import LoadgenSummary
from harness.record.provenance import Provenance, reader_of
from harness.record.replica_figures import RankFigures, ReplicaBalance
from harness.record.run_events import RunEvent
from harness.record.run_json import SCHEMA, file_fields, in_file, parse, record_fields
from harness.record.server_changes import ServerChange
from harness.record.settled import ServerInfo, Settled

Result = Literal["VALID", "INVALID", "INTERRUPTED"]
_ENDED = ("lost: ", "ended early: ")  # how a reason begins for which a run was ended
_PERCENTILE_KEY = "server_target_latency_percentile"


class ClockPair(msgspec.Struct, frozen=True):
    """One moment on two clocks: ties the CLOCK_MONOTONIC times of requests.parquet to UTC."""

    utc: datetime
    monotonic_ns: int


class RunVerdict(msgspec.Struct, frozen=True):
    """The result of a run and the reasons for it."""

    result: Result
    """`VALID`, `INVALID` or `INTERRUPTED`"""
    reasons: tuple[str, ...] = ()
    """why it is not `VALID`"""
    complete: bool = False
    """every query has its complete answer and LoadGen reported no error: an INVALID run is then only too slow
    or too short, or a clock was set"""

    @property
    def ended_by(self) -> tuple[str, ...]:
        """The reasons, before all others, for which the program ended the run before its time."""
        return tuple(takewhile(lambda reason: reason.startswith(_ENDED), self.reasons))


class Distribution(msgspec.Struct, frozen=True):
    """Figures of one quantity over at least one query."""

    count: int
    mean: float
    min: int
    max: int
    percentiles: dict[str, int]
    """by percent: `50`, `90`, `95`, `97`, `99`, `99.9`, without interpolation, as LoadGen takes them"""


class Statistics(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of the journal, means and distributions of completed queries; `null` where none has it."""

    queries: int
    """queries with an outcome"""
    completed: int
    """queries with an answer"""
    retries: int
    """requests that failed and were sent again (`--retries`)"""
    resumed: int
    """answers of an earlier attempt (`--resume`); they have no times and enter no rate"""
    failures: dict[str, int]
    """failed queries by kind, only kinds that occurred"""
    duration_ns: int | None
    """first issue to the last byte of the last completed answer"""
    samples_per_s: float | None
    """per second of `duration_ns`"""
    tokens_per_s: float | None
    """per second of `duration_ns`"""
    output_tokens: int
    """of all answers, also those of an earlier attempt"""
    isl_mean: float | None
    """tokens of a prompt"""
    osl_mean: float | None
    """tokens of an answer"""
    ttft: Distribution | None
    """first token, from the call of the issue callback"""
    tpot: Distribution | None
    """(last - first) / (OSL - 1), answers of two tokens and more"""
    latency: Distribution | None
    """last byte, from the call of the issue callback"""
    issue_delay: Distribution | None
    """request handed to the kernel, from the call of the issue callback: this client's queueing"""

    @property
    def failed(self) -> int:
        """Queries that ended in a Failure."""
        return self.queries - self.completed

    @property
    def duration_s(self) -> float:
        """`duration_ns` in seconds; 0 where no query was answered."""
        return (self.duration_ns or 0) / 1e9


class Bottleneck(msgspec.Struct, frozen=True):
    """A stretch of the run in which the client was the bottleneck, in seconds since the first issue."""

    from_s: int
    to_s: int
    reason: str
    machine: bool = False
    """other programs took the cores; the client itself had little to do"""


class ClientLoad(msgspec.Struct, frozen=True):
    """The load of LoadGen's process, of the workers and of their encoders."""

    cores: dict[str, float]
    """by process: the largest share of a core that it used over a second"""
    bottlenecks: tuple[Bottleneck, ...]
    loop_lag_ns: int = 0
    """the latest that a worker's loop came to its tick, four times a second"""
    gc_runs: int = 0
    """garbage collections during the test; the collector is off, so 0"""
    throttled: float = 0.0
    """part of the periods, mostly of 0.1 s, in which the container or job used up its quota of CPU time"""


class Level(msgspec.Struct, frozen=True):
    """A level that servers report, over all servers (or data-parallel ranks) and rounds of questions."""

    mean: float
    max: float
    share: float
    """of the observations: at least 0.95 for parts of a cache, above 0 for others"""


class ServerLoad(msgspec.Struct, frozen=True, kw_only=True):
    """The servers' own metrics, from server_metrics.parquet, by the names of QUANTITIES (the table below)."""

    rounds: int
    """the number of times that the servers' metrics were read"""
    servers: int
    """servers with metrics"""
    without: dict[str, str] = {}
    """URLs of servers without, and why"""
    levels: dict[str, Level] = {}
    gpus_j_per_token: float | None = None
    """energy of the GPUs for each output token of the run, as information: not MLPerf Power"""
    counts: dict[str, float] = {}
    """increase over the run, of all servers together"""
    fell: tuple[str, ...] = ()
    """URLs with a count that fell, as several servers or a restarted one have it: `counts` is without them"""
    notes: tuple[str, ...] = ()
    """what follows for the servers' settings"""
    ranks: tuple[RankFigures, ...] = ()
    """data-parallel ranks of servers that report several"""


class Diagnosis(msgspec.Struct, frozen=True):
    """What the course of a run shows plainly."""

    from_s: float
    """since the first query"""
    text: str
    """a sentence without the time and without a full stop"""


class ReplicaNetwork(msgspec.Struct, frozen=True, kw_only=True):
    """This client's kernel's figures of the network to one server; `null` where nothing was measured.

    Times are rounded to microseconds, means too.
    """

    connects: int
    """connections established, before the first query and during the run"""
    connect_mean_ns: float | None
    """from the SYN until bytes can be sent, with TLS its handshake"""
    connect_max_ns: int | None
    failed_connects: int
    waited: int
    """queries that waited for a connection of their own: part of their issue delay"""
    waited_mean_ns: float | None
    rtt_mean_ns: float | None
    """mean over the connections of TCP's smoothed round trip"""
    rtt_min_ns: int | None
    """the shortest round trip"""
    sent: int
    """segments with data"""
    retransmitted: int
    """segments that this client sent again, SYNs too: what the server sent again is not known"""
    received: int
    """segments with data"""
    gaps: int
    """received while an earlier one was missing: lost on the way, or overtaken"""


class EncodedAnswers(msgspec.Struct, frozen=True, kw_only=True):
    """Answers that came as text: their ids are those of the text, encoded again, not the model's.

    Counts are those of this attempt's complete answers, differences are ids less the server's own count.
    """

    tokenizer: str
    """path of its file, or `o200k_harmony`, which is built in"""
    tokenizer_sha256: str
    answers: int = 0
    ids: int = 0
    """of all answers together"""
    counted: int = 0
    """tokens of all answers together, by the servers' own counts"""
    equal: int = 0
    """answers of as many ids as counted"""
    fewest: int = 0
    """the difference of the answer that lacks most"""
    most: int = 0
    """the difference of the answer that has most more"""
    delay: Distribution | None = None
    """ns from an answer's last byte to LoadGen's call for its end: part of LoadGen's latency and TPOT"""


class RunRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One run: ``ended`` and the fields after it stay empty while it lasts, but for the tokenizer in
    ``encoded``, and for ``warnings`` that were known before."""

    plan: RunPlan
    """what was to run"""
    settled: Settled
    """what followed from the dataset, LoadGen, the servers and this machine; the file has it under `plan`"""
    provenance: Provenance
    """what ran it"""
    servers: tuple[ServerInfo, ...]
    """what each server URL reported"""
    left_out: dict[str, str] = {}
    """servers of `plan.server_urls` that the run does without, and why (`--min-replicas`)"""
    changed: tuple[ServerChange, ...] = ()
    """servers that named another model or version when asked again: after a recovery or at the end"""
    started: datetime
    """before the first query"""
    clock: ClockPair | None = None
    """read at `started`"""
    deviations: tuple[str, ...] = ()
    """every rule of the benchmark that this run does not keep, one sentence each"""
    ended: datetime | None = None
    """after the last query"""
    verdict: RunVerdict | None = None
    """None in the record of a run that has not ended or was killed"""
    interrupted_by: SignalName | None = None
    """the signal that ended the run"""
    statistics: Statistics | None = None
    unanswered: int | None = None
    """queries that LoadGen issued and that have no outcome"""
    failure_examples: dict[str, tuple[str, ...]] = {}
    """some details of each kind of failure"""
    loadgen: LoadgenSummary | None = None
    """LoadGen's own summary"""
    loadgen_messages: tuple[str, ...] = ()
    """LoadGen's own errors and warnings, the most frequent ones"""
    settings_in_force: dict[str, Any] | None = None
    """what LoadGen made of its settings for the scenario, by the names of its detail log (in Offline
    `min_query_count` is 1), its mode and generated queries; where the settings that the log has as requested
    differ from `plan.loadgen_settings`, the run is INVALID"""
    client_cpu_s: float | None = None
    """CPU seconds of LoadGen's process, the workers and their encoders during the test"""
    client_load: ClientLoad | None = None
    client_share: Distribution | None = None
    """time in ns that the client added to each token report: arrival of the bytes to the call of LoadGen. Of
    answers that come as text `encoded.delay` has the ends; in accuracy runs their first tokens are reported
    with these, and count from there"""
    encoded: EncodedAnswers | None = None
    """`null` where answers have ids"""
    schedule_lag_mean_ns: float | None = None
    """LoadGen's scheduled time to its call of the issue callback, on average: its mean TTFT less ours; `null`
    where LoadGen gives none (Offline, accuracy runs) and where a query failed. It includes the few µs of the
    call in which LoadGen stamps the first token"""
    network: dict[str, ReplicaNetwork] = {}
    """by server URL"""
    balance: ReplicaBalance | None = None
    """of several replicas"""
    server_load: ServerLoad | None = None
    """`null` where the servers were not asked"""
    diagnoses: tuple[Diagnosis, ...] = ()
    """what the course of the run shows plainly"""
    events: tuple[RunEvent, ...] = ()
    """what happened at a known moment, in order of time"""
    warnings: tuple[str, ...] = ()
    """reasons to distrust the numbers, such as a saturated client"""
    files: dict[str, str] = {}
    """paths of run.json, requests.parquet, LoadGen's summary and, of an accuracy run, its accuracy log"""
    accuracy_log_sha256: str = ""
    """of LoadGen's accuracy log as the run left it; "" where it has no answers"""

    def __post_init__(self) -> None:
        """Refuse a percentile by which no queries can be counted; raises ValueError."""
        if not LEAST_PERCENTILE <= self.latency_percentile <= MOST_PERCENTILE:
            raise ValueError(
                f"plan.loadgen_settings.{_PERCENTILE_KEY} is {self.latency_percentile}, expected "
                f"{LEAST_PERCENTILE:g} to {MOST_PERCENTILE:g}"
            )

    @property
    def limits_ns(self) -> dict[str, int]:
        """The limits of TTFT and TPOT, none where the scenario has none."""
        return limits_ns(self.plan.scenario, self.settled.loadgen_settings)

    @property
    def judged_limits_ns(self) -> dict[str, int]:
        """Those by which LoadGen judges the run: a compliance test is about its answers alone.

        Without a stream no token has a time.
        """
        plan = self.plan
        judged = not plan.accuracy and plan.audit_text is None and plan.client.parameters.stream
        return self.limits_ns if judged else {}

    @property
    def latency_percentile(self) -> float:
        """The part of a Server run's queries that the limits are for: 0.99 but for trials.

        LoadGen reads the row of Server for every scenario, and uses it in that one alone.
        """
        settings = self.settled.loadgen_settings if self.plan.scenario.poisson else {}
        return float(settings.get(_PERCENTILE_KEY, SERVER_PERCENTILE))

    @property
    def p99_limits_ns(self) -> dict[str, int]:
        """The limits, where they are for the p99."""
        return self.limits_ns if self.latency_percentile == SERVER_PERCENTILE else {}

    @property
    def lasted_s(self) -> float | None:
        """Seconds from start to end by the wall clock; None before the end, and where that clock was set."""
        if self.ended is None or any(event.kind == "clock_set" for event in self.events):
            return None
        seconds = (self.ended - self.started).total_seconds()
        return seconds if seconds >= 0 else None  # a small step back is no event

    @property
    def tokenizer_sha256(self) -> str:
        """Of what encoded answers or prompts that are text; "" where both are ids."""
        text = self.encoded or self.settled.prompts
        return text.tokenizer_sha256 if text else ""

    @property
    def is_valid(self) -> bool:
        """Whether it has ended with the verdict VALID."""
        return self.verdict is not None and self.verdict.result == "VALID"

    @property
    def exit_code(self) -> int:
        """The program's: 0 valid, 4 INVALID or not ended, 128 and the signal's number when interrupted."""
        return exit_code_after(self.interrupted_by, good=self.is_valid)

    def fields(self) -> dict[str, Any]:
        """The fields of the file, as values of strict JSON."""
        record = msgspec.to_builtins(self, builtin_types=(datetime,), enc_hook=_builtin)
        plain: dict[str, Any] = _plain(file_fields(record))
        return plain

    def write(self, path: Path) -> None:
        """Write run.json; a reader finds the old file or the new one, never a part. Raises OSError."""
        text = json.dumps({"schema": SCHEMA, **self.fields()}, indent=2, allow_nan=False)
        with atomic_write(path) as file:
            file.write(f"{text}\n".encode("ascii"))

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a run.json of this schema; unknown fields are ignored.

        Raises ConfigError for a damaged file and for that of a version with another form, FileNotFoundError
        where there is none.
        """
        fields = None
        try:
            fields = parse(path.read_bytes())
            return msgspec.convert(record_fields(fields), cls, dec_hook=_decoded)
        except FileNotFoundError:
            raise
        except (OSError, ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors
            cause = "; ".join(filter(None, (in_file(str(error)), reader_of(fields))))
            raise ConfigError(f"{path} is not the record of a run: {cause}") from None


def read_clocks() -> ClockPair:
    """Both clocks now; UTC is read between two readings of the other, whose middle counts."""
    before = time.monotonic_ns()
    utc = datetime.now(UTC)
    return ClockPair(utc, (before + time.monotonic_ns()) // 2)


def _builtin(value: object) -> object:
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"run record: got a {type(value).__name__}, expected plain values")


def _decoded(kind: type, value: object) -> object:
    if kind is Path and isinstance(value, str):
        return Path(value)
    raise ValueError(f"got {value!r}, expected a {kind.__name__}")


def _plain(value: Any) -> Any:
    """``value`` for strict JSON: a number that is not finite becomes null, a time is UTC in ISO 8601."""
    match value:
        case dict():
            return {key: _plain(item) for key, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
        case float() if not math.isfinite(value):
            return None
        case datetime():
            return value.astimezone(UTC).isoformat()
    return value
