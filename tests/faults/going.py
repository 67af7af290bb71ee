"""A run of the program that is going on, and what a test may do to its processes."""

import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from tests.faults.matrix import Setting
from tests.kit import wait_until
from tests.runs import FinishedRun, command, processes_of_the_session, small_dataset
from tests.stub import StubServer

HANG_S = 300  # a run that has not ended by then hangs
ROWS, RATE = 80, 40  # two seconds of queries
# When the fault comes, CAUGHT queries are answered and as many as may be in flight wait for their answers.
CAUGHT, IN_FLIGHT = 15, 8
TOKENS = 10
# Limits that a pause or a busy machine does not break, and a percentile that few queries can prove.
OFFLINE_CONF = """
*.Offline.target_qps = 1
*.Offline.min_duration = 0
*.Offline.min_query_count = 1
"""
SERVER_CONF = f"""
*.Server.target_qps = {RATE}
*.Server.target_latency_percentile = 50
*.Server.ttft_latency = 60000
*.Server.tpot_latency = 60000
*.Server.min_duration = 1800
*.Server.min_query_count = 1
"""


@dataclass
class Going:
    """One process group: the supervisor, LoadGen's process, the workers. ``log_dir``: its logs' place now."""

    process: subprocess.Popen[str]
    setting: Setting
    stubs: Sequence[StubServer]
    log_dir: Path
    seen: list[psutil.Process] = field(default_factory=list)
    free: threading.Event = field(default_factory=threading.Event)  # all queries are answered from now on

    @property
    def answered(self) -> int:
        """Queries that the servers have answered, but for the trials."""
        return sum(request.answered for stub in self.stubs for request in stub.requests[1:])

    @property
    def is_caught(self) -> bool:
        """Whether it is in the middle: each worker has queries that wait."""
        sent = sum(len(stub.requests[1:]) for stub in self.stubs)
        return self.answered >= CAUGHT and sent >= self.answered + IN_FLIGHT

    def family(self) -> list[psutil.Process]:
        """All descendants, remembered for the question who is left over."""
        with suppress(psutil.NoSuchProcess):
            self.seen += [
                child
                for child in psutil.Process(self.process.pid).children(recursive=True)
                if child not in self.seen
            ]
        return alive(self.seen)

    def spawned(self) -> list[psutil.Process]:
        return processes_of_the_session(self.family())

    @property
    def loadgen(self) -> psutil.Process:
        return self.spawned()[0]

    @property
    def workers(self) -> list[psutil.Process]:
        return self.spawned()[1:]

    def end(self, seconds: float = HANG_S) -> FinishedRun:
        """Answer the other queries and wait for the program to end; a hang fails the test."""
        self.free.set()
        out, err = self.process.communicate(timeout=seconds)
        return FinishedRun(self.process.returncode, out or "", err or "", self.log_dir)


@dataclass(frozen=True)
class Scene:
    """How a fault comes about: the servers, the flags, what stands before the command, and the deed.

    ``at_once``: the deed is done as soon as the program has begun, and not in the middle of the queries.
    """

    inflict: Callable[[Going], None] = lambda going: None
    stub: Mapping[str, Any] = field(default_factory=dict)
    replicas: int = 1
    url: Callable[[Sequence[StubServer]], str] = lambda stubs: ",".join(stub.url for stub in stubs)
    arguments: tuple[object, ...] = ("--max-concurrency", IN_FLIGHT)
    shell: str = 'exec "$@"'  # how a shell runs the command; $OUT is the output folder
    preexec: Callable[[], None] | None = None
    at_once: bool = False
    keeps_earlier: bool = True


def in_setting(setting: Setting, directory: Path, rate: int = RATE) -> tuple[object, ...]:
    """The flags of a run in a column of the matrix."""
    conf = directory / "faults.conf"
    offline = setting.scenario == "offline"
    conf.write_text(OFFLINE_CONF if offline else SERVER_CONF.replace(f"= {RATE}", f"= {rate}"))
    mode = ["--accuracy"] if setting.accuracy else []
    return "--scenario", setting.scenario, *mode, "--user-conf", conf


@contextmanager
def going(directory: Path, setting: Setting, scene: Scene) -> Iterator[Going]:
    """Start a run over a stub and wait until it is in the middle; leave nothing behind."""
    dataset, _ = small_dataset(directory, rows=ROWS)
    out = directory / "out"
    log_dir = out / setting.scenario / setting.mode
    log_dir.mkdir(parents=True)
    (log_dir / "earlier.txt").write_text("an earlier result")
    free = threading.Event()
    first = -(-CAUGHT // scene.replicas)  # each, and the trial
    knobs = {
        "event_delay_s": 0.02,
        "gate": lambda request: request.index <= first or free.is_set(),
        **scene.stub,
    }
    stubs = [StubServer(**knobs) for _ in range(scene.replicas)]
    for stub in stubs:
        stub.__enter__()
    words = command(
        out,
        *(*in_setting(setting, directory), "--input-file", dataset, "--num-workers", 2),
        *("--server-url", scene.url(stubs), "--max-new-tokens", TOKENS, *scene.arguments),
    )
    process = subprocess.Popen(
        ["sh", "-c", scene.shell, "sh", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OUT": str(out)},
        preexec_fn=scene.preexec,
        start_new_session=True,
    )
    run = Going(process, setting, stubs, log_dir, free=free)
    try:
        wait_until(lambda: scene.at_once or run.is_caught or process.poll() is not None)
        run.family()
        yield run
    finally:
        clear(run)
        for stub in stubs:
            stub.stop()


def clear(run: Going) -> None:
    """End all that the run has started."""
    for survivor in run.family():
        with suppress(psutil.NoSuchProcess):
            survivor.kill()
    with suppress(ProcessLookupError):
        os.killpg(run.process.pid, signal.SIGKILL)
    run.process.wait()
    for stream in (run.process.stdout, run.process.stderr):
        if stream is not None:
            stream.close()


def alive(processes: Sequence[psutil.Process]) -> list[psutil.Process]:
    """Those that still run: neither gone nor waiting to be buried."""
    found = []
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def verdict(log_dir: Path) -> str:
    """The result in run.json, "" where there is none."""
    path = log_dir / "run.json"
    found = json.loads(path.read_text())["verdict"] if path.exists() else None
    return found["result"] if found else ""
