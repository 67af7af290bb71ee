"""What hostile code tries, on every tier that this machine can have; it costs only its own verdict."""

import ctypes
import errno
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from harness.errors import GradingError
from harness.files import ROOT
from harness.grading.livecodebench.compare import same_value
from harness.grading.livecodebench.release import Example
from harness.grading.livecodebench.run_solution import RunLimits, run_solution
from harness.grading.sandbox import tier_probe, tiers
from harness.grading.sandbox.jail import protocol
from harness.grading.sandbox.sandbox_process import SandboxLostError, SandboxProcess
from harness.grading.sandbox.tiers import Tier, candidates, sandbox
from harness.grading.scoring.grade import Reason
from tests.harness.grading.sandbox.tiers import TIERS, attempt, obstacle, process_in
from tests.kit import PATIENCE_S, wait_until

FREE = "REACHED"


BWRAP = "bwrap --ro-bind / / --proc /proc --dev /dev --unshare-all true"
LANDLOCK_VERSION = 444, None, 0, 1  # landlock_create_ruleset(2) with LANDLOCK_CREATE_RULESET_VERSION


@pytest.mark.parametrize("tier", TIERS)
def test_a_tier_is_there_where_the_machine_has_what_it_needs(tier: Tier):
    """All tests of a tier are skipped where it is not, also where it is the tier that is broken."""
    if tier is Tier.LANDLOCK:
        has = ctypes.CDLL(None).syscall(*LANDLOCK_VERSION) > 0
    else:
        has = bool(shutil.which("bwrap")) and not subprocess.run(BWRAP.split(), check=False).returncode
    assert not has or obstacle(tier) == ""


@pytest.fixture(scope="module", params=TIERS)
def warden(request: pytest.FixtureRequest) -> Iterator[SandboxProcess]:
    with process_in(request.param) as made:
        yield made


@pytest.fixture
def process(warden: SandboxProcess) -> Iterator[SandboxProcess]:
    """After every attack the next solution gets its verdict, and nothing runs on."""
    yield warden
    report = attempt(warden, "print(int(input()) + 1)", "41\n")
    assert (report.status, report.output) == ("ok", b"42\n")


@pytest.fixture(scope="module")
def bare() -> Iterator[SandboxProcess]:
    with SandboxProcess(sandbox(Tier.UNSANDBOXED)) as made:
        yield made


