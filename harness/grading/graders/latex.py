r"""Parse LaTeX into sympy values without ever passing text to ``eval``.

The sandbox runs this file as text, so it imports nothing of the harness.
"""

import re
from collections.abc import Callable
from typing import Any, TypeAlias

import sympy

SympyValue: TypeAlias = Any  # a sympy expression

# Larger values would fill the memory or take minutes.
_LARGEST_POWER, _LARGEST_FACTORIAL, _MOST_BITS = 10_000, 2_000, 100_000
_TOKEN = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+|\\[A-Za-z]+|\\.|.)", re.DOTALL)
OPENERS, CLOSERS = "([{", ")]}"


class UnreadableError(Exception):
    """The text is not an expression that this parser understands."""


def value_of(text: str) -> SympyValue:
    """The value of an expression. Raises UnreadableError."""
    reader = _Reader(text)
    value = reader.expression()
    if reader.token:
        raise UnreadableError(text)
    return value


class _Reader:
    """A recursive descent over the tokens of an expression."""

    def __init__(self, text: str) -> None:
        self._tokens = [match[1] for match in _TOKEN.finditer(text.strip())][::-1]

    @property
    def token(self) -> str:
        """The next token; empty at the end."""
        return self._tokens[-1] if self._tokens else ""

    def _take(self) -> str:
        return self._tokens.pop() if self._tokens else ""

    def _took(self, *wanted: str) -> bool:
        if self.token in wanted:
            self._take()
            return True
        return False

    def _expect(self, wanted: str) -> None:
        if not self._took(wanted):
            raise UnreadableError(f"{self.token!r} where {wanted!r} was expected")

    def expression(self) -> SympyValue:
        """A sum."""
        total = self._product()
        while self.token in ("+", "-"):
            total += self._product()  # with its sign
        return total

    def _product(self) -> SympyValue:
        product = self._signed()
        while True:
            if self._took("*"):
                product *= self._signed()
            elif self._took("/"):
                product /= self._signed()
            elif self._begins_factor():
                product *= self._power()
            else:
                return product

    def _begins_factor(self) -> bool:
        token = self.token
        return bool(token) and (token[0].isalnum() or token in ("(", "[", "{", ".") or token in _COMMANDS)

    def _mixed(self, whole: SympyValue) -> SympyValue:
        """The rest of ``3 1/2``."""
        above = self._number()
        if not whole.is_Integer or not above.is_Integer or not self._took("/") or not self.token.isdigit():
            raise UnreadableError("two numbers in a row")
        return whole + above / self._number()

    def _run(self) -> SympyValue:
        """The factors that a function without brackets takes, up to the next function or bracket."""
        product = self._power()
        while self._begins_factor() and self.token not in ("(", "[") and self.token[1:] not in _FUNCTIONS:
            product *= self._power()
        return product

    def _signed(self) -> SympyValue:
        if self._took("-"):
            return -self._signed()
        return self._signed() if self._took("+") else self._power()

    def _power(self) -> SympyValue:
        """A factor with its exponent and factorial."""
        is_whole, is_number = self.token.isdigit(), self.token[:1].isdigit()
        base = self._atom()
        if is_number and self.token[:1].isdigit():
            return self._mixed(base)
        if is_whole and self.token == "\\frac" and (part := self._proper_fraction()) is not None:
            return base + part
        while True:
            if self._took("^"):
                base = _raised(base, self._script())
            elif self._took("!"):
                if not (base.is_Integer and 0 <= base <= _LARGEST_FACTORIAL):
                    raise UnreadableError("a factorial")
                base = sympy.factorial(base)
            elif self._took("°"):
                base = base * sympy.pi / 180
            elif self._took("%"):
                base = base / 100
            else:
                return base

    def _proper_fraction(self) -> SympyValue | None:
        """The fraction of a mixed number; None, and nothing is taken, where another factor follows."""
        before = list(self._tokens)
        fraction = self._atom()
        if fraction.is_Rational and 0 < fraction < 1:
            return fraction
        self._tokens = before
        return None

    def _atom(self) -> SympyValue:
        token = self.token
        if token and (token[0].isdigit() or token[0] == "."):
            return self._number()
        self._take()
        if token in ("(", "[", "{"):
            value = self.expression()
            self._expect(CLOSERS[OPENERS.index(token)])
            return value
        if token == "|":
            value = self.expression()
            self._expect("|")
            return abs(value)
        if token.isalpha():
            return {"i": sympy.I, "e": sympy.E}.get(token) or self._symbol(token)
        if token in _COMMANDS:
            return _COMMANDS[token](self, token)
        raise UnreadableError(f"{token!r}")

    def _number(self) -> SympyValue:
        digits = self._take()
        if len(digits) > _LARGEST_POWER:
            raise UnreadableError("a number too long")
        if "." in digits and self._took("\\overline"):
            repeated = self.digits_in_braces()
            places = len(digits.partition(".")[2])
            period = sympy.Rational(int(repeated), (10 ** len(repeated) - 1) * 10**places)
            return sympy.Rational(digits.rstrip(".") or "0") + period
        return sympy.Rational(digits.rstrip("."))

    def digits_in_braces(self) -> str:
        """The digits between braces."""
        self._expect("{")
        digits = self._take()
        self._expect("}")
        if not digits.isdigit():
            raise UnreadableError(digits)
        return digits

    def _symbol(self, name: str) -> SympyValue:
        if self._took("_"):
            name += f"_{self._text_of_script()}"
        return sympy.Symbol(name)

    def _text_of_script(self) -> str:
        if not self._took("{"):
            return self._take()
        words = []
        while self.token and self.token != "}":
            words.append(self._take())
        self._expect("}")
        return "".join(words)

    def _script(self) -> SympyValue:
        """An exponent: a group, or the next atom with its sign; of a number all its digits."""
        return -self._atom() if self._took("-") else self._atom()

    def argument(self) -> SympyValue:
        """The argument of a command: a group, or one token; of a number only its first digit."""
        if self.token.isdigit() and len(self.token) > 1:
            digits = self._take()
            self._tokens.append(digits[1:])
            return sympy.Integer(int(digits[0]))
        return self._atom()

    def fraction(self, _: str) -> SympyValue:
        """``\\frac``."""
        above = self.argument()
        return above / self.argument()

    def root(self, _: str) -> SympyValue:
        """``\\sqrt``, also with an index."""
        index = sympy.Integer(2)
        if self._took("["):
            index = self.expression()
            self._expect("]")
        return _raised(self.argument(), 1 / index)

    def binomial(self, _: str) -> SympyValue:
        """``\\binom`` of two integers."""
        above, below = self.argument(), self.argument()
        if not (above.is_Integer and below.is_Integer and abs(above) <= _LARGEST_FACTORIAL):
            raise UnreadableError("a binomial")
        return sympy.binomial(above, below)

    def rounded(self, token: str) -> SympyValue:
        """``\\lfloor`` and ``\\lceil``."""
        value = self.expression()
        self._expect(token.replace("\\l", "\\r"))
        return sympy.floor(value) if token == "\\lfloor" else sympy.ceiling(value)

    def constant(self, token: str) -> SympyValue:
        """``\\pi``, ``\\infty``, or a Greek letter as a variable."""
        known = {"\\pi": sympy.pi, "\\infty": sympy.oo}
        return known[token] if token in known else self._symbol(token[1:])

    def function(self, token: str) -> SympyValue:
        """A function of the group, or of the product, that follows."""
        name, exponent, base = token[1:], None, None
        if self._took("^"):
            exponent = self._script()
        if self._took("_"):
            base = self.argument()
        argument = self.argument() if self.token in ("{", "(") else self._run()
        if name in ("log", "ln"):
            divisor = 1 if name == "ln" else sympy.log(10 if base is None else base)
            value = sympy.log(argument) / divisor
        elif exponent == -1:
            return getattr(sympy, f"a{name}")(argument)
        else:
            value = getattr(sympy, {"arcsin": "asin", "arccos": "acos", "arctan": "atan"}.get(name, name))(
                argument
            )
        return value if exponent is None else _raised(value, exponent)


