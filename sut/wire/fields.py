"""Which fields an event may have and what they may say, judged once for each form of event.

A complete answer consists of known fields: the protocol documents them, or the trial answers of the run's
servers had them. An unknown field is accepted only if it cannot mean a failure: it is empty (null, false, 0,
"", [] and {}) or a number, and its name does not speak of failures. Text or true in an unknown field is a
failure, whatever it says; so is a key that is given twice, at any depth.

An event's *form* is its bytes without what differs between honest events: text, ids, numbers, the answer's
id. Decoding an event completely costs as much as all other work on it, so a form that was judged is
remembered.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, TypeAlias

import msgspec

from harness.record.outcome import Failure, FailureKind
from sut.wire.answer_checks import UNREADABLE, excerpt

Rule: TypeAlias = "str | tuple[str | int | None, ...] | FieldRules"
FieldRules: TypeAlias = "Mapping[str, Rule]"
# The rule of a documented field: one of these words, a tuple of the possible values, or a Mapping with the
# rules of an object's fields, or of each object's in a list. Types that a protocol's reader decodes are not
# here.
DATA = "data"  # anything: it comes from the model or the prompt
TEXT = "text"  # a string, or null
OTHERS = "*"  # a key of FieldRules, for all other fields
NOTHING = "nothing"  # always empty
STOP = "stop"  # what an answer ended at: a token or a text, and at SGLang "NaN happened", too

_MOST_FORMS = 1024
_LONG = 1024  # bytes; a longer event's lists of ids are cut out first, which is faster than digit by digit
_PROMPT_IDS = b'"prompt_token_ids":['
_ID = b'{"id":"'
_VARYING = b"0123456789,.-+"
REST_OF_TEXT = re.compile(rb'[^"\\]*(?:\\.[^"\\]*)*')  # up to the quote that ends it
_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
# Words in the names of fields that report failures.
_OF_FAILURE = frozenset((
    "err", "errs", "errno", "error", "errors", "fail", "fails", "failed", "failing", "failure", "failures",
    "fault", "faults", "fatal", "abort", "aborts", "aborted", "exception", "exceptions", "traceback",
    "cancel", "cancelled", "canceled", "cancellation", "crash", "crashed", "panic", "problem", "problems",
    "invalid", "denied", "refused", "timeout", "unavailable", "overloaded", "oom", "killed",
    "status", "code",
))  # fmt: skip
_OF_SUCCESS = frozenset(["success", "successful", "succeeded", "ok", "okay"])
_FINE = frozenset([*_OF_SUCCESS, "none", "200", "complete", "completed", "finished"])


class EventKeys(msgspec.Struct, frozen=True):
    """The keys of the fields in which honest events differ, each with the beginning of its value."""

    texts: tuple[bytes, ...]
    """Such as ``"text":"``; an event with more than one of them is not a usual one."""
    ids: bytes
    """The new ids, such as ``"output_ids":[``."""
    count: bytes = b""
    """The tokens so far, such as ``"completion_tokens":``; b"" where events have none."""


class AnswersSeen(msgspec.Struct, frozen=True):
    """What the trial answers of a run's servers have shown."""

    fields: frozenset[str] = frozenset()
    """Paths of undocumented fields with text or true."""
    names: frozenset[str] = frozenset()
    """Names of models, or versions of weights."""
    ids_change: bool = False
    """Whether the events of one answer have different ids, as older trtllm-serve sends them."""
    by_grammar: bool = False
    """Whether a grammar bound an answer, as llama.cpp says."""


class EventJudge:
    """Judges the fields of all events of one protocol; ``seen`` None: learns what trial answers show."""

    def __init__(
        self,
        documented: FieldRules,
        keys: EventKeys,
        names: tuple[str, ...],
        seen: AnswersSeen | None,
        *,
        ids_may_change: bool,
    ) -> None:
        self._documented = documented
        self._texts = keys.texts
        self._ids = keys.ids
        self._forms: set[bytes] = set()
        self._learns = seen is None
        self._fields = set[str]() if seen is None else set(seen.fields)
        self._names = {*names, *(seen.names if seen else ())}
        self._ids_may_change = ids_may_change
        self._ids_change = seen is not None and seen.ids_change
        self._by_grammar = False

    @property
    def seen(self) -> AnswersSeen:
        """What the answers so far have shown."""
        return AnswersSeen(
            frozenset(self._fields), frozenset(self._names), self._ids_change, self._by_grammar
        )

    def knows_name(self, name: str) -> bool:
        """Whether the run's servers have this model, or weights of this version."""
        if self._learns:
            self._names.add(name)
        return name in self._names

    def note_grammar(self) -> None:
        """Note that a grammar bound an answer."""
        self._by_grammar = True

    def lets_ids_change(self) -> bool:
        """Whether events of one answer may have different ids; a trial answer that asks this has them."""
        self._ids_change |= self._learns and self._ids_may_change
        return self._ids_change

    def failure(self, event: bytes) -> Failure | None:
        """The Failure of an event, of valid JSON, with a field that is not one of a complete answer's."""
        form = self._form(event)
        if form in self._forms:
            return None
        reading = _Reading(self._fields, learns=self._learns)
        try:
            reading.take(_document(event), self._documented)
        except _FieldError as error:
            return Failure(error.kind, f"{error}: {excerpt(event)}")
        except UNREADABLE as error:
            return Failure(FailureKind.MALFORMED, f"{error}: {excerpt(event)}")
        if reading.by_form:
            if len(self._forms) >= _MOST_FORMS:
                self._forms.clear()
            self._forms.add(form)
        return None

    def _form(self, event: bytes) -> bytes:
        """The event without its text, ids and numbers. Quotes inside of strings are escaped, so that what
        looks like a key of an event is one.
        """
        if len(event) > _LONG:
            event = _without_list(_without_list(event, _PROMPT_IDS), self._ids)
        if event.startswith(_ID):  # some servers give each event another one
            event = event[REST_OF_TEXT.match(event, len(_ID)).end() :]  # type: ignore[union-attr]
        for key in self._texts:
            start = event.find(key) + len(key)
            if start >= len(key):
                end = REST_OF_TEXT.match(event, start).end()  # type: ignore[union-attr]
                event = event[:start] + event[end:]
        return event.translate(None, _VARYING)


