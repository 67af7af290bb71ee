"""Runs queries in their processes: LoadGen's or the row issuer's, the workers, and this one, the monitor."""

import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from multiprocessing import Pipe

import numpy as np
import numpy.typing as npt

from harness.analysis.finish_run import Observations
from harness.config.run_plan import RunPlan
from harness.dataset.samples import SampleSet
from harness.errors import ConfigError, RunError
from harness.files import JOURNAL_DIR
from harness.record.answer_log import SavedAnswer
from harness.record.outcome import FailureKind
from harness.record.resolved_plan import Placement
from harness.record.run_record import ReplicaNetwork
from sut.client.endpoint import Endpoint
from sut.client.network import Network, network_of_replicas
from sut.ipc.counters import Counter, CounterBoard
from sut.ipc.replica_board import ReplicaBoard
from sut.ipc.request_store import RequestStore
from sut.loadgen.binding import Readback, TestSpec
from sut.loadgen.process import loadgen_main
from sut.peak.closed_loop import closed_loop_main
from sut.processes.spawn import spawn, stop
from sut.rows.issuer import issuer_main
from sut.servers.health import ActivityProbe, HealthMonitor
from sut.servers.recheck import Recheck
from sut.supervisor.journal_sync import JournalSync
from sut.supervisor.monitor import Child, Monitor, describe_exit, receive_from_loadgen
from sut.wire.fields import AnswersSeen
from sut.worker.process import WorkerSpec, worker_main

_SETTINGS_S = 60.0
_READY_S = 60.0
_ABORT_S = 1.2
_WORKER_END_S = 2.0
# A worker holds this many queries more than it may have in flight, so that a freed slot is filled at once.
_PREFETCH = 16
WARM_CONNECTIONS = 64


@dataclass(frozen=True, slots=True)
class Target:
    """The target of the queries: resolved replicas and their protocol.

    ``seen``: what the trial answers have shown. ``saved``: answers of an earlier attempt at this run, by
    sample; those queries are not sent.
    """

    endpoints: tuple[Endpoint, ...]
    wire: str
    model: str
    seen: AnswersSeen
    saved: Mapping[int, SavedAnswer] = field(default_factory=dict)


Lost = Sequence[tuple[int, int]]  # query id and sample index
Observer = Callable[[npt.NDArray[np.int64]], None]


