"""Reads LoadGen's mlperf_log_accuracy.json as a stream, in constant memory.

Both shapes are read: LoadGen's JSON array and JSON lines. Token ids come as hex of int32 or int64,
little-endian; the first token may lie in ``token_data`` alone or in both, and is counted once.
"""

import binascii
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from harness.arrays import Int64
from harness.errors import EntryError, GradingError
from harness.files import COMPRESSED

TokenIds = npt.NDArray[np.int32]

_CHUNK = 1 << 20
_SPACE = b" \t\r\n"  # what JSON has it for
SUBMISSION_GAP = b"\n...\n"  # what the submission rules put in place of a long log's middle
_DECISIVE_WORDS = 8  # of an int32 output with 8 ids or more, not every second id is 0 ("!")
EMPTY_LOG_BYTES = 16  # LoadGen writes "[\n]\n" when it logs no answer
INT64 = 8
_INT32 = 4
_UNCHECKED = 0  # the ids are read as int32, whatever the log holds
_NOT_OURS = "pass LoadGen's own mlperf_log_accuracy.json"
# Files that hold a log in another form begin so; what they are, and the remedy.
_OTHER_STARTS = (
    *COMPRESSED,
    (
        b"\xef\xbb\xbf",
        "begins with a byte order mark, which the official evaluators do not read: an editor or a shell has "
        "written it again",
        "pass LoadGen's own file, or take the mark out (tail --bytes=+4 FILE > NEW)",
    ),
    (
        (b"\xff\xfe", b"\xfe\xff"),
        "is UTF-16 text: an editor or a shell has written it again",
        "pass LoadGen's own file, or convert it (iconv -f UTF-16 -t ASCII FILE > NEW)",
    ),
)


_NO_TOKENS = msgspec.Raw(b'""')


class _Row(msgspec.Struct):
    """One entry as LoadGen writes it."""

    qsl_idx: Int64
    data: msgspec.Raw
    seq_id: int = -1
    token_data: msgspec.Raw = _NO_TOKENS
    token_count: Int64 | None = None


class LogEntry(msgspec.Struct, frozen=True, eq=False, dict=True):
    """One output."""

    path: Path
    offset: int
    """where the entry begins in the file, in bytes"""
    size: int
    """in bytes"""
    _row: _Row
    _width: int

    @property
    def qsl_idx(self) -> int:
        """The sample of this output."""
        return self._row.qsl_idx

    @property
    def seq_id(self) -> int:
        """LoadGen's number of the query; -1 where the log has none."""
        return self._row.seq_id

    @property
    def token_count(self) -> int | None:
        """The number of tokens that the harness reported; None where the log has none."""
        return self._row.token_count

    @property
    def has_first(self) -> bool:
        """Whether the log has ``token_data``; Offline logs may lack it."""
        return self._row.token_data is not _NO_TOKENS

    @cached_property
    def data_words(self) -> TokenIds:
        """``data`` as it stands, in words of 4 bytes: what the official length check counts."""
        return _words(self._row.data, self._where)

    @cached_property
    def data_ids(self) -> TokenIds:
        """The ids in ``data`` alone."""
        return _ids(self._row.data, self._width, self._where)

    @cached_property
    def first_ids(self) -> TokenIds:
        """The ids in ``token_data``: the first token as it was reported; empty where there is none."""
        return _ids(self._row.token_data, self._width, self._where)

    @property
    def _where(self) -> str:
        return f"{self.path}: entry at byte {self.offset} (qsl_idx {self.qsl_idx})"

    @cached_property
    def token_ids(self) -> TokenIds:
        """All output tokens, the first included: shape (OSL,), int32. GradingError for damaged hex."""
        if self._width == _UNCHECKED:
            return self.data_words
        return _whole(self.first_ids, self.data_ids, self._row.token_count)

    @property
    def is_first_apart(self) -> bool:
        """Whether ``token_data`` alone has the first token."""
        return self.has_first and len(self.token_ids) > len(self.data_ids)


class Cut(msgspec.Struct, frozen=True):
    """The place where a log broke off, and what was seen."""

    offset: int
    """of the first unusable byte"""
    reason: str


class RawEntry(msgspec.Struct, frozen=True):
    """The bytes of one entry, from brace to brace, and where they lie in the file."""

    text: bytes
    offset: int


