"""The monitor of a test, and which counters end a run."""

import time
from contextlib import nullcontext
from multiprocessing import Pipe
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from harness.config.deadlines import FailurePolicy
from harness.errors import RunError
from harness.files import JOURNAL_DIR
from harness.record.run_events import EventLog
from sut.ipc.counters import Counter
from sut.supervisor import monitor as monitoring
from sut.supervisor.monitor import AbortPolicy, ChildProcess, Monitor, Processes, receive_from_issuer


class Clock:
    """A clock that a test moves."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def policy(**changes):
    return FailurePolicy(
        **{"max_failures": None, "give_up": True, "progress_s": 60.0, "retries": 0} | changes
    )


def check(abort_policy, no_server_s=0.0, clock_back_s=0.0, **values):
    """Check these counters, all others 0, with no answer of any server for ``no_server_s``."""
    counts = np.zeros(len(Counter), dtype=np.int64)
    for name, value in values.items():
        counts[Counter[name.upper()]] = value
    abort_policy.check(counts, no_server_s, "refused", clock_back_s)


def test_failures():
    check(AbortPolicy(policy(max_failures=3)), failed=2)
    with pytest.raises(RunError, match="3 queries have failed, the limit is 3"):
        check(AbortPolicy(policy(max_failures=3)), failed=3)
    with pytest.raises(RunError, match="1 query has failed, the limit is 1"):
        check(AbortPolicy(policy(max_failures=1)), failed=1)


def test_no_server_left():
    check(AbortPolicy(policy()), no_server_s=9.0)
    check(AbortPolicy(policy(give_up=False)), no_server_s=99.0)
    with pytest.raises(RunError, match="no server has answered for 11 s: refused"):
        check(AbortPolicy(policy()), no_server_s=11.0)


def test_hopeless_is_a_hundred_failures_without_a_token():
    abort_policy = AbortPolicy(policy())
    check(abort_policy, first_tokens=5, completed=1, failed=90)
    check(abort_policy, first_tokens=6, completed=1, failed=150)  # a token in between
    check(abort_policy, first_tokens=6, completed=1, failed=249)
    with pytest.raises(RunError, match="the last 100 queries failed without a token"):
        check(abort_policy, first_tokens=6, completed=1, failed=250)
    check(AbortPolicy(policy(give_up=False)), failed=10_000)


@pytest.mark.parametrize(("first_failures", "failed"), [(3, 3), (10, 10), (10, 64)])
def test_a_run_whose_first_queries_all_fail_is_given_up(first_failures, failed):
    of_first = policy(first_failures=first_failures)
    abort_policy = AbortPolicy(of_first, lambda: f"timeout {failed} (no end within 1 s)")
    check(abort_policy, failed=first_failures - 1, first_tokens=1)
    with pytest.raises(RunError, match=rf"the first {failed} queries .* timeout {failed} \(no end"):
        check(abort_policy, failed=failed, first_tokens=9)
    check(AbortPolicy(of_first), failed=failed, completed=1, first_tokens=9)
    check(AbortPolicy(policy(first_failures=first_failures, give_up=False)), failed=failed)


def test_progress(clock):
    abort_policy = AbortPolicy(policy(), clock=clock)
    check(abort_policy, issued=8, receptions=4)
    clock.now += 59
    check(abort_policy, issued=9, receptions=5, completed=9)  # bytes have come
    clock.now += 59
    check(abort_policy, issued=10, receptions=5, completed=9)  # a new query is no progress
    clock.now += 2
    with pytest.raises(RunError, match=r"nothing has arrived for 61 s, with 1 query waiting"):
        check(abort_policy, issued=10, receptions=5, completed=9)


class ActivityProbe:
    """Servers that are seen at work whenever they are asked, or never."""

    def __init__(self, clock, at_work):
        self.seen_s, self.asked = clock.now, 0
        self._clock, self._at_work = clock, at_work

    def probe(self):
        self.asked += 1
        if self._at_work:
            self.seen_s = self._clock.now


@pytest.mark.parametrize("at_work", [True, False])
def test_silence_of_servers_at_work_is_no_standstill(clock, at_work):
    activity = ActivityProbe(clock, at_work)
    abort_policy = AbortPolicy(policy(), activity=activity, clock=clock)
    check(abort_policy, issued=8, receptions=4)
    assert activity.asked == 0  # nobody is asked while answers come
    standstill = pytest.raises(RunError, match="61 s and no server was seen to work")
    with nullcontext() if at_work else standstill:
        for _ in range(120):
            clock.now += 1
            check(abort_policy, issued=8, receptions=4)
    assert 5 <= activity.asked <= 21


@pytest.mark.parametrize("clock_back_s", [0.0, 60.0, 3600.0])
def test_only_a_clock_that_was_set_back_makes_a_pause_between_queries_a_standstill(clock, clock_back_s):
    """LoadGen issued nothing for hours, and the campaign waited for it."""
    abort_policy = AbortPolicy(policy(), clock=clock)
    counts = {"issued": 8, "completed": 7, "failed": 1}
    check(abort_policy, clock_back_s=clock_back_s, **counts)
    clock.now += 1000
    set_back = pytest.raises(RunError, match=r"LoadGen has issued nothing for 1000 s .* clock, which was set")
    with set_back if clock_back_s > 60 else nullcontext():
        check(abort_policy, clock_back_s=clock_back_s, **counts)


@pytest.mark.parametrize(("steps_s", "back_s"), [((7200,), 0), ((-7200,), 7200), ((7200, -3600), 3600)])
def test_a_clock_that_was_set_forward_is_not_set_back(watched, monkeypatch, steps_s, back_s):
    """LoadGen waits for nothing then, and ten minutes between two queries are only that."""
    monitor, _, _ = watched()
    said, moved_s = [], 0
    monkeypatch.setattr(monitor._policy, "check", lambda *_, clock_back_s: said.append(clock_back_s))
    ahead_ns = monitoring.realtime_offset_ns()
    for step_s in (0, *steps_s):
        moved_s += step_s
        monkeypatch.setattr(monitoring, "realtime_offset_ns", lambda by=moved_s: ahead_ns + by * 10**9)
        monitor._look(0.0, lambda totals: None)
    assert said == pytest.approx([*[0] * len(steps_s), back_s], abs=1)


def test_clocks_that_are_slewed(watched, monkeypatch):
    """Those of this test may be, by 0.05 %."""
    monitor, _, _ = watched()
    assert abs(monitor.observations().slewed_ns) < 0.1e9
    before_ns = monitoring.slewed_ns()
    monkeypatch.setattr(monitoring, "slewed_ns", lambda: before_ns - 50 * 10**9)
    assert monitor.observations().slewed_ns == pytest.approx(-50e9, abs=0.1e9)


def test_rows_that_a_worker_could_not_write_at_its_end_are_a_reason():
    """It says so when the issuer is done: nobody listens any more, and the rows are missing."""
    pipes = [Pipe() for _ in range(3)]
    # The second worker waits for its disk, and was killed after 2 s without a word.
    issuer, *workers = (
        ChildProcess(Process(code), ours) for (ours, _), code in zip(pipes, (0, 0, None), strict=True)
    )
    monitor = Monitor(Processes(issuer, workers, None, None), None, None, Path("/d"), events=EventLog())
    pipes[1][1].send(("suspect", 0))
    pipes[1][1].send(("journal", "No space left on device; free space there or choose another folder"))
    for _, theirs in pipes:
        theirs.close()
    monitor.end_workers()
    killed, unwritten = monitor.errors
    assert killed.startswith("worker 1 (pid 7) had not ended 15 s after the last query and was killed")
    assert unwritten.startswith("the journal in /d cannot be written: No space left on device; free space")


def monitor_of(table, workers=()):
    processes = Processes(ChildProcess(None, None), workers, SimpleNamespace(table=lambda: table), None)
    return Monitor(processes, None, SimpleNamespace(outages=()), Path("/d"), events=EventLog())


class Process:
    """A child process that ends with ``exitcode``, or has not ended."""

    pid = 7

    def __init__(self, exitcode=None):
        self.exitcode, self.killed = exitcode, False

    def join(self, timeout=None):
        pass

    def is_alive(self):
        return self.exitcode is None

    def kill(self):
        self.exitcode, self.killed = -9, True


@pytest.fixture
def watched(tmp_path):
    """A monitor of one worker and its encoder: (monitor, pipes to these, what it has called)."""

    def make(exitcode=None, **seen):
        pipes, calls = [Pipe() for _ in range(3)], []
        issuer, worker, encoder = (ChildProcess(Process(exitcode), ours, "LoadGen") for ours, _ in pipes)
        board = SimpleNamespace(table=lambda: np.zeros((3, len(Counter)), dtype=np.int64))
        processes = Processes(
            issuer, [worker], board, lambda number: calls.append(("died", number)), [encoder]
        )
        replicas = {"none_left": lambda: "", "all_out_for": lambda: (0.0, ""), "outages": ()}
        replicas["suspected"] = lambda number: calls.append(("suspected", number))
        replicas |= seen
        (tmp_path / JOURNAL_DIR).mkdir(exist_ok=True)
        of_run = {
            name: replicas.pop(name) for name in ("unsynced", "waits_ns", "wall_clock") if name in replicas
        }
        of_run["events"] = EventLog()
        monitor = Monitor(processes, AbortPolicy(policy()), SimpleNamespace(**replicas), tmp_path, **of_run)
        return monitor, [theirs for _, theirs in pipes], calls

    return make


@pytest.mark.parametrize(
    ("said", "exitcode", "goes_on", "calls", "error"),
    [
        (("suspect", 3), None, True, [("suspected", 3)], ""),
        (("error", "worker 0: no room"), None, False, [("died", 0)], "worker 0: no room"),
        (None, 0, False, [("died", 0)], ""),  # the issuer has closed its channel
        (None, -9, False, [("died", 0)], "worker 0 (pid 7) was killed by SIGKILL"),
    ],
)
def test_what_a_worker_reports_and_how_it_ends(watched, said, exitcode, goes_on, calls, error):
    monitor, (_, worker, _), called = watched(exitcode)
    worker.send(said) if said else worker.close()
    assert monitor._receive_from_worker(0, monitor._workers[0].control) is goes_on
    assert called == calls
    (found,) = monitor.errors or ("",)
    assert found.startswith(error) and bool(found) is bool(error)


@pytest.mark.parametrize(
    ("said", "exitcode", "reason", "words"),
    [
        (("journal", "disk full"), None, None, r"the journal in .* cannot be written: disk full$"),
        (("encoder", "has ended"), -9, None, r"encoder 0 \(pid 7\) was killed by SIGKILL.*: its worker's"),
        (("encoder", "does not move"), None, None, r"encoder 0 \(pid 7\) does not move: its worker's"),
        (("encoder", "has ended"), 1, "no memory", r"encoder 0 \(pid 7\) no memory: its worker's"),
    ],
)
def test_what_ends_a_run_at_a_worker_s_word(watched, said, exitcode, reason, words):
    monitor, (_, worker, encoder), _ = watched(exitcode)
    worker.send(said)
    if reason:
        encoder.send(("error", reason))
    with pytest.raises(RunError, match=f"^ended early: {words}"):
        monitor._receive_from_worker(0, monitor._workers[0].control)


@pytest.mark.parametrize("unwritten", ["", "calls.bin could not be written"])
def test_the_issuer_s_end(watched, unwritten):
    monitor, pipes, _ = watched()
    pipes[0].send(("done", ([(5, 6)], unwritten)))
    assert monitor.watch(lambda totals: None) == [(5, 6)]
    assert monitor.errors == ((unwritten,) if unwritten else ())
    pipes[0].send(("error", "RuntimeError: x"))
    with pytest.raises(RunError, match=r"^LoadGen: RuntimeError: x$"):
        monitor.watch(lambda totals: None)


@pytest.mark.parametrize("late", ["", "worker", "issuer"])
def test_what_has_not_moved_for_15_s(watched, monkeypatch, late):
    monkeypatch.setattr(time, "monotonic_ns", lambda: 1000 * 10**9)
    monitor, pipes, _ = watched()
    beats = {name: (1001 if name == late else 1002) * 10**9 for name in ("issuer", "worker")}
    monkeypatch.setattr(time, "monotonic_ns", lambda: int(1016.5 * 1e9))
    ends = pytest.raises(RunError, match="LoadGen has not moved for 16 s")
    with ends if late == "issuer" else nullcontext():
        monitor._check_heartbeats(np.array(list(beats.values())))
    process = monitor._workers[0].process
    assert process.killed is (late == "worker")
    if process.killed:
        process.exitcode = None  # it waits in the kernel, as for a disk that hangs
        monitor._check_heartbeats(np.array(list(beats.values())))
    process.kill()
    pipes[1].close()  # its end is no second error
    assert not monitor._receive_from_worker(0, monitor._workers[0].control)
    (error,) = monitor.errors
    how = "had not moved for 16 s and was killed" if late == "worker" else "was killed by SIGKILL"
    assert error.startswith(f"worker 0 (pid 7) {how}")


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        ({"unsynced": lambda: "disk full"}, "the journal in .* cannot be written: disk full"),
        ({"none_left": lambda: "every server has changed"}, "every server has changed"),
        ({"all_out_for": lambda: (11.0, "refused")}, "no server has answered for 11 s: refused"),
        ({}, "was removed or replaced during the run"),
    ],
)
def test_what_ends_a_run_at_a_look(watched, tmp_path, monkeypatch, seen, words):
    monkeypatch.setattr(monitoring, "cpu_ns", lambda pid: 4)
    monkeypatch.setattr(monitoring, "machine_row", lambda pids: [9, *pids])
    monitor, _, _ = watched(**seen)
    looks = []
    if not seen:
        monitor._look(0.0, looks.append)
        (tmp_path / JOURNAL_DIR).rmdir()
    with pytest.raises(RunError, match=words):
        monitor._look(0.0, looks.append)
    found = monitor.observations().client
    assert found.cpu[:, 1:].tolist() == [[0, 0, 4]] * len(looks)  # issuer, worker, encoder
    assert found.machine.tolist() == [[9, 7, 7, 7]] * len(looks)
    assert found.encoders == 1


def test_an_issuing_process_that_gives_no_answer_is_named():
    """It is not waited for without end."""
    ours, theirs = Pipe()
    with theirs, pytest.raises(RunError, match=r"^LoadGen gave no answer within 0\.1 s$"):
        receive_from_issuer(ChildProcess(None, ours, "LoadGen"), 0.1)


SLOW = "the disk of /d took 3 s for a part of the journal"


@pytest.mark.parametrize(("flush_s", "named"), [(2.9, ()), (3, (SLOW,))])
def test_a_slow_disk_is_a_warning(flush_s, named):
    table = np.zeros((2, len(Counter)), dtype=np.int64)
    table[1, Counter.LONGEST_FLUSH_NS] = flush_s * 1e9
    found = monitor_of(table).observations().warnings
    assert tuple(warning.partition(":")[0] for warning in found) == named


def test_what_the_client_lacked_is_observed(monkeypatch):
    """The longest delay of a process, the garbage collections of all, and the part of a quota's periods."""
    monkeypatch.setattr(monitoring, "throttled_part", lambda before: 0.25)
    table = np.zeros((3, len(Counter)), dtype=np.int64)
    table[:, Counter.LOOP_LAG_NS], table[:, Counter.GC_RUNS] = (5, 9, 7), (0, 2, 3)
    found = monitor_of(table).observations().client
    assert (found.loop_lag_ns, found.gc_runs, found.throttled) == (9, 5, 0.25)


