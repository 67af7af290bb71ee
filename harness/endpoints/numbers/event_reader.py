"""The requests of a performance phase, from the events.jsonl of any client, with their tokens counted.

Processes share the file by ranges of bytes: each decodes the lines of a range and counts the tokens of the
answers in it, so that no more than some ranges are in memory, whatever the file's length. The result is kept
beside the events, for the next reader.
"""

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec.structs import astuple

from harness.cli.processes import computing
from harness.dataset.model_tokenizer import TOKENIZER_FILE
from harness.endpoints.numbers import event_record as form
from harness.endpoints.numbers.count_cache import (
    COUNTED,
    FINISH_REASONS,
    Cached,
    count_key,
    read_cached,
    write_cached,
)
from harness.endpoints.numbers.event_record import Answer, Event, Prompt
from harness.endpoints.numbers.reference_tokenizer import ReferenceTokenizer, open_reference
from harness.endpoints.run_folder import EVENTS
from harness.endpoints.samples import Samples
from harness.errors import ConfigError, DatasetError, RunError
from harness.files import REQUESTS
from harness.machine import usable_cores

Progress = Callable[[int, int], None]
"""called with the bytes that were read and those of the file"""

_RANGE_BYTES = 4 << 20
_ALONE_BYTES = 2 << 20  # a shorter file is read sooner than a process starts
_SESSION = b'"session.'


class RunEvents(msgspec.Struct, frozen=True):
    """What events.jsonl says of a performance phase."""

    samples: Samples
    isl: npt.NDArray[np.int64]
    """tokens of each prompt; 0 where nothing says it"""
    finish: npt.NDArray[np.uint8]
    """of each request, its place in FINISH_REASONS"""
    duration_ns: int
    """from the start of tracking to the last completion"""
    ended: bool
    """whether the client closed the file"""
    notes: tuple[str, ...] = ()
    """what is missing, a line each"""


def silent(done: int, total: int, what: str = "") -> None:
    """No progress is shown."""


def read_events(
    folder: Path,
    tokenizer: Path | None,
    progress: Progress = silent,
    processes: int | None = None,
) -> RunEvents:
    """Everything that a run folder's events say; None is gpt-oss's tokenizer.

    A file that was cut off is read as far as it goes. Raises DatasetError for one that is missing, is broken
    in its middle or holds no performance phase, ConfigError for a tokenizer that cannot count its answers,
    RunError where a process was killed.
    """
    file = folder / EVENTS
    try:
        size = file.stat().st_size
        key = count_key(file, _files_of(tokenizer))
        cached = read_cached(folder, key)
        if cached is None:
            cached = _counted(file, size, tokenizer, progress, processes or usable_cores())
            write_cached(folder, key, cached)
    except OSError as error:
        raise DatasetError(f"{file}: {error.strerror}; expected the events of a run") from error
    progress(size, size)
    return _events(file, cached)


def _prompt_lengths(folder: Path, cached: Cached) -> npt.NDArray[np.int64]:
    """Tokens of the prompts; our own events do not repeat them, the table of requests beside them does."""
    if cached.rows["isl"].any():
        return cached.rows["isl"].astype(np.int64)
    try:
        table = pq.read_table(folder / REQUESTS, columns=["issued_ns", "isl"])
    except (OSError, pa.ArrowException):
        return np.zeros(len(cached.rows), np.int64)
    issued = table.filter(pc.is_valid(table["issued_ns"]))
    isl = issued["isl"].to_numpy().astype(np.int64)
    return isl if len(isl) == len(cached.rows) else np.zeros(len(cached.rows), np.int64)


def _files_of(tokenizer: Path | None) -> Iterator[Path]:
    """The files that decide how it counts; none for gpt-oss's, which is built in. Raises ConfigError."""
    if tokenizer is not None:
        folder = tokenizer if tokenizer.is_dir() else tokenizer.parent
        file = tokenizer / TOKENIZER_FILE if tokenizer.is_dir() else tokenizer
        if not file.is_file():
            raise ConfigError(
                f"{file}: no such file; pass the folder of the model, or the {TOKENIZER_FILE} in it"
            )
        yield file
        template = (folder / name for name in ("tokenizer_config.json", "chat_template.jinja"))
        yield from (path for path in template if path.exists())


