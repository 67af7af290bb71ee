"""LoadGen as the issuer: its issue callback, the reporter's thread, and nothing else in the process.

Before the test the process sends ("settings", readback), or ("error", text) where LoadGen refuses them.
LoadGen runs in a thread; the main thread sleeps.
"""

import gc
import math
import os
import sys
import threading
import time
from array import array
from collections.abc import Sequence
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from harness.config.scenario import needs_first_tokens
from harness.errors import in_words, unwritten
from harness.record.journal import LOADGEN_CALL_ROW, LOADGEN_CALLS_FILE
from sut.issuers.dispatcher import WorkerChannel
from sut.issuers.loop import SIGN_OF_LIFE_S, ChannelLoop, IssuingProcess
from sut.issuers.reporter import Reporter
from sut.loadgen import binding
from sut.loadgen.binding import TestSpec

_SWITCH_INTERVAL_S = 0.0005
_WORKERS_END_S = 5.0


class LoadGen(msgspec.Struct, frozen=True):
    """Issues the queries of one LoadGen test."""

    spec: TestSpec
    name: str = "the LoadGen process"
    wall_clock: bool = True

    @property
    def first_tokens(self) -> bool:
        """Whether LoadGen waits for first tokens."""
        return needs_first_tokens(self.spec.scenario)

    @property
    def keeps_answers(self) -> bool:
        """An accuracy run's answers matter."""
        return self.spec.accuracy

    @property
    def text_after(self) -> int | None:
        """LoadGen gets the answers."""
        return None

    def run(self, process: IssuingProcess) -> None:
        """Configure LoadGen, report its settings, and run the test once the supervisor starts it."""
        settings = binding.configure(self.spec)
        process.control.send(("settings", binding.read_back(settings)))
        _Test(self.spec, settings, process, process.started()).run()


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


class _Test:
    """One test, from StartTest to the last report."""

    def __init__(
        self, spec: TestSpec, settings: Any, process: IssuingProcess, channels: Sequence[WorkerChannel]
    ) -> None:
        self._spec = spec
        self._settings = settings
        self._process = process
        self._library = SampleLibrary(spec.samples)
        late_ns = spec.late_part * settings.ttft_latency if spec.late_part else math.inf
        first_tokens = needs_first_tokens(spec.scenario)
        self._reporter = Reporter(process.counters, first_tokens=first_tokens, late_ns=late_ns)
        self._loop = ChannelLoop(channels, process.counters, self._reporter)
        self._reporting = threading.Thread(target=self._loop.run, name="reporter", daemon=True)
        self._ended, self._end = os.pipe()
        self._error: str | None = None

    def run(self) -> None:
        """Run the test; the main thread sleeps until it ends or the supervisor sends a message."""
        sys.setswitchinterval(_SWITCH_INTERVAL_S)
        self._reporting.start()
        gc.collect()
        gc.freeze()
        gc.disable()
        process, lost = self._process, self._reporter.lost
        process.reset()
        threading.Thread(target=self._test, name="loadgen", daemon=True).start()
        while not (spoken := wait([self._ended, process.control], SIGN_OF_LIFE_S)):
            process.sign_of_life(lost)
        if process.control in spoken:
            self._abort()
        process.sign_of_life(lost)
        self._finish()

    def _test(self) -> None:
        issue, library = self._loop.dispatcher.issue, self._library
        try:
            binding.run_test(self._settings, self._spec, issue, library.load, library.unload)
        except Exception as error:  # noqa: BLE001 - the thread's edge: reported as the run's error
            self._error = in_words(error)
        os.write(self._end, b"x")

    def _abort(self) -> None:
        """End after "abort" or the supervisor's death, once LoadGen's log thread has written again."""
        self._reporter.stopping = True
        self._loop.hang_up()
        self._process.aborted(self._reporter.lost)
        self._write_calls(self._reporter.calls[:])  # the reporter may still add those of a call under way
        time.sleep(binding.FLUSH_INTERVAL_S * 1.05)
        os._exit(1)

    def _finish(self) -> None:
        self._reporter.stopping = True
        self._loop.hang_up()
        self._reporting.join(_WORKERS_END_S)
        if self._reporting.is_alive():
            self._error = self._error or "a worker did not close its channel after the test"
        if error := self._error or self._library.error:
            self._process.control.send(("error", error))
        else:
            self._process.done(self._reporter.lost, self._write_calls(self._reporter.calls))

    def _write_calls(self, made: "array[int]") -> str:
        """Write the calls. Returns an OSError's text, or "": without these times the outcomes still count."""
        calls = np.frombuffer(made, dtype=np.int64).reshape(-1, 4)
        rows = np.empty(len(calls), dtype=LOADGEN_CALL_ROW)
        for column, name in enumerate(LOADGEN_CALL_ROW.names or ()):
            rows[name] = calls[:, column]
        path = Path(self._spec.journal_dir) / LOADGEN_CALLS_FILE
        try:
            path.write_bytes(rows.data)
        except OSError as error:
            return unwritten(path, error)
        return ""
