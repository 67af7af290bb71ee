r"""Statements of an answer: the boxes and sentences of a text that give one, for any kind of answer.

A statement counts only if all of it is understood: words that are known to lead to the answer, a value, and
nothing after the value that could change it. A sentence that supposes, denies or quotes is not a statement. A
statement that is not understood is no answer either, and it takes back what was stated before it.
"""

import bisect
import itertools
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence

import msgspec

from harness.grading.decoding.output import Output
from harness.grading.scoring.grade import Grade, Reason, answered, unanswered

READ_CHARACTERS = 200  # the most that a grade names of the text that was read
_SHORT, _LONG = 120, 400  # the most characters that are read beside a value, and of a sentence
_MOST = 200  # the number of statements of a kind that are read, from the last one; more are a loop


class Stated(msgspec.Struct, frozen=True):
    """A statement of an answer, and its place in the text."""

    value: str | None
    """None: the statement is not understood."""
    start: int
    end: int
    is_certain: bool = True
    """An uncertain statement is no answer where it contradicts a certain one before it."""
    is_answer: bool = True
    """Whether it gives an answer; else it can only contradict one."""


class Values(ABC):
    """The values of one kind of answer."""

    PERCENT_MAY_FOLLOW = False
    """Whether a percent sign after a box is its unit."""

    @abstractmethod
    def stated(self, text: str) -> str | None:
        """The value of what follows "the answer is", to the sentence's end; None: not understood."""

    @abstractmethod
    def exactly(self, text: str) -> str | None:
        """The value that a text is, and nothing else."""

    @abstractmethod
    def boxed(self, content: str) -> str | None:
        r"""The value in a ``\boxed{}``; None: the box is no answer; "": not understood."""

    def several(self, values: Sequence[str]) -> str | None:
        """The value of boxes with "or", "and" or a comma between them; None: not understood."""
        return None

    @abstractmethod
    def is_mentioned(self, text: str) -> bool:
        """Whether a text names what could be a value."""


# Possessive or bounded quantifiers throughout: no text may take more than linear time.
UNSEEN = (
    r"\\(?:[hv]?phantom|hspace|color|textcolor)\s*+{[^{}]*+}|\\(?:square|blacksquare|qed|checkmark)\b"
    r"|[□■∎✓✔✅]"
)
FONTS = (
    r"\\(?:boxed|fbox|framebox|text(?:bf|it|sf|tt|rm)?|math(?:bf|rm|it|sf|tt)|underline|emph|bf|rm"
    r"|displaystyle|boldsymbol|bm|left|right|[Ll]arge|LARGE|[Hh]uge|small)\b"
)
_STRUCK = re.compile(
    r"~~[^~\n]{1,200}~~|<(del|s)>[^<\n]{0,200}</\1>|<!--(?:[^-]|-(?!->)){0,400}+-->"
    r"|\\(?:sout|cancel|xcancel|bcancel|st)\s*+{[^{}\n]{0,200}}"
)
_EMPHASIS = re.compile(
    r"(?<![0-9A-Za-z])[*_]++|[*_]++(?![0-9A-Za-z{])|`++|[\"“”«»]|^[ \t]*+(?:[#>]++|[-*+•])(?=\s)[ \t]*+"
    r"|</?(?:[bipu]|\|?[A-Za-z_]{2,20}\|?)>",
    re.MULTILINE,
)
_TAG = re.compile(r"</?(?:final[_ ]?)?(?:answer|solution|result|choice)>", re.IGNORECASE)
_ROW = re.compile(r"^[ \t]*+\|[^\n]*\|[ \t]*+$", re.MULTILINE)
_FIELD_END = re.compile(r"(?<=[\"\d\]}]),(?=\s*+\"[A-Za-z_]{1,40}\"\s*+:)")
_SAME_WIDTH = str.maketrans(
    {
        **{chr(0xFF01 + offset): chr(0x21 + offset) for offset in range(94)},
        "\N{MINUS SIGN}": "-", "\N{NO-BREAK SPACE}": " ", "’": "'", "‘": "'", "\t": " ", "\r": " ",  # noqa: RUF001
    }
)  # fmt: skip
# Each alternative begins with a character, which makes the search fast.
_NEXT = r"(?=(?:The|So|Thus|Hence|Therefore|Final|Answer)\s)"
_BORDER = re.compile(
    r"[\n。！？]"  # noqa: RUF001
    r"|[.!?](?<![.!?]{2})(?<!\bi\.e\.)(?<!\be\.g\.)(?<!\bapprox\.)(?<!\bsq\.)(?<!\bcu\.)[.!?]*+"
    r"(?=[\s)}\]$*'✓✔]|$)(?!(?<=\s\.)\s++\d)"
    r"(?!(?<=\b[A-J]\.)\s++[a-z])"
    rf"|(?:\\\]|\\end\{{[a-z* ]{{1,20}}\}}|[$\d])\s*+{_NEXT}"
)

