"""Common parts of the tiny models: sizes, GPT-2's spelling of tokens, random weights, the GGUF file."""

from collections.abc import Iterable, Sequence

import gguf
import msgspec
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float16] | npt.NDArray[np.float32] | npt.NDArray[np.uint8]

_ROUGH = gguf.GGMLQuantizationType.Q4_0
_BLOCK = 32  # weights with one scale in common
_ROUGH_DEVIATION = 4.6  # of the numbers from -8 to 7


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """Hyperparameters that every architecture has; ``head`` is the length of a head's keys and values."""

    head: int
    feed_forward: int
    hidden: int = 64
    layers: int = 2
    heads: int = 4
    kv_heads: int = 2
    context_length: int = 131072

    def describe(self, writer: gguf.GGUFWriter, name: str) -> None:
        """Add them to the file, after the model's name."""
        writer.add_name(name)
        writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
        writer.add_block_count(self.layers)
        writer.add_context_length(self.context_length)
        writer.add_embedding_length(self.hidden)
        writer.add_feed_forward_length(self.feed_forward)
        writer.add_head_count(self.heads)
        writer.add_head_count_kv(self.kv_heads)
        writer.add_key_length(self.head)
        writer.add_value_length(self.head)


def describe_vocabulary(
    writer: gguf.GGUFWriter,
    pretokenizer: str,
    names: Sequence[str],
    kinds: Sequence[gguf.TokenType],
    merges: Iterable[tuple[str, str]],
) -> None:
    """Add a byte-level BPE vocabulary, one name and kind for each id."""
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pretokenizer)
    writer.add_token_list([name.encode() for name in names])
    writer.add_token_types(kinds)
    writer.add_token_merges([f"{left} {right}" for left, right in merges])


def write_out(writer: gguf.GGUFWriter, tensors: Iterable[tuple[str, Array]]) -> None:
    """Add the tensors, and write the file."""
    for name, tensor in tensors:
        writer.add_tensor(name, tensor, raw_dtype=_ROUGH if tensor.dtype == np.uint8 else None)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def kind_of(word: bytes) -> gguf.TokenType:
    """A token's type: none that llama.cpp would withhold from the answer is normal."""
    return gguf.TokenType.UNUSED if _ends_inside_character(word) else gguf.TokenType.NORMAL


def _ends_inside_character(word: bytes) -> bool:
    """Whether UTF-8 text that ends with ``word`` is incomplete.

    llama.cpp withholds the event of such a token and never sends its id, unless the token's type
    is that of a token without text. 1,254 tokens of o200k_harmony end so.
    """
    for length, lead in enumerate(reversed(word[-3:]), start=1):
        if lead >= 0xC0:
            return length < (2 if lead < 0xE0 else 3 if lead < 0xF0 else 4)
        if lead < 0x80:
            return False
    return False


def half(rng: np.random.Generator, *shape: int, scale: float = 0.2) -> npt.NDArray[np.float16]:
    """Normally distributed weights in half precision."""
    return (rng.standard_normal(shape, dtype=np.float32) * np.float32(scale)).astype(np.float16)


def single(rng: np.random.Generator, *shape: int) -> npt.NDArray[np.float32]:
    """Normally distributed weights in single precision: biases, sinks, routers."""
    return rng.standard_normal(shape, dtype=np.float32) * np.float32(0.05)


def rough(rng: np.random.Generator, scales: npt.NDArray[np.float64], columns: int) -> npt.NDArray[np.uint8]:
    """Uniformly distributed weights of four bits, one of ``scales`` for each row; 0 is a row of zeros.

    For the matrix of the output, by far the largest product of every token: an answer takes two thirds of
    the CPU time that it takes in half precision.
    """
    blocks = np.empty((len(scales), columns // _BLOCK, 2 + _BLOCK // 2), np.uint8)
    blocks[:, :, :2] = (scales / _ROUGH_DEVIATION).astype(np.float16).view(np.uint8).reshape(-1, 1, 2)
    blocks[:, :, 2:] = rng.integers(256, size=blocks[:, :, 2:].shape, dtype=np.uint8)
    return blocks.reshape(len(scales), -1)
