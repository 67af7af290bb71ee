"""Tensor parallelism: the processes of torchrun, of which the first leads and the others repeat its steps."""

import os
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Protocol

import torch.distributed as dist

# Between two requests the other ranks wait for the next step, however long that takes.
_PATIENCE = timedelta(days=365)


class Rows(Protocol):
    """The engine's operations on a batch; see ``batch.Batch``."""

    def prefill(self, prompt: Sequence[int]) -> Any:
        """Add a row; the logits of its first token."""

    def decode(self, tokens: Sequence[int]) -> Any:
        """Feed one token to each row; the logits of the next."""

    def keep(self, rows: Sequence[int]) -> None:
        """Drop all other rows."""


def world_size() -> int:
    """Processes that torchrun has started; 1 without it."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_leader() -> bool:
    """Whether this process serves requests."""
    return int(os.environ.get("RANK", "0")) == 0


class Ranks:
    """The control messages between the ranks, over gloo; the model's own collectives are transformers'."""

    def __init__(self) -> None:
        self._group = dist.new_group(backend="gloo", timeout=_PATIENCE)

    def send(self, step: str, values: Sequence[int] = ()) -> None:
        """Have all other ranks do a step; ``end`` ends them."""
        dist.broadcast_object_list([step, list(values)], src=0, group=self._group)

    def follow(self, batch: Rows) -> None:
        """Repeat the leader's steps until it ends."""
        while True:
            message: list[Any] = [None, None]
            dist.broadcast_object_list(message, src=0, group=self._group)
            match message:
                case ["prefill", prompt]:
                    batch.prefill(prompt)
                case ["decode", tokens]:
                    batch.decode(tokens)
                case ["keep", rows]:
                    batch.keep(rows)
                case _:
                    return


class LeadingBatch:
    """The leader's batch: each step is sent to the other ranks first, which hold a part of the weights."""

    def __init__(self, batch: Rows, ranks: Ranks) -> None:
        self._batch = batch
        self._ranks = ranks

    def prefill(self, prompt: Sequence[int]) -> Any:
        """As ``Batch.prefill``, on all ranks."""
        self._ranks.send("prefill", prompt)
        return self._batch.prefill(prompt)

    def decode(self, tokens: Sequence[int]) -> Any:
        """As ``Batch.decode``, on all ranks."""
        self._ranks.send("decode", tokens)
        return self._batch.decode(tokens)

    def keep(self, rows: Sequence[int]) -> None:
        """As ``Batch.keep``, on all ranks."""
        self._ranks.send("keep", rows)
        self._batch.keep(rows)
