"""A server for tests that answers like SGLang, vLLM, llama.cpp and others, and fails in every way we know of.

>>> with StubServer(tokens=5, faults=every(7, Fault.CUT_CHUNKED)) as stub:
...     post(stub.url + "/generate", {"input_ids": [1, 2, 3], "stream": True})
...     stub.requests[0].prompt_ids

Real sockets, one thread with an asyncio loop, standard library only. What must arrive is known
beforehand: ``expected_ids(prompt_ids, n)``.
"""

from .faults import (
    CUMULATIVE_ONLY,
    INCREMENTAL_ONLY,
    OF_CHATS,
    OF_IDS,
    OF_PROMPTS,
    OF_TEXT,
    OF_USAGE,
    ONLY_STREAMS,
    Fault,
    every,
)
from .protocol import Facts, expected_ids
from .server import StubServer, refused_url
from .words import expected_words

__all__ = [
    "CUMULATIVE_ONLY",
    "INCREMENTAL_ONLY",
    "OF_CHATS",
    "OF_IDS",
    "OF_PROMPTS",
    "OF_TEXT",
    "OF_USAGE",
    "ONLY_STREAMS",
    "Facts",
    "Fault",
    "StubServer",
    "every",
    "expected_ids",
    "expected_words",
    "refused_url",
]
