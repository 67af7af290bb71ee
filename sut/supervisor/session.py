"""Runs queries in their processes: the issuer's, the workers', and this one, the monitor's."""

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import Pipe

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from harness.analysis.client_overhead import ClientReadings
from harness.analysis.finish_run import Observations
from harness.cli.signals import SignalName
from harness.config.loadgen_settings import Setting
from harness.config.plans import ClientPlan
from harness.errors import ConfigError, RunError
from harness.files import JOURNAL_DIR
from harness.record.journal import failure_reasons
from harness.record.outcome import FailureKind
from harness.record.run_events import EventLog
from harness.record.settled import Placement
from harness.text import how_it_ended
from sut.client.endpoint import Endpoint
from sut.client.network_figures import Network, network_of_replicas
from sut.encoder.process import EncoderSpec, encoder_main
from sut.ipc.counters import Counter, CounterBoard
from sut.ipc.request_store import RequestStore
from sut.issuers.loop import Issuer, Lost, issuing_main
from sut.processes.prepared import PreparedProcess
from sut.processes.spawn import spawn, stop
from sut.servers.health import ActivityProbe, HealthMonitor, Recheck
from sut.supervisor.journal_sync import JournalSync
from sut.supervisor.monitor import (
    EXIT_S,
    LOOK_S,
    AbortPolicy,
    ChildProcess,
    Monitor,
    Observer,
    Processes,
    receive_from_issuer,
)
from sut.wire import Wires
from sut.worker.worker import Destination, WorkerSpec, worker_main

_SETTINGS_S = 60.0
_READY_S = 300.0  # an encoder reads its tokenizer: 20 s of CPU, on a machine that may be busy
_ABORT_S = 1.2
WARM_CONNECTIONS = 64


def wires_of(plan: ClientPlan, destination: Destination) -> Wires:
    """What renders the requests of a plan."""
    return Wires(destination.protocol, plan.parameters, plan.benchmark.vocabulary_size, destination.model)


