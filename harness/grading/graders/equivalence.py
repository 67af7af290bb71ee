"""Whether two mathematical answers mean the same: the strict rules for MATH-500.

Lists are compared in any order, tuples and intervals with their brackets, and values as numbers, at several
points where they have variables. The sandbox runs this file as text, after ``units`` and ``latex``.
"""

import itertools
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import sympy

from harness.grading.graders.latex import CLOSERS, OPENERS, SympyValue, UnreadableError, value_of
from harness.grading.graders.units import MEASURES, is_unit

_LONGEST = 5_000  # characters of an answer; equal texts of any length never come here
_LONGEST_PRODUCT = 3  # letters that may be variables rather than a word
_RECURSION_LIMIT = 2_000
_DIGITS, _TOLERANCE = 40, 1e-25
_POINTS = (
    (1.37, 2.21, 0.83, 3.19),
    (0.59, 1.13, 2.47, 0.31),
    (3.71, 0.47, 1.91, 2.83),
    (-1.29, -0.67, -2.39, 1.53),
)
_DEGREE = r"(?:\\circ|\\degree|°)"
_MATRIX = r"[pbBvV]?(?:small)?(?:matrix|array)"


def _commands(names: str) -> str:
    """The pattern of LaTeX's commands with these names."""
    return rf"\\(?:{names.replace(' ', '|')})(?![A-Za-z])"


_REPLACED = [
    (re.compile(pattern), text)
    for pattern, text in (
        (r"\\\\(?:\[[^\]]*\])?", "¶"),  # the end of a matrix's row
        (r"\\!|" + _commands("displaystyle textstyle limits [Ll]arge LARGE [Hh]uge small normalsize"), ""),
        (r"\\(?:[hv]?phantom|hspace|color|textcolor)\s*\{[^{}]*\}", ""),
        (r"\\[,;: ]|~|\n|" + _commands("q?quad"), " "),
        (r"\\[()\[\]]|(?<!\\)\$", ""),
        (_commands("left right [bB]igg?[lrm]?") + r"\.?", ""),
        (_commands("[dtc]frac"), r"\\frac"),
        (_commands("[dt]binom"), r"\\binom"),
        (
            _commands(
                "boxed fbox mathbf boldsymbol bm mathit mathsf mathtt mathbb bf rm underline ensuremath"
            ),
            "",
        ),
        (_commands("textbf textit textrm textsf texttt emph mathrm mbox hbox operatorname"), r"\\text"),
        (_commands("leq? leqslant") + "|≤", "≤"),
        (_commands("geq? geqslant") + "|≥", "≥"),
        (_commands("lt"), "<"),
        (_commands("gt"), ">"),
        (_commands("in colon") + "|∈", "∈"),
        (_commands("cup") + r"|∪|(?<=[)\]])\s*U\s*(?=[(\[])", "∪"),  # noqa: RUF001
        (_commands("[lr]?vert mid"), "|"),
        (_commands("langle lparen"), "("),
        (_commands("rangle rparen"), ")"),
        (_commands("cdot times ast") + "|[×·⋅]", "*"),  # noqa: RUF001
        (_commands("div") + "|÷", "/"),
        (r"[−–]", "-"),  # noqa: RUF001
        (_commands("pm"), "±"),
        (rf"\^?\s*\{{\s*{_DEGREE}\s*\}}|\^?\s*{_DEGREE}(?![A-Za-z])|\s*\bdegrees?\b", "°"),
        (_commands("approx") + "|≈", ""),
        (r"\\%|\bpercent\b|\\text\{\s*percent\s*\}", "%"),
        (r"\\text\{\s*°\s*\}", "°"),
        (r"\\text\{\s*,?\s*(?:and|or)\s*\}|\b(?:and|or)\b", ","),
        (r"\{,\}", ","),
        (rf"\\begin\{{{_MATRIX}\}}(?:\{{[clr|]*\}})?", r"\\begin"),
        (rf"\\end\{{{_MATRIX}\}}", r"\\end"),
        (r"(?<![\\A-Za-z])(sqrt|pi|infinity|infty|inf|sin|cos|tan|log|ln|exp)(?![A-Za-z])", r"\\\1"),
        (_commands("inf(?:inity)?"), r"\\infty"),
        (r"(?<=\d)[eE](?=[+-]?\d)", "*10^"),
        *((sign, rf"\\{name}") for sign, name in {"√": "sqrt", "π": "pi", "∞": "infty"}.items()),
        ("²", "^2"),
        ("³", "^3"),
    )
]
_LOOSE_SPACE = re.compile(r"(?<!\d)\s++|\s++(?!\d)")
_THOUSANDS = re.compile(r"(?<![\d,.])[1-9]\d{0,2}(?:[, ]\d{3})++(?![\d,])")
_ZEROS = re.compile(r"\d[, ]0\d\d")
_POWER = r"(?:\s*\^\s*\{?\s*\d\s*\}?)?"
_UNIT_TEXT = re.compile(rf"\s*\\text\s*\{{([^{{}}]*)\}}{_POWER}\s*$")
_UNIT_WORDS = re.compile(
    rf"(?<=[\d}})\s])\s*((?:(?:square|cubic|sq|cu)\.? )?(?!(?:m|s|h|g|l|c)\b)(?:{'|'.join(MEASURES)})(?:es"
    rf"|s)?(?: per [a-z]+)?)\.?{_POWER}\s*$"
)
_ONLY_TEXT = re.compile(r"(?:\\text\s*\{[^{}]*\}|[(){}\s])+|\(?[A-Za-z]\)|[A-Za-z]{2,}(?:[\s-][A-Za-z]+)*")
_WRAPPED = re.compile(r"(\\text)?\s*\{")
_IS_WORDS = re.compile(r"[^\d\\{}]*[A-Za-z][A-Za-z\s().-]+$")
_OF_ANGLE = re.compile(_commands("sin cos tan cot sec csc"))
_DOLLARS = re.compile(r"([+-]?)\s*\\\$")
_DENIED = re.compile(r"\\(?:not|neq?|neg|lnot|approxeq)(?![A-Za-z])|[≠¬]")
_NAME = re.compile(
    r"\s*(?:\([a-z](?:,\s*[a-z])+\)|[A-Za-z]|\\[a-z]+)(?:_(?:\w|\{\w+\}))?(?:\([a-z](?:,\s*[a-z])*\))?'?\s*"
)
_WITH_BASE = re.compile(r"\s*(\d+)_\{?(\d+|\\text\{\w+\})\}?\s*")
_RELATION = re.compile("[<>≤≥]")
_MIRRORED = str.maketrans("<>≤≥", "><≥≤")