def _events(file: Path, cached: Cached) -> RunEvents:
    samples = cached.samples
    unended = int(((samples["complete_ns"] == 0) & ~samples["failed"]).sum())
    notes = [f"{file}: {cached.broken}"] if cached.broken else []
    if not cached.ended and not cached.broken:
        notes.append(f"{file}: ends without session.ended: the run was cut off")
    if unended:
        notes.append(f"{file}: {unended} of {len(samples)} requests have no end")
    finish = cached.rows["finish"].astype(np.uint8)
    isl = _prompt_lengths(file.parent, cached)
    return RunEvents(samples, isl, finish, cached.duration_ns, cached.ended, tuple(notes))


class _Seen(NamedTuple):
    """A line that matters, of a range."""

    kind: str
    ns: int
    uuid: str
    tokens: int = 0
    """of an answer, or of a prompt"""
    suffix: int = 0
    finish: int = 0


class _Range(NamedTuple):
    begin: int
    end: int


class _Found(NamedTuple):
    part: _Range
    seen: list[_Seen]
    broken_at: int | None
    error: str = ""


def _counted(file: Path, size: int, tokenizer: Path | None, progress: Progress, processes: int) -> Cached:
    plan = _planned(file, size)
    phase = _Phase(ended=plan.ended)
    killed = RunError(
        "a process that counted tokens was killed, perhaps for lack of memory; free it and repeat the "
        "command: no request is sent again"
    )
    alone = processes == 1 or size <= _ALONE_BYTES or len(plan.ranges) == 1
    work = partial(_read_range, file, tokenizer)
    # Each process loads the tokenizer: this one, which holds all requests, stays small.
    with computing(work, plan.ranges, 0 if alone else processes, 1, killed, _begin) as read:
        for found in read:
            if found.part.begin >= plan.tracked_to and phase.is_over:
                break
            for seen in found.seen:
                phase.add(seen)
            progress(found.part.end, size)
            if found.broken_at is not None:
                phase.broken = _broken(file, found, size)
                break
    if not plan.ranges:
        raise DatasetError(f"{file}: no performance phase; expected {form.START}")
    return phase.result()


def _begin() -> None:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # a process for each core


class _Plan(NamedTuple):
    ranges: list[_Range]
    """complete lines from the start of tracking to the end of the file"""
    tracked_to: int
    """end of the range in which tracking stops"""
    ended: bool


def _planned(file: Path, size: int) -> _Plan:
    if not size:
        raise DatasetError(f"{file}: empty; expected the events of a run")
    ranges: list[_Range] = []
    kinds: set[str] = set()
    tracked_to = size
    for part, data in _parts(file):
        for place, kind in _sessions(data):
            if kind == form.START and kind not in kinds:
                part = _Range(part.begin + place, part.end)
            elif kind == form.STOP:
                tracked_to = part.end
            kinds.add(kind)
        if form.START in kinds:
            ranges.append(part)
    return _Plan(ranges, tracked_to, form.ENDED in kinds)


def _parts(file: Path) -> Iterator[tuple[_Range, bytes]]:
    """The file in ranges of complete lines."""
    begin = 0
    with file.open("rb") as opened:
        while data := opened.read(_RANGE_BYTES) + opened.readline():
            yield _Range(begin, begin + len(data)), data
            begin += len(data)


def _sessions(data: bytes) -> Iterator[tuple[int, str]]:
    """Begin and kind of the lines about the session; a quotation mark inside a text follows a backslash."""
    place = data.find(_SESSION)
    while place >= 0:
        begin = data.rfind(b"\n", 0, place) + 1
        end = data.find(b'"', place + 1)
        if data[place - 1 : place] != b"\\":
            yield begin, data[place + 1 : end].decode("ascii", "replace")
        place = data.find(_SESSION, place + 1)


def _broken(file: Path, found: _Found, size: int) -> str:
    at = found.broken_at or 0
    with file.open("rb") as opened:
        opened.seek(at)
        line = opened.readline()
    if at + len(line) < size:
        raise DatasetError(f"{file}: byte {at}: {found.error}; expected an event in each line")
    return f"cut off in its last line, at byte {at} of {size}"


