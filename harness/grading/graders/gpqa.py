r"""GPQA: one letter from A to D.

Official: a first letter that stands alone, else the first "Answer X" of the final section, else the last
"ANSWER X" of everything; "A careful ..." therefore answers A. Strict: the last explicit answer of the
final channel.
"""

import re

from harness.grading.decoding.output import Output
from harness.grading.decoding.screen import Screen
from harness.grading.grade import BOTH_MODES, RIGHT_OR_WRONG, Grade, Reason, answered, unanswered
from harness.grading.graders.letters import LetterReader, unescaped, unlisted
from harness.grading.graders.statements import line_of

_BOLD = re.compile(r"\*\*([^*]+)\*\*")
# Possessive quantifiers keep long runs of spaces linear; they match what the official patterns match.
_OFFICIAL_FIRST = re.compile(r"[^a-zA-Z]*+([A-D])(?:[^a-zA-Z]|$)", re.IGNORECASE)
_OFFICIAL_STATED = re.compile(r"\bAnswer\s*+[:.]?+\s*+([A-D])\b", re.IGNORECASE)
_OFFICIAL_ANYWHERE = re.compile(
    r"\b(?:ANSWER|FINAL\s*+ANSWER)\b\s*+[:=]?+\s*+\(?+\s*+([A-D])(?![A-Za-z])", re.IGNORECASE
)
# What the two rules above may match before marks of bold type are taken out and "\\n" becomes a line's end.
# "\u017f" (long s) is an "s" to IGNORECASE.
_ANSWER_SCREEN = Screen(
    ("answer", "an\u017fwer", "a**", "n**", "s**", "\u017f**", "w**", "e**"),
    re.compile(r"a\**+n\**+s\**+w\**+e\**+r[\s:.=(*\\n]*+(?:[a-d](?![a-z])|\ufffd|$)", re.IGNORECASE),
)
# A word of two letters or more comes first, with nothing before it that is taken out: no letter stands alone.
_BEGINS_WITH_WORD = re.compile(r"[^A-Za-z*\\\[\x80-\U0010ffff]*+[A-Za-z]{2}")

METRICS = RIGHT_OR_WRONG
MODES = BOTH_MODES
FIRST_ENTRY_COUNTS = False
MISSING_ARE_WRONG = True
NAMES_QUESTION = False

_LETTERS = LetterReader("D")
check_reference = _LETTERS.check_reference
strict = _LETTERS.strict


def official(output: Output, truth: str) -> Grade:
    """The grade by the published rules."""
    found = _official_match(output)
    if found is None:
        return unanswered(output.defect or Reason.NO_ANSWER)
    letter = found[1].upper()
    return answered(letter, letter == truth, line_of(found.string, *found.span()))


def _official_match(output: Output) -> re.Match[str] | None:
    if output.official_final is None and _BEGINS_WITH_WORD.match(output.prefix) and not _may_state(output):
        return None
    section = _BOLD.sub(r"\1", output.text if output.official_final is None else output.official_final)
    section = unlisted(section)
    found = _OFFICIAL_FIRST.match(section.strip()) or _OFFICIAL_STATED.search(section)
    if not found and _may_state(output):
        for found in _OFFICIAL_ANYWHERE.finditer(unescaped(output.text)):  # noqa: B007 - the last one is wanted
            pass
    return found


def _may_state(output: Output) -> bool:
    return output.may_match(_ANSWER_SCREEN)