def test_while_the_disk_stands_no_process_is_stuck(watched, caplog, monkeypatch):
    """LoadGen's process writes its logs at the end, and waits for the same disk."""
    monkeypatch.setattr(monitoring, "cpu_ns", lambda pid: 4)
    monkeypatch.setattr(monitoring, "machine_row", lambda pids: [9, *pids])
    waits_s = iter((0, 0, 4, 40, 0))
    monitor, _, _ = watched(waits_ns=lambda: next(waits_s) * 10**9)
    later_ns = monitor._began_ns + int(20e9)
    monkeypatch.setattr(time, "monotonic_ns", lambda: later_ns)  # nothing has moved since
    table = np.zeros((3, len(Counter)), dtype=np.int64)
    monitor._board.table = lambda: table
    for worker_s in (4, 5, 5, 5):
        table[1, Counter.LONGEST_FLUSH_NS] = worker_s * 1e9
        monitor._look(0.0, lambda totals: None)
    assert caplog.messages == [f"warning: {monitor._slow_disk(seconds * 10**9)}" for seconds in (4, 40)]
    with pytest.raises(RunError, match="LoadGen has not moved for 20 s"):
        monitor._look(0.0, lambda totals: None)


def test_a_step_of_the_wall_clock_delays_nothing_but_loadgen(watched, caplog, monkeypatch):
    """A ladder, rows and passes are timed by a clock that is never set."""
    monkeypatch.setattr(monitoring, "cpu_ns", lambda pid: 4)
    monkeypatch.setattr(monitoring, "machine_row", lambda pids: [9, *pids])
    monitor, _, _ = watched(wall_clock=False)
    table = np.zeros((3, len(Counter)), dtype=np.int64)
    table[1, Counter.CLOCK_STEPS_NS] = 7200 * 10**9
    monitor._board.table = lambda: table
    given = []
    monkeypatch.setattr(monitor._policy, "check", lambda *_, clock_back_s: given.append(clock_back_s))
    monitor._ahead_ns += 7200 * 10**9
    monitor._look(0.0, lambda totals: None)
    (said,) = caplog.messages
    assert "by 7200000 ms in all" in said and "LoadGen" not in said
    assert given == [0.0]


