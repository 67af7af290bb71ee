r"""AIME: an integer from 0 to 999.

Official: the last ``\boxed{digits}`` of the complete text, drafts included, else the last ``Answer: digits``.
Strict: the last explicit answer of the final channel, however it is dressed.
"""

import re

from harness.grading.decoding.output import Output
from harness.grading.decoding.screen import Screen
from harness.grading.grade import BOTH_MODES, RIGHT_OR_WRONG, Grade, Reason, answered, unanswered

LARGEST = 999
_MAX_DIGITS = 50  # longer digit strings are no answers by the strict rules
_OFFICIAL_BOXED = re.compile(r"\\boxed{\s*(\d+)\s*}")
# "Answer: 42." has none by the official rule: the digits may not be followed by a full stop.
_OFFICIAL_ANSWER = re.compile(r"Answer:\s*(\d++)(?!\.)\b", re.IGNORECASE)
_BOXED_SCREEN = Screen(("\\boxed{",), re.compile(r"\\boxed{\s*+(?:\d|\ufffd|$)"))
# "\u017f" (long s) is an "s" to IGNORECASE.
_ANSWER_SCREEN = Screen(("answer:", "an\u017fwer:"), re.compile(r"answer:\s*+(?:\d|\ufffd|$)", re.IGNORECASE))

# Possessive or bounded quantifiers throughout: no text may take more than linear time.
_BOXED = re.compile(r"\\(?:boxed|fbox)\s*+{((?:[^{}]++|{(?:[^{}]++|{(?:[^{}]++|{[^{}]*+})*+})*+})*+)}")
_OF_WHAT = r"(?:\s++\$[^$\n]{1,60}\$|\s++(?:to|for|of)\b[^.:\n]{0,80}?)?"
_LEAD = re.compile(
    rf"(?<![A-Za-z])(?:answer|result)(?![A-Za-z]){_OF_WHAT}[*_`\s]*+"
    r"(?:\b(?:is|equals|must be|should be|will be|would be|comes out (?:to|as))\b|[:=\uff1a])[*_`:\s]*+"
    r"(?:(?:indeed|therefore|thus|just|exactly|simply|then|equal to|given by|approximately|the integer)\b"
    r"[*_`:\s]*+)*+",
    re.IGNORECASE,
)
_AFTER_LEAD = re.compile(r"(?:\s*+(?:\\\[|\\\(|\$\$?))?+\s*+([^\n]{0,300}+)")
_DRESS = re.compile(
    r"\\(?:boxed|fbox|text|textbf|textit|mathbf|mathrm|mathit|bf|displaystyle|boldsymbol|left|right)\b\s*"
    r"|\\[()\[\]$]|[{}$`]|(?<![0-9A-Za-z])[*_]++|[*_]++(?![0-9A-Za-z{])|\\approx\b|\u2248"
)
_SPACE = re.compile(r"\\[,;:! ]|\\q?quad\b|~")
_DEGREES = re.compile(r"(?:\^\s*+)?+{?+(?:\\circ|\\degree|°|degrees?\b)}?+")
_THOUSANDS = re.compile(r"(?<![\d,])\d{1,3}(?:,\d{3})+(?![\d,])")
_CALLED = re.compile(r"\s*+(?:(?:the )?(?:final )?answer\s*+(?:is|[:=])?)?+\s*+", re.IGNORECASE)
_INTEGER = re.compile(r"\+?+(-?+\d++)(?:\.0*+)?+")
_UNIT = re.compile(
    r"(?:\s++(?!(?:or|and|to|mod|plus|minus|times|choose|through|over)\b)[A-Za-z]{2,}+\.?+)*+\s*+$"
)
# What makes a number a part of an expression, of a range or of several answers.
_GOES_ON = re.compile(
    r"\s*+(?:[!^/*+×·÷√%|<>–—-]|\\(?!n\b)|,\s*+\d|(?:or|and|to|through|mod|plus|minus|times|choose)\b)"  # noqa: RUF001
    r"|[A-Za-zπ_(\[]"
)


METRICS = RIGHT_OR_WRONG
MODES = BOTH_MODES
FIRST_ENTRY_COUNTS = False
MISSING_ARE_WRONG = True
NAMES_QUESTION = False


def check_reference(value: object) -> str:
    """The true integer without leading zeros."""
    text = str(int(value) if isinstance(value, float) and value.is_integer() else value).strip()
    if not re.fullmatch(r"\d{1,3}", text):
        raise ValueError("an integer from 0 to 999")
    return str(int(text))


