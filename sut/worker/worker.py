"""A worker process: takes queries from the LoadGen process, runs them, reports and journals their outcomes.

Callbacks only: no task, future or queue for an event. The loop sleeps in epoll; a tick four times a second
handles deadlines, idle connections, retries and the journal.

Messages on ``control``, to the supervisor:

    ("ready", None) or ("error", text)  after the start
    ("suspect", replica)                a replica looks dead
    ("address", text)                   an address of a replica gives no connection
    ("journal", text)                   the journal cannot be written
    ("encoder", text)                   its encoder has died, or does not move

and from it, when it has checked a replica's health: ("suspect", replica) or ("trust", replica), the latter
behind ("moved", (replica, endpoint)) where its name has other addresses now.
"""

import contextlib
import gc
import os
import select
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import NoReturn

import msgspec

from harness.config.deadlines import Deadlines
from harness.config.generation import SamplingParameters
from harness.config.protocol import Protocol
from harness.errors import in_words, machine_failure
from harness.grading.decoding.text_tokenizer import TextTokenizer
from harness.record.answer_log import KeptAnswers, SavedAnswer
from harness.record.journal import NOWHERE
from harness.record.outcome import Completion, Failure, Outcome, TextCompletion
from harness.record.settled import Cpus
from sut.client.balance import Balance
from sut.client.client import HttpClient
from sut.client.connections import Request
from sut.client.endpoint import Endpoint
from sut.client.response import ResponseReader
from sut.encoder.link import EncoderLink
from sut.ipc.counters import FIRST_FAILURE, Counter, CounterBoard
from sut.ipc.messages import ASSIGNMENT_STRUCT, COMPLETE, FAILED, FIRST, TokenMessageWriter
from sut.ipc.request_store import RequestStore
from sut.processes.machine_limits import raise_descriptor_limit
from sut.processes.spawn import die_with_parent, gc_runs, pin, show_as
from sut.wire import Wires
from sut.wire.fields import AnswersSeen
from sut.worker.journal_writer import JournalWriter

_TICK_S = 0.25
_FIRST_WAIT_NS = 250_000_000  # before a failed request is sent again; twice as long after each failure
_LONGEST_WAIT_NS = 8_000_000_000
_INTAKE_BYTES = ASSIGNMENT_STRUCT.size * 2048
_LAST_TEXTS_S = 0.5  # for the ids of answers that had come at the end


class Destination(msgspec.Struct, frozen=True):
    """The destination of the queries: resolved replicas and their protocol."""

    endpoints: tuple[Endpoint, ...]
    protocol: Protocol
    model: str
    """The served name."""
    seen: AnswersSeen
    """What the trial answers have shown."""
    saved: Mapping[int, SavedAnswer] = msgspec.field(default_factory=dict)
    """Answers of an earlier attempt at this run, by sample: those queries are not sent."""
    tokenizer: TextTokenizer | None = None
    """What gives answers that are text their ids."""


class WorkerSpec(msgspec.Struct, frozen=True):
    """The settings of one worker."""

    index: int
    destination: Destination
    parameters: SamplingParameters
    vocabulary_size: int
    max_in_flight: int
    """0: no limit."""
    warm_connections: int
    """Connections that are opened to each replica before the start."""
    deadlines: Deadlines
    retries: int
    first_tokens: bool
    """Whether LoadGen waits for them."""
    accuracy: bool
    """Whether answers matter, and their times do not."""
    journal_dir: Path
    board: CounterBoard
    """Requests in flight: a row for each worker, a column for each replica."""
    network: CounterBoard
    """A row for each replica of each worker; columns by sut.client.network_figures.Network."""
    text_after: int | None = None
    """Where the answer to each query is kept, with the arrival of its first text: the tokens before that."""
    cores: Cpus = ()


class Retries:
    """Decides which requests are sent again, and holds them until then, which counts towards their latency.

    A request of which the server accepted no byte may always be repeated; any other only with
    ``answers_only``: times of answers do not matter then.
    """

    def __init__(self, limit: int, *, answers_only: bool) -> None:
        self._limit = limit
        self._answers_only = answers_only
        self._waiting: list[tuple[int, Request]] = []

    @property
    def hold_first_tokens(self) -> bool:
        """Whether a first token is reported only with its answer: another attempt may return another."""
        return self._answers_only and self._limit > 0

    def takes(self, request: Request, failure: Failure, now: int) -> bool:
        """Whether the request that failed at ``now`` (monotonic ns) will be sent again."""
        if request.attempt >= self._limit or not (self._answers_only or not request.accepted):
            return False
        wait = min(_FIRST_WAIT_NS << request.attempt, _LONGEST_WAIT_NS)
        self._waiting.append((now + wait, request))
        return True

    def due(self, now: int) -> Iterator[Request]:
        """Remove and return the requests that are due."""
        ready = [request for until, request in self._waiting if until <= now]
        self._waiting = [entry for entry in self._waiting if entry[0] > now]
        yield from ready


