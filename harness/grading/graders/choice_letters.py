"""The letter that answers a multiple-choice question, by the strict rules, for any number of options."""

import itertools
import re
from collections.abc import Iterator

from harness.grading.decoding.output import Output
from harness.grading.graders.statements import (
    FONTS,
    NOT_SO,
    UNSEEN,
    Stated,
    Values,
    grade_final,
    is_conditional,
    is_denial,
    is_supposed,
    is_withdrawn,
    last_answer,
    plainly,
    sentences_of,
)
from harness.grading.scoring.grade import Grade

# Possessive or bounded quantifiers throughout: no text may take more than linear time.
_DRESS = re.compile(rf"{UNSEEN}|{FONTS}|\\[()\[\],;:! ]|\\q?quad\b|[{{}}$*`~]")
_CALLED = r"(?:(?:the|correct|right|best|option|choice|letter|statement|answer(?: is|:)?)\s++){0,5}+"
_OPEN = r"[\s(\[<'\"]*+"
_OPEN_HERE = r"[ \t(\[<'\"]*+"  # the same without line breaks
_CLOSE = r"[ )\]>'\"]*+"
_END = re.compile(r"(?:です|입니다|이다|だ)?[\s.;!。]*+$")
# After the letter: its option's text, which is any text, unless it says that the option is wrong.
_SPECIES = r"(?:elegans|coli|melanogaster|subtilis|thaliana|cerevisiae|difficile|pylori|influenzae)\b"
_OPTION_TEXT = re.compile(rf"(?<=\))\s++(?=\S)|(?<!\s)\s*+[:：]\s++|(?<!\s)\.\s++(?!{_SPECIES})")  # noqa: RUF001
_OPTION_IS_WRONG = re.compile(
    rf"\s*+(?:is|was|are|can be)\s++(?:\w+\s++)?(?:not\b|{NOT_SO})"
    r"|\s*+(?:wrong|incorrect|not (?:correct|right|true|possible))\b[\s.!]*+$",
    re.IGNORECASE,
)
_REASON = re.compile(
    r"(?:\s|,\s)\s*+(?:because|since|as(?! long| if| well)|due to|based on|in accordance)\b", re.IGNORECASE
)
_REMARK = re.compile(
    r"\s*+[,;]\s*+(?:which|where|not|so|the|for|with|i\.e\.|that is|namely|although|though|while|whereas|it"
    r"|we|this|and (?:not|thus|so|hence|therefore))\b|,\s++(?=[A-Za-z]{2,}\s++(?:[a-z]+\s){0,6}+(?:not|to)\b)"
    r"|\s++(?:which|that|for|with|by|given|and (?:we|not|thus|so|hence|therefore|the)|is (?:correct|right"
    r"|the))\b"
    r"|\s++(?:-{1,2}|–|—)\s*+(?=\w)|—\s*+(?=\w)"  # noqa: RUF001
    r"|\s++\((?=\w)",
    re.IGNORECASE,
)
_WAVERS = re.compile(
    r"\b(?:wrong|incorrect|false|if|unless|maybe|perhaps|possibly|would|could|might|unsure|not sure"
    r"|guess|assuming|provided"
    r"|what they|doubt|only when)\b|\?|\b(?:or|and|also|either)\s\(?[A-J]\b|^\s*+\(?[A-J]\b\W*+$"
    r"|not (?:correct|right|the answer)",
    re.IGNORECASE,
)
_SEVERAL = re.compile(
    r"(?:\s|\))*+(?:,|;|/|&|\+|→|\band\b|\bor\b|\bplus\b)(?:\s*+(?:and|or|also|possibly|maybe|perhaps"
    r"|but also)\b)*+\s*+\(?[A-Z]\b"
)
_CLOSING = " \n\t.,;:!?)]}'"
_ANOTHER = re.compile(r"\b(?:and|or) \([A-J]\)")
_CHOSEN = re.compile(
    r"(?:\b(?:choose|select|pick|(?:go|going) with)|(?<![不非未别])(?:选择?|選択?))[\s:：]++(?=\S)"  # noqa: RUF001
    r"|(?<![不非未别])(?:选择?|選)(?=[A-Z(（])"  # noqa: RUF001
)
_I_WOULD = re.compile(r"\bI would (?=(?:go with|choose|pick|select)\b)")
_PRAISED = re.compile(
    r"\s(?:is|are)\s(?:(?:indeed|therefore|thus|clearly|then|the only (?:one|option|choice"
    r"|answer) that is)\s)?"
    r"(?:the\s)?(?:correct|right|best)\b(?=\W*+$|\s(?:because|since|as|choice|option|answer|one)\b|[,;:(])"
)
_CONCLUDED = re.compile(
    r"(?:\b(?:[Tt]hus|[Hh]ence|[Tt]herefore|[Ss]o|[Ii]t is|[Ii]t's|[Tt]hat is|[Tt]his is|which is"
    r"|[Bb]y elimination|corresponds to|matches)\b|=>|⇒|→|\((?=[Oo]ption ))[\s,:]*+"
)


