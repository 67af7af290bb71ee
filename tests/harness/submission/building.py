"""The submitter's TOML for tests, and calls of ``build``."""

import json
import subprocess
import sys
from pathlib import Path

from harness.submission.tree.round_rules import load_rules
from prepare_submission import main
from tests.runs import ROOT

INFO = """\
submitter = "MyOrg"
system_id = "made_up"

[system]
{system}

[measurements]
input_data_types = "int32"
retraining = "No"
weight_data_types = "mxfp4"
weight_transformations = "none"
"""
STATED = {
    "status": "available",
    "system_type": "datacenter",
    "number_of_nodes": 1,
    "accelerators_per_node": 8,
    "host_processors_per_node": 2,
}
# Fields that are not in the TOML's [system]: folder names, and those from run.json.
FROM_ELSEWHERE = ("division", "submitter", "framework", "other_software_stack")


def write_info(folder, without=(), **more):
    names = [name for name in load_rules().system.meaningful if name not in FROM_ELSEWHERE]
    fields = {name: STATED.get(name, "made up") for name in names if name not in without} | more
    lines = "\n".join(f'"{name}" = {json.dumps(value)}' for name, value in fields.items())
    path = folder / "submission.toml"
    path.write_text(INFO.format(system=lines))
    return path


def git(folder, *words):
    name = ("-c", "user.name=test", "-c", "user.email=test@localhost")
    done = subprocess.run(
        ["git", "-C", str(folder), *name, *words], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def commit(folder):
    """Commit all files; the name of the commit."""
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "one")
    return git(folder, "rev-parse", "HEAD")


def build(results, *more):
    folder = results.parent
    words = ["build", "--results", results, "--submission", folder / "submission.toml"]
    return main([*map(str, words), "--output", str(folder / "tree"), *map(str, more)])


def files(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def one_line(capsys):
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 1
    return captured.err


def refused(capsys):
    """What was printed on stderr: everything that is missing, then one line of error."""
    captured = capsys.readouterr()
    assert captured.out == ""
    assert [line for line in captured.err.splitlines() if ": error: " in line] == captured.err.splitlines()[
        -1:
    ]
    return captured.err


def run_program(folder: Path, program: str, *words: object, codes: tuple[int, ...] = (0,)) -> str:
    """The output of a program of the checkout. Raises RuntimeError for another exit code."""
    command = [sys.executable, str(ROOT / program), *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    if done.returncode not in codes:
        raise RuntimeError(
            f"{program} exited {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        )
    return done.stdout
