"""Monitors the child processes during a test and ends runs that cannot finish."""

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from harness.analysis.client_overhead import ClientReadings, late_tokens_text
from harness.analysis.finish_run import Observations
from harness.analysis.verdict import CLOCK_S
from harness.config.deadlines import FailurePolicy
from harness.defects import Defects
from harness.errors import RunError
from harness.files import JOURNAL_DIR
from harness.machine import quota_periods, throttled_part
from harness.record.run_events import EventLog
from harness.text import counted, how_it_ended
from sut.client.transport import realtime_offset_ns, slewed_ns
from sut.ipc.counters import Counter, CounterBoard, totals_of
from sut.processes.spawn import stop
from sut.servers.health import ActivityProbe, HealthMonitor
from sut.supervisor.machine_load import cpu_ns, machine_row

LOOK_S = 1.0
_STUCK_S = 15.0
EXIT_S = 15.0  # a process that closed its pipe ends by then, on a busy machine too
_STOOD_STILL_S = 3.0
_SLOW_FLUSH_NS = 3_000_000_000  # a network disk takes as long now and then
# After this time without any replica the run ends: no query could be answered.
_DEAD_S = 10.0
# Failures in a row without a token: the servers respond but serve nothing.
_HOPELESS = 100
# The number of checks for signs of work during a silence of --progress-timeout.
_QUESTIONS = 10
_LATEST = 30  # looks, in which first tokens are counted that LoadGen gets late

log = logging.getLogger("mlperf")

Totals = npt.NDArray[np.int64]
Observer = Callable[[Totals], None]


class ChildProcess(msgspec.Struct, frozen=True):
    """A child process, the pipe to it, and its name in messages."""

    process: BaseProcess
    control: Connection
    name: str = "the worker"


class Processes(msgspec.Struct, frozen=True):
    """The child processes of a test, and their counters."""

    issuer: ChildProcess
    workers: Sequence[ChildProcess]
    board: CounterBoard
    """a row of the issuer, then one of each worker"""
    on_death: Callable[[int], None]
    """called with the number of a worker that has died"""
    encoders: Sequence[ChildProcess] = ()
    """of the workers, where answers are text"""


