"""The jobs of docs/guide/campaign: a shell and a YAML parser read them, and they do what they say."""

import os
import re
import shlex
import signal
import subprocess
from pathlib import Path

import pytest
import yaml

from harness.campaign.campaign_options import parse_options
from harness.campaign.guard import GRACE_S
from harness.cli.door import VERBS
from harness.errors import EXIT_INVALID, EXIT_SERVER, EXIT_THRESHOLD, EXIT_USAGE
from tests.kit import wait_until
from tests.runs import ROOT

JOBS = ROOT / "docs/guide/campaign"
SLURM, KUBERNETES = JOBS / "slurm.sh", JOBS / "kubernetes.yaml"


def options_of(command: list[str]) -> Path:
    """The file that a command of ./mlperf names. The parser ends the test on a wrong flag."""
    verb, *words = command
    assert verb in VERBS
    return parse_options(words).file


def sbatch() -> dict[str, str]:
    """The flags of the #SBATCH lines."""
    lines = re.findall(r"^#SBATCH (.+)$", SLURM.read_text(), re.MULTILINE)
    words = [word.partition("=") for line in lines for word in shlex.split(line)]
    found = {name: value for name, _, value in words}
    assert len(found) == len(words), "a flag is there twice"
    return found


def test_the_slurm_job_can_be_requeued_and_continues_its_output():
    flags = sbatch()
    assert flags.keys() >= {"--requeue", "--nodes", "--cpus-per-task"}
    assert flags["--open-mode"] == "append"
    assert re.fullmatch(r"\d\d:\d\d:\d\d", flags["--time"])
    signalled = re.fullmatch(r"B:USR1@(\d+)", flags["--signal"])
    assert signalled is not None
    assert int(signalled[1]) > 2 * GRACE_S + 60, "too late: the servers have to be stopped, too"
    # Before the first command: Slurm reads no #SBATCH line behind it.
    code = [line for line in SLURM.read_text().splitlines()[1:] if line and not line.startswith("#")]
    assert "#SBATCH" not in SLURM.read_text().partition(code[0])[2]


def test_the_slurm_job_calls_the_campaign():
    subprocess.run(["bash", "-n", SLURM], check=True)
    (line,) = re.findall(r"^\./mlperf (.+) &$", SLURM.read_text(), re.MULTILINE)
    words = line.replace("${1:-my_submission.toml}", "my_submission.toml")
    assert options_of(shlex.split(words)) == Path("my_submission.toml")


@pytest.mark.parametrize("code", [0, EXIT_INVALID])
def test_the_slurm_job_ends_with_the_campaigns_exit_code(tmp_path, code):
    job = start(tmp_path, f"exit {code}")
    assert job.wait(60) == code
    assert not (tmp_path / "requeued").exists()


@pytest.mark.parametrize("signum", [signal.SIGUSR1, signal.SIGTERM])
def test_a_slurm_job_queues_itself_again_near_its_end_and_not_when_it_is_cancelled(tmp_path, signum):
    """Slurm sends SIGTERM of ``scancel`` to the campaign, too."""
    job = start(tmp_path, 'trap "touch ended; exit 143" TERM; touch began; while :; do sleep 0.05; done')
    wait_until(lambda: (tmp_path / "began").exists())
    job.send_signal(signum)
    job.wait(60)
    if signum is signal.SIGTERM:
        os.kill(int((tmp_path / "pid").read_text()), signum)
    wait_until((tmp_path / "ended").exists)
    asked = (tmp_path / "requeued").read_text().split() if (tmp_path / "requeued").exists() else []
    assert asked == (["requeue", "77"] if signum is signal.SIGUSR1 else [])


def start(folder: Path, campaign: str) -> "subprocess.Popen[bytes]":
    """The job with a program in place of ./mlperf, which gets the words of the real one."""
    for name, text in (
        ("mlperf", f'echo "$@" > words; echo $$ > pid\n{campaign}\n'),
        ("scontrol", 'echo "$@" > requeued\n'),
    ):
        (folder / name).write_text(f"#!/bin/sh\n{text}")
        (folder / name).chmod(0o755)
    there = {"PATH": f"{folder}:{os.environ['PATH']}", "SLURM_JOB_ID": "77"}
    return subprocess.Popen(["bash", SLURM], cwd=folder, env=os.environ | there)


def test_the_kubernetes_job_calls_the_campaign_and_repeats_what_may_pass():
    job = yaml.safe_load(KUBERNETES.read_text())
    assert (job["apiVersion"], job["kind"]) == ("batch/v1", "Job")
    pod = job["spec"]["template"]["spec"]
    assert pod["restartPolicy"] == "Never", "what a podFailurePolicy needs"
    (container,) = pod["containers"]
    program, *command = container["command"]
    assert Path(program).name == "mlperf"
    assert options_of(command) == Path("my_submission.toml")
    assert pod["terminationGracePeriodSeconds"] > 2 * GRACE_S
    rules = job["spec"]["podFailurePolicy"]["rules"]
    (ends,) = (rule["onExitCodes"] for rule in rules if rule["action"] == "FailJob")
    assert ends["containerName"] == container["name"]
    assert set(ends["values"]) == {EXIT_USAGE, EXIT_INVALID, EXIT_THRESHOLD}
    assert EXIT_SERVER not in ends["values"]
    mounts, volumes = (
        {one["name"] for one in place} for place in (container["volumeMounts"], pod["volumes"])
    )
    assert mounts == volumes
    assert container["workingDir"] in {one["mountPath"] for one in container["volumeMounts"]}