class LetterReader(Values):
    """Reads the last explicit answer among the options from A to ``last``; its letters are Values."""

    def __init__(self, last: str) -> None:
        self._last_option = last
        letter = (
            rf"(?:([A-{last}])|(?P<lower>[a-{last.lower()}])(?=[\s)\].]*+$|\)))"
            rf"(?![^\W_\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7a3]|'(?<!'[A-J]')|[_^+=#/<*]|>(?!\s*$)"
            r"|-(?=\w)|\s++\d)"
        )
        self._letter = re.compile(rf"{_OPEN}(?i:{_CALLED}){_OPEN}{letter}({_CLOSE})(?!\s*+[=+*/^<>_→])")
        self._mentioned = re.compile(
            rf"(?<![A-Za-z'\\])(?:[B-{last}]|A(?!\s++[a-z]))(?![A-Za-z'_^0-9]|\s*+[=+*/^<>])"
        )
        self._alone = re.compile(
            rf"^[ \t>#$]*+(?:Option "
            rf"|Choice )?(?:\\[(\[])?+{_OPEN_HERE}([A-{last}]){_CLOSE}[.:]?+[ \t$]*+(?:\\[)\]])?+$",
            re.MULTILINE,
        )
        self._line = re.compile(
            rf"^[ \t]*+(?:Option|Choice) {_OPEN_HERE}([A-{last}]){_CLOSE}[.:](?!\S)[^\n]*+$", re.MULTILINE
        )
        self._listed = re.compile(
            rf"^[ \t]*+[(\[]?([A-{last}]|[a-{last.lower()}])[)\].:](?:\s|$)", re.MULTILINE
        )

    def check_reference(self, value: object) -> str:
        """The true letter, a capital."""
        text = str(value).strip().upper()
        if len(text) != 1 or not "A" <= text <= self._last_option:
            raise ValueError(f"one letter from A to {self._last_option}")
        return text

    def strict(self, output: Output, truth: str) -> Grade:
        """The grade of the answer in the final part."""
        return grade_final(output, truth, lambda final: last_answer(final, self) or self._chosen(final))

    # --- as Values ----------------------------------------------------------------------------

    def stated(self, text: str) -> str | None:
        """As Values."""
        undressed = _undressed(text)
        found = None if text.lstrip().startswith("~") else self._letter.match(undressed)
        if found is None or not _is_complete(undressed, found):
            return None
        return (found[1] or found["lower"]).upper()

    def exactly(self, text: str) -> str | None:
        """As Values."""
        undressed = _undressed(text)
        found = self._letter.match(undressed)
        return found[1] if found and not undressed[found.end() :].strip(" .") else None

    def boxed(self, content: str) -> str | None:
        """As Values."""
        value = self.stated(content)
        is_unclear = value is None and len(content) < 60 and self.is_mentioned(_undressed(content))
        return "" if is_unclear else value

    def is_mentioned(self, text: str) -> bool:
        """As Values."""
        return self._mentioned.search(text) is not None

    # --- without a statement ------------------------------------------------------------------

    def _chosen(self, final: str) -> Stated | None:
        """The last letter chosen, called right, concluded or alone on a line; else the first of the text."""
        text = plainly(final)
        found = max((*self._picked(text), *self._lines(text)), key=lambda one: one.start, default=None)
        found = found or self._at_the_start(text)
        return None if found is None or is_withdrawn(text, found) else found

    def _picked(self, text: str) -> Iterator[Stated]:
        end = len(text.rstrip(_CLOSING))
        for start, sentence in sentences_of(_I_WOULD.sub("I will  ", text)):
            if is_supposed(sentence) or sentence.rstrip().endswith("?"):
                continue
            for pattern in (_CHOSEN, _CONCLUDED) if start + len(sentence) >= end else (_CHOSEN,):
                for lead in pattern.finditer(sentence) if not is_denial(sentence) else ():
                    rest = sentence[lead.end() :]
                    value = self.stated(rest) if pattern is _CHOSEN else self.exactly(rest)
                    if value and not is_conditional(rest):
                        yield Stated(value, start + lead.start(), start + len(sentence))
            praised = {
                value
                for name in _PRAISED.finditer(sentence)
                if (value := self.exactly(_last_words(sentence[: name.start()])))
                and not is_conditional(after := sentence[name.end() :])
                and not _WAVERS.search(after)
            }
            if praised:
                yield Stated(praised.pop() if len(praised) == 1 else None, start, start + len(sentence))

    def _lines(self, text: str) -> Iterator[Stated]:
        """A letter alone on a line; several in a row are a list."""
        alone = [*self._alone.finditer(text)]
        in_a_row = any(not text[one.end() : two.start()].strip() for one, two in itertools.pairwise(alone))
        for found in () if in_a_row else (*alone[-1:], *self._line.finditer(text)):
            if not _OPTION_IS_WRONG.match(text[found.end(1) + 1 : found.end()]):
                yield Stated(found[1], found.start(), found.end())

    def _at_the_start(self, text: str) -> Stated | None:
        """A letter that begins a text or is all of it, unless other options follow like it."""
        begins = re.match(r"[\s→⇒]*+(?:=>)?", text)
        start = begins.end() if begins else 0
        line = text[start : start + 300].partition("\n")[0]
        found = self._letter.match(_undressed(line))
        listed = {one[1].upper() for one in self._listed.finditer(text)}
        if (
            found is None
            or (found["lower"] and text.strip() != line.strip())
            or len(listed) > 1
            or is_supposed(line)
            or _is_called_wrong(line)
        ):
            return None
        return Stated(self.stated(line), start, start + len(line))


