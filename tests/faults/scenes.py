"""What is done to a run for each row of the matrix, by its key."""

import os
import resource
import shutil
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import psutil

from tests.faults.going import IN_FLIGHT, Going, Scene
from tests.kit import wait_until
from tests.stub import Facts, Fault, StubServer

_TMPFS = 'exec unshare -rm sh -c \'mount -t tmpfs -o size={size} none "$OUT" && exec "$@"\' sh "$@"'
_PAUSE_S = 4.5  # 3 s and the second in which the supervisor would have looked anyway


def _signal_group(*signals: signal.Signals) -> Callable[[Going], None]:
    """As a terminal does: the whole process group gets it."""

    def inflict(run: Going) -> None:
        for signum in signals:
            os.killpg(run.process.pid, signum)
            time.sleep(0.1)

    return inflict


def _pause(run: Going) -> None:
    """Ctrl-Z and fg; SIGTSTP itself means nothing to a process group without a shell."""
    os.killpg(run.process.pid, signal.SIGSTOP)
    time.sleep(_PAUSE_S)
    os.killpg(run.process.pid, signal.SIGCONT)


def _kill_loadgen_early(run: Going) -> None:
    """As soon as the plan is written: the workers are not started yet."""
    record = run.log_dir / "run.json"
    wait_until(lambda: (record.exists() and run.spawned()) or run.process.poll() is not None)
    run.loadgen.kill()


def _limit_workers(what: int, limit: int) -> Callable[[Going], None]:
    def inflict(run: Going) -> None:
        for worker in run.workers:
            worker.rlimit(what, (limit, limit))

    return inflict


def _limit_workers_memory(run: Going) -> None:
    """Not a page more than they have; the answers to come are of 5 MB.

    What is limited is what they may write: a copy has address space of its parent's threads to spare.
    """
    for worker in run.workers:
        status = Path(f"/proc/{worker.pid}/status").read_text()
        size = int(status.partition("VmData:")[2].split()[0]) << 10
        worker.rlimit(psutil.RLIMIT_DATA, (size, size))


def _fill_disk(run: Going) -> None:
    """The output folder is a small file system of its own; an open descriptor keeps it readable here."""
    inside = Path(f"/proc/{run.process.pid}/root{run.log_dir}")
    run.log_dir = Path(f"/proc/self/fd/{os.open(inside, os.O_RDONLY)}")
    with (run.log_dir / "filler").open("wb", buffering=0) as filler:
        size = 1 << 16
        while size:
            try:
                filler.write(b"x" * size)
            except OSError:
                size //= 2


def _replace_folder(run: Going) -> None:
    """Renamed, and made again before anybody looks."""
    run.log_dir.rename(run.log_dir.with_name("renamed"))
    run.log_dir.mkdir()


_OTHER = Facts(model="openai/gpt-oss-20b", served_name="gpt-oss-20b")


def _restart_server(run: Going, back_after_s: float = 0.4, facts: Facts | None = None) -> None:
    """The first server drops everything and listens again on its port, perhaps with another model."""
    gone = run.stubs[0]
    gone.stop()
    with socket.socket() as kept:  # else the port may be given to a connection meanwhile
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        kept.bind(("127.0.0.1", gone.port))
        time.sleep(back_after_s)
        again = StubServer(port=gone.port, event_delay_s=0.02, facts=facts or Facts())
    again.__enter__()
    run.stubs = [again, *run.stubs[1:]]


def _name_other_weights(run: Going) -> None:
    """As after SGLang's /update_weight_version."""
    stub = run.stubs[0]
    stub.options = replace(stub.options, facts=Facts(weight_version="v2"))


def _huge_from(first: int) -> Callable[[object], Fault | None]:
    return lambda request: Fault.HUGE_EVENT if request.index >= first else None  # type: ignore[attr-defined]


def _limited(what: int, limit: int) -> Callable[[], None]:
    return partial(resource.setrlimit, what, (limit, limit))


