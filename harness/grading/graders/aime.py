r"""AIME: an integer from 0 to 999.

Official: the last ``\boxed{digits}`` of the complete text, drafts included, else the last ``Answer: digits``.
Strict: the last explicit answer of the final channel, however it is dressed.
"""

import re

from harness.grading.decoding.output import Output
from harness.grading.graders.statements import (
    FONTS,
    READ_CHARACTERS,
    UNSEEN,
    Sentences,
    Stated,
    Values,
    grade_final,
    is_denial,
    is_plain,
    is_supposed,
    is_withdrawn,
    last_answer,
    last_match,
    line_of,
    plainly,
)
from harness.grading.graders.units import ADJECTIVES, COUNTED, MEASURES
from harness.grading.scoring.grade import Grade, Reason, answered, unanswered

LARGEST = 999
_MAX_DIGITS = 50  # longer digit strings are no answers by the strict rules
_OFFICIAL_BOXED = re.compile(r"\\boxed{\s*(\d+)\s*}")
# "Answer: 42." has none by the official rule: the digits may not be followed by a full stop.
_OFFICIAL_ANSWER = re.compile(r"Answer:\s*(\d++)(?!\.)\b", re.IGNORECASE)

# Possessive or bounded quantifiers throughout: no text may take more than linear time.
_UNSEEN = re.compile(UNSEEN)
_DRESS = re.compile(
    rf"{FONTS}\s*+|\\[()\[\]${{}}]|[{{}}$`]|(?<![0-9A-Za-z])[*_]++|[*_]++(?![0-9A-Za-z{{])|\\approx\b|≈"
)
_SPACE = re.compile(r"\\[,;:! ]|\\q?quad\b|~")
_DEGREES = re.compile(r"(?:\^\s*+)?+{?+(?:\\circ|\\degree|°)}?+")
_THOUSANDS = re.compile(r"(?<![\d,.])\d{1,3}(?:,\d{3})+(?![\d,])")
_CALLED = re.compile(
    r"\s*+(?:(?:the )?(?:final )?answer\s*+(?:is|[:=])?+\s*+|\([A-E]\)[\s:]*+)?+", re.IGNORECASE
)
_INTEGER = re.compile(r"\+?+(-?+\d++)(?:\.0*+(?!\d|\.\.))?+")
_ADJECTIVES = "|".join(sorted(ADJECTIVES, key=len, reverse=True))
_NOUNS = "|".join(sorted((name for name in {*MEASURES, *COUNTED} if len(name) > 1), key=len, reverse=True))
_UNITS = (
    rf"(?:\s*+°(?!\s*\d)|\s*+(?:(?:{_ADJECTIVES}|non-negative)\.?\s++){{0,4}}+(?:(?:{_NOUNS})e?s?"
    rf"|(?<=\s)(?-i:[mshgl]))(?![A-Za-z0-9])\.?(?:\s*\^\s*[23]|[²³])?"
    r"(?:\s(?:per|each|of)\s(?:the\s)?(?!dozen|hundred|thousand|million"
    r"|percent)[a-z]{1,20})?(?:\s(?:in total|in all|altogether))?)"
)
_MODULUS = r"\s*+,?\s*+\(?+\s*+(?:\\[bp]?mod|mod(?:ulo)?)\s*+\(?+1,?000\)?+"
_CLOSED = r"[\s)\]'✓]*+[.。]?+[\s)\]'✓]*+"
# What may follow the number of a statement: a unit, then nothing, a reason or a remark.
_COMPLETE = re.compile(rf"(?:\s++in (?:total|all)|\s++altogether|{_UNITS}|{_MODULUS})?+\s*+{_CLOSED}$", re.I)
_REASON = re.compile(
    rf"(?:{_UNITS}|{_MODULUS})?+(?:,?\s*+(?:because|since|as)\b|\s*+[.;]\s*+there)", re.IGNORECASE
)
_REMARK = re.compile(
    rf"(?:{_UNITS}|{_MODULUS})?+(?:\s*+[,;]\s*+(?:(?:as|which|where|so|not|obtained|found|the|attained"
    rf"|for|with|we|this"
    r"|it|done|there|that is)\b|and (?:we|this|that|it|the|so|thus|hence)\b)|\s*+:\s++(?=[A-Za-z])"
    r"|\s++(?:-{1,2}|–|—)\s*+(?=[A-Za-z])|—(?=[A-Za-z])|\s++\((?=[A-Za-z]))",  # noqa: RUF001
    re.IGNORECASE,
)
# In a remark: what changes a number or takes it back.
_CHANGES = re.compile(
    r"\b(?:wrong|incorrect|false|mistake|error|if|unless|maybe|perhaps|possibly|or|base|hundreds?|thousands?"
    r"|millions?|billions?|dozens?|percent|times|plus|minus|divided|multiplied|squared|cubed|half|halved"
    r"|twice|doubled?|tripled?|mod|modulo|rounded|approx\w*|binary|octal|hex\w*|would|could|might|assuming"
    r"|provided|too|guess|unsure|uncertain|add(?:ed|ing)?|subtract(?:ed|ing)?"
    r"|not (?:correct|right|sure|certain|the|checked|proven|it|what|true))\b|[?%½]",
    re.IGNORECASE,
)
_RELATION = re.compile(
    r"[<>≠≤≥,;?!|]|\\(?:n?eq?|not|[lg]e?q?|[lg]eq|lt|gt|sim|cancel|pm|mp|in|mid)\b"
    r"|(?<!\\)\b(?:[a-z]{3,}|or|is|if)\b"
)
_EQUALS = re.compile(r"=|≡|\\equiv\b")
_COMPUTED = re.compile(r"[\d\s+*/^().·×-]*+(?:\\(?:cdot|times)[\d\s+*/^().·×-]*+)*+$")  # noqa: RUF001
_CONCLUSION = re.compile(
    r"(?:is|are|equals|takes?|was|total(?:s|ing)?|gives?|get|obtain|have|find)\s++"
    r"(?:exactly\s++|therefore\s++|thus\s++|equal to\s++|a total of\s++)?",
    re.IGNORECASE,
)
_CONCLUDES = re.compile(
    r"\s*+(?:thus|therefore|hence|so|finally|in total|altogether|consequently|then)\b", re.IGNORECASE
)
_TOTAL = re.compile(
    r"\s*+(?:the|our)\s(?:(?:required|requested|desired|final|total|whole)\s)*+"
    r"(?:remainder|sum|total|product|value|number|area|volume|length|perimeter|difference"
    r"|probability)\b[^\d=]*+$",
    re.IGNORECASE,
)
# A multiple or a power of one unknown: the number is not what was asked for.
_OF_PART = re.compile(r"(?:^|\s)(?:\d*[A-Za-z]\s?\^\s?\{?\d+\}?|\d+[A-Za-z])\s*$")
_NAME = re.compile(r"[A-Za-z]\.?")
_LINE = re.compile(r"[^\n]++")
_RANGE = re.compile(r"\b(?:from |between )?0 ?(?:to|and|-|–) ?999\b")  # noqa: RUF001
_BOLD = re.compile(
    r"\*\*[^*\n]{1,80}\*\*[^*\n]{0,40}$|__[^_\n]{1,80}__[^_\n]{0,40}$|\\mathbf\b|\$[^$]{1,60}\$\W*$"
)