class _Answer(msgspec.Struct, frozen=True):
    """One element of an answer."""

    kind: str
    """value, equation, tuple, union, matrix, base or word"""
    text: str
    parts: tuple[Any, ...] = ()
    """What it consists of, by its kind."""
    unit: str = ""


# The exceptions of sympy for values that it cannot compute with.
_UNREADABLE = (
    RecursionError,
    ArithmeticError,
    LookupError,
    ValueError,
    TypeError,
    AttributeError,
    NotImplementedError,
)


def same(given: str, truth: str) -> bool:
    """Whether the answers mean the same."""
    sys.setrecursionlimit(_RECURSION_LIMIT)
    if max(len(given), len(truth)) > _LONGEST:
        return False
    texts = _cleaned(given), _cleaned(truth)
    if _LOOSE_SPACE.sub("", texts[0]) == _LOOSE_SPACE.sub("", texts[1]):
        return bool(texts[0])
    return any(_same_reading(mine, true) for mine, true in itertools.product(*map(_readings, texts)))


def _readings(text: str) -> set[str]:
    """ "100,200" is a number, or a list; "1,000" is no list."""
    joined = _THOUSANDS.sub(lambda number: re.sub("[, ]", "", number[0]), text)
    return {joined} if _ZEROS.search(text) else {joined, text}