def _raised(base: SympyValue, exponent: SympyValue) -> SympyValue:
    """The power. Raises UnreadableError for one that would fill the memory."""
    if exponent.is_number and abs(exponent) > _LARGEST_POWER:
        raise UnreadableError("a power too large")
    if (
        base.is_Rational
        and exponent.is_number
        and abs(exponent) * max(base.p, base.q, -base.p).bit_length() > _MOST_BITS
    ):
        raise UnreadableError("a power too large")
    return sympy.Pow(base, exponent)


_GREEK = (
    "alpha", "beta", "gamma", "delta", "theta", "lambda", "mu", "nu", "rho", "sigma", "phi", "omega", "ell",
)  # fmt: skip
_FUNCTIONS = ("sin", "cos", "tan", "cot", "sec", "csc", "arcsin", "arccos", "arctan", "log", "ln", "exp")
_COMMANDS: dict[str, Callable[[_Reader, str], SympyValue]] = {
    "\\frac": _Reader.fraction,
    "\\sqrt": _Reader.root,
    "\\binom": _Reader.binomial,
    "\\lfloor": _Reader.rounded,
    "\\lceil": _Reader.rounded,
    **{f"\\{name}": _Reader.constant for name in ("pi", "infty", *_GREEK)},
    **{f"\\{name}": _Reader.function for name in _FUNCTIONS},
}
