"""The names of the tests: pytest-xdist's processes must all collect the same, or no test runs."""

import os
import subprocess
import sys

import pytest

from tests.runs import ROOT


def names(hash_seed):
    words = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    return [line for line in done.stdout.splitlines() if "::" in line]


@pytest.mark.engine
def test_no_name_depends_on_the_moment_or_on_the_order_of_a_set():
    """The moments are seconds apart."""
    first, second = names("1"), names("2")
    assert "tests/test_collection.py::test_no_name_depends_on_the_moment_or_on_the_order_of_a_set" in first
    assert set(first) ^ set(second) == set()
    assert first == second