class Monitor:
    """Monitors one test.

    ``unsynced``: why the disk has not taken the journal; "" where it has. ``waits_ns``: how long this
    process has waited for the disk by now. ``wall_clock``: the issuer's, which LoadGen alone depends on.
    """

    def __init__(
        self,
        processes: Processes,
        policy: "AbortPolicy",
        replicas: HealthMonitor,
        log_dir: Path,
        look_s: float = LOOK_S,
        unsynced: Callable[[], str] = lambda: "",
        waits_ns: Callable[[], int] = lambda: 0,
        *,
        wall_clock: bool = True,
        events: EventLog,
    ) -> None:
        self._wall_clock = wall_clock
        self._unsynced = unsynced
        self._waits_ns = waits_ns
        self._events = events
        self._issuer = processes.issuer
        self._workers = processes.workers
        self._encoders = processes.encoders
        self._board = processes.board
        self._on_death = processes.on_death
        self._policy = policy
        self._replicas = replicas
        self._log_dir = log_dir
        self._look_s = look_s
        self._errors: list[str] = []
        self._warnings: list[str] = []
        self._cpu: list[list[int]] = []
        self._machine: list[list[int]] = []
        self._quota = quota_periods()
        self._steps_ns = 0  # of the wall clock, as last logged
        self._longest_flush_ns = 0
        self._say_from_ns = _SLOW_FLUSH_NS
        self._reported = deque[tuple[int, int]](maxlen=_LATEST + 1)  # first tokens, late and all
        self._late_told = False
        self._defects = Defects()
        self._ahead_ns = realtime_offset_ns()  # the most that it was
        self._slewed_before_ns = slewed_ns()
        self._began_ns = time.monotonic_ns()
        self._listening = {child.control: index for index, child in enumerate(self._workers)}

    def watch(
        self, observe: Observer, enough: Callable[[], bool] = lambda: False
    ) -> Sequence[tuple[int, int]] | None:
        """Monitor until the issuer is done; returns the lost queries.

        Or until ``enough``, which is called after each call of ``observe``: None, and it can be called again.
        Raises RunError when a process dies or the run cannot finish.
        """
        listening = self._listening
        next_look = time.monotonic() + self._look_s
        while not enough():
            sources = [self._issuer.control, *listening]
            ready = wait(sources, max(0.0, next_look - time.monotonic()))
            # A worker's death explains the end that the issuing process reports because of it.
            for source in sorted(ready, key=lambda one: one is self._issuer.control):
                if source is self._issuer.control:
                    return self._ended()
                if isinstance(source, Connection) and not self._receive_from_worker(
                    listening[source], source
                ):
                    del listening[source]
            now = time.monotonic()
            if now >= next_look:
                self._look(now - next_look, observe)
                next_look = time.monotonic() + self._look_s
        return None

    def end_workers(self) -> None:
        """Wait for them to end, after the issuer, and read what they sent: that rows could not be written."""
        for index, child in enumerate(self._workers):
            if stop(child.process, EXIT_S):
                self._note_end(
                    index,
                    f"had not ended {EXIT_S:g} s after the last query and was killed, with rows unwritten",
                )
        for child in self._encoders:
            stop(child.process, EXIT_S)
        for child in self._workers:
            with suppress(EOFError, OSError):
                while child.control.poll():
                    kind, value = child.control.recv()
                    if kind == "journal":
                        self._errors.append(self._unwritten(value))

    @property
    def errors(self) -> tuple[str, ...]:
        """Reasons for which the run is INVALID."""
        return tuple(self._errors)

    def observations(self) -> Observations:
        """Everything observed until now."""
        totals = totals_of(self._board.table())
        steps_ns = int(totals[Counter.CLOCK_STEPS_NS])
        stepped = (self._stepped(steps_ns),) if steps_ns else ()
        outages = self._replicas.outages
        columns = 2 + len(self._workers) + len(self._encoders)
        flush_ns = int(totals[Counter.LONGEST_FLUSH_NS])
        slow = () if flush_ns < _SLOW_FLUSH_NS else (self._slow_disk(flush_ns),)
        return Observations(
            errors=tuple(self._errors),
            warnings=(*self._warnings, *stepped, *slow, *outages, *self._defects.found),
            outages=outages,
            client=ClientReadings(
                cpu=np.array(self._cpu, dtype=np.int64).reshape(-1, columns),
                machine=np.array(self._machine, dtype=np.int64).reshape(-1, columns),
                encoders=len(self._encoders),
                loop_lag_ns=int(totals[Counter.LOOP_LAG_NS]),
                gc_runs=int(totals[Counter.GC_RUNS]),
                throttled=throttled_part(self._quota),
            ),
            clock_steps_ns=steps_ns,
            slewed_ns=slewed_ns() - self._slewed_before_ns,
        )

    def _ended(self) -> Sequence[tuple[int, int]]:
        kind, value = receive_from_issuer(self._issuer, 0)
        if kind != "done":
            raise RunError(f"{self._issuer.name}: {value}")
        lost: Sequence[tuple[int, int]]
        lost, unwritten = value
        if unwritten:
            self._errors.append(unwritten)
        return lost

    def _receive_from_worker(self, index: int, control: Connection) -> bool:
        """Handle one message; returns False after the last."""
        process = self._workers[index].process
        try:
            kind, value = control.recv()
        except (EOFError, OSError):
            process.join(EXIT_S)
            self._on_death(index)
            if process.exitcode != 0:  # 0: the issuer has closed the channel, and reports the end
                self._note_end(index, how_it_ended(process.exitcode))
            return False
        if kind == "suspect":
            self._replicas.suspected(value)
        elif kind == "address":
            if value not in self._warnings:
                log.warning(value)
                self._warnings.append(value)
        elif kind == "encoder":
            raise RunError(f"ended early: {self._encoder_end(index, value)}")
        elif kind == "journal":
            raise RunError(f"ended early: {self._unwritten(value)}")
        else:
            self._on_death(index)
            self._errors.append(str(value))
            return False
        return True

    def _slow_disk(self, flush_ns: int) -> str:
        return (
            f"the disk of {self._log_dir} took {flush_ns / 1e9:.0f} s for a part of the journal: no query "
            "waits for it, but the end of the run does; use a local disk, and copy the results afterwards"
        )

    def _unwritten(self, why: object) -> str:
        return f"the journal in {self._log_dir} cannot be written: {why}"

    def _encoder_end(self, index: int, seen: str) -> str:
        """Why the answers of a worker can no longer be encoded."""
        process, control = self._encoders[index].process, self._encoders[index].control
        process.join(EXIT_S if seen == "has ended" else 0)
        how = how_it_ended(process.exitcode) if process.exitcode is not None else seen
        with suppress(EOFError, OSError):
            how = str(control.recv()[1]) if control.poll() else how
        return (
            f"encoder {index} (pid {process.pid}) {how}: its worker's answers come as text and get no ids; "
            "look for what ended it, or use servers that send token ids"
        )

    def _look(self, late_s: float, observe: Observer) -> None:
        table = self._board.table()[: 1 + len(self._workers)]  # a limit leaves some workers unstarted
        totals: Totals = totals_of(table)
        encoding = [cpu_ns(child.process.pid) for child in self._encoders]
        self._cpu.append([time.monotonic_ns(), *table[:, Counter.CPU_NS].tolist(), *encoding])
        children = (self._issuer, *self._workers, *self._encoders)
        self._machine.append(machine_row([child.process.pid for child in children]))
        suspended = late_s > _STOOD_STILL_S
        if suspended:
            self._note_pause(late_s)  # before the queries are seen that are late by it
        self._note_clock(int(totals[Counter.CLOCK_STEPS_NS]))
        with self._defects.cost("alarm of first tokens that LoadGen gets late"):
            self._note_late_tokens(totals)
        disk_stands = self._disk_stands(int(totals[Counter.LONGEST_FLUSH_NS]))
        if not (suspended or disk_stands):  # LoadGen ends when it has written its logs
            self._check_heartbeats(table[:, Counter.HEARTBEAT_NS])
        observe(totals)
        if why := self._unsynced():
            raise RunError(f"ended early: {self._unwritten(why)}")
        if why := self._replicas.none_left():
            raise RunError(f"ended early: {why}")
        ahead_ns = realtime_offset_ns()
        self._ahead_ns = max(self._ahead_ns, ahead_ns)
        back_s = (self._ahead_ns - ahead_ns) / 1e9 if self._wall_clock else 0.0
        self._policy.check(totals, *self._replicas.all_out_for(), clock_back_s=back_s)
        self.require_folder()

    def require_folder(self) -> None:
        """Raise RunError where the output folder is gone, or another one is in its place."""
        if not (self._log_dir / JOURNAL_DIR).is_dir():  # it may have been made again
            raise RunError(f"the output folder {self._log_dir} was removed or replaced during the run")

    def _note_pause(self, late_s: float) -> None:
        text = f"this process or the machine was suspended for {late_s:.1f} s"
        self._events.add("suspended", "", text, time.monotonic_ns() - int(late_s * 1e9))
        self._warnings.append(f"{text}; latencies measured during that time include the pause")
        log.warning("warning: %s", self._warnings[-1])
        self._reported.clear()
        self._late_told = True  # that tokens are late by this

    def _note_clock(self, steps_ns: int) -> None:
        """Say a large step at once: LoadGen issues nothing after one back, for as long as that was."""
        if steps_ns - self._steps_ns >= CLOCK_S * 1e9:
            text = self._stepped(steps_ns)
            self._events.add("clock_set", "", text)
            log.warning("warning: %s", text)
            self._steps_ns = steps_ns

    def _stepped(self, steps_ns: int) -> str:
        depends = (
            "LoadGen issues and measures by it, and after a step back waits as long"
            if self._wall_clock
            else "only dates of this run are of it, no duration is"
        )
        return f"the wall clock was stepped, by {steps_ns / 1e6:.0f} ms in all: {depends}"

    def _note_late_tokens(self, totals: Totals) -> None:
        """Say at once that the run measures this client, too, and again only after it has been in time."""
        now = int(totals[Counter.LATE_FIRST_TOKENS]), int(totals[Counter.FIRST_TOKENS])
        self._reported.append(now)
        if len(self._reported) <= _LATEST:
            return
        late, tokens = np.subtract(now, self._reported[0]).tolist()
        if not late:
            self._late_told = False
            return
        cpu, machine = (np.array(rows[-_LATEST - 1 :]) for rows in (self._cpu, self._machine))
        quota = throttled_part(self._quota)
        readings = ClientReadings(cpu, machine, len(self._encoders), throttled=quota)
        text = late_tokens_text(late, tokens, readings)
        if text and not self._late_told:
            log.warning("warning: %s", text)
        self._late_told = self._late_told or bool(text)

    def _disk_stands(self, flush_ns: int) -> bool:
        """Whether this process waits for the disk, or a worker longer than ever.

        Said at once, and again after ten times as long.
        """
        waits_ns = max(self._waits_ns(), flush_ns if flush_ns > self._longest_flush_ns else 0)
        self._longest_flush_ns = max(self._longest_flush_ns, flush_ns)
        if waits_ns >= self._say_from_ns:
            log.warning("warning: %s", self._slow_disk(waits_ns))
            self._say_from_ns = 10 * waits_ns
        return waits_ns > _SLOW_FLUSH_NS

    def _check_heartbeats(self, beats: Totals) -> None:
        """Kill stuck workers: the queries of a dead worker fail, those of a stuck one would never end."""
        since = (time.monotonic_ns() - np.maximum(beats, self._began_ns)) / 1e9
        if since[0] > _STUCK_S:
            raise RunError(
                f"{self._issuer.name} has not moved for {since[0]:.0f} s (stopped, or without CPU time)"
            )
        for index, child in enumerate(self._workers):
            if since[index + 1] > _STUCK_S and child.process.is_alive():
                self._note_end(index, f"had not moved for {since[index + 1]:.0f} s and was killed")
                child.process.kill()

    def _note_end(self, index: int, how: str) -> None:
        """Once: a killed worker ends, too, and one that waits for a disk may take long to."""
        name = f"worker {index} (pid {self._workers[index].process.pid})"
        if not any(error.startswith(name) for error in self._errors):
            self._errors.append(f"{name} {how}")


