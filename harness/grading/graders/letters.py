"""The letter that answers a multiple-choice question, by the strict rules, for any number of options."""

import re
import string

from harness.grading.decoding.output import Output
from harness.grading.grade import Grade, Reason, answered, unanswered

# Possessive or bounded quantifiers throughout: no text may take more than linear time.
_OPEN = r"(?:\\\(|\\\[|[\s*_`$({\[\"'“]|\\(?:text|textbf|mathbf|mathrm|bf)\b)*+"
_VERB = r"(?:is\b|:|=|：|would be\b|should be\b|must be\b)"  # noqa: RUF001
# After "The answer is A": words that go on after a letter, not after an article.
_AFTER_LETTER = re.compile(
    r"[\s*_`)}\]$\"'”]*(?:$|[\n.,;:!?(–—-]|\\|(?:because|since|as|due|for|with|which|and|is|in|by|from|that)\b)"  # noqa: RUF001
)
# Letters that are neither words nor, in an answer, usual names of quantities.
_PLAIN = "BCD"
_LIST_DRESS = (("['", '["'), ("']", '"]'))  # a Python list of one string, printed


def unlisted(text: str) -> str:
    """The text in a printed Python list of one string, or the text; escapes replaced, as officially."""
    if text.startswith(_LIST_DRESS[0]) and text.endswith(_LIST_DRESS[1]):
        text = text[2:-2].strip()
    return unescaped(text)


def unescaped(text: str) -> str:
    """The text with ``\\n`` and ``\\'`` as the characters that they stand for, as officially."""
    return text.replace(r"\n", "\n").replace(r"\'", "'")


def _explicit(upper: str, either: str) -> tuple[re.Pattern[str], ...]:
    """A letter boxed, called the answer after the word, or after the bare word."""
    boxed = re.compile(
        rf"\\boxed\s*{{{_OPEN}(?:option |choice )?{_OPEN}([{either}])(?![A-Za-z])(?!\s*+[=+*/^<>_])",
        re.IGNORECASE,
    )
    stated = re.compile(
        rf"\b(?:answer|choice|option|result)\b[\s*_`]*+{_VERB}[\s*_`:]*+"
        r"(?:(?:indeed|the|correct|option|choice|letter|statement|answer|therefore|thus|clearly)\b[\s*_`:]*+){0,9}+"
        rf"{_OPEN}([{either}])(?![A-Za-z'])",
        re.IGNORECASE,
    )
    called = re.compile(
        rf"(?:\b(?:Answer|ANSWER|answer)\s++|答案[\s：:是为]*+){_OPEN}([{upper}])(?![A-Za-z'])"  # noqa: RUF001
    )
    return boxed, stated, called


def _chosen(upper: str) -> tuple[re.Pattern[str], ...]:
    """A letter on a line of its own, picked, called correct, or concluded."""
    chosen = re.compile(rf"\b(?:choose|select|pick)\s++(?:option |choice )?{_OPEN}([{upper}])(?![A-Za-z'])")
    praised = re.compile(
        r"(?:(?:^|(?<=[.!?]\s))[*_`(]*+|\(|\b[Oo]ption [*_`(]*+|\b[Cc]hoice [*_`(]*+)"
        rf"([{upper}])\b[)*_`]*+\s"
        r"(?:is|are)\s(?:indeed\s)?(?:the\s)?(?:correct|right|best|answer)\b",
        re.MULTILINE,
    )
    concluded = re.compile(
        r"(?:\b(?:[Tt]hus|[Hh]ence|[Tt]herefore|[Ss]o|[Ii]t is|[Tt]hat is|[Tt]his is"
        r"|corresponds to|matches)\b|=>|⇒|→)"
        rf"[\s,:]*+(?:(?:the|correct|option|choice|answer)\b[\s*_`:]*+){{0,9}}+{_OPEN}([{upper}])"
        r"[\s*_`)}\]$\"'”]*+(?:[.!\n]|$)"
    )
    line = re.compile(rf"^[ \t*_`#>$({{\[\"']*+([{upper}])[ \t*_`$)}}\].:\"']*+$", re.MULTILINE)
    return line, chosen, praised, concluded


def _at_the_start(upper: str, either: str) -> tuple[re.Pattern[str], ...]:
    """A letter that begins a text, is all of it, or is followed by another letter."""
    first = re.compile(
        rf"[\s*_`#>$({{\[]*+([{upper}])[*_`$}}\]]*+[ \t]*+"
        r"(?:[).:,;–—]|(?<=\s)(?:-\s|because\b|since\b)|\n|$)"  # noqa: RUF001
    )
    alone = re.compile(rf"[\W_]*+([{either}])[\W_]*+$")
    # "A and B", "A, B", "A/B": several letters are no answer.
    several = re.compile(
        r"[\s*_`)}\]$\"']*+(?:,|/|&|\band\b|\bor\b|\bplus\b)(?:\s*+(?:and|or)\b)?+"
        rf"[\s*_`({{\[$\"']*+[{upper}]"
        r"[*_`)}\]$\"']*+(?=\s*+(?:[.,;:!?)\n]|$|and\b|or\b|are\b))"
    )
    return first, alone, several


class LetterReader:
    """Reads the last explicit answer among the options from A to ``last``."""

    def __init__(self, last: str) -> None:
        self._last_option = last
        upper = f"A-{last}"
        either = f"{upper}a-{last.lower()}"
        letters = string.ascii_uppercase[: string.ascii_uppercase.index(last) + 1]
        self._full_width = str.maketrans({chr(ord(one) - ord("A") + 0xFF21): one for one in letters})
        self._boxed, self._stated, self._called = _explicit(upper, either)
        self._chosen = _chosen(upper)
        self._first, self._alone, self._several = _at_the_start(upper, either)

    def check_reference(self, value: object) -> str:
        """The true letter, a capital."""
        text = str(value).strip().upper()
        if len(text) != 1 or not "A" <= text <= self._last_option:
            raise ValueError(f"one letter from A to {self._last_option}")
        return text

    def strict(self, output: Output, truth: str) -> Grade:
        """The grade of the answer in the final part."""
        if output.strict_final is None:
            return unanswered(output.defect or Reason.NO_FINAL)
        letter = self.explicit(output.strict_final)
        if letter is None:
            return unanswered(output.defect or Reason.NO_ANSWER)
        return answered(letter, letter == truth)

    def explicit(self, final: str) -> str | None:
        """The last letter boxed or called the answer; else chosen or alone on a line; else the first."""
        final = final.translate(self._full_width)
        return (
            self._last(final, (self._boxed, self._stated, self._called))
            or self._last(final, self._chosen)
            or self._at_the_start(final)
        )

    def _at_the_start(self, final: str) -> str | None:
        found = self._alone.match(final) or self._first.match(final)
        return found[1].upper() if found and not self._several.match(final, found.end(1)) else None

    def _last(self, text: str, patterns: tuple[re.Pattern[str], ...]) -> str | None:
        found = [
            (match.start(1), match[1].upper())
            for pattern in patterns
            for match in pattern.finditer(text)
            if self._is_no_word(match, pattern) and not self._several.match(text, match.end(1))
        ]
        return max(found)[1] if found else None

    def _is_no_word(self, match: re.Match[str], pattern: re.Pattern[str]) -> bool:
        """ "The answer is a function of ..." names no letter; "the answer is A because" does."""
        if pattern not in (self._stated, self._called) or match[1] in _PLAIN:
            return True
        return bool(_AFTER_LETTER.match(match.string, match.end(1)))
