"""LiveCodeBench: a program, which must pass all tests of its problem in release_v1.

Official: the first ```python block of the complete text, which may be a draft. Strict: the last complete
block behind the thinking.
"""

import re

from harness.grading.decoding.output import Output
from harness.grading.grade import BOTH_MODES, Grade, Mode, Reason, Task
from harness.grading.graders import deepseek_r1, livecodebench
from harness.grading.graders.livecodebench import Extraction

METRICS = deepseek_r1.METRICS
FIRST_ENTRY_COUNTS = deepseek_r1.FIRST_ENTRY_COUNTS
MISSING_ARE_WRONG = deepseek_r1.MISSING_ARE_WRONG
MODES = BOTH_MODES
NAMES_QUESTION = True

_FIRST_BLOCK = re.compile(r"```python(.*?)```", re.DOTALL)

check_reference = livecodebench.check_reference
prepare = livecodebench.prepare
strict = livecodebench.strict


def official(output: Output, truth: str) -> Grade | Task:
    """The task for the program by the published rules; a grade where there is none."""
    return livecodebench.task(Mode.OFFICIAL, truth, official_code(output))


def official_code(output: Output) -> Extraction:
    """The program by the published rules."""
    found = _FIRST_BLOCK.search(output.text)
    return Extraction(found[1].strip() if found else None, output.defect or Reason.NO_ANSWER)
