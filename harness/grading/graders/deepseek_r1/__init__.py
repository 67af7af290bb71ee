"""deepseek-r1's graders.

Official: the complete decoded text is graded, drafts in the thinking included. Strict: what follows the
thinking.
"""

from collections.abc import Mapping

from harness.grading.grade import OF_LOGGED, Metric

METRICS: Mapping[str, Metric] = OF_LOGGED
FIRST_ENTRY_COUNTS = True
MISSING_ARE_WRONG = False
