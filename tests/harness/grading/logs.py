"""Accuracy logs as LoadGen writes them, from outputs in harmony structure."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from harness.dataset import tokenizer


def harmony_ids(final: str, analysis: str = "Let me think.") -> list[int]:
    return tokenizer.encode_harmony(
        f"<|channel|>analysis<|message|>{analysis}<|end|><|start|>assistant"
        f"<|channel|>final<|message|>{final}<|return|>"
    )


def hexed(ids: Sequence[int], width: int = 4) -> str:
    return np.asarray(ids, f"<i{width}").tobytes().hex().upper()


def entry(index: int, ids: Sequence[int], *, first: str = "both", width: int = 4, count: bool = True) -> str:
    """``first``: whether the first token lies in data, in token_data alone, or in both."""
    data = ids[1:] if first == "token_data" else ids
    text = f'{{ "seq_id" : {index}, "qsl_idx" : {index}, "data" : "{hexed(data, width)}"'
    if first != "data":
        text += f', "token_data" : "{hexed(ids[:1], width)}"'
    return text + (f', "token_count" : {len(ids)} }}' if count else " }")


def array(entries: Iterable[str]) -> str:
    return "[\n" + ",\n".join(entries) + "\n]\n"


def write_log(path: Path, outputs: Iterable[Sequence[int]]) -> Path:
    path.write_text(array(entry(index, ids) for index, ids in enumerate(outputs)))
    return path
