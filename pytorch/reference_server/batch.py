"""The rows that are generated together: one model, one key-value cache."""

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn.functional import pad
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

# Layers of which every position is in keys and values; others (recurrent states) cannot be padded.
_KNOWN_LAYERS = (DynamicLayer, DynamicSlidingWindowLayer)


class UnknownCacheError(Exception):
    """The model keeps a state that this module cannot move between batches."""


class Batch:
    """Rows of a batch, which come and go while the others continue.

    A prompt is computed alone and without padding. Its cache then joins those of the other rows, padded on
    the left to the length of the longest; the mask hides the padding, and each row has positions of its own.
    So a row's logits are those that it would have alone, except for the rounding of another batch size.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._lengths: list[int] = []  # tokens of each row in the cache
        self._cache = self._new_cache()
        unknown = {type(layer).__name__ for layer in self._cache.layers if type(layer) not in _KNOWN_LAYERS}
        if unknown:
            raise UnknownCacheError(f"the model's cache has layers {', '.join(sorted(unknown))}")

    def prefill(self, prompt: Sequence[int]) -> Any:
        """Add a row. Returns the logits of its first token, of shape (vocabulary,), float32."""
        cache = self._new_cache()
        ids = torch.tensor([list(prompt)], device=self._model.device)
        output = self._forward(input_ids=ids, past_key_values=cache, logits_to_keep=1)
        self._append(cache, len(prompt))
        return _last(output.logits)[0]

    def decode(self, tokens: Sequence[int]) -> Any:
        """Feed one token to each row. Returns the logits of the next, (rows, vocabulary), float32."""
        device, longest = self._model.device, max(self._lengths)
        lengths = torch.tensor(self._lengths, device=device)[:, None]
        places = torch.arange(longest + 1, device=device)[None]
        output = self._forward(
            input_ids=torch.tensor(list(tokens), device=device)[:, None],
            attention_mask=(places >= longest - lengths).long(),
            position_ids=lengths,
            past_key_values=self._cache,
        )
        self._lengths = [length + 1 for length in self._lengths]
        return _last(output.logits)

    def keep(self, rows: Sequence[int]) -> None:
        """Drop all other rows, and the padding that only they needed."""
        self._lengths = [self._lengths[row] for row in rows]
        if not rows:
            self._cache = self._new_cache()
            return
        self._cache.batch_select_indices(torch.tensor(list(rows), device=self._model.device))
        _resize(self._cache, max(self._lengths))

    def _forward(self, **inputs: Any) -> Any:
        with torch.inference_mode():
            return self._model(use_cache=True, **inputs)

    def _append(self, cache: Any, length: int) -> None:
        lengths = [*self._lengths, length]
        _resize(cache, max(lengths))
        if self._lengths:
            _resize(self._cache, max(lengths))
            for layer, new in zip(self._cache.layers, cache.layers, strict=True):
                layer.keys = torch.cat([layer.keys, new.keys])
                layer.values = torch.cat([layer.values, new.values])
        else:
            self._cache = cache
        self._lengths = lengths

    def _new_cache(self) -> Any:
        return DynamicCache(config=self._model.config)


def _resize(cache: Any, length: int) -> None:
    """Pad or cut every layer on the left, so that it looks as after ``length`` tokens."""
    for layer in cache.layers:
        held = length
        if isinstance(layer, DynamicSlidingWindowLayer):
            held = min(length, layer.sliding_window - 1)
            layer.cumulative_length = length
        layer.keys, layer.values = _fit(layer.keys, held), _fit(layer.values, held)


def _fit(states: Any, length: int) -> Any:
    """``states`` of shape (rows, heads, tokens, size) with ``length`` tokens, the last ones kept."""
    missing = length - states.shape[-2]
    return pad(states, (0, 0, missing, 0)) if missing > 0 else states[..., -missing:, :]


def _last(logits: Any) -> Any:
    """The last position's logits, as ``generate`` takes them; a copy, so that the large tensor can go."""
    return logits[:, -1].to(torch.float32, copy=True)