def _same_reading(given: str, truth: str) -> bool:
    try:
        return _same_elements(list(_elements(given)), list(_elements(truth)))
    except (UnreadableError, *_UNREADABLE):
        return False


def _cleaned(text: str) -> str:
    for pattern, replacement in _REPLACED:
        text = pattern.sub(replacement, text)
    return _unwrapped(text)


def _unwrapped(text: str) -> str:
    """The text without full stops, and without braces or a font around all of it."""
    while True:
        text = text.strip().rstrip(".,;").strip()
        found = _WRAPPED.match(text)
        if found is None or _end_of_group(text, found.end()) != len(text) - 1:
            return text
        inside = text[found.end() : -1]
        if found[1] and _IS_WORDS.match(inside):
            return text
        text = inside


def _end_of_group(text: str, start: int) -> int:
    """The place of the brace that closes the group which begins at ``start``; -1 without one."""
    depth = 1
    for brace in re.finditer(r"\\[{}]|[{}]", text[start:]):
        depth += {"{": 1, "}": -1}.get(brace[0], 0)
        if not depth:
            return start + brace.start()
    return -1


def _bare(text: str) -> str:
    """The text without spaces, braces and fonts."""
    return re.sub(r"\\text(?![A-Za-z])|[\s{}]", "", text).casefold()


def _elements(text: str) -> Iterator[_Answer]:
    """The elements of a list, which a set has too. Raises UnreadableError."""
    text = text.strip()
    if _DENIED.search(text):
        raise UnreadableError(text)
    name, _, elements = text.partition("=")
    if _NAME.fullmatch(name) and elements.strip().startswith("\\{"):
        text = elements.strip()
    if text.startswith("\\{") and text.endswith("\\}"):
        text = text[2:-2]
    for part in _split(text, ",;"):
        if "±" in part:
            yield _read(part.replace("±", "+"))
            yield _read(part.replace("±", "-"))
        else:
            yield _read(part)


def _split(text: str, separators: str) -> list[str]:
    """The parts of a text between separators outside of all brackets."""
    parts, depth, start = [], 0, 0
    for token in re.finditer(r"\\.|.", text, re.DOTALL):
        char = token[0]
        depth += (char in OPENERS) - (char in CLOSERS)
        if char in separators and not depth:
            parts.append(text[start : token.start()])
            start = token.end()
    return [part.strip() for part in (*parts, text[start:])]


def _read(text: str) -> _Answer:
    """One element. Raises UnreadableError."""
    text = text.strip()
    if not text:
        raise UnreadableError("nothing")
    if _ONLY_TEXT.fullmatch(text):
        return _Answer("word", text)
    if found := _WITH_BASE.fullmatch(text):
        return _Answer("base", text, (found[1].lstrip("0"), found[2]))
    if "∈" in text:
        name, _, values = text.rpartition("∈")
        if not _NAME.fullmatch(name):
            raise UnreadableError(text)
        return _read(values)
    if len(pieces := _split(text, "∪")) > 1:  # noqa: RUF001
        return _Answer("union", text, tuple(map(_read, pieces)))
    if _RELATION.search(text):
        return _interval(text)
    if len(sides := _split(text, "=")) > 1:
        return _equation(text, sides)
    if re.match(r"[(\[]\s*\\begin", text) and re.search(r"\\end\s*[)\]]$", text):
        text = text[1:-1].strip()
    if text.startswith("\\begin") and text.endswith("\\end"):
        rows = text.removeprefix("\\begin").removesuffix("\\end").split("¶")
        return _Answer(
            "matrix", text, tuple(tuple(map(value_of, row.split("&"))) for row in rows if row.strip())
        )
    if (
        (found := _UNIT_TEXT.search(text))
        and text[: found.start()].endswith((")", "]"))
        and is_unit(found[1])
    ):
        text = text[: found.start()]
    if text[0] in "([" and text[-1] in ")]" and len(inner := _split(text[1:-1], ",;")) > 1:
        return _Answer("tuple", text, (text[0], text[-1], tuple(map(_read, inner))))
    return _measured(text)