# Each prints REACHED where it succeeded. {secret}: a file that only the grader may read; {target}: a folder
# outside; {port}: a listening server; {grader}: the pid of this process.
REACHING = {
    "network": "import socket; socket.create_connection(('127.0.0.1', {port}), 2)",
    "network by raw syscall": "import ctypes; assert ctypes.CDLL(None).syscall(41, 2, 1, 0) >= 0",
    "abstract unix socket": "import socket; socket.socket(socket.AF_UNIX)",
    "shadow": "open('/etc/shadow').read()",
    "home": "open({secret!r}).read()",
    "home by handle of the root": "import os; os.open('etc/shadow', 0, dir_fd=os.open('/', os.O_PATH))",
    "write outside": "open({target!r} + '/escaped', 'w').write('x')",
    "write to the grader": "import harness; open('{root}/harness/__init__.py', 'a')",
    "write by truncating": "import os; os.open({secret!r}, os.O_RDONLY | os.O_TRUNC)",
    "write to /dev/shm": "open('/dev/shm/escaped', 'w').write('x' * 10)",
    "write to /sys or /proc": "open('/proc/sys/kernel/hostname', 'w').write('x')",
    "change modes": "import os; os.chmod({target!r}, 0)",
    "change times": "import os; os.utime({target!r}, (1, 1))",
    "fork": "import os; os.fork() or os._exit(0)",
    "fork by libc": "import ctypes, os; pid = ctypes.CDLL(None).fork(); assert pid >= 0; pid or os._exit(0)",
    "clone3": "import ctypes; assert ctypes.CDLL(None).syscall(435, None, 0) >= 0",
    "subprocess": "import subprocess; subprocess.run(['/bin/true'], check=True)",
    "exec": "import os; os.execv('/bin/echo', ['echo', 'REACHED'])",
    "multiprocessing": "import multiprocessing as m; m.get_context('fork').Process(target=print).start()",
    "kill the grader": "import os; os.kill({grader}, 9)",
    "kill the warden": "import os; os.kill(os.getppid(), 9)",
    "kill everything": "import os; os.kill(-1, 9)",
    "kill by thread id": "import ctypes; assert not ctypes.CDLL(None).syscall(200, {grader}, 9)",
    "kill by pidfd": "import os, signal; signal.pidfd_send_signal(os.pidfd_open({grader}), 9)",
    "ptrace the grader": "import ctypes; assert not ctypes.CDLL(None).ptrace(16, {grader}, 0, 0)",
    "ptrace the warden": "import ctypes, os; assert not ctypes.CDLL(None).ptrace(16, os.getppid(), 0, 0)",
    "memory of the grader": "open('/proc/{grader}/mem', 'rb')",
    "environment of the grader": "open('/proc/{grader}/environ', 'rb').read()",
    "memory of the warden": "import os; open(f'/proc/{{os.getppid() or 1}}/mem', 'rb')",
    "memory of pid 1": "open('/proc/1/mem', 'r+b')",
    "files of the warden": "import os; os.listdir(f'/proc/{{os.getppid() or 1}}/fd')",
    "root of pid 1": "import os; open('/proc/1/root/etc/shadow')",
    "root through /proc/self": "open('/proc/self/root/etc/shadow')",
    "cwd of the warden": "import os; os.listdir(f'/proc/{{os.getppid() or 1}}/cwd/')",
    "symlink": "import os; os.symlink('/etc/shadow', '/tmp/link'); open('/tmp/link')",
    "hard link": "import os; os.link({secret!r}, '/tmp/link')",
    "user namespace": "import ctypes; assert not ctypes.CDLL(None).unshare(0x10000000)",
    "mount": "import ctypes; assert not ctypes.CDLL(None).mount(b'none', b'/tmp', b'tmpfs', 0, None)",
    "become root": "import os; os.setuid(0) if os.getuid() else 1 / 0",
    "raise a limit": "import resource; resource.setrlimit(resource.RLIMIT_AS, (1 << 40, 1 << 40))",
    "outlive the warden": "import ctypes; assert not ctypes.CDLL(None).prctl(1, 0, 0, 0, 0)",
    "hidden memory": "import os; os.memfd_create('x')",
    "shared memory": "import ctypes; assert ctypes.CDLL(None).shmget(0, 4096, 0o1600) >= 0",
    "find the grader's code": "import harness.grading.livecodebench.compare",
}  # fmt: skip


@contextmanager
def attack(text: str, target: Path) -> Iterator[tuple[str, Path, socket.socket]]:
    """The program, a secret of this user, and the server."""
    home = Path.home() if os.access(Path.home(), os.W_OK) else Path(tempfile.gettempdir())
    secret = home / f".secret-{secrets.token_hex(4)}"
    secret.write_text("the user's secret")
    secret.chmod(0o600)
    with socket.create_server(("127.0.0.1", 0)) as server:
        facts = {"port": server.getsockname()[1], "grader": os.getpid(), "secret": str(secret)}
        facts |= {"target": str(target), "root": str(Path(__file__).parents[4])}
        tried = f"try:\n    {text.format(**facts)}\n    print({FREE!r})\n"
        try:
            yield f"{tried}except BaseException as e:\n    print('refused', repr(e))\n", secret, server
        finally:
            secret.unlink()


@pytest.mark.parametrize("name", REACHING)
def test_nothing_is_reached(name: str, process: SandboxProcess, tmp_path: Path):
    before = (tmp_path.stat().st_mode, tmp_path.stat().st_mtime_ns)
    with attack(REACHING[name], tmp_path) as (code, secret, server):
        report = attempt(process, code)
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()
        assert secret.read_text() == "the user's secret"
    assert FREE.encode() not in report.output
    assert report.output.startswith(b"refused") or report.status != protocol.OK
    assert (tmp_path.stat().st_mode, tmp_path.stat().st_mtime_ns) == before
    assert not Path("/dev/shm/escaped").exists()


@pytest.mark.engine
@pytest.mark.parametrize("name", ["network", "home", "write outside", "change times", "fork", "subprocess",
                                  "hidden memory", "environment of the grader"])  # fmt: skip
def test_the_same_attacks_succeed_without_a_sandbox(name: str, bare: SandboxProcess, tmp_path: Path):
    with attack(REACHING[name], tmp_path) as (code, _, _):
        assert attempt(bare, code).output == f"{FREE}\n".encode()


