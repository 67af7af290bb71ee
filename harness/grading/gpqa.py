r"""GPQA: one letter from A to D.

Official: a first letter that stands alone, else the first "Answer X" of the final section, else the last
"ANSWER X" of everything; "A careful ..." therefore answers A. Strict: the last explicit answer of the
final channel.
"""

import re

from harness.grading.harmony import Output
from harness.grading.verdict import Reason, Verdict, judged, unanswered

_BOLD = re.compile(r"\*\*([^*]+)\*\*")
_LIST_DRESS = (("['", '["'), ("']", '"]'))  # a Python list of one string, printed
# Possessive quantifiers keep long runs of spaces linear; they match what the official patterns match.
_OFFICIAL_FIRST = re.compile(r"[^a-zA-Z]*+([A-D])(?:[^a-zA-Z]|$)", re.IGNORECASE)
_OFFICIAL_STATED = re.compile(r"\bAnswer\s*+[:.]?+\s*+([A-D])\b", re.IGNORECASE)
_OFFICIAL_ANYWHERE = re.compile(
    r"\b(?:ANSWER|FINAL\s*+ANSWER)\b\s*+[:=]?+\s*+\(?+\s*+([A-D])(?![A-Za-z])", re.IGNORECASE
)

_OPEN = r"(?:\\\(|\\\[|[\s*_`$({\[]|\\(?:text|textbf|mathbf|mathrm|bf)\b)*+"
_BOXED = re.compile(rf"\\boxed\s*{{{_OPEN}(?:option |choice )?{_OPEN}([A-Da-d])(?![A-Za-z])")
_STATED = re.compile(
    r"\b(?:answer|choice|option)\b[\s*_`]*+(?:is\b|:|=|would be\b|should be\b|must be\b)[\s*_`:]*+"
    rf"(?:(?:option|choice|letter|statement|therefore|thus|clearly)\b[\s*_`:]*+)*+{_OPEN}([A-Da-d])(?![A-Za-z'])",
    re.IGNORECASE,
)
_CHOSEN = re.compile(rf"\b(?:choose|select|pick)\s++(?:option |choice )?{_OPEN}([A-D])(?![A-Za-z'])")
_PRAISED = re.compile(
    r"(?:\(|\b[Oo]ption |\b[Cc]hoice )([A-D])\b\)?+[*_`]*+\s(?:is|are)\s(?:the\s)?(?:correct|right)\b"
)
_LINE = re.compile(r"^[ \t*_`#>$({\[]*+([A-D])[ \t*_`$)}\].:]*+$", re.MULTILINE)
_FIRST = re.compile(r"[\s*_`#>$({\[]*+([A-D])[*_`$}\]]*+[ \t]*+(?:[).:,;–—]|(?<=\s)-\s|\n|$)")  # noqa: RUF001
# After "The answer is A": words that go on after a letter, not after an article.
_AFTER_LETTER = re.compile(
    r"[\s*_`)}\]$]*(?:$|[\n.,;:!?(–—-]|\\|(?:because|since|as|due|for|with|which|and|is|in|by|from|that)\b)"  # noqa: RUF001
)


def official(output: Output, truth: str) -> Verdict:
    """The verdict of the published rules."""
    letter = _official_letter(output)
    if letter is None:
        return unanswered(output.defect or Reason.NO_ANSWER)
    return judged(letter, letter == truth)


def _official_letter(output: Output) -> str | None:
    section = _BOLD.sub(r"\1", output.text if output.section is None else output.section)
    if section.startswith(_LIST_DRESS[0]) and section.endswith(_LIST_DRESS[1]):
        section = section[2:-2].strip()
    section = _unescaped(section)
    found = _OFFICIAL_FIRST.match(section.strip()) or _OFFICIAL_STATED.search(section)
    for found in () if found else _OFFICIAL_ANYWHERE.finditer(_unescaped(output.text)):  # noqa: B020, B007
        pass
    return found[1].upper() if found else None


def _unescaped(text: str) -> str:
    return text.replace(r"\n", "\n").replace(r"\'", "'")


def strict(output: Output, truth: str) -> Verdict:
    """The verdict on what the final channel says."""
    if output.final is None:
        return unanswered(output.defect or Reason.NO_FINAL)
    letter = explicit_letter(output.final)
    if letter is None:
        return unanswered(output.defect or Reason.NO_ANSWER)
    return judged(letter, letter == truth)


def explicit_letter(final: str) -> str | None:
    """The last letter that is boxed, called the answer or alone on a line, else chosen, else first."""
    last = _last_letter(final, (_BOXED, _STATED, _LINE)) or _last_letter(final, (_CHOSEN, _PRAISED))
    first = _FIRST.match(final)
    return last or (first[1] if first else None)


def _last_letter(text: str, patterns: tuple[re.Pattern[str], ...]) -> str | None:
    found = [
        (match.start(1), match[1].upper())
        for pattern in patterns
        for match in pattern.finditer(text)
        if pattern is not _STATED or _is_no_article(match)
    ]
    return max(found)[1] if found else None


def _is_no_article(match: re.Match[str]) -> bool:
    """ "The answer is a function of ..." names no letter; "the answer is A because" does."""
    letter = match[1]
    if letter in "BCD":
        return True
    return bool(_AFTER_LETTER.match(match.string, match.end(1)))
