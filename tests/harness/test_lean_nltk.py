"""nltk is imported as if the packages that graded programs import were not there."""

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
