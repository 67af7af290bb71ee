r"""Multiple choice: one letter.

Official for gpt-oss's GPQA: a first letter that stands alone, else the first "Answer X" of the final
section, else the last "ANSWER X" of everything; "A careful ..." therefore answers A. Official for
deepseek-r1: the last "ANSWER X" of the complete text, in any case; without one, for MMLU-Pro, the last letter
that stands alone, be it an article. Strict: the last explicit answer of the final part.
"""

import re
from abc import ABC, abstractmethod

from harness.grading.decoding.output import Output
from harness.grading.graders.choice_letters import LetterReader
from harness.grading.graders.statements import last_match, line_of
from harness.grading.scoring.grade import Grade, Reason, answered, unanswered

_BOLD = re.compile(r"\*\*([^*]+)\*\*")
# Possessive quantifiers keep long runs of spaces linear; they match what the official patterns match.
_FIRST = re.compile(r"[^a-zA-Z]*+([A-D])(?:[^a-zA-Z]|$)", re.IGNORECASE)
_STATED = re.compile(r"\bAnswer\s*+[:.]?+\s*+([A-D])\b", re.IGNORECASE)
_ANYWHERE = r"\b(?:ANSWER|FINAL\s*+ANSWER)\b\s*+[:=]?+\s*+\(?+\s*+([A-{}])(?![A-Za-z])"


def _unescaped(text: str) -> str:
    """The text with ``\\n`` and ``\\'`` as the characters that they stand for, as officially.

    Officially the brackets and quotes of a printed list are removed, too, which changes no letter.
    """
    return text.replace(r"\n", "\n").replace(r"\'", "'")


class MultipleChoice(ABC):
    """The grader for options from A to ``last``."""

    def __init__(self, last: str) -> None:
        reader = LetterReader(last)
        self.check_reference, self.strict = reader.check_reference, reader.strict
        self._anywhere = re.compile(_ANYWHERE.format(last), re.IGNORECASE)

    def official(self, output: Output, truth: str) -> Grade:
        """The grade by the published rules."""
        found = self._official_match(output)
        if found is None:
            return unanswered(output.defect or Reason.NO_ANSWER)
        letter = found[1].upper()
        return answered(letter, letter == truth, line_of(found.string, *found.span()))

    @abstractmethod
    def _official_match(self, output: Output) -> re.Match[str] | None: ...


class _GptOss(MultipleChoice):
    """The rules of gpt-oss's evaluator."""

    def _official_match(self, output: Output) -> re.Match[str] | None:
        section = output.text if output.official_final is None else output.official_final
        section = _unescaped(_BOLD.sub(r"\1", section))
        return (
            _FIRST.match(section.strip())
            or _STATED.search(section)
            or last_match(self._anywhere, _unescaped(output.text))
        )


class _DeepSeek(MultipleChoice):
    """The rules of deepseek-r1's evaluator. ``takes_any``: a letter that stands alone is an answer, too."""

    def __init__(self, last: str, *, takes_any: bool) -> None:
        super().__init__(last)
        self._alone = re.compile(rf"\b([A-{last}])\b", re.IGNORECASE) if takes_any else None

    def _official_match(self, output: Output) -> re.Match[str] | None:
        text = _unescaped(output.text)
        return last_match(self._anywhere, text) or (last_match(self._alone, text) if self._alone else None)


gpt_oss_gpqa = _GptOss("D")
deepseek_gpqa = _DeepSeek("D", takes_any=False)
deepseek_mmlu_pro = _DeepSeek("J", takes_any=True)