class Worker:
    """Joins the LoadGen channel, the HTTP client, the journal and the counters of one process."""

    def __init__(
        self,
        spec: WorkerSpec,
        channel: socket.socket,
        store: RequestStore,
        counters: memoryview,
        control: Pipe,
        encoder: socket.socket | None,
    ) -> None:
        """``encoder``: the channel to the encoder, where answers are text."""
        to = spec.destination
        self._spec = spec
        self._saved = to.saved
        self._channel = channel
        self._control = control
        self._store = store
        self._counters = counters
        self._wires = Wires(to.protocol, spec.parameters, spec.vocabulary_size, to.model, to.seen)
        self._streams = spec.parameters.stream
        self._text_after = spec.text_after or 0
        self._journal = JournalWriter(
            spec.journal_dir,
            f"worker{spec.index}",
            spec.index,
            answers=_kept_answers(spec),
            counts=encoder is not None,
        )
        self._journal_fault = ""
        self._retries = Retries(spec.retries, answers_only=spec.accuracy)
        # A text has no ids before its end. Where times do not matter, the first one is reported then.
        self._hold_first_tokens = self._retries.hold_first_tokens or (spec.accuracy and encoder is not None)
        self._messages = TokenMessageWriter(channel)
        self._client = HttpClient(
            to.endpoints,
            spec.deadlines,
            on_first_token=self._on_first_token,
            on_done=self._on_done,
            on_urgent_done=self._flush_messages,
            on_suspect=lambda replica: control.send(("suspect", replica)),
            on_lost_address=lambda text: control.send(("address", text)),
            balance=Balance(
                len(to.endpoints), spec.board, spec.index, [endpoint.runs for endpoint in to.endpoints]
            ),
            network=_network_rows(spec),
        )
        self._encoder = (
            None if encoder is None else EncoderLink(encoder, self._on_encoded, self._client.watch)
        )
        self._encoder_fault = ""
        self._backlog: deque[tuple[int, int, int]] = deque()
        self._intake = b""
        self._open = True
        self._cpu_start_ns = self._gc_start = 0
        self._channel_mask = select.EPOLLIN

    def run(self) -> None:
        """Serve until the LoadGen process closes the channel."""
        self._channel.setblocking(False)
        self._client.watch(self._channel.fileno(), self._channel_mask, self._on_channel)
        self._client.watch(self._control.fileno(), select.EPOLLIN, self._on_control)
        self._client.warm(self._spec.warm_connections)
        self._cpu_start_ns, self._gc_start = time.process_time_ns(), gc_runs()
        next_tick = time.monotonic() + _TICK_S
        counters = self._counters
        while self._open:
            self._client.poll(max(0.0, next_tick - time.monotonic()))
            counters[Counter.PARTIAL_TOKENS] = self._client.partial_tokens
            if self._backlog:
                self._start_backlog()
            self._flush_messages()
            late = time.monotonic() - next_tick
            if late >= 0:
                self._counters[Counter.LOOP_LAG_NS] = max(
                    self._counters[Counter.LOOP_LAG_NS], int(late * 1e9)
                )
                next_tick = time.monotonic() + _TICK_S
                self._tick()
        self._await_encoder()
        self._client.close()
        self._keep_records(self._journal.flush)

    def _await_encoder(self) -> None:
        """Take the last ids, so that the journal has every answer that had come; then let the encoder end."""
        if self._encoder is None:
            return
        until = time.monotonic() + _LAST_TEXTS_S
        while self._encoder.waiting and time.monotonic() < until:
            self._client.poll(_TICK_S)
        self._encoder.close()

    def _tick(self) -> None:
        self._client.tick()
        for request in self._retries.due(time.monotonic_ns()):
            self._send(request.query_id, request.sample_index, request.issued_ns, request.attempt + 1)
        self._flush_messages()
        self._keep_records(self._journal.flush_behind)
        if self._encoder is not None and not self._encoder_fault:
            self._check_encoder(self._encoder)

    def _check_encoder(self, encoder: EncoderLink) -> None:
        if not encoder.is_open:
            self._encoder_fault = "has ended"
        elif encoder.is_stuck(time.monotonic_ns()):
            self._encoder_fault = f"does not move, with {encoder.waiting} answers waiting"
        if self._encoder_fault:
            self._control.send(("encoder", self._encoder_fault))

    def _keep_records(self, flush: Callable[[], None]) -> None:
        try:
            flush()
        except OSError as error:
            if not self._journal_fault:
                self._journal_fault = str(machine_failure(error))
                self._control.send(("journal", self._journal_fault))
        counters = self._counters
        counters[Counter.HEARTBEAT_NS] = time.monotonic_ns()
        counters[Counter.LONGEST_FLUSH_NS] = self._journal.longest_ns
        counters[Counter.RECEPTIONS] = self._client.receptions
        counters[Counter.CLOCK_STEPS_NS] = self._client.clock_steps_ns
        counters[Counter.GC_RUNS] = gc_runs() - self._gc_start
        counters[Counter.CPU_NS] = time.process_time_ns() - self._cpu_start_ns

    def _flush_messages(self) -> None:
        if not self._messages.waiting:
            return
        mask = select.EPOLLIN if self._messages.flush() else select.EPOLLIN | select.EPOLLOUT
        if mask != self._channel_mask:
            self._channel_mask = mask
            self._client.watch(self._channel.fileno(), mask, self._on_channel)

    def _on_channel(self, mask: int) -> None:
        if not mask & ~select.EPOLLOUT:
            return
        try:
            data = self._channel.recv(_INTAKE_BYTES)
        except BlockingIOError:
            return
        except ConnectionError:
            data = b""
        if not data:
            self._open = False
            return
        self._accept(self._intake + data)

    def _on_control(self, mask: int) -> None:
        try:
            word, replica = self._control.recv()
        except (EOFError, OSError):
            self._open = False  # the supervisor is gone
            return
        if word == "moved":
            self._client.move(*replica)
        elif word == "trust":
            self._client.trust(replica)
        else:
            self._client.suspect(replica)

    def _accept(self, data: bytes) -> None:
        whole = len(data) - len(data) % ASSIGNMENT_STRUCT.size
        self._backlog.extend(ASSIGNMENT_STRUCT.iter_unpack(data[:whole]))
        self._intake = data[whole:]
        self._start_backlog()

    def _start_backlog(self) -> None:
        limit = self._spec.max_in_flight
        while (
            self._backlog and self._client.can_start and not (limit and len(self._client.in_flight) >= limit)
        ):
            self._start(*self._backlog.popleft())

    def _start(self, query_id: int, sample_index: int, issued_ns: int) -> None:
        if sample_index in self._saved:
            self._send_saved_answer(query_id, self._saved[sample_index])
        else:
            self._send(query_id, sample_index, issued_ns, 0)

    def _send(self, query_id: int, sample_index: int, issued_ns: int, attempt: int) -> None:
        wire = self._wires.of(self._store.limit(sample_index))
        reader = ResponseReader(
            wire.answer(),
            streams=self._streams,
            max_event_bytes=wire.max_event_bytes,
            text_after=self._text_after,
        )
        self._counters[Counter.SENT] += 1
        body = self._store.request(sample_index)
        request = Request(query_id, sample_index, issued_ns, body, reader, wire.opening)
        request.attempt = attempt
        request.salt = self._store.salt(query_id, sample_index)
        request.prompt_tokens = self._store.prompt_tokens(sample_index)
        self._client.start(request)

    def _send_saved_answer(self, query_id: int, saved: SavedAnswer) -> None:
        """Report an answer of an earlier attempt at this run."""
        ids = saved.output_ids().tobytes()
        now = time.monotonic_ns()
        if self._spec.first_tokens:
            self._messages.add(query_id, FIRST, now, ids[:4])
        self._messages.add(query_id, COMPLETE, now, ids)
        isl = self._store.prompt_tokens(saved.sample_index)
        self._journal.add_resumed(
            query_id, saved.sample_index, NOWHERE, isl, saved.count, saved.finish, saved.counted
        )
        self._counters[Counter.COMPLETED] += 1
        self._counters[Counter.RESUMED] += 1

    def _on_first_token(self, request: Request) -> None:
        self._count_first_token(request)
        if not self._hold_first_tokens:
            self._send_first_token(request, request.reader.first_token_ns)

    def _count_first_token(self, request: Request) -> None:
        self._counters[Counter.FIRST_TOKENS] += 1
        self._counters[Counter.TTFT_SUM_NS] += request.reader.first_token_ns - request.issued_ns

    def _send_first_token(self, request: Request, arrived_ns: int, answer: Completion | None = None) -> None:
        """``arrived_ns``: when the bytes came after which it may be reported; client share begins then.

        Of a text the id is known only with its ``answer``: before that it is reported without one.
        """
        if self._spec.first_tokens:
            token = request.reader.answer.ids[:1].tobytes()
            if not token and answer is not None:
                token = answer.output_ids[:1].tobytes()
            self._messages.add(request.query_id, FIRST, arrived_ns, token)

    def _on_done(self, request: Request, outcome: Outcome) -> None:
        if not isinstance(outcome, TextCompletion):
            self._on_encoded(request, outcome)
        elif self._encoder is not None:
            self._encoder.send(request, outcome)
        else:
            raise RuntimeError("a text answer, and no encoder for it")

    def _on_encoded(self, request: Request, outcome: Completion | Failure) -> None:
        """The end of a query: an answer with its ids, or a Failure."""
        if isinstance(outcome, Completion):
            self._complete(request, outcome)
        elif self._retries.takes(request, outcome, time.monotonic_ns()):
            self._journal.add_retry(request.query_id, request.sample_index, outcome)
            self._counters[Counter.RETRIED] += 1
            return
        else:
            self._messages.add(request.query_id, FAILED, time.monotonic_ns())
            self._counters[Counter.FAILED] += 1
            self._counters[FIRST_FAILURE + outcome.kind] += 1
        reader = request.reader
        times = (
            request.issued_ns,
            request.sent_ns,
            reader.first_byte_ns,
            reader.first_token_ns if self._streams else 0,  # else no token's time is known
            reader.last_byte_ns,
        )
        self._journal.add(
            request.query_id,
            request.sample_index,
            request.replica,
            times,
            self._store.prompt_tokens(request.sample_index),
            _first_event_tokens(reader, outcome),
            outcome,
            request.attempt,
            (reader.visible_ns, reader.visible_tokens) if self._streams else (0, 0),
        )

    def _complete(self, request: Request, completion: Completion) -> None:
        reader, osl = request.reader, len(completion.output_ids)
        if self._streams and not request.first_token_sent:
            self._count_first_token(request)
        if not request.first_token_sent or self._hold_first_tokens:
            self._send_first_token(request, reader.last_byte_ns, completion)
        self._messages.add(request.query_id, COMPLETE, reader.last_byte_ns, completion.output_ids.tobytes())
        counters = self._counters
        counters[Counter.COMPLETED] += 1
        counters[Counter.OUTPUT_TOKENS] += osl
        counters[Counter.LONGEST_ANSWER] = max(counters[Counter.LONGEST_ANSWER], osl)
        if osl > 1 and self._streams:
            counters[Counter.TPOT_SUM_NS] += (reader.last_byte_ns - reader.first_token_ns) // (osl - 1)
            counters[Counter.TPOT_COUNT] += 1


