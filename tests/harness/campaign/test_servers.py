"""The servers' command: its end is noticed, its log is bounded, and nothing of it stays."""

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from harness.campaign import guard
from harness.campaign.campaign_file import Servers
from harness.campaign.servers import ServerCommand, first_to_end
from harness.errors import ServerError
from tests.kit import PATIENCE_S, wait_until
from tests.runs import ROOT
from tests.stub import StubServer


@pytest.fixture
def servers(tmp_path):
    """Starts a command as a campaign does."""
    (tmp_path / "campaign").mkdir()
    command = ServerCommand(tmp_path / "campaign", tmp_path, grace_s=1)

    def started(text, url=("http://127.0.0.1:9",)):
        command.use(Servers(command=text, url=url))
        return command

    yield started
    command.stop()
    assert not guard.processes(str(command.folder))


# Its second part writes over its environment, as a program does that sets its name with setproctitle.
SERVER = """
import ctypes, os, pathlib, time
if os.fork():
    time.sleep(1000)
fields = pathlib.Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
start, end = map(int, fields[47:49])
ctypes.memset(start, 0, end - start)
pathlib.Path("part.new").write_text(str(os.getpid()))
os.rename("part.new", "part")
time.sleep(1000)
"""


@pytest.fixture
def server(servers, tmp_path):
    """A campaign's command, and the number of its process that has no mark."""
    (tmp_path / "server.py").write_text(SERVER)
    command = servers(f"exec {sys.executable} server.py")
    wait_until((tmp_path / "part").exists)
    part = int((tmp_path / "part").read_text())
    assert guard.MARK.encode() not in Path(f"/proc/{part}/environ").read_bytes()
    assert part in guard.processes(str(command.folder))
    return command, part


def ended(command):
    assert first_to_end([command.process]) is command.process
    return command.obituary(), command.last_lines()


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("echo hello; echo no memory >&2; exit 7", "ended with exit code 7 after"),
        ("exit 0", "(it has to stay as long as its servers"),
        ("kill -9 $$", "was killed by SIGKILL"),
    ],
)
def test_an_end_is_told_with_the_last_lines(servers, text, code):
    obituary, lines = ended(command := servers(text))
    assert code in obituary
    assert text in obituary
    assert lines == (["| hello", "| no memory"] if "echo" in text else [])
    assert not [*command.more_time()]


def test_a_scenario_that_asks_the_same_servers_otherwise_does_not_start_them_again(servers):
    """A nearer table with another wait cost the loading of the weights."""
    command = servers("sleep 1000")
    process = command.process
    command.use(Servers(command="sleep 1000", url=("http://127.0.0.1:9",), wait="2h"))
    assert command.process is process
    (line,) = command.more_time()
    assert line.endswith("a longer wait into their table of the TOML, now 2h.")
    command.were_ready = True
    assert not [*command.more_time()]
    command.use(Servers(command="sleep 1001", url=("http://127.0.0.1:9",)))
    assert command.process is not process and process.poll() is not None


def test_a_command_that_forks_and_exits_lives_as_long_as_what_it_started(servers, tmp_path):
    waiting = tmp_path / "go on"
    command = servers(f"(setsid sh -c 'while [ ! -e \"{waiting}\" ]; do sleep 0.05; done' &) ; exit 0")
    wait_until(lambda: len(guard.processes(str(command.folder))) == 2)
    time.sleep(2 * guard.LOOK_S)  # the guard has looked at it
    assert command.process.poll() is None
    waiting.touch()
    assert "exit code 0" in ended(command)[0]


def test_a_port_that_another_server_has_is_refused(servers):
    remedy = "stop it, or remove the servers' command from the TOML"  # of whichever table it is in
    with StubServer() as other, pytest.raises(ServerError, match=f"{other.url} already: {remedy}"):
        servers("sleep 1000", url=(other.url,))


# At SIGTERM its first thread ends alone: it looks ended, and its other one still has the port.
ENDING = """
import ctypes, pathlib, signal, socket, threading, time
threading.Thread(target=time.sleep, args=(1000,)).start()
signal.signal(signal.SIGTERM, lambda *_: ctypes.CDLL(None).pthread_exit(None))
listening = socket.create_server(("127.0.0.1", 0))
pathlib.Path("port.new").write_text(str(listening.getsockname()[1]))
pathlib.Path("port.new").rename("port")
time.sleep(1000)
"""


def test_a_url_without_a_port_is_looked_at_where_its_scheme_listens(servers, monkeypatch):
    asked = []

    def connect(address, timeout):
        asked.append(address)
        raise ConnectionRefusedError

    monkeypatch.setattr(socket, "create_connection", connect)
    urls = ("http://node1", "https://node2/v1", "http://[::1]:8000", "http://node[3-4]:1", "http://a:none")
    servers("sleep 1000", urls)
    assert asked == [("node1", 80), ("node2", 443), ("::1", 8000)]


