"""The process that issues the queries, whoever decides what is issued when.

Dialogue on ``control``: ("run", capacities) starts the test; ("done", (lost queries, what could not be
written)) or ("error", text) when it is over. Any other message of the supervisor, or its end, aborts:
("aborted", lost queries).
"""

import os
import select
import socket
import time
from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from multiprocessing.connection import Connection as Pipe
from typing import Any, NoReturn, Protocol

from harness.errors import in_words
from harness.record.outcome import FailureKind
from harness.record.settled import Cpus
from sut.ipc.counters import FIRST_FAILURE, Counter, CounterBoard
from sut.ipc.messages import FIRST, TokenMessage, TokenMessageReader
from sut.issuers.dispatcher import Dispatcher, WorkerChannel
from sut.processes.spawn import die_with_parent, gc_runs, pin, show_as, wake_promptly

SIGN_OF_LIFE_S = 0.5
# malloc maps, clears and unmaps memory of its own for more: that costs more than the rest of a read.
_RECEIVE_BYTES = 1 << 16

Lost = Sequence[tuple[int, int]]  # query id and sample index


class IssuingProcess:
    """The ends of the issuing process: its workers' channels, its counters, the pipe to the supervisor."""

    def __init__(self, sockets: Sequence[socket.socket], counters: memoryview, control: Pipe) -> None:
        self.counters = counters
        self.control = control
        self._sockets = sockets
        self._cpu_start_ns, self._gc_start = time.process_time_ns(), gc_runs()

    def started(self) -> list[WorkerChannel]:
        """The channels once the supervisor starts the test; the process ends if it does not.

        Raises EOFError when the supervisor is gone. CPU time and garbage collections count from now on.
        """
        command, capacities = self.control.recv()
        if command != "run":
            os._exit(0)
        self.reset()
        return list(map(WorkerChannel, self._sockets, capacities))

    def reset(self) -> None:
        """Count CPU time and garbage collections from now on."""
        self._cpu_start_ns, self._gc_start = time.process_time_ns(), gc_runs()

    def sign_of_life(self, lost: Lost) -> None:
        """Show the supervisor that the process moves, and what was lost with a worker."""
        self.counters[Counter.HEARTBEAT_NS] = time.monotonic_ns()
        self.counters[Counter.FAILED] = len(lost)
        self.counters[FIRST_FAILURE + FailureKind.WORKER_LOST] = len(lost)
        self.counters[Counter.GC_RUNS] = gc_runs() - self._gc_start
        self.counters[Counter.CPU_NS] = time.process_time_ns() - self._cpu_start_ns

    def done(self, lost: Lost, unwritten: str = "") -> None:
        """Report the end of the test."""
        self.control.send(("done", (lost, unwritten)))

    def aborted(self, lost: Lost) -> None:
        """Report the end after an abort, to a supervisor that may be gone."""
        with suppress(OSError):
            self.control.send(("aborted", lost))


class Issuer(Protocol):
    """Who issues the queries of a session: a value that ``issuing_main`` gets in a process of its own."""

    @property
    def name(self) -> str:
        """Its process in messages, such as ``the LoadGen process``."""

    @property
    def first_tokens(self) -> bool:
        """Whether it waits for first tokens; the workers then report them."""

    @property
    def keeps_answers(self) -> bool:
        """Whether the answers matter, not their times: the workers keep that to each sample."""

    @property
    def wall_clock(self) -> bool:
        """Whether it issues and measures by the wall clock."""

    @property
    def text_after(self) -> int | None:
        """Where the workers keep the answer to each query, although times matter: tokens before its text."""

    def run(self, process: IssuingProcess) -> None:
        """Issue the queries to their end. Raises ConfigError for settings that are refused."""


def issuing_main(
    issuer: Issuer, sockets: Sequence[socket.socket], board: CounterBoard, control: Pipe, cores: Cpus
) -> NoReturn:
    """Entry point of the process; ends by os._exit, since LoadGen's threads crash an orderly exit."""
    die_with_parent()
    show_as("issuer")
    pin(cores)
    wake_promptly()
    try:
        issuer.run(IssuingProcess(sockets, board.row(0), control))
    except EOFError:
        os._exit(1)
    except Exception as error:  # noqa: BLE001 - the process's edge: reported to the supervisor
        control.send(("error", in_words(error)))
        os._exit(1)
    os._exit(0)


class Answers(Protocol):
    """Receives what the workers report."""

    def take(self, channel: WorkerChannel, buffer: bytes, messages: Sequence[TokenMessage]) -> bool:
        """Messages of a worker, with their tokens in ``buffer``; returns whether a query has ended."""

    def lose(self, queries: Mapping[int, int], first_token_sent: Set[int] = frozenset()) -> None:
        """Queries that no worker answers any more, sample indexes by id.

        ``first_token_sent`` are those whose first token was taken.
        """


