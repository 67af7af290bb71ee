"""Answers to one prompt that are equally long each time, though they are drawn at random."""

from typing import Any

import numpy as np
import numpy.typing as npt

# Answers drawn at random have the length of another answer to their prompt about once in a thousand.
_FEWEST, _PART = 100, 0.5


def equally_long(prompts: npt.NDArray[Any], lengths: npt.NDArray[Any]) -> tuple[int, int] | None:
    """How many answers are as long as the one before to their prompt, and how many have one before.

    ``prompts`` and ``lengths``: shape (N,), a number for each, in the order of the answers. None where they
    are too few, or where it is less than half of them.
    """
    order = np.argsort(prompts, kind="stable")
    prompts, lengths = prompts[order], lengths[order]
    again = prompts[1:] == prompts[:-1]
    same, count = int((again & (lengths[1:] == lengths[:-1])).sum()), int(again.sum())
    return (same, count) if count >= _FEWEST and same > _PART * count else None
