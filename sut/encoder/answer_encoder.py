"""What an answer that came as text is: the ids of its text, compared with the server's own count.

The ids are not those that the model produced: it may have split its text in other places, and tokens that the
server keeps out of the text (the end token, markers of channels) are missing. So a different number is no
fault by itself. But text that cannot be all of the counted tokens, or that is more than they can be, is.
"""

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from harness.record.outcome import UNSEEN, Failure, FailureKind

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# The most ids for each counted token, and ids beyond that. Random ids of o200k_harmony, decoded and encoded
# again: 1.05 times as many at most in 1,000 tokens, 1.11 in 100, 1.25 in 20, 7 in place of 4.
_MOST_MORE, _FEW = 1.25, 8
_PIECES_OF_A_WORD = 2
_FEW_CHARACTERS = 3


class AnswerEncoder:
    """Encodes the text of complete answers."""

    def __init__(self, tokenizer: "Tokenizer", vocabulary_size: int) -> None:
        self._encode = tokenizer.encode_batch_fast
        self._size = vocabulary_size
        self._most = _most_tokens(tokenizer)

    def encode(self, text: str, counted: int | None) -> npt.NDArray[np.int32] | Failure:
        """The ids of an answer of which the server counted ``counted`` tokens."""
        ids = np.array(self._encode([text], add_special_tokens=False)[0].ids, np.int32)
        return self._fault(ids, counted) or ids

    def _fault(self, ids: npt.NDArray[np.int32], counted: int | None) -> Failure | None:
        if counted is None:
            return Failure(
                FailureKind.TOKEN_COUNT,
                f"a text of {len(ids)} tokens, and no usage: without the server's own count nothing shows "
                "that it is complete",
            )
        if not len(ids):
            return Failure(FailureKind.NO_TOKENS, f"no text, the server's count of tokens is {counted}")
        if (high := int(ids.max())) >= self._size:
            return Failure(
                FailureKind.TOKEN_VALUE, f"token id {high} is outside the vocabulary of {self._size}"
            )
        if counted > (bound := int(self._most[ids].sum()) + UNSEEN):
            return Failure(
                FailureKind.TOKEN_COUNT,
                f"the text is {len(ids)} tokens, the server counted {counted}: text is missing, as this text "
                f"can be {bound} tokens at most",
            )
        if len(ids) > _MOST_MORE * counted + _FEW:
            return Failure(
                FailureKind.TOKEN_COUNT,
                f"the text is {len(ids)} tokens, the server counted {counted}: more text than they can be",
            )
        return None


def _most_tokens(tokenizer: "Tokenizer") -> npt.NDArray[np.int64]:
    """For each id, the most tokens of an answer that its piece of text is, in a vocabulary of bytes.

    A model may write a word in two pieces. What has no letters, or few different characters, it may also
    repeat piece by piece: lines, blanks and dots of a loop. A token has one byte at least.
    """
    special = set(tokenizer.get_added_tokens_decoder())
    vocabulary = tokenizer.get_vocab(with_added_tokens=True)
    most = np.ones(max(vocabulary.values()) + 1, np.int64)
    for name, token in vocabulary.items():
        if token not in special:
            most[token] = min(len(name), _PIECES_OF_A_WORD) if _is_word(name) else len(name)
    return most


def _is_word(name: str) -> bool:
    """``name``: one character for each byte, an ASCII letter for itself."""
    return len(set(name)) > _FEW_CHARACTERS and any(each.isascii() and each.isalpha() for each in name)
