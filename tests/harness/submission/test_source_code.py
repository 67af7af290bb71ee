"""src/ holds what git tracks, and text that looks like a secret is refused."""

import subprocess
import sys

import pytest

from harness.errors import ConfigError
from harness.submission.source_code import copy_source, refuse_secrets
from tests.harness.submission.building import files
from tests.scripts.test_scripts import FAKE_PYTHON, run, stand_in


def git(folder, *words):
    subprocess.run(["git", "-C", str(folder), *words], check=True, capture_output=True)


def test_a_file_that_git_does_not_know_is_not_copied(tmp_path):
    """run_node1.sh with a token, notes, a customer's settings: all had a suffix of code."""
    root = tmp_path / "checkout"
    (root / "configs").mkdir(parents=True)
    for name in ("run.py", "setup.sh", "gone.py", ".hidden"):
        (root / name).write_text("x\n")
    git(root, "init", "-q")
    git(root, "add", "-A")
    for name in ("run_node1.sh", "NOTES.md", "configs/customer.json"):
        (root / name).write_text("x\n")
    (root / "gone.py").unlink()
    copy_source(tmp_path / "src", root)
    assert files(tmp_path / "src") == ["run.py", "setup.sh"]


def test_without_git_nothing_is_copied(tmp_path):
    (tmp_path / "checkout").mkdir()
    with pytest.raises(ConfigError, match="git"):
        copy_source(tmp_path / "src", tmp_path / "checkout")


def test_the_source_can_be_set_up(tmp_path):
    """Without the tests, hidden files and secrets; setup.sh finds what it reads, and the programs start."""
    copy_source(tmp_path / "src")
    refuse_secrets(tmp_path / "src")
    found = files(tmp_path / "src")
    assert {"run_mlperf.py", "sut/loadgen/binding.py", "configs/user.conf"} <= {*found}
    assert not [name for name in found if name.startswith(("tests/", ".")) or name.endswith(".pyc")]
    python = stand_in(tmp_path / "bin", "python3.12", FAKE_PYTHON)
    calls = tmp_path / "calls"
    done = run(tmp_path / "src/setup.sh", cwd=tmp_path / "src", PYTHON=str(python), PIP_CALLS=str(calls))
    assert done.returncode == 0, done.stderr
    assert "requirements/run.txt" in calls.read_text()
    for program in ("run_mlperf.py", "run_compliance.py", "eval_mlperf_accuracy.py", "prepare_submission.py"):
        words = [sys.executable, tmp_path / "src" / program, "--help"]
        assert subprocess.run(words, cwd=tmp_path, capture_output=True).returncode == 0, program


SECRETS = [
    ("export HF_TOKEN=" + "hf_" + "AbCdEfGhIjKlMnOpQrStUvWxYz0123", True),
    ("OPENAI_API_KEY=" + "sk-" + "proj-abcdefghijklmnop012345", True),
    ("key: " + "AKIA" + "IOSFODNN7EXAMPLE", True),
    ("ghp" + "_0123456789abcdefghijABCDEFGHIJ012345", True),
    ("github" + "_pat_0123456789abcdefghijABCDEFGHIJ0123", True),
    ("glpat" + "-abcdefghijklmnopqrst", True),
    ("xoxb" + "-0123456789", True),
    ("nvapi" + "-abcdefghijklmnopqrst", True),
    ("AIza" + "SyA0123456789abcdefghijklmnopqrstuvw", True),
    ("-----BEGIN " + "RSA PRIVATE KEY-----", True),
    ("url = 'https://me:" + "hunter22@example.org/x'", True),
    ("password = '" + "correct0horse1battery2staple'", True),
    ("MY_API_KEY=" + "abcdefghijklmno1", True),
    ("export HF_TOKEN=$(cat token)", False),
    ("token = 'the_first_token_of_the_answer'", False),
    ("url = f'https://{user}:{password}@{host}'", False),
    ("max_new_tokens = 10240", False),
    ("hash=" + "0123456789abcdef" * 4, False),
]


@pytest.mark.parametrize(("line", "refused"), SECRETS)
def test_text_that_looks_like_a_secret(tmp_path, line, refused):
    (tmp_path / "run.sh").write_text(f"#!/bin/sh\n{line}\n")
    if not refused:
        refuse_secrets(tmp_path)
        return
    with pytest.raises(ConfigError, match=r"run\.sh:2 ") as error:
        refuse_secrets(tmp_path)
    assert line not in str(error.value)