def test_a_stopped_server_has_left_its_port(servers, tmp_path):
    """The next one was refused as another's: a process that ends has no environment, and still its port."""
    (tmp_path / "ending.py").write_text(ENDING)
    command = servers(f"exec {sys.executable} ending.py")
    wait_until((tmp_path / "port").exists)
    (server,) = guard.processes(str(command.folder))
    try:
        command.stop()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", int((tmp_path / "port").read_text())))
    finally:
        with suppress(ProcessLookupError):
            os.kill(server, signal.SIGKILL)


def test_daemons_and_those_that_ignore_sigterm_are_stopped(servers):
    command = servers("(setsid sh -c 'trap \"\" TERM; while :; do sleep 1; done' &) ; sleep 1000")
    wait_until(lambda: len(guard.processes(str(command.folder))) >= 3)
    command.stop()
    assert not guard.processes(str(command.folder))


@pytest.mark.engine
def test_the_log_is_bounded(servers):
    program = "import sys; [sys.stdout.write('x' * 999999 + chr(10)) for _ in range(200)]; print('the end')"
    command = servers(f'{sys.executable} -c "{program}"')
    _, lines = ended(command)
    assert lines[-1] == "| the end"
    files = list(command.folder.iterdir())
    assert sum(path.stat().st_size for path in files) <= 2 * guard.MOST_BYTES
    assert {path.name for path in files} == {"server.log", "server.log.1"}


def test_a_command_that_failed_leaves_no_part_of_it(server):
    command, part = server
    (main,) = guard.processes(str(command.folder)) - {part}
    os.kill(main, signal.SIGKILL)
    assert "SIGKILL" in ended(command)[0]
    wait_until(lambda: not Path(f"/proc/{part}").exists())


def test_what_a_killed_guard_left_is_stopped_by_the_next_campaign(server, servers):
    command, part = server
    command.process.kill()
    command.process.wait()
    assert part in guard.processes(str(command.folder))
    servers("sleep 1000")
    wait_until(lambda: not Path(f"/proc/{part}").exists())


def test_what_a_killed_campaign_left_is_stopped_by_the_next(servers, tmp_path):
    folder = tmp_path / "campaign"
    left = subprocess.Popen(["sleep", "1000"], env=os.environ | {guard.MARK: str(folder)})
    wait_until(lambda: guard.processes(str(folder)))  # for a moment a program that starts has no environment
    command = servers("sleep 1000")
    assert left.wait() in (-signal.SIGTERM, -signal.SIGKILL)  # the second on a busy machine, after the grace
    assert command.process.poll() is None


@pytest.mark.engine
def test_the_command_ends_with_the_campaign(tmp_path):
    program = (
        "from pathlib import Path; from harness.campaign.servers import ServerCommand; "
        "from harness.campaign.campaign_file import Servers; import time; "
        "servers = Servers(command='sleep 1000', url=('http://127.0.0.1:9',)); "
        f"ServerCommand(Path({str(tmp_path)!r}), Path('.')).use(servers); "
        "print('started', flush=True); time.sleep(1000)"
    )
    campaign = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert campaign.stdout is not None
    assert b"started\n" in iter(campaign.stdout.readline, b"")
    wait_until(lambda: guard.processes(str(tmp_path)))
    campaign.kill()
    campaign.wait()
    wait_until(lambda: not guard.processes(str(tmp_path)))


WITHIN = """
import os, signal, sys, threading
from pathlib import Path
from harness.campaign import guard

lines, start = 0, threading.Thread.start

def trace(frame, event, argument):
    global lines
    lines += event == "line"
    if event == "line" and lines == int(sys.argv[1]):
        signal.raise_signal(signal.SIGTERM)
    return trace

def traced(thread):
    start(thread)
    if thread._target is guard._pump:
        sys._getframe(1).f_trace = trace
        sys.settrace(trace)

threading.Thread.start = traced
code = guard.main(sys.argv[2], Path(sys.argv[2]), os.getppid(), 1.0, "exec sleep 1000")
sys.settrace(None)
print("ended", code)
"""


@pytest.mark.parametrize("line", [1, 3, 6, 10, 12, 14])
def test_a_signal_at_any_line_stops_the_command(line, tmp_path):
    words = [sys.executable, "-c", WITHIN, str(line), str(tmp_path / "log")]
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, timeout=PATIENCE_S)
    assert (done.stdout, done.stderr) == ("ended 0\n", "")
