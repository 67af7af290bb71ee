"""nltk is imported as if packages that it can do without were not there, and without a home folder."""

import os
import subprocess
import sys

import pytest

from tests.runs import ROOT

SCRIPT = """
import sys
from harness.grading.graders import summaries
print(round(summaries.compare("One word. Two words.", "Two words.").fmeasure["rouge1"], 3))
print(sorted({"sklearn", "scipy", "pandas"} & sys.modules.keys()))
import scipy
print(scipy.__name__)
"""


@pytest.mark.engine
def test_scores_of_summaries_load_none_of_them_and_they_stay_importable():
    done = subprocess.run([sys.executable, "-c", SCRIPT], cwd=ROOT, capture_output=True, text=True)
    assert (done.stdout.splitlines(), done.stderr) == (["0.667", "[]", "scipy"], "")


HOMELESS = """
import pwd
def getpwuid(uid):
    raise KeyError(f"getpwuid(): uid not found: {uid}")
pwd.getpwuid = getpwuid
import os
from harness.lean_nltk import load_nltk
load_nltk()
from nltk.tokenize import PunktTokenizer
print("HOME" in os.environ)
"""


def test_a_user_without_a_home_has_scores():
    """Neither HOME nor an entry in /etc/passwd, as in a container with a user of its own."""
    environment = {name: value for name, value in os.environ.items() if name != "HOME"}
    command = [sys.executable, "-c", HOMELESS]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("False\n", "")
