"""The sampling parameters of a request, and the choice of its next token."""

from typing import Annotated, Any

import msgspec
import torch
from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

_OFF = -1  # SGLang's word for top_k without effect
_GREEDY = 1e-6  # below this temperature, as in SGLang: a smaller divisor leaves no finite logit


class LogitsError(Exception):
    """No token can be chosen: a logit is not a number, or all are minus infinity."""


class SamplingParameters(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """``sampling_params`` of a request: SGLang's names and defaults.

    An unknown name is refused: an answer made without it would not be the one asked for. The answer holds ids
    only, so ``skip_special_tokens`` has no effect.
    """

    max_new_tokens: Annotated[int, msgspec.Meta(ge=1)] = 128
    min_new_tokens: Annotated[int, msgspec.Meta(ge=0)] = 0
    temperature: Annotated[float, msgspec.Meta(ge=0, le=100)] = 1.0
    top_p: Annotated[float, msgspec.Meta(gt=0, le=1)] = 1.0
    top_k: int = _OFF
    sampling_seed: Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    skip_special_tokens: bool = True

    def __post_init__(self) -> None:
        if self.top_k != _OFF and self.top_k < 1:
            raise ValueError(f"top_k is {self.top_k}, expected {_OFF} (off) or at least 1")
        if self.min_new_tokens > self.max_new_tokens:
            raise ValueError(
                f"min_new_tokens is {self.min_new_tokens}, max_new_tokens {self.max_new_tokens}: the least "
                "must not exceed the most"
            )

    def ends(self, of_model: frozenset[int]) -> frozenset[int]:
        """The tokens that end the answer; as in SGLang, ``ignore_eos`` ignores those of the request, too."""
        return frozenset() if self.ignore_eos else of_model | frozenset(self.stop_token_ids)


class TokenChooser:
    """Chooses the tokens of one request, alike in any batch.

    The rules and their order are those of transformers' ``generate``: least length, temperature, top-k,
    top-p. With a seed the tokens are those that ``generate`` gives one prompt after ``torch.manual_seed``.
    """

    def __init__(self, parameters: SamplingParameters, ends: frozenset[int], device: Any) -> None:
        self._parameters = parameters
        self._ends = torch.tensor(sorted(ends), dtype=torch.long, device=device)
        self._warpers = list(_warpers(parameters))
        self._generator = torch.Generator(device)
        if parameters.sampling_seed is None:
            self._generator.seed()
        else:
            self._generator.manual_seed(parameters.sampling_seed)

    def choose(self, logits: Any, made: int) -> int:
        """The next token after ``made`` tokens; ``logits`` is float32 of shape (vocabulary,).

        Raises LogitsError.
        """
        scores = logits[None]
        if made < self._parameters.min_new_tokens:
            scores = scores.index_fill(1, self._ends, -torch.inf)
        if not scores.max().isfinite():
            raise LogitsError(f"after {made} tokens the model's logits are not finite")
        if self._parameters.temperature < _GREEDY:
            return int(scores.argmax())
        for warper in self._warpers:
            scores = warper(None, scores)
        return int(torch.multinomial(scores.softmax(-1), 1, generator=self._generator))


def _warpers(parameters: SamplingParameters) -> Any:
    if parameters.temperature != 1 and parameters.temperature >= _GREEDY:
        yield TemperatureLogitsWarper(parameters.temperature)
    if parameters.top_k != _OFF:
        yield TopKLogitsWarper(parameters.top_k)
    if parameters.top_p < 1:
        yield TopPLogitsWarper(parameters.top_p)
