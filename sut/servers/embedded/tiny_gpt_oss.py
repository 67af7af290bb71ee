"""Writes a tiny gpt-oss with random weights and the real o200k_harmony vocabulary as a GGUF file.

The architecture is gpt-oss's (sinks, sliding window, experts, YaRN); only the sizes are small.
The same code always gives the same bytes; who changes them raises the version in models.py.
"""

from collections.abc import Iterator
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt

from harness.dataset import tokenizer

HIDDEN = 64
LAYERS = 2
HEADS = 4
KV_HEADS = 2
HEAD_DIM = 32
EXPERTS = 4
EXPERTS_USED = 2
FEED_FORWARD = 64
CONTEXT_LENGTH = 131072

# Bytes that do not print become the characters from U+0100 on, in order.
_PRINTS = {*range(33, 127), *range(161, 173), *range(174, 256)}
_PRINTABLE = {byte: 256 + rank for rank, byte in enumerate(sorted(set(range(256)) - _PRINTS))}
_BYTES = {character: byte for byte, character in _PRINTABLE.items()}

Array = npt.NDArray[np.float16] | npt.NDArray[np.float32]


def write(path: Path) -> None:
    """Write the model to ``path``: 65 MB, about 3 seconds."""
    writer = gguf.GGUFWriter(path, "gpt-oss")
    _describe_architecture(writer)
    _describe_tokenizer(writer)
    for name, tensor in _tensors():
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def spell(token: bytes) -> str:
    """The token as GPT-2's vocabularies write it: one printable character for each byte."""
    return token.decode("latin-1").translate(_PRINTABLE)


def unspell(name: str) -> bytes:
    """The token that ``spell`` has written so."""
    return name.translate(_BYTES).encode("latin-1")


def _describe_architecture(writer: gguf.GGUFWriter) -> None:
    writer.add_name("tiny-random-gpt-oss")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    writer.add_block_count(LAYERS)
    writer.add_context_length(CONTEXT_LENGTH)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_key_length(HEAD_DIM)
    writer.add_value_length(HEAD_DIM)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_sliding_window(128)
    writer.add_expert_count(EXPERTS)
    writer.add_expert_used_count(EXPERTS_USED)
    writer.add_expert_feed_forward_length(FEED_FORWARD)
    writer.add_rope_freq_base(150000.0)
    writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
    writer.add_rope_scaling_factor(32.0)
    writer.add_rope_scaling_orig_ctx_len(4096)
    writer.add_vocab_size(tokenizer.VOCABULARY_SIZE)


def _describe_tokenizer(writer: gguf.GGUFWriter) -> None:
    special = tokenizer.SPECIAL
    ordinary = tokenizer.VOCABULARY_SIZE - len(special)
    words = tokenizer.vocabulary()[:ordinary]
    names = [*(spell(word) for word in words), *special]
    kinds = [kind_of(word) for word in words]
    kinds += [gguf.TokenType.CONTROL] * len(special)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-4o")
    writer.add_token_list([name.encode() for name in names])
    writer.add_token_types(kinds)
    writer.add_token_merges([f"{spell(left)} {spell(right)}" for left, right in tokenizer.merges()])
    writer.add_bos_token_id(special["<|startoftext|>"])
    writer.add_eos_token_id(special["<|return|>"])
    writer.add_pad_token_id(special["<|endoftext|>"])
    writer.add_add_bos_token(False)


def kind_of(word: bytes) -> gguf.TokenType:
    """A token's type: none that llama.cpp would withhold from the answer is normal."""
    return gguf.TokenType.UNUSED if _ends_inside_character(word) else gguf.TokenType.NORMAL


def _ends_inside_character(word: bytes) -> bool:
    """Whether UTF-8 text that ends with ``word`` is incomplete.

    llama.cpp withholds the event of such a token and never sends its id, unless the token's type
    says that it has no text. 1,254 tokens are so.
    """
    for length, lead in enumerate(reversed(word[-3:]), start=1):
        if lead >= 0xC0:
            return length < (2 if lead < 0xE0 else 3 if lead < 0xF0 else 4)
        if lead < 0x80:
            return False
    return False


def _tensors() -> Iterator[tuple[str, Array]]:
    rng = np.random.default_rng(0)
    yield "token_embd.weight", half(rng, tokenizer.VOCABULARY_SIZE, HIDDEN, scale=1.0)
    yield "output.weight", half(rng, tokenizer.VOCABULARY_SIZE, HIDDEN)
    yield "output_norm.weight", np.ones(HIDDEN, np.float32)
    for layer in range(LAYERS):
        for name, tensor in (*_attention(rng), *_experts(rng)):
            yield f"blk.{layer}.{name}", tensor


def _attention(rng: np.random.Generator) -> Iterator[tuple[str, Array]]:
    yield "attn_norm.weight", np.ones(HIDDEN, np.float32)
    yield "post_attention_norm.weight", np.ones(HIDDEN, np.float32)
    for name, heads in (("attn_q", HEADS), ("attn_k", KV_HEADS), ("attn_v", KV_HEADS)):
        yield f"{name}.weight", half(rng, heads * HEAD_DIM, HIDDEN)
        yield f"{name}.bias", _single(rng, heads * HEAD_DIM)
    yield "attn_output.weight", half(rng, HIDDEN, HEADS * HEAD_DIM)
    yield "attn_output.bias", _single(rng, HIDDEN)
    yield "attn_sinks.weight", _single(rng, HEADS)


def _experts(rng: np.random.Generator) -> Iterator[tuple[str, Array]]:
    yield "ffn_gate_inp.weight", _single(rng, EXPERTS, HIDDEN)
    yield "ffn_gate_inp.bias", _single(rng, EXPERTS)
    for name, rows, columns in (
        ("ffn_gate_exps", FEED_FORWARD, HIDDEN),
        ("ffn_up_exps", FEED_FORWARD, HIDDEN),
        ("ffn_down_exps", HIDDEN, FEED_FORWARD),
    ):
        yield f"{name}.weight", half(rng, EXPERTS, rows, columns)
        yield f"{name}.bias", _single(rng, EXPERTS, rows)


def half(rng: np.random.Generator, *shape: int, scale: float = 0.2) -> npt.NDArray[np.float16]:
    """Normally distributed weights."""
    return (rng.standard_normal(shape, dtype=np.float32) * np.float32(scale)).astype(np.float16)


def _single(rng: np.random.Generator, *shape: int) -> npt.NDArray[np.float32]:
    return rng.standard_normal(shape, dtype=np.float32) * np.float32(0.05)