def test_a_step_of_the_wall_clock_is_said_at_once(watched, caplog, monkeypatch):
    """LoadGen waits for as long as the clock was set back, and nothing said why."""
    monkeypatch.setattr(monitoring, "cpu_ns", lambda pid: 4)
    monkeypatch.setattr(monitoring, "machine_row", lambda pids: [9, *pids])
    monitor, _, _ = watched()
    table = np.zeros((3, len(Counter)), dtype=np.int64)
    monitor._board.table = lambda: table
    said, seen = [], []
    for steps_s in (0, 0.2, 7200.2, 7200.2):
        table[1, Counter.CLOCK_STEPS_NS] = int(steps_s * 1e9)
        monitor._look(0.0, lambda totals: seen.append(len(monitor._events.events)))
        said.append(len(caplog.messages))
    assert said == seen == [0, 0, 1, 1]  # before the queries are seen that are late by it
    assert caplog.messages[0].removeprefix("warning: ") == monitor.observations().warnings[0]
    assert "by 7200200 ms in all" in caplog.messages[0]
    (event,) = monitor._events.events
    assert (event.kind, event.text) == ("clock_set", monitor.observations().warnings[0])
    table[:, Counter.LOOP_LAG_NS], table[:, Counter.GC_RUNS] = (5, 7, 6), (1, 0, 2)
    found = monitor.observations()
    assert found.clock_steps_ns == 7200_200_000_000
    assert (found.client.loop_lag_ns, found.client.gc_runs) == (7, 3)


