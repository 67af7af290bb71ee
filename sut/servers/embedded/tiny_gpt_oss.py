"""Writes a tiny gpt-oss with random weights and the real o200k_harmony vocabulary as a GGUF file.

The architecture is gpt-oss's (sinks, sliding window, experts, YaRN); only the sizes are small.
The same code always gives the same bytes; a change of them needs another version in tiny_models.py.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import gguf
import numpy as np

from harness.dataset import tokenizer
from harness.dataset.chat_messages import HARMONY_SYSTEM
from harness.dataset.model_tokenizer import spell
from sut.servers.embedded.gguf_model import (
    Array,
    Sizes,
    describe_vocabulary,
    half,
    kind_of,
    rough,
    single,
    write_out,
)

_SIZES = Sizes(head=32, feed_forward=64)
_EXPERTS, _EXPERTS_USED = 4, 2
_SYSTEM = HARMONY_SYSTEM.format(today="{{ strftime_now('%Y-%m-%d') }}", reasoning="{{ reasoning_effort }}")
# What a question needs of gpt-oss's own, without "<|channel|>": llama.cpp, which knows gpt-oss by that, would
# refuse answers that have no channels.
_CHAT_TEMPLATE = (
    f"<|start|>system<|message|>{_SYSTEM}<|end|>"
    "{% for message in messages %}<|start|>{{ message['role'] }}<|message|>{{ message['content'] }}<|end|>"
    "{% endfor %}<|start|>assistant"
)


def write(path: Path) -> None:
    """Write the model to ``path``: 46 MB, about 3 seconds."""
    writer = new_file(path)
    writer.add_chat_template(_CHAT_TEMPLATE)
    write_out(writer, _tensors())


def new_file(path: Path, kind: Callable[[bytes], gguf.TokenType] = kind_of) -> gguf.GGUFWriter:
    """A file that says everything but the weights; ``kind`` gives an ordinary token's type."""
    writer = gguf.GGUFWriter(path, "gpt-oss")
    _describe_architecture(writer)
    _describe_tokenizer(writer, kind)
    return writer


def _describe_architecture(writer: gguf.GGUFWriter) -> None:
    _SIZES.describe(writer, "tiny-random-gpt-oss")
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_sliding_window(128)
    writer.add_expert_count(_EXPERTS)
    writer.add_expert_used_count(_EXPERTS_USED)
    writer.add_expert_feed_forward_length(_SIZES.feed_forward)
    writer.add_rope_freq_base(150000.0)
    writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
    writer.add_rope_scaling_factor(32.0)
    writer.add_rope_scaling_orig_ctx_len(4096)
    writer.add_vocab_size(tokenizer.VOCABULARY_SIZE)


def _describe_tokenizer(writer: gguf.GGUFWriter, kind: Callable[[bytes], gguf.TokenType]) -> None:
    special = tokenizer.SPECIAL
    words = list(map(spell, tokenizer.ranks()))
    kinds = [*map(kind, tokenizer.ranks()), *[gguf.TokenType.CONTROL] * len(special)]
    merges = [(words[left], words[right]) for left, right in tokenizer.merges()]
    describe_vocabulary(writer, "gpt-4o", [*words, *special], kinds, merges)
    writer.add_bos_token_id(special["<|startoftext|>"])
    writer.add_eos_token_id(special["<|return|>"])
    writer.add_pad_token_id(special["<|endoftext|>"])
    writer.add_add_bos_token(False)


def _tensors() -> Iterator[tuple[str, Array]]:
    rng = np.random.default_rng(0)
    yield "token_embd.weight", half(rng, tokenizer.VOCABULARY_SIZE, _SIZES.hidden, scale=1.0)
    yield "output.weight", rough(rng, np.full(tokenizer.VOCABULARY_SIZE, 0.2), _SIZES.hidden)
    yield "output_norm.weight", np.ones(_SIZES.hidden, np.float32)
    for layer in range(_SIZES.layers):
        for name, tensor in (*_attention(rng), *_experts(rng)):
            yield f"blk.{layer}.{name}", tensor


def _attention(rng: np.random.Generator) -> Iterator[tuple[str, Array]]:
    yield "attn_norm.weight", np.ones(_SIZES.hidden, np.float32)
    yield "post_attention_norm.weight", np.ones(_SIZES.hidden, np.float32)
    for name, heads in (("attn_q", _SIZES.heads), ("attn_k", _SIZES.kv_heads), ("attn_v", _SIZES.kv_heads)):
        yield f"{name}.weight", half(rng, heads * _SIZES.head, _SIZES.hidden)
        yield f"{name}.bias", single(rng, heads * _SIZES.head)
    yield "attn_output.weight", half(rng, _SIZES.hidden, _SIZES.heads * _SIZES.head)
    yield "attn_output.bias", single(rng, _SIZES.hidden)
    yield "attn_sinks.weight", single(rng, _SIZES.heads)


def _experts(rng: np.random.Generator) -> Iterator[tuple[str, Array]]:
    yield "ffn_gate_inp.weight", single(rng, _EXPERTS, _SIZES.hidden)
    yield "ffn_gate_inp.bias", single(rng, _EXPERTS)
    for name, rows, columns in (
        ("ffn_gate_exps", _SIZES.feed_forward, _SIZES.hidden),
        ("ffn_up_exps", _SIZES.feed_forward, _SIZES.hidden),
        ("ffn_down_exps", _SIZES.hidden, _SIZES.feed_forward),
    ):
        yield f"{name}.weight", half(rng, _EXPERTS, rows, columns)
        yield f"{name}.bias", single(rng, _EXPERTS, rows)
