"""The encoder process of one worker: texts in, ids out, in the same order, until the worker hangs up.

A text comes as TEXT_STRUCT and its UTF-8. The answer is IDS_STRUCT with 0 and little-endian int32 ids, or
with a FailureKind and its detail.
"""

import contextlib
import os
import socket
import struct
from multiprocessing.connection import Connection as Pipe
from typing import NoReturn

import msgspec

from harness.errors import HarnessError, in_words
from harness.grading.decoding.text_tokenizer import TextTokenizer
from harness.record.outcome import Failure
from sut.encoder.answer_encoder import AnswerEncoder
from sut.processes.spawn import die_with_parent, pin, show_as

TEXT_STRUCT = struct.Struct("<Iq")  # bytes of the text, the server's count or NO_COUNT
IDS_STRUCT = struct.Struct("<II")  # bytes that follow, FailureKind or 0
NO_COUNT = -1
_RECEIVE_BYTES = 1 << 18
# A worker, LoadGen's process and an event that waits for them come first, wherever the scheduler puts this.
_NICE = 10


class EncoderSpec(msgspec.Struct, frozen=True):
    """The settings of an encoder."""

    tokenizer: TextTokenizer
    vocabulary_size: int
    cores: frozenset[int]
    """CPUs on which nothing of the client is pinned; empty where the scheduler decides"""


def encoder_main(index: int, spec: EncoderSpec, channel: socket.socket, control: Pipe) -> NoReturn:
    """Entry point of the process. Sends "ready" to ``control``, or the reason of a failure."""
    die_with_parent()
    show_as(f"encoder{index}")
    pin(tuple(spec.cores))
    # Threads of its own would take cores from the workers.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    code = 1
    try:
        encoder = AnswerEncoder(spec.tokenizer.open(), spec.vocabulary_size)
        control.send(("ready", None))
        os.nice(_NICE)  # only now: the session waits for its start
        serve(channel, encoder)
        code = 0
    except HarnessError as error:
        _report(control, str(error))
    except BaseException as error:  # noqa: BLE001 - the process's edge; a panic of the tokenizer is no Exception
        _report(control, f"encoder {index}: {in_words(error)}")
    os._exit(code)


def serve(channel: socket.socket, encoder: AnswerEncoder) -> None:
    """Encode until the other end hangs up. Raises OSError."""
    waiting = bytearray()
    with contextlib.suppress(ConnectionError):
        while data := channel.recv(_RECEIVE_BYTES):
            waiting += data
            begin = 0
            while (text := _text_at(waiting, begin)) is not None:
                size, counted = TEXT_STRUCT.unpack_from(waiting, begin)
                channel.sendall(_reply(encoder, text, None if counted == NO_COUNT else counted))
                begin += TEXT_STRUCT.size + size
            del waiting[:begin]


def _text_at(waiting: bytearray, begin: int) -> str | None:
    """The text of a message that has arrived completely."""
    start = begin + TEXT_STRUCT.size
    if len(waiting) < start:
        return None
    end = start + TEXT_STRUCT.unpack_from(waiting, begin)[0]
    return waiting[start:end].decode() if len(waiting) >= end else None


def _reply(encoder: AnswerEncoder, text: str, counted: int | None) -> bytes:
    found = encoder.encode(text, counted)
    if isinstance(found, Failure):
        detail = found.detail.encode()
        return IDS_STRUCT.pack(len(detail), found.kind) + detail
    ids = found.astype("<i4").tobytes()
    return IDS_STRUCT.pack(len(ids), 0) + ids


def _report(control: Pipe, reason: str) -> None:
    """A supervisor that was interrupted no longer listens."""
    with contextlib.suppress(OSError):
        control.send(("error", reason))
