"""A conversation in the harmony format: its token ids, and the text of an answer while it arrives."""

import codecs
from collections.abc import Iterable
from datetime import date

import msgspec

from harness.dataset.chat_messages import HARMONY_SYSTEM, INSTRUCTIONS
from harness.dataset.tokenizer import SPECIAL, encode, encode_harmony, token_bytes
from harness.text import legible

_START, _END, _MESSAGE, _CHANNEL = (SPECIAL[f"<|{n}|>"] for n in ("start", "end", "message", "channel"))
_FINAL = "final"


class Conversation(msgspec.Struct):
    """Messages so far. What a user types is plain text: no name of a special token becomes one."""

    reasoning: str
    instructions: str | None = None
    today: date = msgspec.field(default_factory=date.today)
    _ids: list[int] = msgspec.field(default_factory=list)

    def prompt(self, text: str) -> list[int]:
        """The ids of all messages, with this one of the user, up to the start of the answer."""
        if not self._ids:
            system = HARMONY_SYSTEM.format(today=self.today, reasoning=self.reasoning)
            self._add("system", encode(system))
            if self.instructions:
                self._add("developer", encode(f"{INSTRUCTIONS}{self.instructions}"))
        self._add("user", encode(text))
        return [*self._ids, *encode_harmony("<|start|>assistant")]

    def answered(self, ids: Iterable[int]) -> None:
        """Keep the final message of an answer; its analysis is left out of the next prompt."""
        shown = AnswerText(only_final=True)
        final = [token for token in ids if shown.is_text(token)]
        self._ids += [*encode_harmony("<|start|>assistant<|channel|>final<|message|>"), *final, _END]

    def _add(self, role: str, ids: list[int]) -> None:
        self._ids += [_START, *encode(role), _MESSAGE, *ids, _END]


class AnswerText:
    """Turns ids into text piece by piece: characters appear once all of their bytes are there.

    ``harmony``: headers of messages are no text; each message but the final one begins with its channel.
    Text in front of every header, which the format does not have, is text.
    """

    def __init__(self, *, harmony: bool = True, only_final: bool = False) -> None:
        self._harmony = harmony
        self._only_final = only_final
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._header: list[int] | None = None
        self._channel = ""

    def is_text(self, token: int) -> bool:
        """Take a token; returns whether it is text of a message, with ``only_final`` of the final one."""
        special = token >= SPECIAL["<|startoftext|>"]
        if not self._harmony:
            return not special
        if token in (_START, _END, _CHANNEL):
            self._header = []
        elif token == _MESSAGE and self._header is not None:
            self._channel = b"".join(map(token_bytes, self._header)).decode(errors="replace").strip()
            self._header = None
        elif self._header is not None:
            self._header.append(token)
        elif not special:
            return not self._only_final or self._channel in (_FINAL, "")
        return False

    def text(self, ids: Iterable[int]) -> str:
        """The text that can be shown now, safe for a terminal."""
        found = []
        for token in ids:
            was_header = self._header is not None
            if self.is_text(token):
                found.append(self._decoder.decode(token_bytes(token)))
            elif was_header and self._header is None and self._channel != _FINAL:
                found.append(f"[{self._channel}] ")
            elif token == _END and self._harmony:
                found.append("\n")
        return legible("".join(found))