SCENES = {
    # the server
    "refused": Scene(url=lambda stubs: "http://127.0.0.1:9", at_once=True),
    "unhealthy": Scene(stub={"healthy": False}),
    "needs_key": Scene(stub={"faults": Fault.HTTP_401}),
    "gateway": Scene(stub={"faults": Fault.HTML}),
    "ids_ignored": Scene(
        stub={"chat_ids": False, "returns_ids": False}, arguments=("--backend", "openai", "--api", "chat-ids")
    ),
    "wrong_model": Scene(stub={"facts": Facts(model="other/model-7b", served_name="model-7b")}),
    "small_context": Scene(stub={"facts": Facts(context_length=20)}),
    "trial_fails": Scene(stub={"faults": [Fault.HTTP_500]}),
    "one_piece": Scene(stub={"faults": Fault.ONE_PIECE}),
    "one_token": Scene(stub={"faults": [None] * 5 + [Fault.ONE_TOKEN] * 5}),
    "server_dies": Scene(lambda run: run.stubs[0].stop()),
    "server_restarts": Scene(_restart_server),
    "replica_restarts": Scene(_restart_server, replicas=4),
    "other_model_restarts": Scene(
        partial(_restart_server, facts=_OTHER),
        # The model ends the run, not the number of queries that the restart costs.
        arguments=("--max-concurrency", IN_FLIGHT, "--max-failures", 70),
    ),
    "other_model_of_replica": Scene(partial(_restart_server, facts=_OTHER), replicas=4),
    "other_weights": Scene(_name_other_weights),
    # processes
    "worker_killed": Scene(lambda run: run.workers[1].kill()),
    "loadgen_killed": Scene(lambda run: run.loadgen.kill()),
    "loadgen_killed_early": Scene(_kill_loadgen_early, at_once=True),
    "worker_stuck": Scene(lambda run: run.workers[1].suspend()),
    "loadgen_stuck": Scene(lambda run: run.loadgen.suspend()),
    "supervisor_killed": Scene(lambda run: run.process.kill()),
    "paused": Scene(_pause),
    # the machine
    "disk_full_at_start": Scene(shell=_TMPFS.format(size="4k"), keeps_earlier=False),
    "disk_without_room": Scene(shell=_TMPFS.format(size="64k"), keeps_earlier=False),
    "disk_full": Scene(_fill_disk, shell=_TMPFS.format(size="2m"), keeps_earlier=False),
    "loadgen_log_cut": Scene(lambda run: run.loadgen.rlimit(psutil.RLIMIT_FSIZE, (4096, 4096))),
    "journal_cut": Scene(_limit_workers(psutil.RLIMIT_FSIZE, 1024)),
    "folder_removed": Scene(lambda run: shutil.rmtree(run.log_dir)),
    "folder_replaced": Scene(_replace_folder),
    "few_descriptors": Scene(preexec=_limited(resource.RLIMIT_NOFILE, 12)),
    "little_memory": Scene(preexec=_limited(resource.RLIMIT_AS, 200_000_000)),
    "too_few_for_flight": Scene(
        preexec=_limited(resource.RLIMIT_NOFILE, 80), arguments=("--max-concurrency", 64)
    ),
    "descriptors_run_out": Scene(
        _limit_workers(psutil.RLIMIT_NOFILE, 4), stub={"close_after_response": True}
    ),
    "memory_runs_out": Scene(_limit_workers_memory, stub={"faults": _huge_from(18)}),
    "stdout_closed": Scene(shell='exec "$@" >&-'),
    "stdout_reader_left": Scene(lambda run: run.process.stdout.close() if run.process.stdout else None),
    "stdout_full": Scene(shell='exec "$@" >/dev/full'),
    "all_streams_closed": Scene(shell='exec "$@" <&- >&- 2>&-'),
    "terminal_gone": Scene(_signal_group(signal.SIGHUP)),
    "nohup": Scene(_signal_group(signal.SIGHUP), shell='exec nohup "$@"'),
    "ctrl_c": Scene(_signal_group(signal.SIGINT)),
    "ctrl_c_twice": Scene(_signal_group(signal.SIGINT, signal.SIGINT)),
    "sigterm": Scene(_signal_group(signal.SIGTERM)),
}