# What each costs: its own verdict, by the limit that it ran into.
EXHAUSTING = {
    "64 GB at once": ("x = bytearray(64 << 30)", {"memory_limit"}),
    "64 GB bit by bit": ("x = []\nwhile True: x.append(bytearray(16 << 20))", {"memory_limit", "timeout"}),
    "64 GB mapped": ("import mmap\nx = [mmap.mmap(-1, 1 << 30) for _ in range(64)]", {"memory_limit"}),
    "10 GB of output": ("import os\nwhile True: os.write(1, b'x' * (1 << 20))", {"output_limit"}),
    "10 GB of errors": ("import os\nwhile True: os.write(2, b'x' * (1 << 20))", {"output_limit"}),
    "10 GB in /tmp": ("for i in range(200): open(f'/tmp/{i}', 'wb').write(b'x' * (50 << 20))",
        {"output_limit", "error"}),
    "threads without end": (
        "import threading, time\nthreading.stack_size(1 << 16)\n"
        "while True: threading.Thread(target=time.sleep, args=(9,)).start()",
        {"thread_limit", "memory_limit", "timeout"}),
    "open files without end": ("x = [open('/dev/null') for _ in range(10_000)]", {"file_limit"}),
    "endless loop": ("while True: pass", {"timeout"}),
    "alarm switched off": (
        "import signal\nsignal.alarm(0)\nfor s in (14, 15, 24): signal.signal(s, signal.SIG_IGN)\n"
        "while True: pass",
        {"timeout"}),
    "exceptions swallowed": ("while 1:\n try:\n  while 1: pass\n except BaseException: pass", {"timeout"}),
    "sleep": ("import time\ntime.sleep(1000)", {"timeout"}),
    "deadlock": ("import threading\nl = threading.Lock(); l.acquire(); l.acquire()", {"timeout"}),
    "thread that never ends": (
        "import threading\nthreading.Thread(target=threading.Event().wait).start()", {"timeout"}),
    "crash": ("import ctypes\nctypes.string_at(0)", {"killed"}),
    "abort": ("import os\nos.abort()", {"killed"}),
    "real-time signal": ("import os\nos.kill(os.getpid(), 50)", {"killed"}),
    "deep recursion": ("def f(): f()\nf()", {"error"}),
    "deep source": ("x = " + "(" * 5000 + ")" * 5000, {"error", "killed"}),
    "null bytes": ("print(1)\0", {"error"}),
}  # fmt: skip


@pytest.mark.parametrize("name", EXHAUSTING)
def test_exhausting_costs_only_the_own_verdict(name: str, process: SandboxProcess):
    code, statuses = EXHAUSTING[name]
    report = attempt(process, code, limit_s=0.1 if "timeout" in statuses else 20.0)
    assert report.status in statuses | {"starved"}  # by twice the limit of its time, on a busy machine
    assert report.output == b""


UNPRINTABLE = """
import sys
class Broken:
    def write(self, text): raise SystemError
class Unprintable(MemoryError):
    def __str__(self): raise SystemError
sys.stderr = Broken()
raise Unprintable
"""


@pytest.mark.parametrize("mode", ["strict", "official"])
def test_a_limit_whose_exception_cannot_be_printed(mode: str, process: SandboxProcess):
    """Python 3.13.0 raises SystemError at times where no thread can be started."""
    assert attempt(process, UNPRINTABLE, mode=mode).status == "memory_limit"


OFFICIAL_EXHAUSTING = ("64 GB at once", "endless loop", "alarm switched off", "sleep", "crash", "deep source")


@pytest.mark.parametrize("name", OFFICIAL_EXHAUSTING)
def test_exhausting_in_the_official_process(name: str, process: SandboxProcess):
    assert attempt(process, EXHAUSTING[name][0], mode="official", limit_s=0.1).status != protocol.OK


def test_a_hang_at_import_does_not_block_a_long_input(process: SandboxProcess):
    code = "class Solution:\n    while True: pass"
    report = attempt(process, code, "9" * (1 << 20), function="f", mode="official", limit_s=0.1)
    assert report.status in ("timeout", "starved")