class EntrySplitter:
    """Cuts a byte stream into entries. Feed chunks, then flush; entries are flat, so braces suffice."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._buffer = bytearray()
        self._offset = 0  # where the buffer's first byte lies in the stream
        self._comma: bytes | None = None  # what parts two entries; None before the first
        self._between: bytes | None = None  # it and the space around it

    def feed(self, chunk: bytes) -> Iterator[RawEntry]:
        """Entries that are complete now. GradingError for anything but a JSON array or JSON lines."""
        searched = len(self._buffer)
        self._buffer += chunk
        start = 0
        while (end := self._buffer.find(b"}", max(start, searched)) + 1) > 0:
            begin = self._buffer.find(b"{", start, end)
            self._check_between(start, end if begin < 0 else begin)
            yield RawEntry(bytes(self._buffer[begin:end]), self._offset + begin)
            start = end
        del self._buffer[:start]
        self._offset += start

    def flush(self) -> Cut | None:
        """The end of the stream: None for a complete log."""
        begin = self._buffer.find(b"{")
        if begin >= 0:
            self._check_between(0, begin)
            _refuse_gap(bytes(self._buffer), self._path)
            return Cut(self._offset + begin, "the last entry is not complete")
        complete, cut = {None: (b"[]", b"["), b",": (b"]", b","), b"": (b"", b"")}[self._comma]
        marks = bytes(self._buffer).translate(None, _SPACE)
        if marks == complete or not (marks or self._comma):
            return None
        if marks and marks != cut:
            raise self._strange(0, len(self._buffer))
        return Cut(self._offset, "the closing ] is missing")

    def _check_between(self, start: int, end: int) -> None:
        between = bytes(self._buffer[start:end])
        if between == self._between:
            return
        marks = between.translate(None, _SPACE)
        if self._comma is None and marks in (b"", b"["):
            self._comma = b"," if marks else b""
        elif marks == self._comma:
            self._between = between
        else:
            raise self._strange(start, end)

    def _strange(self, start: int, end: int) -> GradingError:
        between = bytes(self._buffer[start:end])
        _refuse_gap(between, self._path)
        shown = between.strip(_SPACE)[:40].decode("ascii", "backslashreplace")
        return GradingError(
            f"{self._path}, byte {self._offset + start}: {shown!r} between entries; {_NOT_OURS}"
        )


class AccuracyLog:
    """A log file that can be iterated any number of times; ``cut`` is known after a complete iteration."""

    def __init__(self, path: Path) -> None:
        """Look at the first entries. GradingError when there is no log or no entry in it."""
        self.path = path
        self._require_plain()
        self.cut: Cut | None = None
        self.width = _width(self._raw_entries(), path)

    @cached_property
    def is_array(self) -> bool:
        """Whether the log is LoadGen's JSON array, and not JSON lines."""
        with self.path.open("rb") as file:
            return file.read(_CHUNK).lstrip()[:1] == b"["

    @property
    def is_odd(self) -> bool:
        """LoadGen writes an array, and the reference implementation ids of int32."""
        return not self.is_array or self.width == INT64

    def as_int32(self) -> "AccuracyLog":
        """The same log as the official evaluator reads it: ``data`` alone, all of it int32."""
        log = AccuracyLog(self.path)
        log.width = _UNCHECKED
        return log

    def __iter__(self) -> Iterator[LogEntry]:
        for raw in self._raw_entries():
            yield self._entry(raw)

    def read_at(self, offset: int, size: int) -> TokenIds:
        """The ids of an entry that an earlier iteration gave, read again."""
        with self.path.open("rb") as file:
            file.seek(offset)
            return self._entry(RawEntry(file.read(size), offset)).token_ids

    def _require_plain(self) -> None:
        """Raises GradingError for a log that is compressed or in another encoding."""
        head = next(self._chunks(), b"")
        for start, form, remedy in _OTHER_STARTS:
            if head.startswith(start):
                raise GradingError(f"{self.path} {form}; {remedy}")

    def _raw_entries(self) -> Iterator[RawEntry]:
        splitter = EntrySplitter(self.path)
        for chunk in self._chunks():
            yield from splitter.feed(chunk)
        self.cut = splitter.flush()

    def _chunks(self) -> Iterator[bytes]:
        try:
            with self.path.open("rb", buffering=0) as file:
                while chunk := file.read(_CHUNK):
                    yield chunk
        except OSError as error:
            raise GradingError(f"{self.path}: cannot be read: {error.strerror}; pass --mlperf-log") from error

    def _entry(self, raw: RawEntry) -> LogEntry:
        return LogEntry(self.path, raw.offset, len(raw.text), _row(raw, self.path), self.width)


