r"""AIME: an integer from 0 to 999.

Official: the last ``\boxed{digits}`` of the whole text, drafts included, else the last ``Answer: digits``.
Strict: the last explicit answer of the final channel, however it is dressed.
"""

import re

from harness.grading.harmony import Output
from harness.grading.verdict import Reason, Verdict, judged, unanswered

LARGEST = 999
_MAX_DIGITS = 50  # longer digit strings are no answers by the strict rules
_OFFICIAL_BOXED = re.compile(r"\\boxed{\s*(\d+)\s*}")
# "Answer: 42." has none by the official rule: the digits may not be followed by a full stop.
_OFFICIAL_ANSWER = re.compile(r"Answer:\s*(\d++)(?!\.)\b", re.IGNORECASE)

# Possessive quantifiers throughout: no text may take more than linear time.
_BOXED = re.compile(r"\\(?:boxed|fbox)\s*+{((?:[^{}]++|{(?:[^{}]++|{[^{}]*+})*+})*+)}")
_STATED = re.compile(
    r"\banswer\b[*_`\s]*+(?:is|:|=)[*_`:\s]*+(?:therefore |thus |just )?+([^\n]*+)", re.IGNORECASE
)
_DRESS = re.compile(
    r"\\(?:text|textbf|mathbf|mathrm|mathit|bf)\s*|\\[()\[\],;! ]|[{}$*_`~]|\\(?:left|right)\b"
)
_DEGREES = re.compile(r"(?:\^\s*+)?+{?+(?:\\circ|\\degree|°|degrees?\b)}?+")
_THOUSANDS = re.compile(r"(?<![\d,])\d{1,3}(?:,\d{3})+(?![\d,])")
_INTEGER = re.compile(r"\s*+(-?+\d++)(?:\.0*+)?+(?![\d/^])")
_WHOLE = re.compile(r"\s*+(-?+\d++)(?:\.0*+)?+\s*+\.?+\s*+$")


def official(output: Output, truth: int) -> Verdict:
    """The verdict of the published rules."""
    # What is last in the tail is last in the text, and the tail is short.
    digits = _last(_OFFICIAL_BOXED, output.tail) or _last(_OFFICIAL_BOXED, output.text)
    digits = digits or _last(_OFFICIAL_ANSWER, output.text)
    value = None if digits is None else _official_integer(digits)
    if value is None or value > LARGEST:
        return unanswered(output.defect or Reason.NO_ANSWER)
    return judged(str(value), value == truth)


def _official_integer(digits: str) -> int | None:
    """Leading zeros are taken, up to the length at which Python refuses to convert (4,300 digits)."""
    try:
        return int(digits)
    except ValueError:
        return None


def strict(output: Output, truth: int) -> Verdict:
    """The verdict on what the final channel says."""
    if output.final is None:
        return unanswered(output.defect or Reason.NO_FINAL)
    answer = explicit_answer(output.final)
    if answer is None:
        return unanswered(output.defect or Reason.NO_ANSWER)
    return judged(answer, answer == str(truth))


def explicit_answer(final: str) -> str | None:
    """The last answer that is boxed or called so, else a last line that is nothing but a number."""
    boxed, stated = _last_match(_BOXED, final), _last_match(_STATED, final)
    value = _value(stated[1]) if stated else None
    if boxed and (value is None or stated is None or stated.start() < boxed.end()):
        return _value(boxed[1]) or boxed[1].strip()[:_MAX_DIGITS]
    if value is not None:
        return value
    last_line = final.rstrip().rpartition("\n")[2]
    bare = _WHOLE.match(_undressed(last_line))
    return _plain(bare[1]) if bare else None


def _value(text: str) -> str | None:
    """The integer that a piece of LaTeX or Markdown stands for; what follows the last ``=`` counts."""
    undressed = _undressed(text.rpartition("=")[2])
    found = _INTEGER.match(undressed)
    return _plain(found[1]) if found and len(found[1].lstrip("-0")) <= _MAX_DIGITS else None


def _undressed(text: str) -> str:
    text = _DEGREES.sub(" ", text.replace("{,}", ","))
    text = _DRESS.sub("", text)
    return _THOUSANDS.sub(lambda number: number[0].replace(",", ""), text)


def _plain(digits: str) -> str:
    significant = digits.lstrip("-0") or "0"
    return ("-" if digits.startswith("-") else "") + significant[:_MAX_DIGITS]


def _last(pattern: re.Pattern[str], text: str) -> str | None:
    match = _last_match(pattern, text)
    return match[1] if match else None


def _last_match(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    last = None
    for last in pattern.finditer(text):  # noqa: B007 - the last one is wanted
        pass
    return last
