"""GPQA and MMLU-Pro: one letter.

Official: the last ``ANSWER X`` of the complete text, in any case; without one, for MMLU-Pro, the last letter
that stands alone, be it an article. Strict: the last explicit answer behind the thinking.
"""

import re

from harness.grading.grade import BOTH_MODES, Grade, Reason, answered, unanswered
from harness.grading.graders import deepseek_r1
from harness.grading.graders.letters import LetterReader
from harness.grading.output import Output

_LIST_DRESS = (("['", '["'), ("']", '"]'))  # a Python list of one string, printed


class MultipleChoice:
    """The grader for options from A to ``last``; ``takes_any``: a letter alone is an official answer."""

    METRICS = deepseek_r1.METRICS
    FIRST_ENTRY_COUNTS = deepseek_r1.FIRST_ENTRY_COUNTS
    MISSING_ARE_WRONG = deepseek_r1.MISSING_ARE_WRONG
    MODES = BOTH_MODES
    NAMES_QUESTION = False

    def __init__(self, last: str, *, takes_any: bool) -> None:
        self._last = last
        # Possessive quantifiers keep runs of spaces linear and match what the official pattern matches.
        self._stated = re.compile(
            rf"\b(?:ANSWER|FINAL\s*+ANSWER)\b\s*+[:=]?+\s*+\(?+\s*+([A-{last}])(?![A-Za-z])", re.IGNORECASE
        )
        self._alone = re.compile(rf"\b([A-{last}])\b", re.IGNORECASE) if takes_any else None
        self._reader = LetterReader(last)

    def check_reference(self, value: object) -> str:
        """The true letter, a capital."""
        text = str(value).strip().upper()
        if len(text) != 1 or not "A" <= text <= self._last:
            raise ValueError(f"one letter from A to {self._last}")
        return text

    def official(self, output: Output, truth: str) -> Grade:
        """The grade by the published rules."""
        letter = self._official_letter(output.text)
        if letter is None:
            return unanswered(output.defect or Reason.NO_ANSWER)
        return answered(letter, letter == truth)

    def _official_letter(self, text: str) -> str | None:
        if text.startswith(_LIST_DRESS[0]) and text.endswith(_LIST_DRESS[1]):
            text = text[2:-2].strip()
        text = text.replace(r"\n", "\n").replace(r"\'", "'")
        return _last(self._stated, text) or (_last(self._alone, text) if self._alone else None)

    def strict(self, output: Output, truth: str) -> Grade:
        """The grade of the answer behind the thinking."""
        if output.strict_final is None:
            return unanswered(output.defect or Reason.NO_FINAL)
        letter = self._reader.explicit(output.strict_final)
        if letter is None:
            return unanswered(output.defect or Reason.NO_ANSWER)
        return answered(letter, letter == truth)


def _last(pattern: re.Pattern[str], text: str) -> str | None:
    found = None
    for found in pattern.finditer(text):  # noqa: B007 - the last one is wanted
        pass
    return found[1].upper() if found else None


gpqa = MultipleChoice("D", takes_any=False)
mmlu_pro = MultipleChoice("J", takes_any=True)