_NOUN = (
    r"(?<![^\W_])(?:answer|ans(?=[\s.:=*-])|result|solution(?=\s*+:)|correction|corrected|revised|choice"
    r"|option|(?<=correct )one|(?<=right )one|respuesta|r[ée]ponse|antwort|resposta|risposta|ответ|cevap"
    r"|odpowiedź|odpověď|svar|jawaban|đáp án|الجواب|الإجابة|उत्तर|정답|답)(?![^\W_])"
    r"|答案|答え|回答|解答|正解|选项|選項"
)
_OF_WHAT = (
    r"(?:\s*+(?:\$[^$\n]{1,60}\$|\\\([^\n]{1,60}?\\\)|,?\s*(?:of course|therefore|then|thus|hence)\s*,"
    r"|\((?:final|letter|integer|number)\)|here|(?:that )?(?:we|I) (?:want|seek|need|get|are looking for)"
    r"|(?:among|from|out of|of) (?:the |these |all )?(?:given |listed |four |ten )?"
    r"(?:options|choices)(?: given)?|choice|option|value"
    r"|(?:to|for|of|in) (?:(?:the|this|our|that|your)\s)?(?:(?:original|given|entire|whole|full|final)\s)?"
    r"(?:problem|question|exercise|task)|(?:to|for|of)\s\$[^$\n]{1,60}\$|correcta|correcte|correta"
    r"|corretta|finale?))?+"
)
_VERB = (
    r"(?:(?:is|are|was|equals|=(?!>)|must (?:(?:therefore|then|thus) )?be|should be|will be|has to be"
    r"|have to be|can only be|turns out to be|works out to be|turned out to be|appears to be|seems to be"
    r"|comes out (?:to be|to|as)|becomes|would be|would then be|es|est|ist|lautet|è|é|är|это"
    r"|adalah)(?![^\W_])|[是为為は選选])"
)
_SIGN = r"(?:\s*+[-=]>|\s*+[:=→⇒➜]++|(?<=\s)(?:-{1,2}|–|—)(?=\s)|(?<=ans)\.(?=\s))"  # noqa: RUF001
_ADVERB = (
    r"(?:[\s:,]*+(?:indeed|therefore|thus|hence|just|exactly|simply|then|definitely|clearly|obviously"
    r"|certainly|surely|(?:most |very )?(?:likely|probably)|of course|also|again|still|really|actually"
    r"|precisely|in fact|equal to|given by|approximately|the integer|(?:the )?number|now)(?![^\W_]))*+,?+"
)
_OPENED = r"(?:\s|[:*`$}]|\\[\[(,;:! ]|\\q?quad\b|(?<=\{)|\{)*+"
_LEAD = re.compile(
    rf"({_NOUN}){_OF_WHAT}[\s*_$}})]*+(?:({_VERB})|({_SIGN})){_ADVERB}[\s:*`}}]*+({_OPENED})", re.IGNORECASE
)
_HEADING = re.compile(
    rf"^\W{{0,12}}(?:the )?(?:final |my )?({_NOUN})\W{{0,6}}$", re.IGNORECASE | re.MULTILINE
)

_IS_THE_ANSWER = re.compile(
    r"\s(?:is|are)\s(?:(?:indeed|therefore|thus|hence|then|clearly|definitely|also)\s)?"
    r"(?:the|our|my)\s(?:(?:only|one|single|most|final|required|requested|desired|correct|right|best|plausible"
    r"|likely|appropriate|accurate|suitable)\s){0,4}+(?:answer|option|choice|one|result)\b"
    r"(?=\W*(?:$|\n|[.,;:!(—]|because|since|as|for|to th))(?:\s(?:that|which)\sis\s(?:correct|right))?",
    re.IGNORECASE,
)

