"""An issuing loop in a thread, with workers that the test plays."""

import socket
import threading
from contextlib import suppress

from sut.ipc.messages import ASSIGNMENT_STRUCT, COMPLETE, TokenMessageWriter
from tests.kit import PATIENCE_S, wait_until

WORKERS = 2


class PlayedWorkers:
    """``waiting``: queries without an answer, (query id, sample, worker), in the order of their issue."""

    def __init__(self, loop, control):
        pairs = [socket.socketpair() for _ in range(WORKERS)]
        self.workers = [pair[1] for pair in pairs]
        self.control = control
        self.waiting = []
        self.word = ""
        self._untold = []
        control.send(("run", [0] * WORKERS))
        self.loop = loop([pair[0] for pair in pairs])
        self.thread = threading.Thread(target=self.loop.run, daemon=True)
        self.thread.start()
        for worker in self.workers:
            worker.setblocking(False)

    def _read(self):
        found = []
        for number, worker in enumerate(self.workers):
            with suppress(OSError):
                for query, sample, issued in ASSIGNMENT_STRUCT.iter_unpack(worker.recv(1 << 16)):
                    found.append((issued, query, sample, number))
        for _, query, sample, number in sorted(found):
            self.waiting.append((query, sample, number))
            self._untold.append((query, sample))

    def taken(self):
        """New queries and their samples."""
        self._read()
        told, self._untold = self._untold, []
        return told

    def wait_for(self, count):
        """Wait until this number of requests waits for an answer, and no more."""

        def are_there():
            self._read()
            return len(self.waiting) >= count

        wait_until(are_there)
        assert len(self.waiting) == count

    def answer_oldest(self):
        query, _, number = self.waiting.pop(0)
        writer = TokenMessageWriter(self.workers[number])
        writer.add(query, COMPLETE, 1, b"\x01\x00\x00\x00")
        assert writer.flush()

    def answer_all(self):
        while self.waiting:
            self.answer_oldest()

    def is_over(self):
        """Whether the loop has said how it ended."""
        if not self.word and self.control.poll():
            self.word, _ = self.control.recv()
        return bool(self.word)

    def hang_up(self):
        for worker in self.workers:
            worker.close()

    def end(self):
        self.hang_up()
        self.thread.join(PATIENCE_S)
        assert not self.thread.is_alive()