class QuerySession:
    """Queries of one issuer, as a context manager: its exit ends every process that is left."""

    def __init__(self, plan: ClientPlan, issuer: Issuer, placement: Placement) -> None:
        self._plan = plan
        self._issuer = issuer
        self._placement = placement
        self._journal_dir = plan.log_dir / JOURNAL_DIR
        self._board = CounterBoard(placement.workers + 1)
        self._pairs = [socket.socketpair() for _ in range(placement.workers)]
        # Before anything starts a thread, such as the questions to the servers.
        self._prepared = [PreparedProcess() for _ in range(placement.workers)]
        self._issuing = self._start_issuer()
        self._workers: list[ChildProcess] = []
        self._encoders: list[ChildProcess] = []
        self._capacities: list[int] = []
        self._endpoints: tuple[Endpoint, ...] = ()
        self._loads = np.zeros((placement.workers, 0), np.int64)  # requests: of each worker, on each replica
        self._network = np.zeros((placement.workers, 0, len(Network)), np.int64)
        self._monitor: Monitor | None = None
        self.events = EventLog()

    def __enter__(self) -> "QuerySession":
        return self

    def __exit__(self, *_: object) -> None:
        self.abort()

    def readback(self) -> dict[str, Setting]:
        """The settings that LoadGen, the issuer, will use, by its names; latencies in ns.

        Raises ConfigError when it refuses the conf files.
        """
        kind, value = receive_from_issuer(self._issuing, _SETTINGS_S)
        if kind != "settings":
            raise ConfigError(str(value))
        settings: dict[str, Setting] = value
        return settings

    def start_workers(
        self, destination: Destination, store: RequestStore, workers: int, max_concurrency: int | None
    ) -> None:
        """Start this number of workers and wait until each is connected and listening.

        It is at most that of the placement, and no more than ``max_concurrency``. Raises RunError when one
        cannot start, or when the issuing process has ended by then.
        """
        self._journal_dir.mkdir(parents=True, exist_ok=True)
        most, replicas = len(self._pairs), len(destination.endpoints)
        board, network = CounterBoard(most, replicas), CounterBoard(most * replicas, len(Network))
        self._loads, self._network = board.values(), network.values().reshape(most, replicas, -1)
        self._capacities, self._endpoints = _shares(max_concurrency, workers), destination.endpoints
        for index, share in enumerate(self._capacities):
            spec = self._worker_spec(index, share, destination, board, network)
            ours, theirs = Pipe()
            channel, encoder = self._pairs[index][1], self._start_encoder(index, destination)
            begin = self._prepared[index].begin
            process = begin(worker_main, spec, channel, store, self._board, theirs, encoder)
            channel.close()
            theirs.close()
            if encoder is not None:
                encoder.close()  # the encoder ends with its worker
            self._workers.append(ChildProcess(process, ours))
        try:
            for child in self._answering:
                _await_ready(child)
        except RunError:
            self._require_issuer()  # the workers end with it, and its end is the cause
            raise

    def run(self, observe: Observer, servers: Recheck, waits_ns: Callable[[], int] = lambda: 0) -> Lost:
        """Start the issuer and monitor the test to its end; returns the queries lost with a worker.

        ``observe`` gets the counters once a second; ``servers`` are asked when a worker suspects them;
        ``waits_ns`` as of Monitor. Raises RunError when the test cannot finish.
        """
        with self.monitored(servers, waits_ns=waits_ns) as monitor:
            lost = monitor.watch(observe) or ()
            monitor.end_workers()
        stop(self._issuing.process, EXIT_S)
        observe(self._board.totals())
        return lost

    @contextmanager
    def monitored(
        self, servers: Recheck, look_s: float = LOOK_S, waits_ns: Callable[[], int] = lambda: 0
    ) -> Iterator[Monitor]:
        """Start the issuing process; the monitor of the test, for the length of the block.

        ``look_s``: seconds between two looks at the counters. Raises RunError.
        """
        controls = [child.control for child in self._workers]
        replicas = HealthMonitor(
            *(servers.urls, controls, servers.recovered, servers.none_left),
            events=self.events,
            endpoints=self._endpoints,
        )
        servers.on_change = replicas.suspected
        for change in servers.changes:
            replicas.suspected(change.replica)
        if self._issuer.keeps_answers:
            watching = (replicas.closed,)
            threading.Thread(target=servers.watch, args=watching, name="recheck", daemon=True).start()
        policy = AbortPolicy(
            self._plan.policy,
            lambda: failure_reasons(self._journal_dir),
            ActivityProbe(servers.urls, servers.health, servers.work)
            if self._plan.policy.ask_in_silence
            else None,
        )
        processes = Processes(self._issuing, self._workers, self._board, self._forget, self._encoders)
        syncing = JournalSync(self._journal_dir, enabled=self._issuer.keeps_answers)
        monitor = Monitor(
            *(processes, policy, replicas, self._plan.log_dir, look_s),
            unsynced=lambda: syncing.fault,
            waits_ns=waits_ns,
            wall_clock=self._issuer.wall_clock,
            events=self.events,
        )
        self._monitor = monitor
        try:
            self._require_issuer()
            monitor.require_folder()  # it may have gone since, and LoadGen would run without its log files
            self.command("run", self._capacities)
            with syncing:
                yield monitor
        finally:
            replicas.close()

    def command(self, word: str, value: object) -> None:
        """Send a command to the issuing process."""
        with suppress(OSError):  # it has just died: the monitor reports how
            self._issuing.control.send((word, value))

    def observations(
        self, lost: Lost = (), *, error: str | None = None, interrupted_by: SignalName | None = None
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
            cpu_s=float((totals[Counter.CPU_NS] + _encoding_ns(seen.client)) / 1e9),
            events=self.events.events,
            network=network_of_replicas(self._network),
        )

    def totals(self) -> npt.NDArray[np.int64]:
        """The counters of all processes, indexed by Counter."""
        return self._board.totals()

    def cpu_ns(self) -> tuple[int, ...]:
        """CPU time of the issuing process and of each worker since the test began."""
        return tuple(self._board.table()[:, Counter.CPU_NS].tolist())

    def failures(self) -> dict[FailureKind, int]:
        """Failed queries by kind."""
        return self._board.failures()

    def errors(self) -> tuple[str, ...]:
        """Reasons so far for which the run is INVALID, whatever else happens."""
        return () if self._monitor is None else self._monitor.errors

    def in_flight(self) -> npt.NDArray[np.int64]:
        """The number of requests on each replica."""
        loads: npt.NDArray[np.int64] = self._loads.sum(axis=0)
        return loads

    def arrived_s(self) -> list[float]:
        """When the latest bytes of an answer came from each replica, on the monotonic clock; 0 for none."""
        found: list[float] = (self._network[:, :, Network.ARRIVED_NS].max(axis=0) / 1e9).tolist()
        return found

    def abort(self) -> Lost:
        """End every process: workers close their channels and flush their journals, LoadGen writes its logs.

        Returns the queries that were lost with a worker until then.
        """
        issuer = self._issuing
        lost: Lost = ()
        if issuer.process.is_alive():
            try:
                issuer.control.send(("abort", None))
                lost = _receive_abort_reply(issuer)
            except OSError:
                issuer.process.kill()
        for child in self._answering:
            stop(child.process, _ABORT_S)
        stop(issuer.process, _ABORT_S)
        for prepared in self._prepared:
            prepared.dismiss()
        for ours, theirs in self._pairs:
            ours.close()
            theirs.close()
        return lost

    def _forget(self, worker: int) -> None:
        self._loads[worker] = 0

    def _require_issuer(self) -> None:
        process = self._issuing.process
        if not process.is_alive():
            raise RunError(f"{self._issuing.name} {how_it_ended(process.exitcode)} before the test began")

    def _start_issuer(self) -> ChildProcess:
        ours, theirs = Pipe()
        sockets = [pair[0] for pair in self._pairs]
        cores = self._placement.loadgen_cores
        process = PreparedProcess().begin(issuing_main, self._issuer, sockets, self._board, theirs, cores)
        theirs.close()
        for connection in sockets:
            connection.close()
        return ChildProcess(process, ours, self._issuer.name)

    @property
    def _answering(self) -> tuple[ChildProcess, ...]:
        """Workers, and their encoders."""
        return (*self._workers, *self._encoders)

    def _start_encoder(self, index: int, destination: Destination) -> socket.socket | None:
        """The worker's end of the channel to its encoder; None where answers have ids."""
        if destination.tokenizer is None:
            return None
        pinned = {
            cpu for cores in (self._placement.loadgen_cores, *self._placement.worker_cores) for cpu in cores
        }
        free = os.sched_getaffinity(0) - pinned if pinned else set()
        spec = EncoderSpec(destination.tokenizer, self._plan.benchmark.vocabulary_size, frozenset(free))
        ours, theirs = Pipe()
        channel, its_end = socket.socketpair()
        process = spawn(encoder_main, index, spec, its_end, theirs)
        its_end.close()
        theirs.close()
        self._encoders.append(ChildProcess(process, ours, f"encoder {index}"))
        return channel

    def _worker_spec(
        self, index: int, share: int, destination: Destination, board: CounterBoard, network: CounterBoard
    ) -> WorkerSpec:
        plan = self._plan
        return WorkerSpec(
            index=index,
            destination=destination,
            parameters=plan.parameters,
            vocabulary_size=plan.benchmark.vocabulary_size,
            max_in_flight=share,
            warm_connections=_warm(share, len(destination.endpoints)),
            deadlines=plan.deadlines,
            retries=plan.policy.retries,
            first_tokens=self._issuer.first_tokens,
            accuracy=self._issuer.keeps_answers,
            text_after=self._issuer.text_after,
            journal_dir=self._journal_dir,
            cores=self._placement.cores_of(index),
            board=board,
            network=network,
        )