def _without_list(event: bytes, key: bytes) -> bytes:
    """The event without the content of the list that begins with ``key``."""
    start = event.find(key) + len(key)
    return event if start < len(key) else event[:start] + event[event.find(b"]", start) :]


class _FieldError(Exception):
    """A field that a complete answer does not have."""

    def __init__(self, kind: FailureKind, text: str) -> None:
        super().__init__(text)
        self.kind = kind


class _Reading:
    """One reading of an event; ``by_form``: whether its form alone shows that it is honest."""

    def __init__(self, fields: set[str], *, learns: bool) -> None:
        self._fields = fields
        self._learns = learns
        self.by_form = True

    def take(self, found: dict[str, Any], rules: FieldRules, path: str = "") -> None:
        """Judge an object. Raises _FieldError."""
        for name, value in found.items():
            rule = rules.get(name)
            if rule is None:
                if rules.get(OTHERS) == NOTHING and value:
                    raise _not_honest(path + name, value)
                self._unknown(path + name, name, value, bad=False)
            elif isinstance(rule, tuple):
                if value not in rule:
                    raise _not_honest(path + name, value)
            elif isinstance(rule, str):
                if rule == TEXT and not isinstance(value, str | None):
                    raise _FieldError(
                        FailureKind.MALFORMED, f"{_printable(path + name)} is {_shown(value)}, not text"
                    )
                if rule == STOP and isinstance(value, str) and "nan" in value.lower().split():
                    raise _FieldError(
                        FailureKind.IN_BAND_ERROR,
                        f"{_printable(path + name)} is {_shown(value)}: the model's output was not a number",
                    )
            else:
                for each in value if isinstance(value, list) else [value]:
                    if isinstance(each, dict):
                        self.take(each, rule, f"{path}{name}.")
                    elif each is not None:
                        self._unknown(path + name, name, each, bad=False)

    def _unknown(self, path: str, name: str, value: Any, *, bad: bool) -> None:
        """Judge an undocumented field; ``bad``: it is inside of one whose name speaks of failures."""
        words = {word.lower() for word in _WORDS.findall(name)}
        bad = bad or not words.isdisjoint(_OF_FAILURE)
        if isinstance(value, dict):
            for inner, content in value.items():
                self._unknown(f"{path}.{inner}", inner, content, bad=bad)
        elif isinstance(value, list):
            for content in value:
                self._unknown(path, name, content, bad=bad)
        elif isinstance(value, str) or value is True:
            if value and str(value).lower() not in _FINE and (bad or not self._knows(path, value)):
                raise _not_honest(path, value)
        else:
            good = not words.isdisjoint(_OF_SUCCESS)
            self.by_form = self.by_form and not (bad or good)  # forms have no numbers
            if (bad and value not in (None, False, 0, 200)) or (good and value in (False, 0)):
                raise _not_honest(path, value)

    def _knows(self, path: str, value: str | bool) -> bool:
        """Whether a trial answer had text or true in this field, and it does not speak of a failure."""
        if isinstance(value, str) and not _OF_FAILURE.isdisjoint(w.lower() for w in _WORDS.findall(value)):
            return False
        if self._learns:
            self._fields.add(path)
        return path in self._fields


def is_harmless(name: str, value: str) -> bool:
    """Whether a trailer does not speak of a failure: it is empty or a number."""
    words = (word.lower() for word in _WORDS.findall(name))
    return not value or (_OF_FAILURE.isdisjoint(words) and value.replace(".", "", 1).isdecimal())


def _not_honest(path: str, value: Any) -> _FieldError:
    return _FieldError(
        FailureKind.IN_BAND_ERROR,
        f"{_printable(path)} is {_shown(value)}, which is neither documented nor in the trial answers",
    )


def _shown(value: Any) -> str:
    return _printable(json.dumps(value, ensure_ascii=False))


def _printable(text: str) -> str:
    return excerpt(text[:80].encode("utf-8", "replace"))


def _document(event: bytes) -> dict[str, Any]:
    found = _DECODER.decode(event.decode("utf-8", "replace"))
    return found if isinstance(found, dict) else {}


def _size(digits: str) -> int:
    """Python refuses thousands of digits, also in a field that nobody reads."""
    return int(digits) if len(digits) < 20 else 10**20


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _FieldError(FailureKind.MALFORMED, f"the key {_shown(twice)} is there twice")
    return found


_DECODER = json.JSONDecoder(object_pairs_hook=_without_doubles, parse_int=_size, strict=False)
