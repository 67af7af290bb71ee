"""A checkout to run the documents' commands in, with stand-ins for what a laptop lacks."""

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.documents import made_up
from tests.harness.submission.building import write_info
from tests.runs import ROOT

_HERE = ROOT / "tests/documents"
_NOT_COPIED = shutil.ignore_patterns(
    ".git", ".venv*", ".cache", "__pycache__", ".*_cache", ".hypothesis", "mlperf_results*", "data.local"
)
_GIT = ("git", "-c", "user.name=test", "-c", "user.email=test@localhost")
# Host names of the documents' nodes.
_HOSTS = {"node1": "127.0.0.1", "node2": "127.0.0.2"}


@dataclass(frozen=True)
class Ended:
    """What a page's commands printed, stdout and stderr together, and the exit code."""

    code: int
    output: str


@dataclass(frozen=True)
class Checkout:
    """``folder`` is the checkout, ``stand_ins`` holds what the stand-ins read and write."""

    folder: Path
    stand_ins: Path

    def run(self, script: str) -> Ended:
        """Run it with bash in a network without other servers; end all that it has started."""
        for name, address in _HOSTS.items():
            script = script.replace(name, address)
        log = self.stand_ins / "output"
        command = ("bash", "-exo", "pipefail", "-c", script)
        with log.open("wb") as output, _documented_ports() as network:
            process = subprocess.Popen(
                [*network, *command],
                cwd=self.folder,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                code = process.wait(timeout=1500)
            finally:
                with suppress(ProcessLookupError):  # nothing was left
                    os.killpg(process.pid, signal.SIGKILL)
        return Ended(code, log.read_text(errors="replace"))

    def _environment(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("LANG", "LC_ALL", "TMPDIR") if name in os.environ}
        return {
            **kept,
            "HOME": str(self.stand_ins),
            "PATH": f"{_HERE / 'bin'}:{os.environ['PATH']}",
            "CHECKOUT": str(self.folder),
            "STAND_INS": str(self.stand_ins),
            "TEST_PID": str(os.getpid()),
            "REAL_PYTHON": sys.executable,
            "SLURM_JOB_NODELIST": "127.0.0.1",
            # Kingfisher's compiled rules, 6 s of CPU for each home without them.
            "KF_RULE_CACHE_DIR": str(ROOT / ".cache/kingfisher"),
            "VOCABULARY": str(Path(sys.prefix) / "share/o200k_base.tiktoken.gz"),
        }


def make_checkout(folder: Path) -> Checkout:
    """A clone of this working tree, with small runs and small downloads."""
    checkout, stand_ins = folder / "checkout", folder / "stand-ins"
    shutil.copytree(ROOT, checkout, ignore=_ignored)
    made_up.small_sizes(checkout)
    shutil.copytree(_HERE / "packages", stand_ins / "packages")
    _write_example(write_info(stand_ins), checkout / "configs/submission/example.toml")
    downloads = stand_ins / "downloads"
    subprocess.run(
        [sys.executable, "-m", "tests.documents.made_up", downloads], cwd=checkout, check=True, timeout=120
    )
    made_up.record_checksums(checkout, downloads)
    _commit(checkout, folder / "origin.git")
    cache = ROOT / ".cache"
    cache.mkdir(exist_ok=True)
    (checkout / ".cache").symlink_to(cache)  # the embedded engine's model
    return Checkout(checkout, stand_ins)


def _write_example(info: Path, example: Path) -> None:
    """The facts of a made-up system, and the example's servers and scenarios with small rates."""
    facts, campaign = info.read_text(), example.read_text().partition("\n[servers]\n")[2]
    for rate in (9.0, float(made_up.RATE)):
        campaign = campaign.replace('target_qps = "search"', f"target_qps = {rate}", 1)
    example.write_text(f"{facts}\n[servers]\n{campaign}")


def _ignored(folder: str, names: list[str]) -> set[str]:
    """``data`` and others are results only at the top."""
    top = {"data", "sqsh_files", "submission"} if Path(folder) == ROOT else set()
    return set(_NOT_COPIED(folder, names)) | (top & set(names))


def _commit(checkout: Path, origin: Path) -> None:
    for command in (
        ("init", "-q", "-b", "main"),
        ("add", "-A"),
        ("commit", "-q", "-m", "documents"),
        ("clone", "-q", "--bare", ".", str(origin)),
        ("remote", "add", "origin", str(origin)),
        ("fetch", "-q"),
        ("branch", "-q", "-u", "origin/main"),
    ):
        subprocess.run([*_GIT, *command], cwd=checkout, check=True, timeout=120)


@contextmanager
def _documented_ports() -> Iterator[tuple[str, ...]]:
    """Words before a command that give it a network of its own; where there is none, one command at a time.

    Without ``-r``: a root who is none outside would be refused by the evaluator's sandbox.
    """
    words = ("unshare", "-n", sys.executable, str(_HERE / "own_network.py"))
    if subprocess.run([*words, "true"], capture_output=True).returncode == 0:
        yield words
        return
    with Path(tempfile.gettempdir(), f"documented-ports-{os.getuid()}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield ()