def _read_range(file: Path, tokenizer: Path | None, part: _Range) -> _Found:
    """The lines of a range that matter, in their order."""
    with file.open("rb") as opened:
        opened.seek(part.begin)
        lines = opened.read(part.end - part.begin).splitlines(keepends=True)
    events, at, error, broken_at = [], part.begin, "", None
    for line in lines:
        try:
            event = _EVENT.decode(line) if line.strip() else None
        except (msgspec.DecodeError, UnicodeDecodeError) as broken:
            error, broken_at = str(broken), at
            break
        if event is not None and event.event_type != form.LATER:
            events.append(event)
        at += len(line)
    return _Found(part, _seen(events, open_reference(tokenizer)), broken_at, error)


_EVENT = msgspec.json.Decoder(Event)


def _seen(events: list[Event], reader: ReferenceTokenizer) -> list[_Seen]:
    answered = [number for number, event in enumerate(events) if event.event_type == form.COMPLETE]
    totals, suffixes = reader.count_answers([_answer(events[number].data) for number in answered])
    counts = {number: (int(a), int(b)) for number, a, b in zip(answered, totals, suffixes, strict=True)}
    seen = []
    for number, event in enumerate(events):
        tokens, suffix = counts.get(number, (0, 0))
        if isinstance(event.data, Prompt):
            tokens = _prompt_tokens(event.data, reader)
        finish = _finish_of(event.finish_reason)
        seen.append(_Seen(event.event_type, event.timestamp_ns, event.sample_uuid, tokens, suffix, finish))
    return seen


def _answer(data: Any) -> Answer:
    if isinstance(data, Answer):
        return data
    return Answer(data) if isinstance(data, str) else Answer()


def _prompt_tokens(prompt: Prompt, tokenizer: ReferenceTokenizer) -> int:
    if prompt.token_ids is not None:
        return len(prompt.token_ids)
    return tokenizer.count_texts([prompt.text])[0] if prompt.text else 0


def _finish_of(reason: str | msgspec.UnsetType) -> int:
    if not isinstance(reason, str):
        return 0
    return FINISH_REASONS.index(reason) if reason in FINISH_REASONS else len(FINISH_REASONS) - 1


class _Request(msgspec.Struct, gc=False):
    """A row of COUNTED, in its order, and the time of tracking in which it was issued."""

    issued_ns: int
    first_ns: int
    complete_ns: int
    output_tokens: int
    suffix_tokens: int
    failed: bool
    isl: int
    finish: int
    block: int


class _Phase(msgspec.Struct):
    """The requests that were issued while performance was tracked, as their events arrive."""

    rows: list[_Request] = []
    broken: str = ""
    ended: bool = False
    _open: dict[str, _Request] = {}
    _tracking: bool = False
    _blocks: list[list[int]] = []
    """begin and last completion of each time of tracking"""

    @property
    def is_over(self) -> bool:
        """Whether nothing more can come of these requests."""
        return not self._tracking and not self._open

    def add(self, seen: _Seen) -> None:
        """Take the next line. A request with the id of an open one is the same."""
        row = self._open.get(seen.uuid)
        match seen.kind:
            case form.START if not self._tracking:
                self._tracking = True
                self._blocks.append([seen.ns, seen.ns])
            case form.STOP:
                self._tracking = False
            case form.ISSUED if self._tracking and row is None:
                row = _Request(seen.ns, 0, 0, 0, 0, False, seen.tokens, 0, len(self._blocks) - 1)
                self._open[seen.uuid] = row
                self.rows.append(row)
            case form.FIRST if row is not None:
                row.first_ns = seen.ns
            case form.COMPLETE if row is not None:
                self._complete(self._open.pop(seen.uuid), seen)
            case kind if row is not None and kind.startswith(form.ERRORS):  # its end may follow
                row.failed = True

    def _complete(self, row: _Request, seen: _Seen) -> None:
        row.complete_ns, row.output_tokens, row.finish = seen.ns, seen.tokens, seen.finish
        row.suffix_tokens = seen.suffix if row.first_ns else 0
        block = self._blocks[row.block]
        block[1] = max(block[1], seen.ns)

    def result(self) -> Cached:
        """All of it."""
        rows = np.array([astuple(row)[:-1] for row in self.rows], COUNTED)
        duration_ns = sum(last - begin for begin, last in self._blocks)
        return Cached(rows, duration_ns, self.ended, self.broken)