def test_the_expected_output_is_nowhere_in_the_process(process: SandboxProcess):
    expected = f"EXPECTED{secrets.token_hex(16)}"
    code = """
import re, sys
text = sys.stdin.read()
found = set()
for line in open('/proc/self/maps'):
    if ' r' in line and '[v' not in line:
        start, end = (int(part, 16) for part in line.split()[0].split('-'))
        memory = open('/proc/self/mem', 'rb', 0)
        memory.seek(start)
        try:
            found |= set(re.findall(b'EXPE' + b'CTED([0-9a-f]{32})', memory.read(end - start)))
        except (OSError, OverflowError, ValueError):
            pass
print('EXPE' + 'CTED' + found.pop().decode() if found else 'nothing')
"""
    job = protocol.Job("strict", "", code)
    assert run_solution(process, job, [Example("x", expected)], RunLimits(20.0)).reason is Reason.WRONG
    # The same search finds what is there: the input.
    assert (
        attempt(process, code, "EXPECTED" + "0" * 32, limit_s=20.0).output.strip() == b"EXPECTED" + b"0" * 32
    )


FORGERIES = {
    "equal to everything": "class E(list):\n    def __eq__(s, o): return True\n    __hash__ = None",
    "equal int": "class E(int):\n    def __eq__(s, o): return True\n    def __index__(s): return 42",
    "iterates differently": "class E(list):\n    def __iter__(s): return iter([42])",
    "prints as the answer": "class E(str):\n    def __repr__(s): return '42'\n    __str__ = __repr__",
    "no known type": "class E:\n def __eq__(s, o): return True\n def as_integer_ratio(s): return (42, 1)",
}


@pytest.mark.parametrize("mode", ["official", "strict"])
@pytest.mark.parametrize("name", FORGERIES)
def test_values_cannot_claim_to_be_equal(name: str, mode: str, process: SandboxProcess):
    code = FORGERIES[name] + "\nclass Solution:\n    def f(self, x): return E()\n"
    report = attempt(process, code, "1", function="f", mode=mode)
    assert report.status == protocol.OK
    for expected in ("42", "[42]", '"42"', "[1, 2]"):
        assert not same_value(report.output, expected)


@pytest.mark.parametrize("mode", ["official", "strict"])
def test_patching_the_runner_forges_nothing(mode: str, process: SandboxProcess):
    code = """
import sys, gc
for module in list(sys.modules.values()):
    for name in ("same_printout", "same_value", "encode", "write_all", "_store", "send_result"):
        if hasattr(module, name): setattr(module, name, lambda *a: b"true")
class Solution:
    def f(self, x): return "anything"
"""
    outcome = run_solution(process, protocol.Job(mode, "f", code), [Example("1", "42")], RunLimits(0.5))
    assert not outcome.passed


def test_writing_to_the_runners_descriptors_forges_nothing(process: SandboxProcess):
    code = "import os\nfor fd in range(3, 64):\n try: os.write(fd, b'42\\n')\n except OSError: pass\nprint(0)"
    outcome = run_solution(process, protocol.Job("strict", "", code), [Example("", "42")], RunLimits(5.0))
    assert outcome.reason is Reason.WRONG


def test_nothing_is_left_for_the_next_solution(process: SandboxProcess):
    note = f"/tmp/{secrets.token_hex(6)}"  # with Landlock alone, names of this machine's /tmp are seen
    attempt(process, f"open({note!r}, 'w').write('x')")
    assert attempt(process, f"import os\nprint(os.path.exists({note!r}))").output == b"False\n"


@pytest.mark.engine
def test_no_process_outlives_its_session(process: SandboxProcess):
    marker = f"m{secrets.token_hex(6)}"
    code = f"""
import ctypes, time
ctypes.CDLL(None).prctl(15, b"{marker}", 0, 0, 0)
time.sleep({2 * PATIENCE_S})  # it does not end by itself while the test waits
"""
    with ThreadPoolExecutor(1) as executor:
        process.stop()  # a warden dies with the thread that started it: let that be the executor's
        test_run = executor.submit(attempt, process, code, limit_s=60.0)
        wait_until(lambda: _named(marker) or test_run.done())
        assert not test_run.done()
        process._process.kill()  # as when the grader dies: nobody cleans up
        assert isinstance(test_run.exception(), SandboxLostError)
    wait_until(lambda: not _named(marker))


GRADER = """
import sys
from tests.harness.grading.sandbox.tiers import Tier, attempt, process_in
process = process_in(Tier(sys.argv[1]))
attempt(process, "print(1)")
print("started", flush=True)
input()
"""