def _measured(text: str) -> _Answer:
    """A value with its unit, as ``%``, ``°`` or a word. In a sum ``%`` is part of its last term."""
    unit, rest = "", text
    of_last = text[-1] == "%" and len(_split(text.lstrip("+-"), "+-")) > 1
    if money := _DOLLARS.match(text):
        unit, rest = "dollar", money[1] + text[money.end() :]
    elif text[-1] in "%°" and not (of_last or _OF_ANGLE.search(text)):
        unit, rest = text[-1], text[:-1]
    elif found := _UNIT_TEXT.search(text) or _UNIT_WORDS.search(text):
        unit, rest = found[1], text[: found.start()]
        if unit.strip(" .,") and not is_unit(unit):
            raise UnreadableError(unit)
    return _Answer("value", text, (value_of(rest),), unit)


def _equation(text: str, sides: list[str]) -> _Answer:
    """``x = 5`` is the value 5; an equation between expressions is the difference of its sides."""
    if _NAME.fullmatch(sides[0]) or len(sides) > 2:
        named = _read(sides[-1])
        if len(sides) == 2 and named.kind == "value" and named.parts[0].free_symbols:
            if named.unit:
                raise UnreadableError(text)
            return _Answer("equation", text, (value_of(sides[0]) - named.parts[0], named))
        return named
    if _NAME.fullmatch(sides[1]):
        return _equation(text, sides[::-1])
    return _Answer("equation", text, (value_of(sides[0]) - value_of(sides[1]), None))


def _interval(text: str) -> _Answer:
    """An inequality in one variable as the interval that it is. Raises UnreadableError for others."""
    sides, signs = _RELATION.split(text), _RELATION.findall(text)
    if _NAME.fullmatch(sides[-1]) if len(sides) == 2 else set(signs) <= set(">≥"):
        sides, signs = sides[::-1], [sign.translate(_MIRRORED) for sign in reversed(signs)]
    if len(sides) == 2 and signs[0] in "<≤":
        sides, signs = ["-\\infty", *sides], ["<", *signs]
    elif len(sides) == 2:
        sides, signs = [sides[1], sides[0], "\\infty"], [signs[0].translate(_MIRRORED), "<"]
    if len(sides) != 3 or not set(signs) <= set("<≤"):
        raise UnreadableError(text)
    low, name, high = sides
    brackets = "[" if signs[0] == "≤" else "(", "]" if signs[1] == "≤" else ")"
    ends = tuple(_measured(end) for end in (low, high))
    if not _NAME.fullmatch(name) or any(end.kind != "value" or end.parts[0].free_symbols for end in ends):
        raise UnreadableError(text)
    return _Answer("tuple", text, (*brackets, ends))


# --- comparison -------------------------------------------------------------------------------


def _same_elements(given: list[_Answer], truth: list[_Answer]) -> bool:
    """Whether every element has its equal, in any order."""
    left = list(given)
    for wanted in truth:
        found = next((one for one in left if _same(one, wanted)), None)
        if found is None:
            return False
        left.remove(found)
    return not left


def _same(given: _Answer, truth: _Answer) -> bool:
    if "word" in (given.kind, truth.kind):
        letters = _letters(given.text), _letters(truth.text)
        # "yx" is a product, too.
        return letters[0] == letters[1] or (
            max(map(len, letters)) <= _LONGEST_PRODUCT and sorted(letters[0]) == sorted(letters[1])
        )
    if given.kind == truth.kind:
        return _COMPARED[given.kind](given, truth)
    kinds = {given.kind: given, truth.kind: truth}
    if kinds.keys() == {"equation", "value"}:
        named = kinds["equation"].parts[1]
        return named is not None and _same(named, kinds["value"])
    if kinds.keys() == {"base", "value"}:  # the true answer's base may be left out
        digits, base = kinds["base"].parts
        return (truth.kind == "base" or base == "10") and bool(_bare(kinds["value"].text) == digits)
    if kinds.keys() == {"matrix", "tuple"}:
        row = [value for line in kinds["matrix"].parts for value in line]
        opening, _, elements = kinds["tuple"].parts
        is_vector = opening == "(" and 1 in (len(kinds["matrix"].parts), len(kinds["matrix"].parts[0]))
        return is_vector and _same_values(row, [element.parts[0] for element in elements])
    return False


