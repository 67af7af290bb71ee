"""Prompts at a terminal: one at a time, each answer shown while it arrives; Ctrl-C ends the answer."""

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import msgspec

from harness.batch.batch_options import TalkOptions
from harness.batch.batch_plan import allowed_positions, limit_of, sampling, unused_sampling
from harness.batch.chat import AnswerText, Conversation
from harness.batch.models import model_named
from harness.config.benchmark import Benchmark
from harness.config.deadlines import Deadlines
from harness.config.generation import SamplingParameters
from harness.config.run_options import SERVER_URL
from harness.config.server_urls import parse_server_urls, unused_ca_file
from harness.dataset.tokenizer import encode
from harness.errors import EXIT_VALID, ConfigError, RunError
from harness.record.outcome import Failure, Outcome
from harness.record.settled import ServerInfo
from sut.client.client import HttpClient
from sut.client.connections import Request
from sut.client.endpoint import Access, access_by, resolve_endpoint
from sut.client.response import ResponseReader
from sut.drive import engine_of
from sut.servers.discovery import discover
from sut.wire import make_wire

_QUESTIONS_S, _ANSWER_S = 60.0, 3600.0
_LOOK_S = 0.05


def talk(options: TalkOptions) -> int:
    """Answer the prompt that was given, or those of stdin; returns the exit code. Raises HarnessError."""
    _warn(*options.warnings, *unused_sampling(options))
    benchmark = model_named(options.model)
    positions = allowed_positions(options.positions, benchmark)
    sampling(options, benchmark, 1)
    conversation = Conversation(options.reasoning, options.system) if options.chat else None
    with _server(options, benchmark, positions) as server:
        positions = _served(positions, server)
        for text in _prompts(options):
            ids = conversation.prompt(text) if conversation else encode(text)
            room = _room("conversation" if conversation else "prompt", ids, positions, benchmark)
            parameters = sampling(options, benchmark, room, stream=True)
            answer = _shown(server, parameters, benchmark, options, ids)
            if conversation:
                conversation.answered(answer)
    return EXIT_VALID


def stream_answer(
    server: ServerInfo,
    parameters: SamplingParameters,
    vocabulary_size: int,
    prompt: list[int],
    on_ids: Callable[[list[int]], None],
    *,
    access: Access,
    is_stopped: Callable[[], bool],
) -> Outcome | None:
    """One answer through the request path; ``on_ids`` gets its ids as they arrive.

    None if ``is_stopped`` became true before its end: the connection is closed, so that the server ends it.
    """
    wire = make_wire(server.protocol, parameters, vocabulary_size, server.served_name)
    endpoint = resolve_endpoint(server.url, wire.path, access)
    outcomes: list[Outcome] = []
    client = HttpClient(
        [endpoint],
        Deadlines(request_s=_ANSWER_S),
        on_done=lambda request, outcome: outcomes.append(outcome),
    )
    answer, shown = wire.answer(), 0
    reader = ResponseReader(answer, streams=wire.streams, max_event_bytes=wire.max_event_bytes)
    body = memoryview(wire.render(msgspec.json.encode(prompt)))
    try:
        client.start(Request(0, 0, time.monotonic_ns(), body, reader, wire.opening))
        while not outcomes and not is_stopped():
            client.poll(_LOOK_S)
            client.tick()
            if new := answer.ids[shown:].tolist():
                shown += len(new)
                on_ids(new)
    finally:
        client.close()
    return outcomes[0] if outcomes else None


def _shown(
    server: ServerInfo,
    parameters: SamplingParameters,
    benchmark: Benchmark,
    options: TalkOptions,
    prompt: list[int],
) -> list[int]:
    """Show an answer; returns its ids. Raises RunError where it fails."""
    shown, ids = AnswerText(harmony=options.chat), []

    def show(new: list[int]) -> None:
        ids.extend(new)
        print(shown.text(new), end="", flush=True)

    with _ctrl_c() as is_stopped:
        outcome = stream_answer(
            server,
            parameters,
            benchmark.vocabulary_size,
            prompt,
            show,
            access=access_by(options.ca_file),
            is_stopped=is_stopped,
        )
    print(flush=True)
    if isinstance(outcome, Failure):
        raise RunError(f"{server.url}: {outcome.kind.label}: {outcome.detail}")
    return ids


@contextmanager
def _ctrl_c() -> Iterator[Callable[[], bool]]:
    """Whether Ctrl-C was pressed in the block, where it does not end the program."""
    came: list[int] = []

    def stop(signum: int, frame: FrameType | None) -> None:
        came.append(signum)

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield lambda: bool(came)
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _server(options: TalkOptions, benchmark: Benchmark, positions: int) -> Iterator[ServerInfo]:
    """The first server, which answers all prompts."""
    if options.backend != "embedded":
        url = parse_server_urls(options.server_url or SERVER_URL)[0]
        _warn(*unused_ca_file(options.ca_file, [url]))
        yield discover([url], options.backend, access_by(options.ca_file), _QUESTIONS_S)[0]
        return
    if options.server_url:
        raise ConfigError("--backend embedded starts its own server; remove --server-url")
    _warn(*unused_ca_file(options.ca_file, ()))
    with engine_of(benchmark, slots=1, context=positions + 1) as engine:
        yield discover([engine.url], options.backend, access_by(options.ca_file), _QUESTIONS_S)[0]


def _served(positions: int, server: ServerInfo) -> int:
    """The positions that the server's context has, at most those asked for; fewer are a warning."""
    if server.context_length is None or server.context_length > positions:
        return positions
    least = server.context_length - 1
    _warn(
        f"{server.url} has a context of {server.context_length} tokens: {least} positions for a prompt with "
        "its answer"
    )
    return least


def _warn(*warnings: str) -> None:
    for warning in warnings:
        print(f"WARNING: {warning}", file=sys.stderr)


def _prompts(options: TalkOptions) -> Iterator[str]:
    """The prompt of the command line, or every line of stdin; empty lines are passed over."""
    if options.prompt is not None:
        yield options.prompt
        return
    while True:
        if sys.stdin.isatty():
            print("> ", end="", flush=True)
        line = sys.stdin.buffer.readline()
        if not line:
            return
        try:
            text = line.decode().rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise ConfigError(f"stdin: byte {error.start + 1} of a line is not UTF-8") from None
        if text.strip():
            yield text


def _room(what: str, prompt: list[int], positions: int, benchmark: Benchmark) -> int:
    limit = limit_of(len(prompt), positions, benchmark)
    if not prompt:
        raise ConfigError("the prompt is empty, expected text")
    if limit < 1:
        raise ConfigError(
            f"{what} of {len(prompt)} tokens, {positions} positions for it and its answer; raise -n, or the "
            "server's context"
        )
    return limit