@pytest.mark.parametrize("tier", TIERS)
def test_a_warden_that_stands_still_dies_with_its_grader(tier: Tier):
    """It cannot read that its pipe is closed, nor end what it has started."""
    if obstacle(tier):
        pytest.skip(f"{tier}: {obstacle(tier)}")
    words = [sys.executable, "-c", GRADER, tier]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT) as grader:
        assert grader.stdout is not None and grader.stdout.readline() == b"started\n"
        started = psutil.Process(grader.pid).children(recursive=True)
        for one in started:
            one.suspend()
        grader.kill()
    try:
        wait_until(lambda: not any(map(_lives, started)))
    finally:
        for one in filter(_lives, started):
            one.kill()


def _lives(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.skipif(os.geteuid() != 0, reason="only root changes its user")
def test_a_solution_is_not_root_where_a_child_can_be_another_user(process: SandboxProcess):
    try:
        seen = subprocess.run(["id", "-u"], user=60_000, stdout=subprocess.PIPE, check=True).stdout
    except OSError as error:
        pytest.skip(f"a container with one user: {error}")
    report = attempt(process, "import os\nprint(os.getuid() or 'root')")
    assert seen != b"60000\n" or report.output != b"root\n"


def _named(marker: str) -> list[psutil.Process]:
    return [found for found in psutil.process_iter(["name"]) if found.info["name"] == marker]


HELD_THREADS = 200  # of the 256 that a program may have: two such programs have more


def test_threads_of_one_sandbox_leave_those_of_another_alone(
    process: SandboxProcess, monkeypatch: pytest.MonkeyPatch
):
    """One holds its threads until it is stopped; the other may have as many beside it."""
    if os.geteuid() != 0 and process.tier is Tier.LANDLOCK:
        pytest.skip("without root and namespaces, all sandboxes are the grader's own user")
    monkeypatch.setattr(tiers, "_tasks_running", lambda: 0)
    marker = f"m{secrets.token_hex(6)}"
    start = f"""
import ctypes, threading
threading.stack_size(1 << 16)
event = threading.Event()
threads = [threading.Thread(target=event.wait, daemon=True) for _ in range({HELD_THREADS})]
for thread in threads: thread.start()
"""
    hold = f'ctypes.CDLL(None).prctl(15, b"{marker}", 0, 0, 0)\nevent.wait()'
    end = "event.set()\nfor thread in threads: thread.join()\nprint(len(threads))"
    with (
        process_in(process.tier) as bomb,
        process_in(process.tier) as other,
        ThreadPoolExecutor(1) as executor,
    ):
        held = executor.submit(attempt, bomb, start + hold, limit_s=600.0)
        wait_until(lambda: _named(marker) or held.done())
        assert not held.done()
        report = attempt(other, start + end, limit_s=20.0)
        bomb.abort()
        assert isinstance(held.exception(), SandboxLostError)
    assert (report.status, report.output) == (protocol.OK, f"{HELD_THREADS}\n".encode())


# Changes of user succeed without effect, as for who is root in a container of root by enroot.
NO_EFFECT = """
import ctypes, os, struct, sys
from harness.grading.sandbox import users
from harness.grading.sandbox.jail.seccomp import _ERRNO, _JUMP_EQ, _LOAD, _RETURN, _ALLOW, _step
x86, arm = (113, 114, 116, 117, 119), (143, 145, 147, 149, 159)  # setreuid to setgroups
steps = [_step(_LOAD, 0)]
for number in x86 if os.uname().machine == "x86_64" else arm:
    steps += [_step(_JUMP_EQ, number, 0, 1), _step(_RETURN, _ERRNO)]
code = b"".join([*steps, _step(_RETURN, _ALLOW)])
held = ctypes.create_string_buffer(code, len(code))
header = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(held))
assert not ctypes.CDLL(None).prctl(22, 2, header, 0, 0)
if sys.argv[1:]:
    users.can_change_user = lambda: True
from harness.grading.sandbox.tier_probe import why_not
from harness.grading.sandbox.tiers import Tier
print(why_not(Tier.BUBBLEWRAP), why_not(Tier.LANDLOCK), sep="|")
"""


@pytest.mark.engine
@pytest.mark.skipif(os.geteuid() != 0, reason="only root changes its user")
@pytest.mark.parametrize(
    ("mistaken", "said"), [([], ["", ""]), (["mistaken"], ["change_of_user refused"] * 2)]
)
def test_root_whose_change_of_user_has_no_effect_is_contained_all_the_same(mistaken: str, said: list[str]):
    """All attacks above were also tried so: one more succeeds, which counts the warden's open files."""
    if reason := tier_probe.why_not(Tier.BUBBLEWRAP) or tier_probe.why_not(Tier.LANDLOCK):
        pytest.skip(reason)
    done = subprocess.run(
        [sys.executable, "-c", NO_EFFECT, *mistaken], capture_output=True, text=True, check=True
    )
    reasons = done.stdout.strip("\n").split("|")
    assert [reason.rpartition("] ")[2].strip("\n") for reason in reasons] == said


@pytest.mark.parametrize("can", [True, False])
def test_who_cannot_change_its_user_has_another_by_a_namespace(can: bool, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tiers, "can_change_user", lambda: can)
    assert ("--uid" in sandbox(Tier.BUBBLEWRAP).command) != can


@pytest.mark.engine
@pytest.mark.parametrize(
    ("bwrap", "remedy"),
    [(None, "; install bubblewrap, or"), ("/usr/bin/bwrap", "; allow bubblewrap its namespaces")],
)
def test_without_any_sandbox_the_evaluator_refuses(
    bwrap: str | None, remedy: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(shutil, "which", lambda _: bwrap)
    reasons = {Tier.UNSANDBOXED: ""} | {tier: f"{tier} is not to be had" for tier in candidates()}
    monkeypatch.setattr(tier_probe, "why_not", reasons.__getitem__)
    with pytest.raises(GradingError) as refused:
        tier_probe.choose_sandbox(allow_unsandboxed=False)
    assert [tier for tier in candidates() if f"{tier} is not to be had" not in str(refused.value)] == []
    assert remedy in str(refused.value)
    assert "--allow-unsandboxed" in str(refused.value)
    assert tier_probe.choose_sandbox(allow_unsandboxed=True).tier is Tier.UNSANDBOXED


@pytest.mark.parametrize(
    ("is_open", "permitted", "is_refused"),
    [(False, 0xA80425FB, True), (False, 0x1FFFFFFFFFF, False), (True, 0xA80425FB, False)],
    ids=["docker's root", "root", "an open folder"],
)
def test_root_that_may_not_read_everything_needs_an_open_interpreter(
    is_open: bool, permitted: int, is_refused: bool, monkeypatch: pytest.MonkeyPatch
):
    """The first is CapPrm of root by docker's default."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(tiers, "_reachable_by_others", lambda _: is_open)
    monkeypatch.setattr(tiers, "_permitted", lambda: permitted)
    assert ("PYTHON=/usr/bin/python3 ./setup.sh" in tiers.unsupported(Tier.LANDLOCK)) == is_refused


def test_an_unknown_number_of_threads_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tiers, "_LOADAVG", tmp_path / "loadavg")
    (tmp_path / "loadavg").write_text("")
    with pytest.raises(GradingError, match="got '', expected the number of threads"):
        tiers.sandbox(Tier.UNSANDBOXED)


@pytest.mark.parametrize(("flag", "least"), [("v", 4194304), ("f", 65536), ("n", 64)])
def test_a_limit_of_the_shell_below_a_programs_is_refused(flag: str, least: int):
    """A batch system's, on memory: programs that took more counted as failed, and a score was too low."""
    choose = "from harness.grading.sandbox.tier_probe import choose_sandbox; choose_sandbox(False)"
    script = f'ulimit -{flag} {least - 1}; exec "$@"'
    words = ["bash", "-c", script, "bash", sys.executable, "-c", choose]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert f"ulimit -H{flag} is {least - 1}, expected at least {least}, which a graded program" in done.stderr


def test_where_no_program_runs_none_is_counted_as_wrong(monkeypatch: pytest.MonkeyPatch):
    """As on Linux before 5.3."""

    def refuse(pid: int) -> int:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(tiers, "process_descriptor", refuse)
    with pytest.raises(GradingError, match=r"Function not implemented \(Linux 5\.3 has it"):
        tier_probe.choose_sandbox(allow_unsandboxed=True)


@pytest.mark.engine
def test_without_a_sandbox_a_program_runs():
    assert tier_probe.why_not(Tier.UNSANDBOXED) == ""
