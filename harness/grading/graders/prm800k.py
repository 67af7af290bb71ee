"""Equality of two answers by the rules of prm800k's grader (openai/prm800k 7ecc794), its mistakes included.

``plain`` is a function of texts. The rest reads LaTeX with pylatexenc and lets sympy evaluate what a model
wrote, so ``same`` runs in the sandbox alone, which gets this file as text: it imports nothing of the harness.
"""

import re
import sys

_WHOLE_TEXT = re.compile(r"^\\text\{(.+?)\}$")
_RATIO = re.compile(r"(0|-?[1-9][0-9]{0,4000})/(0|-?[1-9][0-9]{0,4000})")
# They are removed in this order.
_UNITS = (
    "degree", "cm", "centimeter", "meter", "mile", "second", "minute", "hour", "day", "week", "month", "year",
    "foot", "feet", "inch", "yard",
)  # fmt: skip
_UNIT_PATTERNS = [re.compile(rf"{unit}(?:es)?s? *(?:\^[0-9]+)?") for unit in _UNITS]
_POWERS = {"million": "*10^6", "billion": "*10^9", "trillion": "*10^12"}
_SYMBOLS = {"√": "sqrt", "π": "pi", "∞": "inf", "∪": "U", "·": "*", "×": "*"}  # noqa: RUF001
_DEGREES = re.compile(r"\^ *\\circ")
_THIN_COMMA = re.compile(r",\\! *")
_MINUS = re.compile("- *")
_MIXED = re.compile("([0-9]) +([0-9])")
_THOUSANDS = re.compile(r"(\d),(\d\d\d)($|\D)")
_FRACTION = re.compile(r"^-?[0-9]+.?/0*[1-9][0-9]*.?$")
_BRACKETS = "()[]"
# Powers of brackets, of powers, and of two digits or more are not evaluated.
_DEAR = re.compile(r"\^(?:\{|\(|[0-9]+\^|[0-9][0-9]+)")
_MOST_LETTERS = 2
# Texts, which sympy would read, and attributes are ways to the rest of the process. The count of letters does
# not stop them: a name may have Roman numerals in it (U+217D is "c").
_NUMBER_DOT = re.compile(r"(?<![\w.])\d+\.")
_REACHING = re.compile(r"['\"]|\.\s*[^\W\d]")
_RECURSION_LIMIT = 1000  # the interpreter's own, under which the rules were used


def plain(answer: str) -> str:
    """The form that two answers are compared in first, that of Hendrycks' MATH release."""
    answer = answer.strip()
    if whole := _WHOLE_TEXT.search(answer):
        answer = whole[1].strip()
    try:
        return _stripped(answer)
    except (IndexError, ValueError):
        return answer


def _stripped(text: str) -> str:
    """The answer without markup. Raises IndexError or ValueError where a step does not apply."""
    for old, new in (("\n", ""), ("\\!", ""), ("\\\\", "\\"), ("tfrac", "frac"), ("dfrac", "frac")):
        text = text.replace(old, new)
    for dress in ("\\left", "\\right", "^{\\circ}", "^\\circ", "\\$"):
        text = text.replace(dress, "")
    if "\\text{ " in text:  # a unit
        text, _ = text.split("\\text{ ")
    text = text.replace("\\%", "").replace(" .", " 0.").replace("{.", "{0.")
    if not text:
        return text
    if text[0] == ".":
        text = "0" + text
    name, *values = text.split("=")
    if len(values) == 1 and len(name) <= 2:
        text = values[0]
    text = _braced_fractions(_braced_roots(text).replace(" ", ""))
    if text == "0.5":
        return "\\frac{1}{2}"
    ratio = _RATIO.fullmatch(text)
    return f"\\frac{{{ratio[1]}}}{{{ratio[2]}}}" if ratio else text


def _braced_roots(text: str) -> str:
    first, *parts = text.split("\\sqrt")
    braced = (part if part[0] == "{" else f"{{{part[0]}}}{part[1:]}" for part in parts)
    return "\\sqrt".join((first, *braced))


def _braced_fractions(text: str) -> str:
    first, *parts = text.split("\\frac")
    braced = []
    for part in parts:
        if part[0] != "{":
            if len(part) < 2:
                return text
            below = part[1] if part[1] == "{" else f"{{{part[1]}}}"
            part = f"{{{part[0]}}}{below}{part[2:]}"
        braced.append(part)
    return "\\frac".join((first, *braced))