# Words between the beginning of a clause and "answer" that leave it a plain statement.
_LEADING = """
    a an the this our my so thus hence therefore then and now finally ultimately consequently accordingly
    overall correction final correct right best only appropriate accurate plausible likely requested
    required desired sought numerical numeric integer complete exact actual true corrected revised
    updated new single simplest letter problem question s we i can get find have obtain conclude see know
    determine deduce say believe think am are confident that which means implies gives shows yields it
    follows in conclusion summary total sum up to altogether by elimination ok okay yes indeed is most
    suitable reasonable closest comprehensive fitting valid probable text textbf mathbf but however
    nearest on reflection no wait actually hmm sorry la le l das die der de el o il est es richtige
    richtig bonne правильный correcto
"""
_PLAIN_WORDS = frozenset(_LEADING.split())
_PLAIN_CJK = re.compile(
    r"[所以因此故则正确正確最终最終最后本题本題的综上应選选该题案得出可知我们答はです정은、，：\s]*+$"  # noqa: RUF001
)
_CLAUSE = re.compile(
    r"(?i)[,;:，；：()]|\s(?:-|–|—)\s|\\text\b|\b(?:so|thus|hence|therefore|then)\b"  # noqa: RUF001
)
_WORD = re.compile(r"[^\W\d_]+")
_SO = r"(?:so|thus|hence|therefore)"
_CONCLUDES = re.compile(rf"\b{_SO}\b", re.IGNORECASE)
# Words for what others hold, or what is not known.
_HEARSAY = (
    r"unless\b|whether\b|claim(?:s|ed)?|says?|said|insists?|tempt(?:ing|ed)|na[iï]ve(?:ly)?|misconception"
    r"|nobody|no one|guess(?:ed)?|perhaps|maybe|possibly|not sure|unsure|at first|pretend|imagine"
)
# What makes a sentence a supposition, a denial or a quotation.
_SUPPOSES = re.compile(
    rf"\b(?:{_HEARSAY}|if(?! and only if)(?<!only if)|would|could|might|may|without|suppos(?:e|ing)"
    r"|assum(?:e|es|ed|ing)|saying|according|doubt|nothing|students|people|many|textbooks?|beginners?"
    r"|believes|thinks|possible|unlikely|format|example|e\.g|instead|mistaken(?:ly)?"
    r"|common (?:mistake|error)|had we|were the)\b|^\W*+(?:had|were|should)\b|[如若假]果|假如|有人|不是|不选",
    re.IGNORECASE,
)
# What makes the clause before a box no answer, beside a denial.
_DOUBTS = re.compile(
    rf"\b(?:{_HEARSAY}|(?:would|could|might|may)(?:\s\w+){{0,2}}\W*+$|common error|suppose\b"
    r"|let's (?:test|try|check|see))",
    re.IGNORECASE,
)
_DENIES = re.compile(
    r"(?:\b(?:not|never|cannot|nor|neither|except|other than|rather than|wrong|incorrect|false|mistake|error"
    r"|unlikely|doubt|tempting|impossible)\b|n't\b|≠|\\neq?\b|\\not\b)(?! (?:only|hard|difficult|too hard))",
    re.IGNORECASE,
)
_TAKEN_BACK = re.compile(
    r"^\W*+(?:wait|oops|hm+|hold on|scratch that|strike that|never mind|i take that back|or rather"
    r"|just kidding|let me (?:reconsider|recheck|redo|correct)"
    r"|on (?:second thought|further thought|reflection|reconsideration|(?:a )?closer (?:look|inspection)))\b"
    r"|^\W*+(?:no|sorry)\s*+(?:\W?$|[,;:!—-]\s*+(?:that|this|it|wait|the|I|let|actually|not|sorry|my)\b)"
    r"|^\W*+actually\b.{0,80}?(?:\bnot\b|n't\b|wrong|incorrect|mistake)"
    r"|\bI (?:was wrong|made an? (?:mistake|error)|mis(?:counted|calculated|read)|(?:cannot|can't) decide)\b",
    re.IGNORECASE,
)
_THAT_IS_WRONG = re.compile(
    r"\b(?:that|this|it|which)(?: answer| result| value)?(?:\s(?:is|was|must be|seems|looks)|'s)\s"
    r"(?:not\s(?:right|correct|true|so|it|the answer)|wrong|incorrect|false|impossible"
    r"|an? (?:mistake|error))\b(?=\W*+(?:$|because|since|as|so|but))"
    r"|\b(?:that|this|it) (?:can't|cannot|can not|isn't|wasn't)(?: be)?"
    r" (?:right|correct|true|so|it|the answer)\b",
    re.IGNORECASE,
)
NOT_SO = (
    r"(?:false|wrong|incorrect|impossible|excluded|eliminated|ruled out|invalid|the (?:wrong|incorrect)"
    r"|(?:not|never)\s(?:\w+\s)?(?:an?\s|the\s|our\s|my\s)?"
    r"(?:answer|correct|right|true|possible|valid|option|choice|solution|it|what))\b"
)
_DENIAL = (
    r"\s(?:(?:(?:is|was|are|were|can|must|seems|looks|has|to|been|be|therefore|also|clearly)\s){1,4}+"
    rf"{NOT_SO}|(?:isn't|wasn't|cannot be|can't be)\s(?:an? |the |our )?"
    r"(?:answer|correct|right|true|possible|valid)\b)"
)
_DENIED_AFTER = re.compile(
    r"\W{0,12}(?:(?:which|this|that|and|but)\W++){0,2}"
    r"(?:(?:is|was|would|could|might|may|seems|looks|cannot|can)\b"
    rf"[^.\n]{{0,25}}?\b(?:{NOT_SO}|too (?:large|small|big|simple))"
    r"|would\b|(?:isn't|wasn't|can't|cannot|fails?|does not|doesn't|must be (?:rejected|wrong))\b)",
    re.IGNORECASE,
)