def _encoding_ns(seen: ClientReadings) -> int:
    """CPU time of the encoders while the test was monitored; their start is not part of it."""
    if not seen.encoders or not len(seen.cpu):
        return 0
    spent = seen.cpu[-1, -seen.encoders :] - seen.cpu[0, -seen.encoders :]
    return int(spent.sum())


def _receive_abort_reply(issuer: ChildProcess) -> Lost:
    while issuer.control.poll(_ABORT_S):
        try:
            kind, value = issuer.control.recv()
        except (EOFError, OSError):
            break
        if kind == "aborted":
            lost: Lost = value
            return lost
    return ()


def _await_ready(child: ChildProcess) -> None:
    if not child.control.poll(_READY_S):
        raise RunError(f"{child.name} (process {child.process.pid}) did not start within {_READY_S:g} s")
    try:
        kind, value = child.control.recv()
    except (EOFError, OSError):
        kind, value = "error", f"{child.name} (process {child.process.pid}) died at its start"
    if kind == "error":
        raise RunError(str(value))


def _shares(limit: int | None, workers: int) -> list[int]:
    """The number of requests that each worker may have in flight; 0 means no limit."""
    if limit is None:
        return [0] * workers
    return [limit // workers + (index < limit % workers) for index in range(workers)]


def _warm(share: int, endpoints: int) -> int:
    return max(1, min(share or WARM_CONNECTIONS, WARM_CONNECTIONS) // endpoints)