def test_first_tokens_that_loadgen_gets_late_are_said_at_once(watched, caplog, monkeypatch):
    """A night's run had its warning of a client without CPU time in the morning."""
    monkeypatch.setattr(monitoring, "cpu_ns", lambda pid: 4)
    monkeypatch.setattr(monitoring, "machine_row", lambda pids: [9, 0, 0, 0])
    monitor, _, _ = watched()
    table = np.zeros((3, len(Counter)), dtype=np.int64)
    monitor._board.table = lambda: table

    def said(looks, late):
        """The warnings of this many looks, with ``late`` of 20 first tokens in each."""
        before = len(caplog.messages)
        for _ in range(looks):
            table[1, Counter.FIRST_TOKENS] += 20
            table[0, Counter.LATE_FIRST_TOKENS] += late
            monitor._look(0.0, lambda totals: None)
        return len(caplog.messages) - before

    assert (said(31, 0), said(3, 20), said(27, 1)) == (0, 0, 1)  # three seconds are a tenth of half a minute
    assert said(60, 20) == said(60, 1) == said(60, 20) == 0  # once
    assert (said(31, 0), said(10, 20)) == (0, 1)  # it was in time, and is late again
    assert "reported 13% of the first tokens" in caplog.messages[-1]
    said(31, 0)
    monitor._look(20.0, lambda totals: None)
    assert "suspended for 20.0 s" in caplog.messages[-1]
    assert said(4, 20) == said(40, 1) == 0  # by that


