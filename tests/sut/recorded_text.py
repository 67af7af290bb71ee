"""A server that answers in text, as a real vLLM did."""

import re

from harness.config.protocol import Protocol
from tests.kit import PATIENCE_S, read_request
from tests.recorded_wires import exchange

RECORDED = "vllm-0.32.0/completions-text-stream"
PROTOCOL = Protocol("openai", "completions-text", "text")
IN_STREAM = exchange(RECORDED)
QUERY = IN_STREAM.chunks[-1]["usage"]["prompt_tokens"] - 1  # its prompt has as many tokens
TEXT = "".join(choice["text"] for chunk in IN_STREAM.chunks for choice in chunk["choices"])
COUNTED = 8
NAMED = {"wire": PROTOCOL, "model": IN_STREAM.chunks[0]["model"]}


def answering(response, edit=lambda response: response, gate=None):
    """A script of a server: it answers each request, whose id it repeats, and closes.

    ``gate``: what is set when the events after the first may follow.
    """

    def play(connection):
        with connection:
            if (request := read_request(connection)) is None:
                return  # a connection that was not used
            (own,) = re.findall(rb"X-Request-Id: (\w+)", request[0])
            body = b"".join(re.findall(rb"data: .*\n\n", response.partition(b"\r\n\r\n")[2]))
            body = edit(body.replace(b"q-000017", own))
            connection.sendall(
                b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n"
                b"content-length: %d\r\n\r\n" % len(body)
            )
            first = body.index(b"\n\n") + 2
            connection.sendall(body[:first])
            if gate is not None:
                gate.wait(PATIENCE_S)
            connection.sendall(body[first:])

    return play
