"""The validated dataset: every prompt as token ids, checked before anything is sent to a server."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from harness.dataset.prompt_texts import PromptTexts
from harness.dataset.salt import Salt
from harness.dataset.table import open_table
from harness.dataset.token_columns import TokenRows, locate, token_rows
from harness.dataset.tokenizer import SPECIAL
from harness.errors import DatasetError
from harness.files import sha256_of
from harness.text import counted


class SampleSet(msgspec.Struct, frozen=True, eq=False):
    """Prompts in the order of the file.

    ``ids`` holds all tokens one after another: shape (total tokens,), int32, read-only. ``offsets`` says
    where each prompt begins and ends: shape (n + 1,), int64, offsets[0] == 0. ``sha256`` is the file's.
    ``limits`` are the most output tokens of each answer: shape (n,), int64; None: those of the run for all.
    ``texts``: the JSON of each prompt where requests carry text: a string, or a list of messages; None: they
    carry the ids.
    ``as_text``: how they were made, where there are texts.
    ``salt``: what each query has in place of the placeholder in its prompt; None: nothing is replaced.
    """

    path: Path
    sha256: str
    ids: npt.NDArray[np.int32]
    offsets: npt.NDArray[np.int64]
    limits: npt.NDArray[np.int64] | None = None
    salt: Salt | None = None
    texts: Sequence[bytes] | None = None
    as_text: PromptTexts | None = None

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """Tokens per prompt, the ISL: shape (n,)."""
        return np.diff(self.offsets)

    def tokens(self, index: int) -> npt.NDArray[np.int32]:
        """The prompt of one sample, a read-only view of shape (ISL,)."""
        if not 0 <= index < len(self):
            raise IndexError(f"sample {index} of {len(self)}")
        return self.ids[self.offsets[index] : self.offsets[index + 1]]

    def prompt(self, index: int) -> bytes:
        """The JSON of one sample's prompt, as its request carries it."""
        return msgspec.json.encode(self.tokens(index).tolist()) if self.texts is None else self.texts[index]

    def longest(self, max_new_tokens: int) -> int:
        """The most tokens of a prompt with its answer; ``max_new_tokens`` is the limit of the run."""
        return int((self.lengths + (max_new_tokens if self.limits is None else self.limits)).max())

    def head(self, count: int) -> "SampleSet":
        """The first ``count`` samples. Raises DatasetError unless 1 <= count <= len(self)."""
        if count < 1:
            raise DatasetError(f"{count} samples asked for, expected at least 1; raise --max-samples")
        if count > len(self):
            raise DatasetError(
                f"{self.path}: {counted(len(self), 'row')}, not the {count} asked for; pass the complete "
                f"file, or ask for {len(self)} at most (--max-samples)"
            )
        return self._rows(0, count)

    def part(self, first: int, count: int | None) -> "SampleSet":
        """``count`` samples from index ``first`` on, None for all. DatasetError if there are fewer."""
        last = len(self) if count is None else first + count
        if not 0 <= first < last <= len(self):
            raise DatasetError(
                f"{self.path}: {counted(len(self), 'row')}, but {'all' if count is None else count} behind "
                f"the first {first} asked for; lower --skip-samples or --max-samples"
            )
        return self._rows(first, last)

    def _rows(self, first: int, last: int) -> "SampleSet":
        offsets = self.offsets[first : last + 1]
        return replace(
            self,
            ids=self.ids[offsets[0] : offsets[-1]],
            offsets=offsets - offsets[0],
            limits=None if self.limits is None else self.limits[first:last],
            salt=None if self.salt is None else self.salt.part(first, last),
            texts=None if self.texts is None else self.texts[first:last],
        )


def load_samples(path: Path, *, vocabulary_size: int, max_samples: int | None = None) -> SampleSet:
    """Read and check the prompts of a parquet, pickle or JSON file, column ``input_tokens`` or ``tok_input``.

    Every row is checked, also those beyond ``max_samples``. A DatasetError names file, row and value.
    """
    table = open_table(path)
    with ThreadPoolExecutor(1, "sha256") as executor:
        digest = executor.submit(sha256_of, path)
        rows = token_rows(table)
        _check(path, rows, vocabulary_size)
        samples = SampleSet(path, digest.result(), rows.ids, rows.offsets)
    samples.ids.flags.writeable = samples.offsets.flags.writeable = False
    return samples if max_samples is None else samples.head(max_samples)


def prompt_efforts(samples: SampleSet, effort_ids: Mapping[str, Sequence[int]]) -> tuple[str | None, ...]:
    """The reasoning effort that each prompt asks for, None where it names none.

    ``effort_ids`` maps an effort to the ids of its line in the harmony system message, the text before the
    first ``<|end|>``. The first match in a prompt wins.
    """
    names = (None, *effort_ids)
    starts, limits = samples.offsets[:-1], _system_message_ends(samples)
    best = np.full(len(samples), np.iinfo(np.int64).max)
    found = np.zeros(len(samples), np.int64)
    for number, marker in enumerate(effort_ids.values(), start=1):
        first = first_match(samples.ids, marker, starts, limits)
        earlier = first < best
        best[earlier], found[earlier] = first[earlier], number
    return tuple(names[number] for number in found)


def _system_message_ends(samples: SampleSet) -> npt.NDArray[np.int64]:
    ends = np.append(np.flatnonzero(samples.ids == SPECIAL["<|end|>"]), np.iinfo(np.int64).max)
    first: npt.NDArray[np.int64] = ends[np.searchsorted(ends, samples.offsets[:-1])]
    return np.minimum(first, samples.offsets[1:])


def first_match(
    ids: npt.NDArray[np.int32],
    marker: Sequence[int],
    starts: npt.NDArray[np.int64],
    limits: npt.NDArray[np.int64],
) -> npt.NDArray[np.int64]:
    """Per prompt the position in ``ids`` of the first marker within its limits, or the largest int64."""
    never = np.iinfo(np.int64).max
    at = np.flatnonzero(ids[: max(len(ids) - len(marker) + 1, 0)] == marker[0])
    for step, token in enumerate(marker):
        at = at[ids[at + step] == token]
    first = np.append(at, never)[np.searchsorted(at, starts)]
    return np.where(first <= limits - len(marker), first, never)


def _check(path: Path, rows: TokenRows, vocabulary_size: int) -> None:
    if len(rows.offsets) == 1:
        raise DatasetError(f"{path}: no rows, expected prompts; download it again")
    empty = np.flatnonzero(np.diff(rows.offsets) == 0)
    if len(empty):
        raise DatasetError(f"{path}: row {empty[0]}: empty prompt, expected at least one token")
    if rows.ids.min() < 0:
        _refuse(path, rows, rows.ids < 0, "is negative")
    if rows.ids.max() >= vocabulary_size:
        why = f"is beyond the vocabulary, whose last id is {vocabulary_size - 1}; check --benchmark"
        _refuse(path, rows, rows.ids >= vocabulary_size, why)


def _refuse(path: Path, rows: TokenRows, wrong: npt.NDArray[np.bool_], why: str) -> None:
    position = int(np.flatnonzero(wrong)[0])
    row, place = locate(rows.offsets, position)
    raise DatasetError(f"{path}: row {row}: token {rows.ids[position]} at position {place} {why}")
