"""GPQA and MMLU-Pro: one letter.

Official: the last ``ANSWER X`` of the complete text, in any case; without one, for MMLU-Pro, the last letter
that stands alone, be it an article. Strict: the last explicit answer behind the thinking.
"""

import re

from harness.grading.decoding.output import Output
from harness.grading.grade import BOTH_MODES, Grade, Reason, answered, unanswered
from harness.grading.graders import deepseek_r1
from harness.grading.graders.letters import LetterReader, unlisted
from harness.grading.graders.statements import last_match, line_of


class MultipleChoice:
    """The grader for options from A to ``last``; ``takes_any``: a letter alone is an official answer."""

    METRICS = deepseek_r1.METRICS
    FIRST_ENTRY_COUNTS = deepseek_r1.FIRST_ENTRY_COUNTS
    MISSING_ARE_WRONG = deepseek_r1.MISSING_ARE_WRONG
    MODES = BOTH_MODES
    NAMES_QUESTION = False

    def __init__(self, last: str, *, takes_any: bool) -> None:
        reader = LetterReader(last)
        self.check_reference, self.strict = reader.check_reference, reader.strict
        # Possessive quantifiers keep runs of spaces linear and match what the official pattern matches.
        self._stated = re.compile(
            rf"\b(?:ANSWER|FINAL\s*+ANSWER)\b\s*+[:=]?+\s*+\(?+\s*+([A-{last}])(?![A-Za-z])", re.IGNORECASE
        )
        self._alone = re.compile(rf"\b([A-{last}])\b", re.IGNORECASE) if takes_any else None

    def official(self, output: Output, truth: str) -> Grade:
        """The grade by the published rules."""
        text = unlisted(output.text)
        found = last_match(self._stated, text) or (last_match(self._alone, text) if self._alone else None)
        if found is None:
            return unanswered(output.defect or Reason.NO_ANSWER)
        letter = found[1].upper()
        return answered(letter, letter == truth, line_of(text, *found.span()))


gpqa = MultipleChoice("D", takes_any=False)
mmlu_pro = MultipleChoice("J", takes_any=True)
