"""An output in harmony format: its final channel is located on token ids and only that part is decoded.

Decoding everything is what makes the plain way slow; most grades need a few hundred tokens.
"""

import re
from functools import cache, cached_property

import numpy as np
import numpy.typing as npt

from harness.dataset import tokenizer
from harness.grading.decoding.output import TextOutput, repeats_itself
from harness.grading.scoring.grade import Reason
from harness.loadgen_logs.accuracy_log import TokenIds

RETURN, CHANNEL, CONSTRAIN, MESSAGE = (
    tokenizer.SPECIAL[f"<|{name}|>"] for name in ("return", "channel", "constrain", "message")
)
ENDS = frozenset(tokenizer.SPECIAL[f"<|{name}|>"] for name in ("return", "call", "endoftext"))
_FIRST_SPECIAL = min(tokenizer.SPECIAL.values())
_FINAL = "final"
# Damaged markers such as "<|channel|>final 12<|message|>" count, by the official rule.
_OFFICIAL = re.compile(r"<\|channel\|>final[^<]*+<\|message\|>(.*?)(?:<\|return\|>|$)", re.DOTALL)
# The format of the content may stand between, which the official rule does not know.
_CHANNEL_TEXT = re.compile(r"<\|channel\|>final[^<]*+(?:<\|constrain\|>[^<]*+)?+<\|message\|>")
_SPECIAL_NAME = re.compile(r"<\|[a-z_]+[0-9]*\|>")

Flags = npt.NDArray[np.bool_]


class HarmonyText(TextOutput):
    """An output as text, with its markers spelled out."""

    def __init__(self, text: str, tokens: int | None = 0, *, defect: Reason | None = None) -> None:
        super().__init__(text, tokens, defect=defect)
        found = _OFFICIAL.search(self.text)
        self.official_final = found[1].strip() if found else None
        starts = [match.end() for match in _CHANNEL_TEXT.finditer(self.text)]
        self.has_final = bool(starts)
        self.strict_final = (
            _SPECIAL_NAME.split(self.text[starts[-1] :], maxsplit=1)[0].strip() if starts else None
        )


class HarmonyOutput:
    """An output in o200k_harmony ids; each text is decoded when it is needed.

    ``unknown``: how many further ones it had that gpt-oss's tokenizer.json does not list.
    """

    def __init__(self, ids: TokenIds, *, truncated: bool = False, unknown: int = 0) -> None:
        self._ids = ids
        self._truncated = truncated
        self.tokens, self.unknown = len(ids) + unknown, unknown

    @cached_property
    def defect(self) -> Reason | None:
        """As Output."""
        if not len(self._ids):
            return Reason.EMPTY
        if not self._truncated:
            return None
        return Reason.LOOPING if repeats_itself(self._ids) else Reason.TRUNCATED

    @cached_property
    def has_final(self) -> bool | None:
        """As Output."""
        return bool(self._finals)

    @cached_property
    def text(self) -> str:
        """As Output."""
        return tokenizer.decode(self._ids).strip()

    @cached_property
    def official_final(self) -> str | None:
        """As Output. Where ordinary tokens spell a marker, the text decides, as it does officially."""
        if _spells_marker(self._ids):
            return HarmonyText(self.text).official_final
        start = next((place for place, is_official in self._finals if is_official), None)
        if start is None:
            return None
        return tokenizer.decode(self._ids[start : _next(self._ids, start, self._ids == RETURN)]).strip()

    @cached_property
    def strict_final(self) -> str | None:
        """As Output."""
        if not self._finals:
            return None
        start, _ = self._finals[-1]
        end = _next(self._ids, start, self._ids >= _FIRST_SPECIAL)
        return tokenizer.decode(self._ids[start:end]).strip()

    @property
    def suffix(self) -> str:
        """As Output."""
        return tokenizer.decode(self._ids[self._finals[-1][0] :]).strip() if self._finals else ""

    @cached_property
    def _finals(self) -> list[tuple[int, bool]]:
        """Where the content of each final channel begins, and whether the official rule sees it."""
        found: list[tuple[int, bool]] = []
        specials = np.flatnonzero(self._ids >= _FIRST_SPECIAL)
        kinds = self._ids[specials].tolist()
        for number in range(len(kinds) - 1):
            is_constrained = kinds[number : number + 3] == [CHANNEL, CONSTRAIN, MESSAGE]
            if not is_constrained and kinds[number : number + 2] != [CHANNEL, MESSAGE]:
                continue
            channel, *_, message = specials[number : number + 2 + is_constrained]
            name = tokenizer.decode(self._ids[channel + 1 : specials[number + 1]])
            if name.startswith(_FINAL) and "<" not in name:
                found.append((int(message) + 1, not is_constrained))
        return found


def _spells_marker(ids: TokenIds) -> bool:
    """Whether ordinary tokens spell "|>", with which every marker ends."""
    holds, ends, begins = _parts_of_markers()
    return bool(holds[ids].any() or (ends[ids[:-1]] & begins[ids[1:]]).any())


@cache
def _parts_of_markers() -> tuple[Flags, Flags, Flags]:
    """For each token, whether it is an ordinary one that contains "|>", ends with "|" or begins with ">"."""
    words = tokenizer.vocabulary()
    ordinary = np.arange(len(words)) < _FIRST_SPECIAL
    return (
        np.fromiter((b"|>" in word for word in words), np.bool_) & ordinary,
        np.fromiter((word.endswith(b"|") for word in words), np.bool_) & ordinary,
        np.fromiter((word.startswith(b">") for word in words), np.bool_) & ordinary,
    )


def was_truncated(ids: TokenIds, max_new_tokens: int) -> bool:
    """Whether the limit ended an output. One less counts too: some clients log it without its first token."""
    return len(ids) >= max_new_tokens - 1 and int(ids[-1]) not in ENDS


def _next(ids: TokenIds, start: int, wanted: npt.NDArray[np.bool_]) -> int:
    found = np.flatnonzero(wanted[start:])
    return start + int(found[0]) if len(found) else len(ids)