def _letters(text: str) -> str:
    """A word without brackets, spaces, fonts and signs of multiplication."""
    return re.sub(r"[()\s.*]", "", _bare(text))


def _same_measure(given: _Answer, truth: _Answer) -> bool:
    units = _unit(given.unit), _unit(truth.unit)
    known = [unit for unit in units if unit in MEASURES.values() or unit in ("%", "°")]
    if len(known) == 2 and known[0] != known[1]:
        return False
    mine, true = given.parts[0], truth.parts[0]
    if units != ("%", "") and _is_equal(mine, true):
        return True
    factor = {"%": sympy.Rational(1, 100), "°": sympy.pi / 180}
    if units[0] == units[1]:
        return False
    return _is_equal(mine * factor.get(units[0], 1), true * factor.get(units[1], 1))


def _unit(name: str) -> str:
    word = re.sub(r"^(?:square|cubic|sq|cu)\.?\s", "", name.strip().lower())
    return MEASURES.get(word) or MEASURES.get(word.removesuffix("s")) or word


def _same_tuple(given: _Answer, truth: _Answer) -> bool:
    (*mine, ours), (*true, theirs) = given.parts, truth.parts
    return mine == true and len(ours) == len(theirs) and all(map(_same, ours, theirs))


def _same_equation(given: _Answer, truth: _Answer) -> bool:
    """Whether one is the other times a number."""
    mine, true = given.parts[0], truth.parts[0]
    if mine.free_symbols != true.free_symbols:
        return False
    ratios = [ratio for ratio in _at_points(mine / true, mine, true) if ratio is not None]
    return len(ratios) > 1 and ratios[0] != 0 and all(_is_near(ratio, ratios[0]) for ratio in ratios)


def _same_matrix(given: _Answer, truth: _Answer) -> bool:
    rows = len(given.parts) == len(truth.parts)
    return rows and all(map(_same_values, given.parts, truth.parts))


def _same_values(given: Any, truth: Any) -> bool:
    return len(given) == len(truth) and all(map(_is_equal, given, truth))


_COMPARED: dict[str, Callable[[_Answer, _Answer], bool]] = {
    "value": _same_measure,
    "equation": _same_equation,
    "tuple": _same_tuple,
    "union": lambda given, truth: _same_elements(list(given.parts), list(truth.parts)),
    "matrix": _same_matrix,
    "base": lambda given, truth: given.parts == truth.parts,
}


def _is_equal(given: SympyValue, truth: SympyValue) -> bool:
    """Whether two values are the same number, or the same function at every point that is tried."""
    if given == truth:
        return True
    mine, true = given.free_symbols, truth.free_symbols
    if not (mine <= true or true <= mine):  # else what one lacks may cancel out, as in a/(2a)
        return False
    pairs = [
        pair
        for pair in zip(_at_points(given, truth), _at_points(truth, given), strict=True)
        if None not in pair
    ]
    return bool(pairs) and all(_is_near(*pair) for pair in pairs)


def _at_points(value: SympyValue, *others: SympyValue) -> list[SympyValue | None]:
    """The value at points for its variables; None where it is not finite."""
    symbols = set().union(*(one.free_symbols for one in (value, *others)))
    ordered = sorted(symbols, key=str)
    found: list[SympyValue | None] = []
    for point in _POINTS if ordered else _POINTS[:1]:
        numbers = itertools.cycle(point)
        places = {symbol: sympy.Rational(str(next(numbers))) + index for index, symbol in enumerate(ordered)}
        number = sympy.N(value.subs(places), _DIGITS)
        found.append(number if number.is_number and number.is_finite else None)
    return found


def _is_near(given: SympyValue, truth: SympyValue) -> bool:
    scale = max(1, abs(given), abs(truth))
    return bool(abs(given - truth) <= _TOLERANCE * scale)
