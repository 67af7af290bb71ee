"""The outcome of a query: exactly one Completion or one Failure, returned and never raised."""

from enum import IntEnum

import msgspec
import numpy as np
import numpy.typing as npt


class FailureKind(IntEnum):
    """The reason why a query has no usable answer. The values are stored in journals; never renumber them."""

    CONNECT = 1  # refused, unreachable, TLS or connect timeout
    SEND = 2  # the connection broke while the request was written
    NO_RESPONSE = 3  # closed or reset before the first response byte
    TRUNCATED = 4  # closed or reset inside the response
    HTTP_STATUS = 5  # any status but 200
    HTTP_PROTOCOL = 6  # the bytes are not HTTP/1.1
    MALFORMED = 7  # an event is not the JSON of the protocol
    IN_BAND_ERROR = 8  # a field, event or trailer of a 200 response that no complete answer has
    ABORTED = 9  # finish reason "abort" or "error"
    UNFINISHED = 10  # the stream ended without a finish reason
    TOKEN_COUNT = 11  # ids disagree with the server's own count, or shrink, or change
    TOKEN_VALUE = 12  # an id is negative or beyond the vocabulary
    NO_TOKENS = 13  # finished without a single token
    TOO_MANY_TOKENS = 14  # more tokens than were asked for
    TIMEOUT = 15  # the request's deadline passed
    WORKER_LOST = 16  # the worker process that held the query died
    TOO_LARGE = 17  # the response exceeds every bound that an honest answer can have
    LOCAL_LIMIT = 18  # this machine has no descriptor, local port or buffer left for the connection
    FINISH_REASON = 19  # a finish reason that the protocol does not document as that of a complete answer
    AFTER_END = 20  # another event after the one that ended the answer
    OTHER_REQUEST = 21  # the answer, or a part of it, carries the id or the prompt of another request
    OTHER_MODEL = 22  # the answer names another model or version of weights than the trial requests' answers
    ENCODER_LOST = 23  # the process that held the answer's text, to encode it, died

    @property
    def label(self) -> str:
        """Stable lower-case name for reports: ``http_status``."""
        return self.name.lower()


class Completion(msgspec.Struct, frozen=True):
    """A complete answer.

    ``output_ids`` are all output tokens, the first included: shape (OSL,), int32, OSL >= 1.
    ``prompt_tokens`` is the server's count, or None where it reports none.
    """

    output_ids: npt.NDArray[np.int32]
    finish_reason: str
    prompt_tokens: int | None = None
    counted: int | None = None
    """The server's own count of output tokens, where the ids are those of the encoded text."""


class TextCompletion(msgspec.Struct, frozen=True):
    """A complete answer as text. Encoding it gives a Completion."""

    text: str
    """Reasoning first, where the server separates it; not empty."""
    finish_reason: str
    prompt_tokens: int | None
    """The server's count; None where it reports none."""
    counted: int | None
    """The server's count of output tokens; None where it reports none."""


UNSEEN = 16
"""Tokens of an answer that a server may count and keep out of its text: the end token, and harmony's markers
and channel names (10 with one thought, 17 with a call of a tool, in answers of vLLM and SGLang)."""


class Failure(msgspec.Struct, frozen=True):
    """No usable answer; ``detail`` is one line of evidence, printable and bounded."""

    kind: FailureKind
    detail: str


Outcome = Completion | TextCompletion | Failure