class QuerySession:
    """One test, as a context manager: its exit ends every process that is left."""

    def __init__(
        self,
        plan: RunPlan,
        samples: SampleSet,
        placement: Placement,
        *,
        trace: bool = False,
        rows: Sequence[int] | None = None,
        closed_loop: bool = False,
    ) -> None:
        """With ``rows`` these samples are issued once, in this order, and LoadGen is not started.

        Nor is it with ``closed_loop``, where commands set the number of requests in flight
        (sut/peak/closed_loop.py).
        """
        self._plan = plan
        self._samples = samples
        self._placement = placement
        self._journal_dir = plan.log_dir / JOURNAL_DIR
        self._board = CounterBoard(placement.workers + 1)
        self._pairs = [socket.socketpair() for _ in range(placement.workers)]
        self._loadgen = self._start_first(rows, closed_loop=closed_loop, trace=trace)
        self._workers: list[Child] = []
        self._replicas: ReplicaBoard | None = None
        self._network: CounterBoard | None = None
        self._monitor: Monitor | None = None

    def __enter__(self) -> "QuerySession":
        return self

    def __exit__(self, *_: object) -> None:
        self.abort()

    def readback(self) -> Readback:
        """The settings that LoadGen will use. Raises ConfigError when it refuses the conf files."""
        kind, value = receive_from_loadgen(self._loadgen, _SETTINGS_S)
        if kind != "settings":
            raise ConfigError(str(value))
        settings: Readback = value
        return settings

    def start_workers(self, target: Target, store: RequestStore, max_concurrency: int | None) -> None:
        """Start the workers and wait until each is connected and listening.

        Raises RunError when one cannot start, or when LoadGen's process has ended by then.
        """
        self._journal_dir.mkdir(parents=True, exist_ok=True)
        self._replicas = ReplicaBoard(len(self._pairs), len(target.endpoints))
        self._network = CounterBoard(len(self._pairs) * len(target.endpoints), len(Network))
        shares = _shares(max_concurrency, len(self._pairs))
        self._capacities = [share + _PREFETCH if share else 0 for share in shares]
        for index, share in enumerate(shares):
            spec = self._worker_spec(index, share, target)
            ours, theirs = Pipe()
            channel = self._pairs[index][1]
            process = spawn(worker_main, spec, channel, store, self._board, theirs)
            channel.close()
            theirs.close()
            self._workers.append(Child(process, ours))
        try:
            for child in self._workers:
                _await_ready(child)
        except RunError:
            self._require_loadgen()  # without it the workers end, too; the cause is its own
            raise

    def run(self, observe: Observer, servers: Recheck) -> Lost:
        """Start LoadGen and monitor the test to its end; returns the queries lost with a worker.

        ``observe`` gets the counters once a second; ``servers`` are asked when a worker suspects them.
        Raises RunError when the test cannot finish.
        """
        with self.monitored(servers) as monitor:
            lost = monitor.until_done(observe)
            for child in self._workers:
                stop(child.process, _WORKER_END_S)
        stop(self._loadgen.process, _WORKER_END_S)
        observe(self._board.totals())
        return lost

    @contextmanager
    def monitored(self, servers: Recheck, look_s: float | None = None) -> Iterator[Monitor]:
        """Start the issuing process; the monitor of the test, for the length of the block.

        ``look_s``: seconds between two looks at the counters. Raises RunError.
        """
        controls = [child.control for child in self._workers]
        replicas = HealthMonitor(servers.urls, controls, servers.recovered, servers.none_left)
        in_silence = self._plan.policy.ask_in_silence
        if self._plan.accuracy:
            watching = (replicas.suspected, replicas.closed)
            threading.Thread(target=servers.watch, args=watching, name="recheck", daemon=True).start()
        activity = ActivityProbe(servers.urls, servers.health, servers.work) if in_silence else None
        monitor = Monitor(
            self._loadgen,
            self._workers,
            self._board,
            self._plan.policy,
            replicas,
            self._plan.log_dir,
            activity,
            self._forget,
            *(() if look_s is None else (look_s,)),
        )
        self._monitor = monitor
        try:
            self._require_loadgen()
            self.command("run", self._capacities)
            with JournalSync(self._journal_dir, enabled=self._plan.accuracy):
                yield monitor
        finally:
            replicas.close()

    def command(self, word: str, value: object) -> None:
        """Send a command to the issuing process."""
        with suppress(OSError):  # it has just died: the monitor reports how
            self._loadgen.control.send((word, value))

    def observations(
        self, lost: Lost = (), *, error: str | None = None, interrupted_by: str | None = None
    ) -> Observations:
        """Everything that was observed so far. ``error``: why the test did not end normally."""
        seen = Observations() if self._monitor is None else self._monitor.observations()
        totals = self._board.totals()
        return replace(
            seen,
            issued=int(totals[Counter.ISSUED]),
            lost=lost,
            errors=seen.errors if error is None else (error, *seen.errors),
            interrupted_by=interrupted_by,
            cpu_s=float(totals[Counter.CPU_NS] / 1e9),
            network=self._network_figures(),
        )

    def cpu_ns(self) -> tuple[int, ...]:
        """CPU time of the issuing process and of each worker since the test began."""
        return tuple(self._board.table()[:, Counter.CPU_NS].tolist())

    def failures(self) -> dict[FailureKind, int]:
        """Failed queries by kind."""
        return self._board.failures()

    def in_flight(self) -> npt.NDArray[np.int64]:
        """The number of requests on each replica."""
        board = self._replicas
        return np.zeros(1, np.int64) if board is None else board.in_flight.sum(axis=0, dtype=np.int64)

    def abort(self) -> Lost:
        """End every process: workers close their channels and flush their journals, LoadGen writes its logs.

        Returns the queries that were lost with a worker until then.
        """
        loadgen = self._loadgen
        lost: Lost = ()
        if loadgen.process.is_alive():
            try:
                loadgen.control.send(("abort", None))
                lost = _receive_abort_reply(loadgen)
            except OSError:
                loadgen.process.kill()
        for child in self._workers:
            stop(child.process, _ABORT_S)
        stop(loadgen.process, _ABORT_S)
        for ours, theirs in self._pairs:
            ours.close()
            theirs.close()
        return lost

    def _network_figures(self) -> tuple[ReplicaNetwork, ...]:
        if self._network is None:
            return ()
        return network_of_replicas(
            self._network.values().reshape(len(self._pairs), -1, self._network.columns)
        )

    def _forget(self, worker: int) -> None:
        if self._replicas is not None:
            self._replicas.forget(worker)

    def _require_loadgen(self) -> None:
        process = self._loadgen.process
        if not process.is_alive():
            raise RunError(f"{self._loadgen.name} {describe_exit(process)} before the test began")

    def _start_first(self, rows: Sequence[int] | None, *, closed_loop: bool, trace: bool) -> Child:
        """Start the process that issues the queries."""
        if closed_loop:
            name = "the process that keeps requests in flight"
            return self._start_issuing(closed_loop_main, len(self._samples), name)
        if rows is not None:
            return self._start_issuing(issuer_main, rows, "the process that issues the rows")
        return self._start_loadgen(trace)

    def _start_loadgen(self, trace: bool) -> Child:
        plan = self._plan
        spec = TestSpec(
            model_key=plan.model_key,
            scenario=plan.scenario.loadgen,
            accuracy=plan.accuracy,
            user_conf=str(plan.user_conf),
            mlperf_conf=None if plan.mlperf_conf is None else str(plan.mlperf_conf),
            round_settings=plan.round_settings,
            audit_text=plan.audit_text,
            audit_config=str(plan.kept_audit_config or ""),
            samples=len(self._samples),
            log_dir=str(plan.log_dir),
            journal_dir=str(self._journal_dir),
            trace=trace,
        )
        return self._start_issuing(loadgen_main, spec, "the LoadGen process")

    def _start_issuing(
        self, main: Callable[..., None], spec: TestSpec | Sequence[int] | int, name: str
    ) -> Child:
        ours, theirs = Pipe()
        sockets = [pair[0] for pair in self._pairs]
        process = spawn(main, spec, sockets, self._board, theirs, self._placement.loadgen_cores)
        theirs.close()
        for pair in self._pairs:
            pair[0].close()
        return Child(process, ours, name)

    def _worker_spec(self, index: int, share: int, target: Target) -> WorkerSpec:
        plan = self._plan
        return WorkerSpec(
            index=index,
            endpoints=target.endpoints,
            wire=target.wire,
            model=target.model,
            seen=target.seen,
            parameters=plan.parameters,
            vocabulary_size=plan.benchmark.vocabulary_size,
            max_in_flight=share,
            warm_connections=_warm(share, len(target.endpoints)),
            deadlines=plan.deadlines,
            retries=plan.policy.retries,
            first_tokens=plan.scenario.streams,
            accuracy=plan.accuracy,
            journal_dir=self._journal_dir,
            saved=target.saved,
            cores=self._placement.cores_of(index),
            board=self._replicas,
            network=self._network,
        )


def _receive_abort_reply(loadgen: Child) -> Lost:
    while loadgen.control.poll(_ABORT_S):
        try:
            kind, value = loadgen.control.recv()
        except (EOFError, OSError):
            break
        if kind == "aborted":
            lost: Lost = value
            return lost
    return ()


def _await_ready(child: Child) -> None:
    if not child.control.poll(_READY_S):
        raise RunError(f"worker {child.process.pid} did not start within {_READY_S:g} s")
    try:
        kind, value = child.control.recv()
    except (EOFError, OSError):
        kind, value = "error", f"worker {child.process.pid} died at its start"
    if kind == "error":
        raise RunError(str(value))


def _shares(limit: int | None, workers: int) -> list[int]:
    """The number of requests that each worker may have in flight; 0 means no limit."""
    if limit is None:
        return [0] * workers
    return [limit // workers + (index < limit % workers) for index in range(workers)]


def _warm(share: int, endpoints: int) -> int:
    return max(1, min(share or WARM_CONNECTIONS, WARM_CONNECTIONS) // endpoints)