def check_reference(value: object) -> str:
    """The true integer without leading zeros."""
    text = str(int(value) if isinstance(value, float) and value.is_integer() else value).strip()
    if not re.fullmatch(r"\d{1,3}", text):
        raise ValueError("an integer from 0 to 999")
    return str(int(text))


def official(output: Output, truth: str) -> Grade:
    """The grade by the published rules."""
    # What is last in the suffix is last in the text, and the suffix is short.
    found = (
        last_match(_OFFICIAL_BOXED, output.suffix)
        or last_match(_OFFICIAL_BOXED, output.text)
        or last_match(_OFFICIAL_ANSWER, output.text)
    )
    value = None if found is None else _official_integer(found[1])
    if found is None or value is None or value > LARGEST:
        return unanswered(output.defect or Reason.NO_ANSWER)
    return answered(str(value), str(value) == truth, line_of(found.string, *found.span()))


def _official_integer(digits: str) -> int | None:
    """Leading zeros are taken, up to the length at which Python refuses to convert (4,300 digits)."""
    try:
        return int(digits)
    except ValueError:
        return None


def strict(output: Output, truth: str) -> Grade:
    """The grade of the answer in the final channel."""
    return grade_final(output, truth, lambda final: last_answer(final, _Integers()) or _concluded(final))


