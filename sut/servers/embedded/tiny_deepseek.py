"""Writes a tiny model that answers in DeepSeek-R1's form, with the vocabulary of its sample, as a GGUF file.

The architecture is that of the tiny Llama; the ids of the named tokens are DeepSeek's. Greedy answers of
random weights often repeat themselves up to the limit, here 20,000 tokens. So half of the hidden dimensions
hold a stage, which only grows: words of a thought, </think>, ``ANSWER:``, a letter, the end. The other half
is random: by what was said before, it chooses the words, the letter and how fast the stages pass.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from harness.files import ROOT
from harness.grading.decoding.output import THOUGHT_END
from sut.servers.embedded import tiny_llama
from sut.servers.embedded.gguf_model import Array, half
from sut.servers.embedded.tiny_llama import SIZES, Tokenizer, Vocabulary

VOCABULARY_SIZE = 129280

_TOKENIZER = ROOT / "datasets" / "samples" / "r1_sample_tokenizer.json"
_BEGIN, _END = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"
_CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}<｜User｜>{{ message['content'] }}{% endfor %}"
    "<｜Assistant｜>"
)
_ANSWER = ("Ċ", "ANSWER", ":", "Ġ")  # as byte pairs: a line break and "ANSWER: "
_LETTERS = "ABCDEFGHIJ"
_THOUGHT = 40  # stages; each word skips none to _SKIPPED of them
_SKIPPED = 3
_STAGES = _THOUGHT + 1 + len(_ANSWER) + 2
_CODE = SIZES.hidden // 2  # dimensions that hold the stage
_PULL = 2.0  # the stage's weight: more than the largest sum of the random half


def write(path: Path) -> None:
    """Write the model to ``path``: 37 MB."""
    tokenizer = tiny_llama.read_tokenizer(_TOKENIZER)
    vocabulary = Vocabulary(tokenizer, VOCABULARY_SIZE, _BEGIN, _END, _CHAT_TEMPLATE)
    tiny_llama.write_model(path, "tiny-random-deepseek", vocabulary, _tensors(tokenizer))


def _tensors(tokenizer: Tokenizer) -> Iterator[tuple[str, Array]]:
    rng = np.random.default_rng(0)
    codes = rng.choice(np.array([-1.0, 1.0], np.float32), (_STAGES, _CODE))
    after, reached = _stages(rng, tokenizer)
    embedding, output = (
        half(rng, VOCABULARY_SIZE, SIZES.hidden, scale=1.0),
        half(rng, VOCABULARY_SIZE, SIZES.hidden),
    )
    embedding[:, :_CODE] = codes[reached]
    spoken = after >= 0
    output[~spoken] = 0  # another token always has a higher probability
    output[spoken, :_CODE] = _PULL * codes[after[spoken]]
    yield "token_embd.weight", embedding
    yield "output.weight", output
    yield "output_norm.weight", np.ones(SIZES.hidden, np.float32)
    for layer in range(SIZES.layers):
        for name, tensor in tiny_llama.layer_weights(rng):
            if name in ("attn_output", "ffn_down"):
                tensor[:_CODE] = 0  # so that no layer changes the stage
            yield f"blk.{layer}.{name}.weight", tensor


def _stages(rng: np.random.Generator, tokenizer: Tokenizer) -> tuple[npt.NDArray[np.int64], ...]:
    """For each token: the stage after which it is answered (-1: never), and the stage that it leads to.

    Whatever a prompt ends with leads to the first stage.
    """
    after, reached = np.full(VOCABULARY_SIZE, -1), np.zeros(VOCABULARY_SIZE, np.int64)
    ids = tokenizer.model.vocab
    chain = [[ids[THOUGHT_END]], *([ids[name]] for name in _ANSWER), [ids[name] for name in _LETTERS]]
    chain.append([ids[_END]])
    words = np.setdiff1d(tiny_llama.text_tokens(tokenizer), np.concatenate(chain))
    after[words] = rng.integers(0, _THOUGHT, len(words))
    faster = rng.integers(0, _SKIPPED, len(words), endpoint=True)
    reached[words] = np.minimum(after[words] + 1 + faster, _THOUGHT)
    for number, tokens in enumerate(chain):
        after[tokens] = _THOUGHT + number
        reached[tokens] = _THOUGHT + number + 1
    reached[ids[_END]] = 0
    return after, reached
