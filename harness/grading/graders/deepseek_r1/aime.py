r"""AIME: an integer from 0 to 999.

Official, as for gpt-oss: the last ``\boxed{digits}`` of the complete text, else the last ``Answer: digits``.
"""

from harness.grading.grade import BOTH_MODES
from harness.grading.graders import aime, deepseek_r1

METRICS = deepseek_r1.METRICS
FIRST_ENTRY_COUNTS = deepseek_r1.FIRST_ENTRY_COUNTS
MISSING_ARE_WRONG = deepseek_r1.MISSING_ARE_WRONG
MODES = BOTH_MODES
NAMES_QUESTION = False

check_reference = aime.check_reference
official = aime.official
strict = aime.strict
