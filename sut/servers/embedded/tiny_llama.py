"""Writes a tiny Llama with random weights, and the vocabulary of llama3.1-8b's sample, as a GGUF file.

The special tokens have the ids of Llama 3.1. Those between the sample's 1,500 tokens and them are never
answered: a stand-in for Llama's vocabulary, which is Meta's. A text gets the ids of the sample's tokenizer,
after the token that begins a prompt. The same code always gives the same bytes; a change of them, or of the
sample's tokenizer, needs another version in tiny_models.py.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

import gguf
import msgspec
import numpy as np
import numpy.typing as npt

from harness.dataset.model_tokenizer import unspell
from harness.files import ROOT
from sut.servers.embedded.gguf_model import (
    Array,
    Sizes,
    describe_vocabulary,
    half,
    kind_of,
    rough,
    write_out,
)

VOCABULARY_SIZE = 128256
SIZES = Sizes(head=16, feed_forward=128)

_TOKENIZER = ROOT / "datasets" / "samples" / "cnn_sample_tokenizer.json"
_BEGIN, _END = "<|begin_of_text|>", "<|eot_id|>"
# A turn's end is likelier than other tokens: more than half of the answers have less than 128 tokens.
_END_SCALE = 1.5


class _Model(msgspec.Struct):
    vocab: dict[str, int]
    merges: list[tuple[str, str]]


class _Special(msgspec.Struct):
    id: int
    content: str
    special: bool


class Tokenizer(msgspec.Struct):
    """The parts of a tokenizer.json that are read."""

    model: _Model
    added_tokens: list[_Special]

    @property
    def named(self) -> frozenset[str]:
        """The tokens that are no byte pairs."""
        return frozenset(token.content for token in self.added_tokens)


class Vocabulary(msgspec.Struct, frozen=True):
    """The tokens of a model."""

    tokenizer: Tokenizer
    size: int
    """Ids that ``tokenizer`` does not have are unused tokens up to this."""
    begin: str
    """The token at the beginning of a prompt."""
    end: str
    """The token at the end of an answer."""
    chat_template: str = ""


def write(path: Path) -> None:
    """Write the model to ``path``: 25 MB."""
    tokenizer = read_tokenizer(_TOKENIZER)
    vocabulary = Vocabulary(tokenizer, VOCABULARY_SIZE, _BEGIN, _END)
    write_model(path, "tiny-random-llama", vocabulary, _tensors(tokenizer))


def read_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer of a sample."""
    return msgspec.json.decode(path.read_bytes(), type=Tokenizer)


def write_model(path: Path, name: str, vocabulary: Vocabulary, tensors: Iterable[tuple[str, Array]]) -> None:
    """Write a model of this architecture."""
    writer = gguf.GGUFWriter(path, "llama")
    _describe_architecture(writer, name, vocabulary.size)
    _describe_tokenizer(writer, vocabulary)
    write_out(writer, tensors)


def _describe_architecture(writer: gguf.GGUFWriter, name: str, vocabulary_size: int) -> None:
    SIZES.describe(writer, name)
    writer.add_rope_dimension_count(SIZES.head)
    writer.add_rope_freq_base(500000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(vocabulary_size)


def _describe_tokenizer(writer: gguf.GGUFWriter, vocabulary: Vocabulary) -> None:
    tokenizer, ids = vocabulary.tokenizer, vocabulary.tokenizer.model.vocab
    names = [f"<|unused_{number}|>" for number in range(vocabulary.size)]
    kinds = [gguf.TokenType.UNUSED] * vocabulary.size
    for name, number in ids.items():
        names[number] = name
        if name not in tokenizer.named:
            kinds[number] = kind_of(unspell(name))
    for token in tokenizer.added_tokens:
        kinds[token.id] = gguf.TokenType.CONTROL if token.special else gguf.TokenType.USER_DEFINED
    # The samples' tokenizers split a text as GPT-2's does, not as those of Llama and DeepSeek.
    describe_vocabulary(writer, "gpt-2", names, kinds, tokenizer.model.merges)
    writer.add_bos_token_id(ids[vocabulary.begin])
    writer.add_eos_token_id(ids[vocabulary.end])
    writer.add_add_bos_token(True)  # as servers of the real model do
    if vocabulary.chat_template:
        writer.add_chat_template(vocabulary.chat_template)


def _tensors(tokenizer: Tokenizer) -> Iterator[tuple[str, Array]]:
    rng = np.random.default_rng(0)
    yield "token_embd.weight", half(rng, VOCABULARY_SIZE, SIZES.hidden, scale=1.0)
    yield "output.weight", rough(rng, _output_scales(tokenizer), SIZES.hidden)
    yield "output_norm.weight", np.ones(SIZES.hidden, np.float32)
    for layer in range(SIZES.layers):
        for name, tensor in layer_weights(rng):
            yield f"blk.{layer}.{name}.weight", tensor


def _output_scales(tokenizer: Tokenizer) -> npt.NDArray[np.float64]:
    """Zero for ids that no answer may have: another token always has a higher probability."""
    scales = np.zeros(VOCABULARY_SIZE)
    scales[text_tokens(tokenizer)] = 0.2
    scales[tokenizer.model.vocab[_END]] = 0.2 * _END_SCALE
    return scales


def text_tokens(tokenizer: Tokenizer) -> list[int]:
    """The ids of byte pairs that are complete characters."""
    pairs = ((name, number) for name, number in tokenizer.model.vocab.items() if name not in tokenizer.named)
    return sorted(number for name, number in pairs if _is_text(name))


def _is_text(name: str) -> bool:
    """Whether a token is complete characters that can be printed."""
    text = unspell(name).decode("utf-8", errors="replace")
    return "\ufffd" not in text and text.strip().isprintable()


def layer_weights(rng: np.random.Generator) -> Iterator[tuple[str, Array]]:
    """The tensors of one layer by name."""
    yield "attn_norm", np.ones(SIZES.hidden, np.float32)
    yield "attn_q", half(rng, SIZES.heads * SIZES.head, SIZES.hidden)
    yield "attn_k", half(rng, SIZES.kv_heads * SIZES.head, SIZES.hidden)
    yield "attn_v", half(rng, SIZES.kv_heads * SIZES.head, SIZES.hidden)
    yield "attn_output", half(rng, SIZES.hidden, SIZES.heads * SIZES.head)
    yield "ffn_norm", np.ones(SIZES.hidden, np.float32)
    yield "ffn_gate", half(rng, SIZES.feed_forward, SIZES.hidden)
    yield "ffn_up", half(rng, SIZES.feed_forward, SIZES.hidden)
    yield "ffn_down", half(rng, SIZES.hidden, SIZES.feed_forward)