class Coverage(msgspec.Struct, frozen=True):
    """The expected samples that a log lacks, and those with several entries."""

    missing: tuple[int, ...]
    repeated: tuple[int, ...]


class Checklist:
    """Ticks off qsl_idx values: each of 0..expected-1 may come once."""

    def __init__(self, expected: int) -> None:
        self._seen = np.zeros(expected, np.bool_)
        self._repeated: dict[int, None] = {}

    def tick(self, qsl_idx: int, *, first_counts: bool = False) -> bool:
        """Note one entry; returns whether it is the sample's first. By default a further one is an error.

        Raises EntryError for it, and for an index that is negative or too large.
        """
        if not 0 <= qsl_idx < len(self._seen):
            raise EntryError(
                f"qsl_idx {qsl_idx}, expected 0..{len(self._seen) - 1}; pass the --reference-data of this run"
            )
        if self._seen[qsl_idx] and first_counts:
            self._repeated[qsl_idx] = None
            return False
        if self._seen[qsl_idx]:
            raise EntryError(f"qsl_idx {qsl_idx} twice; a sample counts once, run accuracy again")
        self._seen[qsl_idx] = True
        return True

    def coverage(self) -> Coverage:
        """The coverage of the samples, after the last entry."""
        missing = tuple(np.flatnonzero(~self._seen).tolist())
        return Coverage(missing, tuple(sorted(self._repeated)))


def _refuse_gap(text: bytes, path: Path) -> None:
    if SUBMISSION_GAP in text:
        raise GradingError(
            f"{path}: truncated for submission, '...' stands for its middle; "
            "grade the full log, whose sha256 accuracy.txt names"
        )


def _row(raw: RawEntry, path: Path) -> _Row:
    try:
        return msgspec.json.decode(raw.text, type=_Row)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        _refuse_gap(raw.text, path)
        nested = raw.text.count(b"{") > 1
        what = "an entry has an object inside, LoadGen's entries have none" if nested else str(error)
        raise GradingError(f"{path}, byte {raw.offset}: {what}; {_NOT_OURS}") from error


def _words(text: msgspec.Raw, where: str) -> npt.NDArray[np.int32]:
    view = memoryview(text)
    if len(view) < 2 or view[0] != ord('"'):
        raise GradingError(f"{where}: data is not a string of hex digits; {_NOT_OURS}")
    try:
        data = binascii.unhexlify(view[1:-1])
    except binascii.Error as error:
        raise GradingError(
            f"{where}: {len(view) - 2} characters, not whole bytes in hex ({error}); copy the log again"
        ) from error
    if len(data) % _INT32:
        raise GradingError(
            f"{where}: {len(data)} bytes of tokens, expected a multiple of {_INT32}; the hex is cut short"
        )
    return np.frombuffer(data, "<i4")


def _ids(text: msgspec.Raw, width: int, where: str) -> TokenIds:
    words = _words(text, where)
    if width == _INT32:
        if _is_decisive(words) and not words[1::2].any():
            raise GradingError(f"{where}: int64 token ids in a log of int32 ones; the log mixes two runs")
        return words
    if len(words) % 2 or words[1::2].any():
        raise GradingError(f"{where}: int32 token ids in a log of int64 ones; the log mixes two runs")
    return words[::2]


def _width(entries: Iterable[RawEntry], path: Path) -> int:
    """Bytes per token id, as the first decisive output shows."""
    found = False
    for raw in entries:
        found = True
        words = _words(_row(raw, path).data, f"{path}, byte {raw.offset}")
        if _is_decisive(words):
            return _INT32 if words[1::2].any() else INT64
    if not found:
        raise GradingError(
            f"{path}: no entries; a performance run writes such a log, and so does a run that was ended "
            "early; pass that of a complete accuracy run"
        )
    return _INT32


def _is_decisive(words: TokenIds) -> bool:
    """Whether an output shows the width of its ids. One of id 0 alone behind the first does not.

    It is what a model whose logits are NaN answers: "!!!!" of gpt-oss and Llama.
    """
    return len(words) >= _DECISIVE_WORDS and bool(words[1:].any())


def _whole(first: TokenIds, rest: TokenIds, token_count: int | None) -> TokenIds:
    """All ids of an output. The token count shows whether ``rest`` holds ``first`` too, else the ids do."""
    if not len(first):
        return rest
    if token_count == len(first) + len(rest):
        return np.concatenate([first, rest])
    if token_count != len(rest) and not np.array_equal(first, rest[: len(first)]):
        return np.concatenate([first, rest])
    return rest
