r"""GPQA: one letter from A to D.

Official: a first letter that stands alone, else the first "Answer X" of the final section, else the last
"ANSWER X" of everything; "A careful ..." therefore answers A. Strict: the last explicit answer of the
final channel.
"""

import re

from harness.grading.grade import BOTH_MODES, RIGHT_OR_WRONG, Grade, Reason, answered, unanswered
from harness.grading.output import Output
from harness.grading.screen import Screen

_BOLD = re.compile(r"\*\*([^*]+)\*\*")
_LIST_DRESS = (("['", '["'), ("']", '"]'))  # a Python list of one string, printed
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

_FULL_WIDTH = str.maketrans("ＡＢＣＤ", "ABCD")  # noqa: RUF001
_OPEN = r"(?:\\\(|\\\[|[\s*_`$({\[\"'“]|\\(?:text|textbf|mathbf|mathrm|bf)\b)*+"
_BOXED = re.compile(rf"\\boxed\s*{{{_OPEN}(?:option |choice )?{_OPEN}([A-Da-d])(?![A-Za-z])", re.IGNORECASE)
_VERB = r"(?:is\b|:|=|：|would be\b|should be\b|must be\b)"  # noqa: RUF001
_STATED = re.compile(
    rf"\b(?:answer|choice|option|result)\b[\s*_`]*+{_VERB}[\s*_`:]*+"
    r"(?:(?:indeed|the|correct|option|choice|letter|statement|answer|therefore|thus|clearly)\b[\s*_`:]*+)*+"
    rf"{_OPEN}([A-Da-d])(?![A-Za-z'])",
    re.IGNORECASE,
)
_CALLED = re.compile(rf"(?:\b(?:Answer|ANSWER|answer)\s++|答案[\s：:是为]*+){_OPEN}([A-D])(?![A-Za-z'])")  # noqa: RUF001
_CHOSEN = re.compile(rf"\b(?:choose|select|pick)\s++(?:option |choice )?{_OPEN}([A-D])(?![A-Za-z'])")
_PRAISED = re.compile(
    r"(?:(?:^|(?<=[.!?]\s))[*_`(]*+|\(|\b[Oo]ption [*_`(]*+|\b[Cc]hoice [*_`(]*+)([A-D])\b[)*_`]*+\s"
    r"(?:is|are)\s(?:indeed\s)?(?:the\s)?(?:correct|right|best|answer)\b",
    re.MULTILINE,
)
_CONCLUDED = re.compile(
    r"(?:\b(?:[Tt]hus|[Hh]ence|[Tt]herefore|[Ss]o|[Ii]t is|[Tt]hat is|[Tt]his is|corresponds to|matches)\b"
    r"|=>|⇒|→)"
    rf"[\s,:]*+(?:(?:the|correct|option|choice|answer)\b[\s*_`:]*+)*+{_OPEN}([A-D])[\s*_`)}}\]$\"'”]*+(?:[.!\n]|$)"
)
_LINE = re.compile(r"^[ \t*_`#>$({\[\"']*+([A-D])[ \t*_`$)}\].:\"']*+$", re.MULTILINE)
_FIRST = re.compile(
    r"[\s*_`#>$({\[]*+([A-D])[*_`$}\]]*+[ \t]*+(?:[).:,;–—]|(?<=\s)(?:-\s|because\b|since\b)|\n|$)"  # noqa: RUF001
)
_ALONE = re.compile(r"[\W_]*+([A-Da-d])[\W_]*+$")
# After "The answer is A": words that go on after a letter, not after an article.
_AFTER_LETTER = re.compile(
    r"[\s*_`)}\]$\"'”]*(?:$|[\n.,;:!?(–—-]|\\|(?:because|since|as|due|for|with|which|and|is|in|by|from|that)\b)"  # noqa: RUF001
)
# "A and B", "A, B", "A/B": several letters are no answer.
_SEVERAL = re.compile(
    r"[\s*_`)}\]$\"']*+(?:,|/|&|\band\b|\bor\b|\bplus\b)(?:\s*+(?:and|or)\b)?+[\s*_`({\[$\"']*+[A-D]"
    r"[*_`)}\]$\"']*+(?=\s*+(?:[.,;:!?)\n]|$|and\b|or\b|are\b))"
)


METRICS = RIGHT_OR_WRONG
MODES = BOTH_MODES
FIRST_ENTRY_COUNTS = False
MISSING_ARE_WRONG = True
NAMES_QUESTION = False


def check_reference(value: object) -> str:
    """The true letter, a capital."""
    text = str(value).strip().upper()
    if text not in tuple("ABCD"):
        raise ValueError("one letter from A to D")
    return text


def official(output: Output, truth: str) -> Grade:
    """The grade by the published rules."""
    letter = _official_letter(output)
    if letter is None:
        return unanswered(output.defect or Reason.NO_ANSWER)
    return answered(letter, letter == truth)


def _official_letter(output: Output) -> str | None:
    if output.official_final is None and _BEGINS_WITH_WORD.match(output.prefix) and not _may_state(output):
        return None
    section = _BOLD.sub(r"\1", output.text if output.official_final is None else output.official_final)
    if section.startswith(_LIST_DRESS[0]) and section.endswith(_LIST_DRESS[1]):
        section = section[2:-2].strip()
    section = _unescaped(section)
    found = _OFFICIAL_FIRST.match(section.strip()) or _OFFICIAL_STATED.search(section)
    if not found and _may_state(output):
        for found in _OFFICIAL_ANYWHERE.finditer(_unescaped(output.text)):  # noqa: B007 - the last one is wanted
            pass
    return found[1].upper() if found else None


def _may_state(output: Output) -> bool:
    return output.may_match(_ANSWER_SCREEN)


def _unescaped(text: str) -> str:
    return text.replace(r"\n", "\n").replace(r"\'", "'")


def strict(output: Output, truth: str) -> Grade:
    """The grade of the answer in the final channel."""
    if output.strict_final is None:
        return unanswered(output.defect or Reason.NO_FINAL)
    letter = explicit_letter(output.strict_final)
    if letter is None:
        return unanswered(output.defect or Reason.NO_ANSWER)
    return answered(letter, letter == truth)


def explicit_letter(final: str) -> str | None:
    """The last letter that is boxed or called the answer; else chosen or alone on a line; else the first."""
    final = final.translate(_FULL_WIDTH)
    return (
        _last_letter(final, (_BOXED, _STATED, _CALLED))
        or _last_letter(final, (_LINE, _CHOSEN, _PRAISED, _CONCLUDED))
        or _first_letter(final)
    )


def _first_letter(final: str) -> str | None:
    found = _ALONE.match(final) or _FIRST.match(final)
    return found[1].upper() if found and not _SEVERAL.match(final, found.end(1)) else None


def _last_letter(text: str, patterns: tuple[re.Pattern[str], ...]) -> str | None:
    found = [
        (match.start(1), match[1].upper())
        for pattern in patterns
        for match in pattern.finditer(text)
        if _is_no_article(match, pattern) and not _SEVERAL.match(text, match.end(1))
    ]
    return max(found)[1] if found else None


def _is_no_article(match: re.Match[str], pattern: re.Pattern[str]) -> bool:
    """ "The answer is a function of ..." names no letter; "the answer is A because" does."""
    if pattern not in (_STATED, _CALLED) or match[1] in "BCD":
        return True
    return bool(_AFTER_LETTER.match(match.string, match.end(1)))