class AbortPolicy:
    """Decides from the counters whether to end the run early.

    ``reasons`` names the failures so far. ``activity`` is used where silence alone proves
    nothing.
    """

    def __init__(
        self,
        policy: FailurePolicy,
        reasons: Callable[[], str] = lambda: "",
        activity: ActivityProbe | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._policy = policy
        self._activity = activity
        self._clock = clock
        self._asked = clock()
        self._reasons = reasons
        self._last_change = self._asked
        self._before = np.zeros(len(Counter), dtype=np.int64)
        self._failed_at_token = 0

    def check(self, totals: Totals, all_out_s: float, why: str, clock_back_s: float = 0.0) -> None:
        """Raise RunError to end the run. ``all_out_s``: seconds in which no replica has answered, and why.

        ``clock_back_s``: by how much the wall clock was set back: LoadGen may issue nothing for as long.
        """
        failed = int(totals[Counter.FAILED])
        limit = self._policy.max_failures
        if limit is not None and failed >= limit:
            raise RunError(
                f"ended early: {counted(failed, 'query', 'has')} failed, the limit is {limit} "
                "(--max-failures N for another, --no-fail-fast for none)"
            )
        if self._policy.give_up:
            self._check_hopeless(totals, failed)
            if all_out_s > _DEAD_S:
                raise RunError(f"ended early: no server has answered for {all_out_s:.0f} s: {why}")
        self._check_progress(totals, issues=clock_back_s <= self._policy.progress_s)

    def _check_hopeless(self, totals: Totals, failed: int) -> None:
        if self._changed(totals, Counter.FIRST_TOKENS, Counter.COMPLETED):
            self._failed_at_token = failed
        if failed >= self._policy.first_failures and not totals[Counter.COMPLETED]:
            raise RunError(f"ended early: the first {failed} queries to end all failed{self._causes()}")
        if failed - self._failed_at_token >= _HOPELESS:
            in_a_row = failed - self._failed_at_token
            raise RunError(
                f"ended early: the last {in_a_row} queries failed without a token in between{self._causes()}"
            )

    def _causes(self) -> str:
        reasons = self._reasons()
        return f": {reasons}" if reasons else ""

    def _check_progress(self, totals: Totals, *, issues: bool) -> None:
        now = self._clock()
        waiting = int(totals[Counter.ISSUED] - totals[Counter.COMPLETED] - totals[Counter.FAILED])
        if (waiting <= 0 and issues) or self._changed(
            totals, Counter.RECEPTIONS, Counter.COMPLETED, Counter.FAILED
        ):
            self._last_change = now
        self._before = totals
        silent_s = now - self._last_change
        if silent_s > self._policy.progress_s and not self._at_work(now):
            if waiting <= 0:
                raise RunError(
                    f"ended early: LoadGen has issued nothing for {silent_s:.0f} s (--progress-timeout): it "
                    "waits for the wall clock, which was set back; repeat the command"
                )
            seen = "" if self._activity is None else " and no server was seen to work"
            raise RunError(
                f"ended early: nothing has arrived for {silent_s:.0f} s{seen}, with "
                f"{counted(waiting, 'query')} waiting (--progress-timeout)"
            )
        if (
            self._activity is not None
            and min(silent_s, now - self._asked) > self._policy.progress_s / _QUESTIONS
        ):
            self._asked = now
            self._activity.probe()

    def _at_work(self, now: float) -> bool:
        return self._activity is not None and now - self._activity.seen_s <= self._policy.progress_s

    def _changed(self, totals: Totals, *counters: Counter) -> bool:
        return any(totals[counter] != self._before[counter] for counter in counters)


def receive_from_issuer(issuer: ChildProcess, timeout_s: float) -> tuple[str, Any]:
    """The next message of the issuing process. Raises RunError when it is late, or the process has ended."""
    if not issuer.control.poll(timeout_s):
        raise RunError(f"{issuer.name} gave no answer within {timeout_s:g} s")
    try:
        message: tuple[str, Any] = issuer.control.recv()
    except (EOFError, OSError):  # OSError: it died with an unread message of ours
        issuer.process.join(EXIT_S)
        raise RunError(f"{issuer.name} {how_it_ended(issuer.process.exitcode)}") from None
    return message
