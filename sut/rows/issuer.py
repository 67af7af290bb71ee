"""The process that issues queries in place of LoadGen: here all rows of a dataset, once, in order.

Dialogue on ``control``: ("run", capacities) or the end of the pipe starts or ends it; ("done", (lost queries,
"")) or ("error", text) when every row has its outcome. Any other message of the supervisor, or its end,
aborts: ("aborted", lost queries). A query's id is its position among the rows.
"""

import os
import select
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection as Pipe
from typing import Any

from harness.record.outcome import FailureKind
from harness.record.resolved_plan import Cpus
from sut.ipc.counters import FIRST_FAILURE, Counter, CounterBoard
from sut.ipc.messages import FIRST, TokenMessageReader
from sut.loadgen.dispatcher import Dispatcher, WorkerChannel
from sut.processes.spawn import die_with_parent, pin

# malloc maps, clears and unmaps memory of its own for more: that costs more than the rest of a read.
_RECEIVE_BYTES = 1 << 16
_SIGN_OF_LIFE_S = 0.5


def issuer_main(
    rows: Sequence[int], sockets: Sequence[socket.socket], board: CounterBoard, control: Pipe, cores: Cpus
) -> None:
    """Entry point of the process."""
    issue_until_done(lambda *parts: RowIssuer(rows, *parts), sockets, board, control, cores)


def issue_until_done(
    make: "Callable[[Sequence[WorkerChannel], memoryview, Pipe], Issuer]",
    sockets: Sequence[socket.socket],
    board: CounterBoard,
    control: Pipe,
    cores: Cpus,
) -> None:
    """Run an issuer in this process, which ends with it."""
    die_with_parent()
    pin(cores)
    try:
        command, capacities = control.recv()
        if command == "run":
            make(list(map(WorkerChannel, sockets, capacities)), board.row(0), control).run()
    except EOFError:
        os._exit(1)
    except Exception as error:  # noqa: BLE001 - the process's edge: reported to the supervisor
        control.send(("error", f"{type(error).__name__}: {error}"))
        os._exit(1)
    os._exit(0)


class Issuer:
    """One loop: queries to the workers, least loaded first; the ends of the queries from them.

    ``waiting`` counts the queries without an end. What is issued when is a subclass's.
    """

    def __init__(self, channels: Sequence[WorkerChannel], counters: memoryview, control: Pipe) -> None:
        self._channels = channels
        self._counters = counters
        self._control = control
        self._dispatcher = Dispatcher(channels, counters, self._lose)
        self.waiting = 0
        self._lost: list[tuple[int, int]] = []

    def begin(self) -> None:
        """Called once before the loop."""

    @property
    def done(self) -> bool:
        """Whether the loop ends."""
        return not self.waiting

    def commanded(self, word: str, value: Any) -> bool:
        """Follow a command of the supervisor; False for one that aborts."""
        return False

    def proceed(self) -> float:
        """Called in each turn of the loop; returns the longest time until the next one, in seconds."""
        return _SIGN_OF_LIFE_S

    def issue(self, query_ids: Sequence[int], sample_indexes: Sequence[int]) -> None:
        """Issue queries; those for which no worker has a free slot wait."""
        self.waiting += len(query_ids)
        self._dispatcher.issue(list(query_ids), list(sample_indexes))

    @property
    def served(self) -> bool:
        """Whether a worker is left."""
        return any(channel.alive for channel in self._channels)

    def run(self) -> None:
        """Issue all queries and wait for their ends, or for the supervisor's abort."""
        poll = select.epoll()
        readers = {channel.socket.fileno(): (channel, TokenMessageReader()) for channel in self._channels}
        for channel in self._channels:
            poll.register(channel.socket, select.EPOLLIN)
            channel.poll = poll
        poll.register(self._control, select.EPOLLIN)
        self._sign_of_life()
        self.begin()
        while not self.done:
            for descriptor, mask in poll.poll(self.proceed()):
                if descriptor == self._control.fileno():
                    self._listen()
                elif descriptor in readers:
                    self._serve(*readers[descriptor], mask)
            self._sign_of_life()
        self._hang_up()
        self._control.send(("done", (self._lost, "")))

    def _listen(self) -> None:
        try:
            word, value = self._control.recv()
        except (EOFError, OSError):
            word, value = "", None
        if not self.commanded(word, value):
            self._abort()

    def _serve(self, channel: WorkerChannel, reader: TokenMessageReader, mask: int) -> None:
        if mask & select.EPOLLOUT:
            channel.send()
        try:
            data = channel.socket.recv(_RECEIVE_BYTES)
        except BlockingIOError:
            return
        except ConnectionError:
            data = b""
        if not data:
            self._end(channel)
            return
        for message in reader.feed(data)[1]:
            if message.kind != FIRST and channel.outstanding.pop(message.query_id, None) is not None:
                self.waiting -= 1
        self._dispatcher.pump()

    def _end(self, channel: WorkerChannel) -> None:
        """The worker has died: its queries are lost, the other workers continue."""
        channel.alive = False
        if channel.poll is not None:
            channel.poll.unregister(channel.socket)
            channel.poll = None
        held = dict(channel.outstanding)
        channel.outstanding.clear()
        self._lose(held)
        self._dispatcher.pump()

    def _lose(self, queries: Mapping[int, int]) -> None:
        self._lost.extend(queries.items())
        self.waiting -= len(queries)

    def _sign_of_life(self) -> None:
        self._counters[Counter.HEARTBEAT_NS] = time.monotonic_ns()
        self._counters[Counter.FAILED] = len(self._lost)
        self._counters[FIRST_FAILURE + FailureKind.WORKER_LOST] = len(self._lost)
        self._counters[Counter.CPU_NS] = time.process_time_ns()

    def _abort(self) -> None:
        self._hang_up()
        with suppress(OSError):
            self._control.send(("aborted", self._lost))
        os._exit(1)

    def _hang_up(self) -> None:
        for channel in self._channels:
            if channel.alive:
                with suppress(OSError):
                    channel.socket.shutdown(socket.SHUT_WR)


class RowIssuer(Issuer):
    """All rows at once; workers get them as slots become free."""

    def __init__(
        self, rows: Sequence[int], channels: Sequence[WorkerChannel], counters: memoryview, control: Pipe
    ) -> None:
        super().__init__(channels, counters, control)
        self._rows = rows

    def begin(self) -> None:
        """Issue everything."""
        self.issue(range(len(self._rows)), self._rows)