_MARKS = {"\\[": "\\]", "\\(": "\\)", "$$": "$$", "$": "$"}
_BOX = re.compile(r"\\(?:boxed|fbox|framebox)\s*+{")
_BRACE = re.compile(r"\\[{}]|[{}]")
_BETWEEN_BOXES = re.compile(
    r"[\s$,;]*+(?:\\text\s*+{\s*+)?+(?:,|;|/|&|and|or|und"
    r"|oder)(?:\s*+})?+[\s$]*+(?:\w{1,3}\s*+=)?+[\s$]*+|\s*+\$?+\s*+[,;]\s*+\$?+\s*+"
)
# Mathematics beside a box that makes it a part of something else.
_PART_BEFORE = re.compile(
    r"(?:[+*/^<>≠≤≥!±]|\\(?:cdot|times|div|pm|mp|neq?|not|l?ge?q?|leq?|gt|lt|sqrt|frac|[dt]frac"
    r"|binom)\b[\s{]*+|(?<![^\W\d_]{2})(?<!\n)(?<!^)[ ]*-|[\d}]|\\\w{1,9}\{)\s*+$"
)
_DRESS_BEFORE = re.compile(
    r"(?:\\(?:text|mathbf|textbf|mathrm|bf|color\{\w+\}|textcolor\{\w+\}|underline|displaystyle|Large"
    r"|left)\s*+\{?|[{(\[\s~]|\\[,;:! (\[]|\\q?quad\b)++$"
)
_PART_AFTER = re.compile(
    r"(?:[\s}~]|\\[,;:! ]|\\q?quad\b)*+(?:[+*/<>≠≤≥!±_-]|(?<!\s)\d|\d{3}(?!\d)|\^(?!\s*{?\s*\\circ)"
    r"|\\(?:cdot|times|div|pm|mp|neq?|not|bmod|over|leq?|geq?|lt|gt)(?![A-Za-z])|\\(?:(?:boxed"
    r"|fbox)\s*\{(?=\s*\S)|(?:frac|sqrt|pi)\b))"
)
_PERCENT_AFTER = re.compile(r"[\s$}]*+(?:\\?%|\\text\s*+{\s*+percent|percent\b)")
_SCALED_AFTER = re.compile(
    r"(?:[\s}~$*_]|\\[,;:! )\]]|\\q?quad\b|\\text\s*\{)*+(?:(?:hundred|thousand|million|billion|trillion"
    r"|dozen|times|squared|cubed|divided|plus|minus|factorial|in base|base)\b|\.\d|[½⅓¼¾万亿千百])"
)


