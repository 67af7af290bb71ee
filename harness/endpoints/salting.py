"""The place of the salt in a benchmark's prompts, and the ids that it is made of.

The rules put at least 64 bits, which differ in each performance query, between the system prompt and the
user's text, as token ids where the client sends ids (policies §2.9.5.1). The reference client's mark is
hexadecimal digits in brackets and a space, before the user's text; the same text stands here.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from harness.config.benchmark import Benchmark
from harness.dataset import tokenizer
from harness.dataset.model_tokenizer import load_tokenizer
from harness.dataset.salt import Salt, SaltIds
from harness.dataset.samples import SampleSet, first_match
from harness.endpoints.curve import Curve, Point
from harness.errors import ConfigError
from harness.grading.decoding.model_decoder import find_tokenizer
from harness.grading.decoding.output_decoder import BUILT_IN, tokenizer_beside

_DIGITS = "0123456789abcdef"
_SPACE = "Ġ"  # a space in the vocabularies of byte-level tokenizers
_NEVER = np.iinfo(np.int64).max

IdOf = Callable[[str], int | None]
"""the id of a text that is one token; None for any other"""


class PromptFormat(msgspec.Struct, frozen=True):
    """The facts of a model's prompts and answers that its chat template fixes."""

    user_text: Mapping[str, tuple[int, ...]]
    """the ids before the user's text, by their text; the first that a prompt holds counts"""
    text_after: int = 0
    """tokens at the start of an answer that are framing: no visible, reasoning or tool text"""


# By the name of the tokenizer in a benchmark's definition.
FORMATS: Mapping[str, PromptFormat] = MappingProxyType(
    {
        # An answer begins with <|channel|>, the channel's name and <|message|>.
        BUILT_IN: PromptFormat({"<|start|>user<|message|>": (200006, 1428, 200008)}, text_after=3),
        # An answer begins with <think>.
        "deepseek-r1": PromptFormat({"<｜User｜>": (128803,)}, text_after=1),
        # MLPerf's prompts have no template: all of a prompt is the user's text.
        "llama-3.1": PromptFormat(
            {
                "<|start_header_id|>user<|end_header_id|>\n\n": (128006, 882, 128007, 271),
                "<|begin_of_text|>": (128000,),
            }
        ),
    }
)


def text_after(benchmark: Benchmark) -> int:
    """Tokens of framing at the start of a benchmark's answers."""
    found = FORMATS.get(benchmark.tokenizer or "")
    return 0 if found is None else found.text_after


def salt_seed(curve: Curve, point: Point, earlier: int) -> str:
    """What the salts of a point follow from; the servers may have prompts of other points in their caches.

    ``earlier``: runs of the point before this one, whose prompts they may have, too.
    """
    return f"{curve.seeds.sample_index}/{point.name}/{earlier}"


def salted(
    samples: SampleSet, benchmark: Benchmark, bits: int, seed: str, tokenizer_path: Path | None
) -> SampleSet:
    """The dataset of a point: each prompt with the place of its salt; as it is where that has 0 bits.

    Raises ConfigError where a prompt shows no such place, or the tokenizer is not there.
    """
    if not bits:
        return samples
    known = FORMATS.get(benchmark.tokenizer or "")
    if known is None:
        raise ConfigError(
            f"no salt for {benchmark.name}: the format of its prompts is not known, only those of "
            f"{', '.join(FORMATS)}; its points cannot be run"
        )
    id_of = _id_of(samples.path, benchmark, tokenizer_path)
    ids = salt_ids(id_of, bits, seed)
    return with_salt(samples, ids, text_ids(id_of, "["), text_ids(id_of, "] "), known.user_text)


def with_salt(
    samples: SampleSet,
    ids: SaltIds,
    before: Sequence[int],
    after: Sequence[int],
    user_text: Mapping[str, tuple[int, ...]],
) -> SampleSet:
    """The samples with a placeholder at the start of the user's text of each. Raises ConfigError."""
    starts = _user_text_starts(samples, user_text)
    mark = np.array([*before, *[ids.alphabet[0]] * ids.count, *after], dtype=np.int32)
    prompts = np.insert(samples.ids, np.repeat(starts, len(mark)), np.tile(mark, len(samples)))
    offsets = samples.offsets + np.arange(len(samples) + 1) * len(mark)
    prompts.flags.writeable = offsets.flags.writeable = False
    salt = Salt(ids, starts - samples.offsets[:-1] + len(before))
    return replace(samples, ids=prompts, offsets=offsets, salt=salt)


def salt_ids(id_of: IdOf, bits: int, seed: str) -> SaltIds:
    """Salts of at least ``bits`` bits, of pairs of digits where a symbol has more of them then.

    Raises ConfigError for a vocabulary without single digits.
    """
    pairs = _power_of_two(sorted(found for a in _DIGITS for b in _DIGITS if (found := id_of(a + b))))
    alphabet = pairs if len(pairs) > len(_DIGITS) else tuple(text_ids(id_of, _DIGITS))
    each = len(alphabet).bit_length() - 1
    return SaltIds(seed, alphabet, -(-bits // each))


def text_ids(id_of: IdOf, text: str) -> list[int]:
    """The ids of a text, character by character. Raises ConfigError for one without an id."""
    found = []
    for character in text:
        token = id_of(character)
        if token is None:
            raise ConfigError(
                f"no salt: the tokenizer has no token {character!r}; pass that of the benchmark's model"
            )
        found.append(token)
    return found


def _power_of_two(ids: Sequence[int]) -> tuple[int, ...]:
    return tuple(ids[: 1 << (len(ids).bit_length() - 1)]) if ids else ()


def _user_text_starts(samples: SampleSet, user_text: Mapping[str, tuple[int, ...]]) -> npt.NDArray[np.int64]:
    """Positions in ``samples.ids`` at which the user's texts begin."""
    starts = np.full(len(samples), _NEVER)
    for marker in user_text.values():
        first = first_match(samples.ids, marker, samples.offsets[:-1], samples.offsets[1:])
        here = (starts == _NEVER) & (first != _NEVER)
        starts[here] = first[here] + len(marker)
    if len(missing := np.flatnonzero(starts == _NEVER)):
        sought = " or ".join(f"{text!r} (ids {' '.join(map(str, ids))})" for text, ids in user_text.items())
        raise ConfigError(
            f"{samples.path}: row {missing[0]}: no place for the salt, which stands at the start of the "
            f"user's text: expected {sought} in the prompt; {len(missing)} of {len(samples)} rows have none; "
            "use the benchmark's own dataset"
        )
    return starts


def _id_of(dataset: Path, benchmark: Benchmark, given: Path | None) -> IdOf:
    if benchmark.tokenizer == BUILT_IN:
        return lambda text: tokenizer.ranks().get(text.encode())
    model = load_tokenizer(given or find_tokenizer(benchmark, tokenizer_beside(dataset, benchmark)))
    return lambda text: model.token_to_id(text.replace(" ", _SPACE))
