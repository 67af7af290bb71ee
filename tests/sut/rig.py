"""A worker in a thread, with LoadGen's end of its channel in the test's hands."""

import socket
import threading
import time
from multiprocessing import Pipe
from typing import Any

import numpy as np

from harness.config.deadlines import Deadlines
from harness.config.protocol import Protocol, own_protocol
from harness.record.journal import read_journal
from sut.client.endpoint import Access, resolve_endpoint
from sut.client.network_figures import Network
from sut.ipc.counters import CounterBoard
from sut.ipc.messages import ASSIGNMENT_STRUCT, FIRST, TokenMessageReader
from sut.ipc.request_store import render_requests
from sut.wire import Wires
from sut.wire.fields import AnswersSeen
from sut.worker.worker import Destination, Worker, WorkerSpec
from tests.kit import PATIENCE_S, VOCABULARY, parameters, sample_set
from tests.stub import Facts

PARAMETERS = parameters(max_new_tokens=6)
PROMPTS = [[index + 1] * (index + 1) for index in range(40)]


class Rig:
    """A worker in a thread; ``reports`` are (query id, kind, token ids) in order of arrival."""

    def __init__(
        self,
        tmp_path,
        *urls,
        wire="sglang",
        parameters=PARAMETERS,
        timeout_s=600.0,
        limits=None,
        model=None,
        encoder=None,
        **options,
    ):
        """``encoder``: the channel to one, where answers are text."""
        protocol = wire if isinstance(wire, Protocol) else own_protocol(wire)
        wires = Wires(protocol, parameters, VOCABULARY, "m")
        store = render_requests(sample_set(tmp_path, PROMPTS, limits), wires)
        self.channel, theirs = socket.socketpair()
        self.channel.settimeout(PATIENCE_S)
        index = options.pop("index", 0)
        self.board, self.loads = CounterBoard(1), CounterBoard(index + 1, len(urls))
        self.network = CounterBoard((index + 1) * len(urls), len(Network))
        self.journal_dir = tmp_path
        destination = Destination(
            tuple(resolve_endpoint(url, wires.of(0).path, Access()) for url in urls),
            protocol,
            "m",
            AnswersSeen(names=frozenset({model or Facts().served_name})),
            options.pop("saved", {}),
        )
        usual: dict[str, Any] = {"max_in_flight": 0, "retries": 0}
        usual |= {"first_tokens": True, "accuracy": False}
        spec = WorkerSpec(
            index=index,
            destination=destination,
            parameters=parameters,
            vocabulary_size=VOCABULARY,
            warm_connections=1,
            deadlines=Deadlines(request_s=timeout_s),
            journal_dir=tmp_path,
            board=self.loads,
            network=self.network,
            **usual | options,
        )
        self.control, control = Pipe()
        self.worker = Worker(spec, theirs, store, self.board.row(0), control, encoder)
        self.error = None
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()
        self.reports, self._reader = [], TokenMessageReader()
        self.arrived = {}  # ns by query id and kind

    def _run(self):
        try:
            self.worker.run()
        except Exception as error:  # noqa: BLE001 - in the program it ends the process
            self.error = error
            self.worker._channel.close()

    def assign(self, *queries, cut=None):
        """Queries of the samples ``query % 40``; their bytes in two pieces when ``cut`` is given."""
        data = b"".join(
            ASSIGNMENT_STRUCT.pack(query, query % len(PROMPTS), time.monotonic_ns()) for query in queries
        )
        self.channel.sendall(data[:cut])
        if cut is not None:
            time.sleep(0.02)
            self.channel.sendall(data[cut:])

    def collect(self, ends):
        """Wait until ``ends`` queries have ended in all."""
        while sum(kind != FIRST for _, kind, _ in self.reports) < ends:
            data = self.channel.recv(1 << 20)
            assert data, f"the worker ended: {self.error!r}"
            buffer, reports = self._reader.feed(data)
            for report in reports:
                tokens = np.frombuffer(buffer, "<i4", report.size // 4, report.offset).tolist()
                self.reports.append((report.query_id, report.kind, tokens))
                self.arrived[report.query_id, report.kind] = report.arrived_ns
        return self.reports

    def finish(self):
        """Hang up; the journal afterwards."""
        self.channel.shutdown(socket.SHUT_WR)
        self.thread.join(PATIENCE_S)
        assert not self.thread.is_alive()
        assert self.error is None, repr(self.error)
        return read_journal(self.journal_dir)

    def counter(self, which):
        return int(self.board.totals()[which])