def test_a_defect_of_the_alarm_of_late_tokens_does_not_end_the_run(watched, monkeypatch):
    monkeypatch.setattr(monitoring, "cpu_ns", lambda pid: 4)
    monkeypatch.setattr(monitoring, "machine_row", lambda pids: [9, 0, 0, 0])
    monkeypatch.setattr(monitoring, "late_tokens_text", lambda *_, **__: 1 / 0)
    monitor, _, _ = watched()
    table = np.zeros((3, len(Counter)), dtype=np.int64)
    monitor._board.table = lambda: table
    looks = []
    for _ in range(33):
        table[0, Counter.LATE_FIRST_TOKENS] += 1
        monitor._look(0.0, looks.append)
    assert len(looks) == 33
    (said,) = monitor.observations().warnings
    assert "ZeroDivisionError" in said and "no alarm of first tokens" in said


def test_what_several_workers_say_of_an_address_is_one_warning(caplog):
    pipes = [Pipe() for _ in range(2)]
    workers = [ChildProcess(None, ours) for ours, _ in pipes]
    monitor = monitor_of(np.zeros((2, len(Counter)), dtype=np.int64), workers)
    for number, (ours, theirs) in enumerate(pipes):
        theirs.send(("address", "10.0.0.2 does not answer"))
        assert monitor._receive_from_worker(number, ours)
    found = monitor.observations()
    assert (found.warnings, found.errors, len(caplog.messages)) == (("10.0.0.2 does not answer",), (), 1)


def test_a_pause_is_told_at_once_and_before_what_is_late_by_it(tmp_path, caplog, monkeypatch):
    (tmp_path / JOURNAL_DIR).mkdir()
    monkeypatch.setattr(time, "monotonic_ns", lambda: 1035 * 10**9)
    events, seen = EventLog(), []
    board = SimpleNamespace(table=lambda: np.zeros((1, len(Counter)), dtype=np.int64))
    replicas = SimpleNamespace(none_left=lambda: "", all_out_for=lambda: (0.0, ""))
    issuer = ChildProcess(SimpleNamespace(pid=None), None)
    processes = Processes(issuer, (), board, lambda worker: None)
    monitor = Monitor(processes, AbortPolicy(policy()), replicas, tmp_path, events=events)
    for late_s in (0.1, 33.0):
        monitor._look(late_s, lambda totals: seen.append(events.events))
    said = "this process or the machine was suspended for 33.0 s"
    (event,) = events.events
    assert (event.kind, event.time_ns, event.server, event.text) == ("suspended", 1002 * 10**9, "", said)
    assert seen == [(), (event,)]
    assert caplog.messages == [f"warning: {said}; latencies measured during that time include the pause"]