class ChannelLoop:
    """Queries to the workers, least loaded first; their messages and their ends, in one thread."""

    def __init__(self, channels: Sequence[WorkerChannel], counters: memoryview, answers: Answers) -> None:
        self.dispatcher = Dispatcher(channels, counters, answers.lose)
        self._answers = answers
        self._channels = channels
        self._poll = select.epoll()
        self._workers = {one.socket.fileno(): (one, TokenMessageReader()) for one in channels}
        for channel in channels:
            self._poll.register(channel.socket, select.EPOLLIN)
            channel.poll = self._poll

    @property
    def is_served(self) -> bool:
        """Whether the channel of a worker is open."""
        return bool(self._workers)

    def listen(self, control: Pipe) -> None:
        """Let ``turn`` end when the supervisor has sent something."""
        self._poll.register(control, select.EPOLLIN)

    def run(self) -> None:
        """Take what the workers report until every channel has ended."""
        while self._workers:
            self.turn()

    def turn(self, longest_s: float | None = None) -> bool:
        """Take what has arrived, waiting for it; returns whether the supervisor has sent something."""
        spoken = False
        for descriptor, mask in self._poll.poll(longest_s):
            if descriptor in self._workers:
                self._serve(descriptor, mask)
            else:
                spoken = True
        return spoken

    def hang_up(self) -> None:
        """Let the workers end: each finishes what it writes and closes its channel."""
        for channel in self._channels:
            if channel.alive:
                with suppress(OSError):
                    channel.socket.shutdown(socket.SHUT_WR)

    def _serve(self, descriptor: int, mask: int) -> None:
        channel, reader = self._workers[descriptor]
        if mask & select.EPOLLOUT:
            with self.dispatcher.lock:
                channel.send()
        try:
            data = channel.socket.recv(_RECEIVE_BYTES)
        except BlockingIOError:
            return
        except ConnectionError:
            data = b""
        if not data:
            del self._workers[descriptor]
            self._end(channel)
        elif self._answers.take(channel, *reader.feed(data)):
            self.dispatcher.pump()

    def _end(self, channel: WorkerChannel) -> None:
        """The worker has ended: what it held is lost, the other workers continue."""
        with self.dispatcher.lock:
            channel.alive = False
            if channel.poll is not None:
                channel.poll.unregister(channel.socket)
                channel.poll = None
        self._answers.lose(channel.outstanding, channel.first_token_sent)
        self.dispatcher.pump()


class IssuingLoop:
    """Issues queries and counts their ends in the same thread. What is issued when is a subclass's.

    Making one waits until the supervisor starts the test.
    """

    def __init__(self, process: IssuingProcess) -> None:
        self.waiting = 0
        """queries without an end"""
        self._process = process
        self._loop = ChannelLoop(process.started(), process.counters, self)
        self._lost: list[tuple[int, int]] = []

    def begin(self) -> None:
        """Called once before the loop."""

    @property
    def done(self) -> bool:
        """Whether the loop ends."""
        return not self.waiting

    @property
    def is_served(self) -> bool:
        """Whether a worker is left."""
        return self._loop.is_served

    def commanded(self, word: str, value: Any) -> bool:
        """Follow a command of the supervisor; False for one that aborts."""
        return False

    def proceed(self) -> float:
        """Called in each turn of the loop; returns the longest time until the next one, in seconds."""
        return SIGN_OF_LIFE_S

    def issue(self, query_ids: Sequence[int], sample_indexes: Sequence[int]) -> None:
        """Issue queries; those for which no worker has a free slot wait."""
        self.waiting += len(query_ids)
        self._loop.dispatcher.issue(list(query_ids), list(sample_indexes))

    def run(self) -> None:
        """Issue all queries and wait for their ends, or for the supervisor's abort."""
        self._loop.listen(self._process.control)
        self._process.sign_of_life(self._lost)
        self.begin()
        while not self.done:
            if self._loop.turn(self.proceed()):
                self._obey()
            self._process.sign_of_life(self._lost)
        self._loop.hang_up()
        self._process.done(self._lost)

    def take(self, channel: WorkerChannel, buffer: bytes, messages: Sequence[TokenMessage]) -> bool:
        """Count the queries that have ended."""
        ended = 0
        for message in messages:
            if message.kind != FIRST and channel.outstanding.pop(message.query_id, None) is not None:
                ended += 1
        self.waiting -= ended
        return bool(ended)

    def lose(self, queries: Mapping[int, int], first_token_sent: Set[int] = frozenset()) -> None:
        """Count the queries as ended."""
        self._lost.extend(queries.items())
        self.waiting -= len(queries)

    def _obey(self) -> None:
        try:
            word, value = self._process.control.recv()
        except (EOFError, OSError):
            word, value = "", None
        if not self.commanded(word, value):
            self._loop.hang_up()
            self._process.aborted(self._lost)
            os._exit(1)