def grade_final(output: Output, truth: str, read: Callable[[str], Stated | None]) -> Grade:
    """The grade of the answer that ``read`` finds in the final part: right where it is ``truth`` itself.

    A statement that the token limit may have cut is none.
    """
    final = output.strict_final
    if final is None:
        return unanswered(output.defect or Reason.NO_FINAL)
    found = read(final)
    if found is None or found.value is None or (output.defect and _is_cut(final, found)):
        return unanswered(output.defect or Reason.NO_ANSWER)
    text = final[found.start : min(found.end, found.start + READ_CHARACTERS)].strip()
    return answered(found.value, found.value == truth, text)


def _is_cut(text: str, found: Stated) -> bool:
    """Whether a statement ends where the text does, and in the middle of a word or number."""
    return found.end >= len(text.rstrip()) and text.rstrip()[-1:].isalnum()


def last_answer(text: str, values: Values) -> Stated | None:
    """The last statement, or None; its value is None where it is not understood or contradicted."""
    plain = plainly(text)
    sentences = Sentences(plain)
    found: Stated | None = None
    for one in sorted(
        (
            *_boxes(plain, sentences, values),
            *_sentences(plain, sentences, values),
            *_named(plain, sentences, values),
            *_taken_back(plain, sentences),
        ),
        key=lambda stated: (stated.end, stated.start),
    ):
        if one.is_answer and (one.is_certain or found is None or not found.is_certain):
            found = one
        elif found is not None and one.value != found.value is not None and _contradicts(plain, one, found):
            found = Stated(None, one.start, one.end)
    if found is not None and found.value is not None and is_denied(plain, found):
        return Stated(None, found.start, found.end)
    return found