def _first_event_tokens(reader: ResponseReader, outcome: Completion | Failure) -> int:
    """Of a text, fragments, unless all of it came in the first event."""
    fragments = reader.first_event_tokens
    if isinstance(outcome, Failure) or outcome.counted is None or fragments < reader.answer.tokens:
        return fragments
    return len(outcome.output_ids)


def _kept_answers(spec: WorkerSpec) -> KeptAnswers | None:
    """What the journal keeps besides rows."""
    if spec.accuracy:
        return "of samples"
    return None if spec.text_after is None else "of queries"


def _network_rows(spec: WorkerSpec) -> list[memoryview]:
    """This worker's rows of the network figures, one for each replica."""
    count = len(spec.destination.endpoints)
    return [spec.network.row(spec.index * count + replica) for replica in range(count)]


def worker_main(
    spec: WorkerSpec,
    channel: socket.socket,
    store: RequestStore,
    board: CounterBoard,
    control: Pipe,
    encoder: socket.socket | None,
) -> None:
    """Entry point of the process. Sends "ready" to ``control``, or the reason of a failure."""
    die_with_parent()
    show_as(f"worker{spec.index}")
    pin(spec.cores)
    raise_descriptor_limit()
    try:
        worker = Worker(spec, channel, store, board.row(spec.index + 1), control, encoder)
        gc.collect()
        gc.freeze()
        gc.disable()
        control.send(("ready", None))
        worker.run()
    except Exception as error:  # noqa: BLE001 - the process's edge: reported to the supervisor
        _end_with(control, f"worker {spec.index}: {in_words(error)}")
    os._exit(0)


def _end_with(control: Pipe, reason: str) -> NoReturn:
    """Report why the worker ends; a supervisor that was interrupted no longer listens."""
    with contextlib.suppress(OSError):
        control.send(("error", reason))
    os._exit(1)