def _is_complete(text: str, found: re.Match[str]) -> bool:
    """Whether what follows a letter leaves it the answer."""
    place = found.end()
    after = text[place:]
    if _END.match(after):
        return True
    if _SEVERAL.match(text, found.end(1) if found[1] else place):
        return False
    start = place - (len(found[3]) - len(found[3].rstrip()))
    if option := _OPTION_TEXT.match(text, start):
        return not _OPTION_IS_WRONG.match(text, option.end()) and not _ANOTHER.search(text, option.end())
    if _REASON.match(text, start):
        return True
    remark = _REMARK.match(text, start)
    return remark is not None and not _WAVERS.search(text, remark.end())


def _is_called_wrong(line: str) -> bool:
    """Whether a line that begins with a letter calls it wrong."""
    return (
        re.match(r"\W*+[A-Za-z]\W*+(?:(?:is|are|was|can|cannot)\b|false\b|wrong\b|incorrect\b|no\b)", line)
        is not None
    )


def _last_words(text: str) -> str:
    """The subject of a sentence, after its last comma and what introduces it."""
    clause = re.split(r"[,;:]", text)[-1]
    return re.sub(
        r"^\W*(?:(?:so|thus|hence|therefore|then|only|and|but|that|the others fail)\b\s*)*",
        "",
        clause,
        flags=re.IGNORECASE,
    )


def _undressed(text: str) -> str:
    return _DRESS.sub("", text)