class _Integers(Values):
    """Integers."""

    def stated(self, text: str) -> str | None:
        """As Values."""
        if text.lstrip().startswith("~"):  # about
            return None
        undressed = _undressed(text).strip()
        return _followed(undressed) or _of_chain(undressed)

    def exactly(self, text: str) -> str | None:
        """As Values."""
        return _complete(_undressed(text).strip())

    def boxed(self, content: str) -> str:
        """As Values. What is no integer is shown as it stands: never right, whatever the truth."""
        undressed = _undressed(content).strip()
        undressed = undressed[_CALLED.match(undressed).end() :]  # type: ignore[union-attr]
        inside = undressed.strip("() ")
        return _complete(inside) or _of_chain(undressed) or content.strip()[:_MAX_DIGITS]

    def is_mentioned(self, text: str) -> bool:
        """As Values. A range of integers is what is asked for."""
        return re.search(r"\d", _RANGE.sub("", text)) is not None


def _integer(text: str) -> tuple[str, str] | None:
    """The integer that a text begins with, and the rest."""
    found = _INTEGER.match(text)
    if found is None or len(found[1].lstrip("-0")) > _MAX_DIGITS:
        return None
    return _plain(found[1]), text[found.end() :]


def _complete(text: str) -> str | None:
    """The integer that is all of a text, with or without a unit."""
    found = _integer(text)
    return found[0] if found and _COMPLETE.match(found[1]) else None


def _followed(text: str) -> str | None:
    """The integer that a text begins with, where what follows leaves it as it is."""
    found = _integer(text)
    if found is None:
        return None
    value, rest = found
    if _COMPLETE.match(rest) or _REASON.match(rest):
        return value
    remark = _REMARK.match(rest)
    return value if remark and not _CHANGES.search(rest, remark.end()) else None


def _of_chain(text: str) -> str | None:
    """The integer that a chain of equations ends with, or begins with and then computes."""
    *sides, last = _EQUALS.split(text)
    if not sides:
        return None
    if _OF_PART.search(sides[-1]):
        return None
    if (value := _followed(last.strip())) and not any(map(_RELATION.search, sides)):
        return value
    first = _integer(sides[0].strip())
    is_computed = all(map(_COMPUTED.match, (*sides[1:], last))) or _NAME.fullmatch(
        text.partition("=")[2].strip()
    )
    return first[0] if first and not first[1].strip() and is_computed else None


def _concluded(final: str) -> Stated | None:
    """A first or last line that is nothing but a number, or a last sentence that ends with one."""
    lines = [*_LINE.finditer(final)]
    first, last = (next(filter(_has_text, each), None) for each in (lines, reversed(lines)))
    if first is None or last is None:
        return None
    values = _Integers()
    for line in (last, first):
        value = values.exactly(plainly(line[0]))
        if value and not is_withdrawn(plainly(final), found := Stated(value, line.start(), line.end())):
            return found
    text = plainly(last[0])
    places = [place for place in Sentences(text) if text[slice(*place)].strip()]
    if not places:
        return None
    start, end = places[-1]
    value = _conclusion(_undressed(text[start:end]).strip(), last[0][start:])
    return Stated(value, last.start() + start, last.end()) if value else None


def _has_text(line: re.Match[str]) -> bool:
    return bool(_undressed(line[0][:READ_CHARACTERS]).strip(" \t*_-"))


def _conclusion(sentence: str, dressed: str) -> str | None:
    """The number that a last sentence ends with: "So the sum is 204"."""
    if is_supposed(sentence) or is_denial(sentence) or len(sentence) > READ_CHARACTERS:
        return None
    verbs = list(_CONCLUSION.finditer(sentence))
    *sides, last = _EQUALS.split(sentence)
    if (
        sides
        and not _OF_PART.search(sides[-1])
        and (value := _complete(last.strip()))
        and is_plain(re.sub(r"\\[A-Za-z]+|\b\w\b", "", " ".join(sides)))
    ):
        return value
    if not verbs or not (value := _complete(sentence[verbs[-1].end() :])):
        return None
    subject = sentence[: verbs[-1].start()]
    return value if _CONCLUDES.match(subject) or _TOTAL.match(subject) or _BOLD.search(dressed) else None


def _undressed(text: str) -> str:
    text = _DEGREES.sub(" °", _UNSEEN.sub("", text.replace("{,}", ",").replace(r"\$", "")))
    text = _DRESS.sub("", _SPACE.sub(" ", text))
    return _THOUSANDS.sub(lambda number: number[0].replace(",", ""), text)


def _plain(digits: str) -> str:
    significant = digits.lstrip("-0") or "0"
    sign = "-" if digits.startswith("-") and significant != "0" else ""
    return sign + "".join(str(int(digit)) for digit in significant)