def official(output: Output, truth: str) -> Grade:
    """The grade by the published rules."""
    # What is last in the tail is last in the text, and the tail is short.
    digits = (
        _last(_OFFICIAL_BOXED, output.suffix)
        or _last_anywhere(_OFFICIAL_BOXED, _BOXED_SCREEN, output)
        or _last_anywhere(_OFFICIAL_ANSWER, _ANSWER_SCREEN, output)
    )
    value = None if digits is None else _official_integer(digits)
    if value is None or value > LARGEST:
        return unanswered(output.defect or Reason.NO_ANSWER)
    return answered(str(value), str(value) == truth)


def _official_integer(digits: str) -> int | None:
    """Leading zeros are taken, up to the length at which Python refuses to convert (4,300 digits)."""
    try:
        return int(digits)
    except ValueError:
        return None


def strict(output: Output, truth: str) -> Grade:
    """The grade of the answer in the final channel."""
    if output.strict_final is None:
        return unanswered(output.defect or Reason.NO_FINAL)
    answer = explicit_answer(output.strict_final)
    if answer is None:
        return unanswered(output.defect or Reason.NO_ANSWER)
    return answered(answer, answer == truth)


def explicit_answer(final: str) -> str | None:
    """The last answer that is boxed or called so, else a last line that is nothing but a number."""
    boxed, stated = _last_match(_BOXED, final), _last_stated(final)
    if boxed and (stated is None or stated[0] < boxed.end()):
        return _boxed_value(boxed[1]) or boxed[1].strip()[:_MAX_DIGITS]
    return stated[1] if stated else _last_line(final)


def _last_stated(final: str) -> tuple[int, str] | None:
    """The position of the last "answer is" that one integer follows, and the integer."""
    last = None
    for lead in _LEAD.finditer(final):
        rest = _AFTER_LEAD.match(final, lead.end())
        value = _stated_value(rest[1]) if rest else None
        if value is not None:
            last = lead.start(), value
    return last


def _boxed_value(text: str) -> str | None:
    """The integer that the content of a box stands for: behind its last ``=``, else before its first."""
    _, equals, behind = text.rpartition("=")
    return _integer(behind, _UNIT) or (_integer(text.partition("=")[0], _UNIT) if equals else None)


def _stated_value(rest: str) -> str | None:
    """The integer that the rest of a line begins with, or that its chain of equations ends with."""
    sentence = re.split(r"(?<=[\d$*)])[.;](?:\s|$)|\bbecause\b|\bsince\b", rest, maxsplit=1)[0]
    _, equals, behind = sentence.rpartition("=")
    return _integer(behind) or (_integer(sentence.partition("=")[0]) if equals else None)


def _integer(text: str, end: re.Pattern[str] | None = None) -> str | None:
    """The one integer that a piece of LaTeX or Markdown begins with, and, with ``end``, ends with."""
    undressed = _undressed(text).strip("() ") if end else _undressed(text)
    called = _CALLED.match(undressed)
    found = _INTEGER.match(undressed, called.end() if called else 0)
    if found is None or len(found[1].lstrip("-0")) > _MAX_DIGITS or _GOES_ON.match(undressed, found.end()):
        return None
    if end is not None and not end.match(undressed, found.end()):
        return None
    return _plain(found[1])


def _last_line(final: str) -> str | None:
    """The number that is alone on the last line; lines of nothing but brackets do not count."""
    lines = (_undressed(line).strip() for line in reversed(final.splitlines()))
    line = next(filter(None, lines), "")
    found = _INTEGER.match(line)
    return _plain(found[1]) if found and line[found.end() :].strip(" .") == "" else None


def _undressed(text: str) -> str:
    text = _DEGREES.sub(" ", text.replace("{,}", ","))
    text = _DRESS.sub("", _SPACE.sub(" ", text))
    return _THOUSANDS.sub(lambda number: number[0].replace(",", ""), text)


def _plain(digits: str) -> str:
    significant = digits.lstrip("-0") or "0"
    sign = "-" if digits.startswith("-") and significant != "0" else ""
    return sign + "".join(str(int(digit)) for digit in significant[:_MAX_DIGITS])


def _last_anywhere(pattern: re.Pattern[str], screen: Screen, output: Output) -> str | None:
    return _last(pattern, output.text) if output.may_match(screen) else None


def _last(pattern: re.Pattern[str], text: str) -> str | None:
    match = _last_match(pattern, text)
    return match[1] if match else None


def _last_match(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    last = None
    for last in pattern.finditer(text):  # noqa: B007 - the last one is wanted
        pass
    return last
