"""The bytes that the events of one answer have in common: all but their text, new ids and count.

An event that differs from a judged one in nothing else says nothing else, so that it needs no decoding; and
what cannot be told by comparing bytes is left to the decoder.
"""

import re

import msgspec

# An answer whose events differ in more than that is decoded, and no more patterns are looked for in it.
MOST_PATTERNS = 4
_TEXT = re.compile(rb'[^"\\]*(?:\\.[^"\\]*)*')
# Text with the short escapes; what has others (\u) is left to the decoder.
_plain_text = re.compile(rb'[^"\\\x00-\x1f]*(?:\\["\\/bfnrt][^"\\\x00-\x1f]*)*').match
_ids_of = msgspec.json.Decoder(list[int]).decode


class Pattern:
    """One event's bytes around its text, its ids and its count of tokens, in this order."""

    __slots__ = ("_end", "_from_text", "_head", "_to_count", "_to_ids")

    def __init__(self, head: bytes, from_text: bytes, to_count: bytes, end: bytes | None) -> None:
        self._head = head
        self._from_text = from_text
        self._to_ids = head + from_text  # where there is no text
        self._to_count = to_count
        self._end = end

    @classmethod
    def of(cls, event: bytes, text_key: bytes, ids_key: bytes, count_key: bytes) -> "Pattern | None":
        """Of an event of valid JSON; None where its keys are not there once each, in this order.

        The keys have the beginning of their values: ``"text":"``, ``"output_ids":[`` and
        ``"completion_tokens":``; b"" where an event has no such field, or no count.
        """
        ids = event.find(ids_key) + len(ids_key)
        if event.count(ids_key) != 1:
            return None
        head, from_text = event[:ids], b""
        if text_key and event.count(text_key) == 1:
            text = event.find(text_key) + len(text_key)
            end = _TEXT.match(event, text).end()  # type: ignore[union-attr]
            if not text <= end < ids:
                return None
            head, from_text = event[:text], event[end:ids]
        close = event.find(b"]", ids)
        if not count_key:
            return cls(head, from_text, event[close:], None)
        number = event.find(count_key, close) + len(count_key)
        if event.count(count_key) != 1 or number <= close:
            return None
        after = event[number:].lstrip(b"0123456789")
        return cls(head, from_text, event[close:number], after)

    def new_ids(self, event: bytes, tokens: int) -> list[int] | None:
        """The ids of an event that has this pattern and counts ``tokens`` and its own; None for another."""
        if event.startswith(self._to_ids):
            at = len(self._to_ids)
        else:
            head, from_text = self._head, self._from_text
            if not event.startswith(head):
                return None
            at = _plain_text(event, len(head)).end()  # type: ignore[union-attr]
            if not event.startswith(from_text, at):
                return None
            at += len(from_text)
        end = event.find(b"]", at)
        try:
            ids = _ids_of(event[at - 1 : end + 1])
        except msgspec.DecodeError:
            return None
        after = self._end
        rest = self._to_count if after is None else b"%b%d%b" % (self._to_count, tokens + len(ids), after)
        return ids if event[end:] == rest else None
