"""The loop that generates: requests wait, join the batch, get a token in each step, and leave."""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from reference_server.ranks import Rows
from reference_server.sampling import LogitsError, SamplingParameters, TokenChooser


@dataclass(frozen=True, slots=True)
class Finish:
    """The end of an answer: at the end token ``matched``, at the length asked for, or by a fault."""

    reason: Literal["stop", "length", "abort"]
    matched: int | None = None
    message: str = ""


@dataclass(frozen=True, slots=True)
class Token:
    """The next token of an answer, with ``finish`` the last. Only an abort has no ``id``."""

    id: int | None
    finish: Finish | None


@dataclass(eq=False, slots=True)
class Generation:
    """One request. ``deliver`` is called for each token, usually in the engine's thread."""

    prompt: Sequence[int]
    parameters: SamplingParameters
    deliver: Callable[[Token], None]
    cancelled: bool = False


@dataclass(frozen=True, slots=True)
class Load:
    """The state and the counts of the engine."""

    running: int
    waiting: int
    prompt_tokens: int
    generated_tokens: int


@dataclass(eq=False, slots=True)
class _Row:
    generation: Generation
    ends: frozenset[int]
    chooser: TokenChooser
    made: int = 0
    last: int = -1


class Engine:
    """Continuous batching: up to ``max_rows`` requests are generated together, the others wait in order."""

    def __init__(self, batch: Rows, ends: frozenset[int], max_rows: int, device: Any) -> None:
        self.max_rows = max_rows
        self._batch = batch
        self._ends = ends
        self._device = device
        self._changed = threading.Condition()
        self._waiting: deque[Generation] = deque()
        self._rows: list[_Row] = []
        self._stopped, self._why = False, "the server is ending"
        self._prompt_tokens = self._generated_tokens = 0

    @property
    def load(self) -> Load:
        """Counts for ``/metrics``."""
        return Load(len(self._rows), len(self._waiting), self._prompt_tokens, self._generated_tokens)

    def submit(self, generation: Generation) -> None:
        """Queue a request. Unless it is cancelled, its last token has a ``finish``."""
        with self._changed:
            if not self._stopped:
                self._waiting.append(generation)
                self._changed.notify()
                return
        generation.deliver(_aborted(self._why))

    def cancel(self, generation: Generation) -> None:
        """Drop a request, before the next step."""
        with self._changed:
            generation.cancelled = True
            self._changed.notify()

    def stop(self, why: str) -> None:
        """End ``run`` after the step in progress, and abort all requests."""
        with self._changed:
            self._stopped, self._why = True, why
            self._abort([*(row.generation for row in self._rows), *self._waiting])
            self._waiting.clear()
            self._changed.notify()

    def run(self) -> None:
        """Generate until ``stop``."""
        while self._wait_for_work():
            self._keep([row for row in self._rows if not row.generation.cancelled])
            self._join()
            self._step()
        with self._changed:  # a request between queue and rows was in neither when ``stop`` looked
            self._abort(row.generation for row in self._rows)

    def _abort(self, generations: Iterable[Generation]) -> None:
        """End each request that has not ended; the lock is held."""
        for generation in generations:
            if not generation.cancelled:
                generation.cancelled = True
                generation.deliver(_aborted(self._why))

    def _wait_for_work(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or self._waiting or self._rows)
            return not self._stopped

    def _join(self) -> None:
        """Give free rows to waiting requests, each of which gets its first token at once."""
        while len(self._rows) < self.max_rows and (generation := self._next_waiting()):
            ends = generation.parameters.ends(self._ends)
            row = _Row(generation, ends, TokenChooser(generation.parameters, ends, self._device))
            logits = self._batch.prefill(generation.prompt)
            self._prompt_tokens += len(generation.prompt)
            self._rows.append(row)
            if self._is_last(row, logits):
                self._keep(self._rows[:-1])

    def _step(self) -> None:
        """One more token for every row."""
        if self._rows:
            logits = self._batch.decode([row.last for row in self._rows])
            done = [self._is_last(row, scores) for row, scores in zip(self._rows, logits, strict=True)]
            self._keep([row for row, last in zip(self._rows, done, strict=True) if not last])

    def _is_last(self, row: _Row, logits: Any) -> bool:
        """Choose and deliver a row's next token. Returns whether the row ends."""
        try:
            row.last = row.chooser.choose(logits, row.made)
        except LogitsError as error:
            row.generation.deliver(_aborted(str(error)))
            return True
        row.made += 1
        self._generated_tokens += 1
        finish = None
        if row.last in row.ends:
            finish = Finish("stop", row.last)
        elif row.made == row.generation.parameters.max_new_tokens:
            finish = Finish("length")
        row.generation.deliver(Token(row.last, finish))
        return finish is not None

    def _keep(self, kept: list[_Row]) -> None:
        if len(kept) < len(self._rows):
            self._batch.keep([place for place, row in enumerate(self._rows) if row in kept])
            self._rows = kept

    def _next_waiting(self) -> Generation | None:
        with self._changed:
            while self._waiting:
                generation = self._waiting.popleft()
                if not generation.cancelled:
                    return generation
        return None


def _aborted(why: str) -> Token:
    return Token(None, Finish("abort", message=why))
