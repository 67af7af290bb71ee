"""The process that issues, to its end."""

import multiprocessing

import msgspec

from sut.ipc.counters import CounterBoard
from sut.issuers.loop import issuing_main
from sut.processes.prepared import PreparedProcess


class WithoutThread(msgspec.Struct, frozen=True):
    """An issuer of a machine that has no thread for it, as LoadGen's under ``ulimit -u 8``."""

    def run(self, process):
        raise RuntimeError("can't start new thread")


def test_what_the_machine_lacks_is_reported_with_its_remedy():
    ours, theirs = multiprocessing.Pipe()
    process = PreparedProcess().begin(issuing_main, WithoutThread(), [], CounterBoard(1), theirs, ())
    theirs.close()
    try:
        assert ours.poll(120)
        kind, reason = ours.recv()
        assert kind == "error" and "ulimit -u" in reason
    finally:
        process.join()
        ours.close()
