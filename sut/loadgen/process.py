"""LoadGen's own process: its issue callback, the reporter's thread, and nothing else.

Dialogue on ``control``: ("settings", readback) or ("error", text) after the start; ("run", capacities) or
the end of the pipe in answer; ("done", (lost queries, what could not be written)) or ("error", text) when the
test is over. Any other message of the supervisor, or its end, aborts the test: ("aborted", lost queries).
"""

import gc
import os
import socket
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection as Pipe
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import numpy as np

from harness.config.scenario import needs_first_tokens
from harness.errors import ConfigError, machine_failure
from harness.record.journal import LOADGEN_CALL_ROW, LOADGEN_CALLS_FILE
from harness.record.outcome import FailureKind
from harness.record.resolved_plan import Cpus
from sut.ipc.counters import FIRST_FAILURE, Counter, CounterBoard
from sut.loadgen import binding
from sut.loadgen.binding import TestSpec
from sut.loadgen.dispatcher import Dispatcher, WorkerChannel
from sut.loadgen.reporter import Reporter
from sut.processes.spawn import die_with_parent, gc_runs, pin


class SampleLibrary:
    """Checks that LoadGen stays inside the dataset. Loading is a no-op: the store holds all samples."""

    def __init__(self, samples: int) -> None:
        self._samples = samples
        self.error: str | None = None

    def load(self, indexes: list[int]) -> None:
        """LoadGen's LoadSamplesToRam; an exception here would kill the process, so it is only noted."""
        if indexes and not 0 <= min(indexes) <= max(indexes) < self._samples:
            self.error = f"LoadGen asked for sample {max(indexes)} of {self._samples}"

    def unload(self, indexes: list[int]) -> None:
        """LoadGen's UnloadSamplesFromRam."""


_SWITCH_INTERVAL_S = 0.0005
_WORKERS_END_S = 5.0
_SIGN_OF_LIFE_S = 0.5


def loadgen_main(
    spec: TestSpec, sockets: Sequence[socket.socket], board: CounterBoard, control: Pipe, cores: Cpus
) -> None:
    """Entry point of the process; ends by os._exit, since LoadGen's threads crash an orderly exit."""
    die_with_parent()
    pin(cores)
    try:
        settings = binding.configure(spec)
        control.send(("settings", binding.read_back(settings)))
        command, capacities = control.recv()
        if command == "run":
            channels = list(map(WorkerChannel, sockets, capacities))
            _Run(spec, settings, channels, board, control).run()
    except EOFError:
        os._exit(1)
    except ConfigError as error:
        control.send(("error", str(error)))
        os._exit(1)
    except Exception as error:  # noqa: BLE001 - the process's edge: reported to the supervisor
        control.send(("error", f"{type(error).__name__}: {error}"))
        os._exit(1)
    os._exit(0)


class _Run:
    """One test, from StartTest to the last report."""

    def __init__(
        self,
        spec: TestSpec,
        settings: Any,
        channels: Sequence[WorkerChannel],
        board: CounterBoard,
        control: Pipe,
    ) -> None:
        self._spec = spec
        self._settings = settings
        self._control = control
        self._channels = channels
        self._library = SampleLibrary(spec.samples)
        self._counters = board.row(0)
        self._reporter = Reporter(self._channels, first_tokens=needs_first_tokens(spec.scenario))
        self._dispatcher = Dispatcher(self._channels, self._counters, self._reporter.fail)
        self._ended, self._end = os.pipe()
        self._error: str | None = None

    def run(self) -> None:
        """Run the test; the main thread sleeps until it ends or the supervisor sends a message."""
        sys.setswitchinterval(_SWITCH_INTERVAL_S)
        self._reporter.start(self._dispatcher)
        gc.collect()
        gc.freeze()
        gc.disable()
        cpu_start_ns, gc_start = time.process_time_ns(), gc_runs()
        threading.Thread(target=self._test, name="loadgen", daemon=True).start()
        while not (spoken := wait([self._ended, self._control], _SIGN_OF_LIFE_S)):
            self._sign_of_life(cpu_start_ns, gc_start)
        if self._control in spoken:
            self._abort()
        self._sign_of_life(cpu_start_ns, gc_start)
        self._finish()

    def _sign_of_life(self, cpu_start_ns: int, gc_start: int) -> None:
        self._counters[Counter.HEARTBEAT_NS] = time.monotonic_ns()
        self._counters[Counter.FAILED] = len(self._reporter.lost)
        self._counters[FIRST_FAILURE + FailureKind.WORKER_LOST] = len(self._reporter.lost)
        self._counters[Counter.GC_RUNS] = gc_runs() - gc_start
        self._counters[Counter.CPU_NS] = time.process_time_ns() - cpu_start_ns

    def _test(self) -> None:
        try:
            binding.run_test(
                self._settings, self._spec, self._dispatcher.issue, self._library.load, self._library.unload
            )
        except Exception as error:  # noqa: BLE001 - the thread's edge: reported as the run's error
            self._error = f"{type(error).__name__}: {error}"
        os.write(self._end, b"x")

    def _abort(self) -> None:
        """End after "abort" or the supervisor's death, once LoadGen's log thread has written again."""
        self._reporter.stopping = True
        self._hang_up()
        with suppress(OSError):
            self._control.send(("aborted", self._reporter.lost))
        time.sleep(binding.FLUSH_INTERVAL_S * 1.05)
        os._exit(1)

    def _finish(self) -> None:
        self._reporter.stopping = True
        self._hang_up()
        if not self._reporter.join(_WORKERS_END_S):
            self._error = self._error or "a worker did not close its channel after the test"
        error = self._error or self._library.error
        if error:
            self._control.send(("error", error))
        else:
            self._control.send(("done", (self._reporter.lost, self._write_calls())))

    def _hang_up(self) -> None:
        for channel in self._channels:
            if channel.alive:
                channel.socket.shutdown(socket.SHUT_WR)

    def _write_calls(self) -> str:
        """Write the calls. Returns an OSError's text, or "": without these times the outcomes still count."""
        calls = np.frombuffer(self._reporter.calls, dtype=np.int64).reshape(-1, 4)
        rows = np.empty(len(calls), dtype=LOADGEN_CALL_ROW)
        for column, name in enumerate(LOADGEN_CALL_ROW.names or ()):
            rows[name] = calls[:, column]
        try:
            (Path(self._spec.journal_dir) / LOADGEN_CALLS_FILE).write_bytes(rows.data)
        except OSError as error:
            return str(machine_failure(error))
        return ""