def last_match(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    """The last match of a pattern."""
    last = None
    for last in pattern.finditer(text):  # noqa: B007 - the last one is wanted
        pass
    return last


def line_of(text: str, start: int, end: int) -> str:
    """The line that a match lies in, as much of it as a grade names."""
    room = (READ_CHARACTERS - min(end - start, READ_CHARACTERS)) // 2
    before, after = text[max(0, start - room) : start], text[start : end + room]
    return (before.rpartition("\n")[2] + after.partition("\n")[0])[:READ_CHARACTERS].strip()


def _contradicts(text: str, one: Stated, found: Stated) -> bool:
    """ "That is wrong" is about what it follows at once."""
    return one.is_certain or one.value is not None or not re.search(r"\w", text[found.end : one.start])


def sentences_of(text: str) -> Iterator[tuple[int, str]]:
    """The place and text of each sentence of a plain text, from the last one on."""
    for start, end in reversed([*Sentences(text)]):
        yield start, text[start : min(end, start + _LONG)]


def plainly(text: str) -> str:
    """The text without Markdown and what is struck out, every character in its place."""
    text = _STRUCK.sub(_blank, text.translate(_SAME_WIDTH))
    text = _FIELD_END.sub("\n", text)
    text = _TAG.sub(_tag, text)
    text = _ROW.sub(_row, text)
    return _EMPHASIS.sub(_blank, text)


def _blank(match: re.Match[str]) -> str:
    return " " * len(match[0])


def _tag(match: re.Match[str]) -> str:
    tag = match[0]
    return "\n" + " " * (len(tag) - 1) if tag[1] == "/" else f" {tag[1:-1]}:"


def _row(match: re.Match[str]) -> str:
    inside = match[0].strip()[1:-1].replace("|", ":")
    return f" {inside} ".ljust(len(match[0]))


def is_supposed(text: str) -> bool:
    """Whether a sentence supposes, denies or quotes."""
    return _SUPPOSES.search(text) is not None


def is_denial(text: str) -> bool:
    """Whether a sentence denies something."""
    return _DENIES.search(text) is not None


class Sentences:
    """A text's sentences by place."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._starts = [0, *(border.end() for border in _BORDER.finditer(text))]

    def around(self, place: int) -> tuple[int, int]:
        """The start and end of the sentence that holds a place, no farther than is looked at."""
        number = bisect.bisect_right(self._starts, place) - 1
        end = self._starts[number + 1] if number + 1 < len(self._starts) else len(self._text)
        return max(self._starts[number], place - _LONG), min(end, place + _LONG)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        yield from zip(self._starts, (*self._starts[1:], len(self._text)), strict=True)


# --- boxes ------------------------------------------------------------------------------------


def boxes(text: str) -> list[tuple[int, int, str | None]]:
    """The start, end and content of each outermost box; None is the content of one that is not closed."""
    opened = {match.end(): match.start() for match in _BOX.finditer(text)}
    pending: list[int] = []
    found: list[tuple[int, int, str | None]] = []
    for brace in _BRACE.finditer(text) if opened else ():
        if brace[0] == "{":
            pending.append(brace.end())
        elif brace[0] == "}" and pending and (start := pending.pop()) in opened:
            while found and found[-1][0] > opened[start]:
                found.pop()
            found.append((opened[start], brace.end(), text[start : brace.start()]))
    cut = next((start for start in pending if start in opened and text[start:].strip()), None)
    if cut is None:
        return found
    return [*(one for one in found if one[0] < opened[cut]), (opened[cut], len(text), None)]


def _boxes(text: str, sentences: Sentences, values: Values) -> Iterator[Stated]:
    row: list[str] = []  # the values of boxes that make a list
    previous = 0
    for start, end, content in boxes(text):
        value: str | None = "" if content is None else values.boxed(content) if content.strip() else None
        if value is None:
            continue
        if not _BETWEEN_BOXES.fullmatch(text, previous, start):
            row = []
        row.append(value)
        previous = end
        if len(row) > 1:
            value = values.several(row) if all(row) else None
        before = text[max(sentences.around(start)[0], start - _SHORT) : start]
        after = text[end : end + _SHORT]
        is_asked = text[end : sentences.around(end - 1)[1]].rstrip().endswith("?")
        clause = _last_clause(before)
        is_share = not values.PERCENT_MAY_FOLLOW and _PERCENT_AFTER.match(after) is not None
        if not value or is_share or _is_part(before, after) or _DENIED_AFTER.match(after):
            yield Stated(None, start, end)
        else:
            is_answer = not (is_asked or _DENIES.search(clause) or _DOUBTS.search(clause))
            yield Stated(value, start, end, not _SUPPOSES.search(before), is_answer)


def _is_part(before: str, after: str) -> bool:
    stripped = _DRESS_BEFORE.sub("", before)
    cut = before[len(stripped) :]
    outside = "\\(" in cut or "\\[" in cut or before.endswith("$")
    return (
        (not outside and _PART_BEFORE.search(stripped) is not None)
        or re.search(r"\\(?:sqrt|[dt]?frac|binom|overline|lfloor|log|ln)\s*+(?:\{[^{}]*\})?\{$", before)
        is not None
        or (not after.lstrip().startswith("$") and _PART_AFTER.match(after) is not None)
        or _SCALED_AFTER.match(after) is not None
    )


def _last_clause(text: str) -> str:
    last = last_match(_CLAUSE, text)
    return text[last.end() :] if last else text


# --- sentences --------------------------------------------------------------------------------


def _sentences(text: str, sentences: Sentences, values: Values) -> Iterator[Stated]:
    leads = [(match.start(1), match.start(4), match.end(), match[2]) for match in _LEAD.finditer(text)][
        -_MOST:
    ]
    leads += [(match.start(1), match.end(), match.end(), "") for match in _HEADING.finditer(text)][-_MOST:]
    for noun, begin, place, verb in leads:
        first, _ = sentences.around(noun)
        last = sentences.around(_closed(text, begin, place))[1]
        stated = _statement(text[first:noun], text[begin:last], (verb or "").lower(), values)
        if stated is not None:
            value, is_certain, is_answer = stated
            yield Stated(value, max(first, noun - READ_CHARACTERS // 3), last, is_certain, is_answer)


def _closed(text: str, begin: int, value: int) -> int:
    """The place of a value, or, where mathematics was opened before it, that of its close."""
    opened = next((mark for mark in _MARKS if mark in text[begin:value]), None)
    return value if opened is None else max(value, text.find(_MARKS[opened], value, value + _LONG))


_BUT = re.compile(r"(?:,\s*(?:it's|it is|but|rather)|\bbut)\s(?:rather\s)?", re.IGNORECASE)


def _named(text: str, sentences: Sentences, values: Values) -> Iterator[Stated]:
    """ "204 is the answer": what precedes is the value, after plain words."""
    for named in [*_IS_THE_ANSWER.finditer(text)][-_MOST:]:
        first, last = sentences.around(named.start())
        subject, after = text[first : named.start()], text[named.end() : last]
        near = _last_clause(subject)
        far = subject[: len(subject) - len(near)]
        value = values.exactly(_without_plain_words(near))
        if (
            value is not None
            and not is_supposed(subject)
            and not is_conditional(after)
            and not _DENIES.search(after)
        ):
            yield Stated(value, first, last, is_plain(far))


def _without_plain_words(text: str) -> str:
    """A clause's end, after words that leave it plain; letters alone may be values."""
    words = list(_WORD.finditer(text))
    skipped = itertools.takewhile(lambda word: len(word[0]) > 1 and word[0].lower() in _PLAIN_WORDS, words)
    return text[max((word.end() for word in skipped), default=0) :]


def _statement(prefix: str, rest: str, verb: str, values: Values) -> tuple[str | None, bool, bool] | None:
    """The value, whether it is certain, and whether it is an answer."""
    rest = rest[:_LONG]
    if rest.rstrip().endswith(("?", "？")) or _BOX.search(rest):  # noqa: RUF001
        return None  # a question; or the box gives the answer
    near = _last_clause(prefix)
    far = prefix[: len(prefix) - len(near)]
    supposed = (
        is_supposed(near) or is_denial(near) or (verb.startswith("would") and not _CONCLUDES.search(prefix))
    )
    if supposed or (_SUPPOSES.search(far) and not _CONCLUDES.search(far)):
        return None
    value = values.stated(rest)
    if value is None:
        if correct := _BUT.search(rest) if _DENIES.match(rest.lstrip()) else None:
            corrected = values.exactly(rest[correct.end() :])
            return corrected, False, is_plain(near)
        if (
            not values.is_mentioned(rest)
            or is_conditional(rest)
            or _DENIES.match(rest.lstrip())
            or _LEAD.search(rest)
        ):
            return None
        return None, True, True
    is_certain = not is_supposed(far) and is_plain(far)
    return value, is_certain, is_plain(near)


def is_conditional(text: str) -> bool:
    """Whether a condition limits what a sentence states."""
    return re.search(r"\b(?:if|unless|when|provided|assuming|only|would)\b", text, re.IGNORECASE) is not None


def is_plain(text: str) -> bool:
    """Whether all words are such as lead to an answer."""
    return all(word.lower() in _PLAIN_WORDS for word in _WORD.findall(text)) or bool(_PLAIN_CJK.match(text))


def _taken_back(text: str, sentences: Sentences) -> Iterator[Stated]:
    """What contradicts any statement before it; "that is wrong" only the one that it follows at once."""
    for start, end in sentences:
        sentence = text[start : min(end, start + _LONG)]
        if _TAKEN_BACK.search(sentence) or _THAT_IS_WRONG.search(sentence):
            yield Stated(None, start, start, _TAKEN_BACK.search(sentence) is not None, is_answer=False)


def is_denied(text: str, found: Stated) -> bool:
    """Whether a later sentence calls the value wrong."""
    value = re.escape(found.value or "")
    if len(value) > _SHORT:
        return False
    denied = re.compile(rf"(?<![\w.])(?:{value})[)$}}]*+(?:\\\))?{_DENIAL}")
    return denied.search(text, found.end) is not None


def is_withdrawn(text: str, found: Stated) -> bool:
    """Whether a later sentence calls the value wrong or takes it back."""
    taken_back = (one for one in _taken_back(text, Sentences(text)) if one.is_certain)
    return is_denied(text, found) or any(one.start >= found.end for one in taken_back)