def same(given: str, truth: str) -> bool:
    """Whether the answers are equal. Raises MemoryError."""
    sys.setrecursionlimit(_RECURSION_LIMIT)
    if plain(given) == plain(truth):
        return True
    wanted, got = _normalized(truth), _normalized(given)
    if wanted == got:
        return True
    if not got:
        return False
    parts, ours = _parts(wanted), _parts(got)
    other_brackets = len(parts) > 1 and (wanted[0], wanted[-1]) != (got[0], got[-1])
    if other_brackets or len(parts) != len(ours):
        return False
    return all(_same_part(mine, true) for true, mine in zip(parts, ours, strict=True))


def _same_part(given: str, truth: str) -> bool:
    if _FRACTION.search(truth) and _FRACTION.search(given):
        return given == truth  # it has to be reduced
    if _is_integer(truth) != _is_integer(given):
        return False
    return _is_zero(f"({truth})-({given})")


def _is_zero(expression: str) -> bool:
    """Whether sympy simplifies it to 0. Evaluates the text."""
    letters = {char for char in expression.replace("sqrt", "").replace("frac", "") if char.isalpha()}
    if len(letters) > _MOST_LETTERS or _DEAR.search(expression):
        return False
    if _REACHING.search(_NUMBER_DOT.sub("", expression)):
        return False
    import sympy
    import sympy.parsing.sympy_parser as parser

    rules = (*parser.standard_transformations, parser.implicit_multiplication_application)
    try:
        found = parser.parse_expr(expression.replace("^", "**"), transformations=rules)
        return bool(sympy.simplify(found) == 0)
    except MemoryError:
        raise
    except BaseException:  # noqa: BLE001 - the rules: whatever it raises, it is not equal
        return False


def _normalized(text: str) -> str:
    """The form that parts are compared in."""
    if whole := _WHOLE_TEXT.search(text):
        text = whole[1]
    for dress in ("\\%", "\\$"):
        text = text.replace(dress, dress[1])
    text = text.replace("$", "").replace("%", "").replace(" or ", " , ").replace(" and ", " , ")
    for word, power in _POWERS.items():
        text = text.replace(word, power)
    for unit in _UNIT_PATTERNS:
        text = unit.sub("", text)
    text = _DEGREES.sub("", text)
    if text and text[0] == "{" and text[-1] == "}":
        text = text[1:-1]
    text = _THIN_COMMA.sub("", text)
    number = _float(text)
    if number is not None and _is_near_integer(number):
        text = str(round(number))
    if "\\" in text:
        text = _without_latex(text)
    text = _MIXED.sub(r"\1+\2", _MINUS.sub("-", text)).replace(" ", "")
    text = text.replace("{", "").replace("}", "").lower()
    return str(int(float(text.replace(",", "")))) if _is_integer(text) else text


def _without_latex(text: str) -> str:
    """The text as pylatexenc renders it; as it stands where that fails."""
    import pylatexenc.latex2text as latex2text

    fractions = text.replace("\\tfrac", "\\frac").replace("\\dfrac", "\\frac")
    spaced = fractions.replace("\\frac", " \\frac")  # apart from a whole number before it
    try:
        rendered = str(latex2text.LatexNodes2Text().latex_to_text(spaced))
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - the rules
        return text
    for symbol, word in _SYMBOLS.items():
        rendered = rendered.replace(symbol, word)
    return rendered.strip()


def _parts(text: str) -> list[str]:
    """The elements of a tuple or an interval, else the text alone."""
    text = _without_thousands(text)
    inner = text[1:-1]
    if inner and text[0] in _BRACKETS and text[-1] in _BRACKETS and not set(inner) & set(_BRACKETS):
        return [part.strip() for part in inner.split(",")]
    return [text] if text else []


def _without_thousands(text: str) -> str:
    while (shorter := _THOUSANDS.sub(r"\1\2\3", text)) != text:
        text = shorter
    return text


def _is_integer(text: str) -> bool:
    number = _float(_without_thousands(text))
    return number is not None and _is_near_integer(number)


def _is_near_integer(number: float) -> bool:
    try:
        return abs(number - round(number)) <= 1e-7
    except (OverflowError, ValueError):  # infinite, or no number
        return False


def _float(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
