"""The process that issues rows of a dataset in place of LoadGen: all of them, once, in order.

Dialogue on ``control``: ("run", capacities) or the end of the pipe starts or ends it; ("done", (lost queries,
"")) or ("error", text) when every row has its outcome. Any other message of the supervisor, or its end,
aborts: ("aborted", lost queries). A query's id is its position among the rows.
"""

import os
import select
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection as Pipe

from harness.record.outcome import FailureKind
from harness.record.resolved_plan import Cpus
from sut.ipc.counters import FIRST_FAILURE, Counter, CounterBoard
from sut.ipc.messages import FIRST, TokenMessageReader
from sut.loadgen.dispatcher import Dispatcher, WorkerChannel
from sut.supervisor.spawn import die_with_parent, pin

_RECEIVE_BYTES = 1 << 20
_SIGN_OF_LIFE_S = 0.5


def issuer_main(
    rows: Sequence[int], sockets: Sequence[socket.socket], board: CounterBoard, control: Pipe, cores: Cpus
) -> None:
    """Entry point of the process."""
    die_with_parent()
    pin(cores)
    try:
        command, capacities = control.recv()
        if command == "run":
            channels = list(map(WorkerChannel, sockets, capacities))
            RowIssuer(rows, channels, board.row(0), control).run()
    except EOFError:
        os._exit(1)
    except Exception as error:  # noqa: BLE001 - the process's edge: reported to the supervisor
        control.send(("error", f"{type(error).__name__}: {error}"))
        os._exit(1)
    os._exit(0)


class RowIssuer:
    """One loop: rows to the workers, least loaded first; the ends of their queries from them."""

    def __init__(
        self, rows: Sequence[int], channels: Sequence[WorkerChannel], counters: memoryview, control: Pipe
    ) -> None:
        self._rows = rows
        self._channels = channels
        self._counters = counters
        self._control = control
        self._dispatcher = Dispatcher(channels, counters, self._lose)
        self._waiting = len(rows)
        self._lost: list[tuple[int, int]] = []

    def run(self) -> None:
        """Issue everything and wait until every query has ended, or the supervisor aborts."""
        poll = select.epoll()
        readers = {channel.socket.fileno(): (channel, TokenMessageReader()) for channel in self._channels}
        for channel in self._channels:
            poll.register(channel.socket, select.EPOLLIN)
            channel.poll = poll
        poll.register(self._control, select.EPOLLIN)
        self._sign_of_life()
        self._dispatcher.issue(list(range(len(self._rows))), list(self._rows))
        while self._waiting:
            for descriptor, mask in poll.poll(_SIGN_OF_LIFE_S):
                if descriptor == self._control.fileno():
                    self._abort()
                elif descriptor in readers:
                    self._serve(*readers[descriptor], mask)
            self._sign_of_life()
        self._hang_up()
        self._control.send(("done", (self._lost, "")))

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
                self._waiting -= 1
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
        self._waiting -= len(queries)

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
