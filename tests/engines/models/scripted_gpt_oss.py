"""A gpt-oss that always answers the same in harmony's form: what servers make of channels, calls and the end.

Random weights never say ``<|channel|>``. Here each token's code, 48 signs, leads to the next token of a
script: an analysis, then the final answer, or a tool call where the prompt has the word " weather". Attention
spreads the marks of " done" and " weather" over all later tokens, and the experts, whose swiglu is clamped,
make each a switch of a fixed size.
"""

import json
import shutil
import struct
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt

from harness.dataset import tokenizer
from sut.servers.embedded.gguf_model import Array, write_out
from sut.servers.embedded.tiny_gpt_oss import new_file

ANALYSIS = "<|channel|>analysis<|message|> Think about it twice, then done<|end|>"
FINAL = "<|start|>assistant<|channel|>final<|message|> Hello🦥!<|return|>"
ANSWER = ANALYSIS + FINAL
"""The answer to a prompt that ends with "." or with harmony's ``<|start|>assistant``."""
CALL = (
    "<|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>"
    '{"city":"Paris"}<|call|>'
)

TEMPLATE = Path(__file__).with_name("gpt_oss.jinja")

_HIDDEN, _HEAD, _HEADS, _KV_HEADS, _EXPERTS, _LAYERS, _INNER = 64, 32, 4, 2, 4, 2, 64
_CODE = 48
# Dimensions after the code: the marks of a token, their spread, their switches.
_MARK, _SPREAD, _SWITCH = 48, 50, 52
_DONE, _WEATHER = 0, 1
_SWITCHED = (2.0, 0.5)  # times 7, where swiglu is clamped
_UNSWITCHED = 0.85  # of a code's weight: a step behind a switch never wins without it

Weights = Mapping[str, npt.NDArray[np.float32]]


def write_hugging_face(directory: Path, plain: Path) -> None:
    """The model beside the files of the tiny random one in ``plain``; the tokenizer has a chat template."""
    directory.mkdir(parents=True)
    for file in plain.iterdir():
        if file.name != "model.safetensors":
            shutil.copy(file, directory)
    config = directory / "tokenizer_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"chat_template": TEMPLATE.read_text()}))
    _write_safetensors(directory / "model.safetensors", _weights())


def write_gguf(path: Path) -> None:
    """The model for llama.cpp. Its tokens have their true types, so that text is complete; llama.cpp then
    leaves out ids of tokens that end inside a character."""
    writer = new_file(path, lambda _: gguf.TokenType.NORMAL)
    writer.add_chat_template(TEMPLATE.read_text())
    write_out(writer, _gguf_tensors(_weights()))


def _steps() -> Iterator[tuple[int, int, int | None]]:
    """A token, the next one, and the switch that must be on."""
    special = tokenizer.SPECIAL
    channel, message = special["<|channel|>"], special["<|message|>"]
    analysis, final, call = map(tokenizer.encode_harmony, (ANALYSIS, FINAL, CALL))
    (full_stop,) = tokenizer.encode(".")
    for ids, switch in ((analysis, None), (final, _DONE), (call, _WEATHER)):
        for now, following in pairwise(ids):
            yield now, following, switch if now in (channel, message) else None
    yield full_stop, channel, None
    yield analysis[-1], final[0], None


def _weights() -> Weights:
    """By Hugging Face's names."""
    rng = np.random.default_rng(1)
    embedding = np.zeros((tokenizer.VOCABULARY_SIZE, _HIDDEN), np.float32)
    embedding[:, :_CODE] = rng.choice(np.array([-1.0, 1.0], np.float32), (len(embedding), _CODE))
    for mark, word in ((_DONE, " done"), (_WEATHER, " weather")):
        embedding[tokenizer.encode(word), _MARK + mark] = 1
    return {
        "model.embed_tokens.weight": embedding,
        "lm_head.weight": _head(embedding),
        "model.norm.weight": np.ones(_HIDDEN, np.float32),
        **{name: weight for layer in range(_LAYERS) for name, weight in _layer(layer)},
    }


def _head(embedding: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    head = np.zeros_like(embedding)
    for now, following, switch in sorted(set(_steps()), key=str):
        head[following, :_CODE] += embedding[now, :_CODE] * (1 if switch is None else _UNSWITCHED)
        if switch is not None:
            head[following, _SWITCH + _DONE] = 1 if switch == _DONE else 0.9
            head[following, _SWITCH + _WEATHER] = switch == _WEATHER
    return head


def _layer(layer: int) -> Iterator[tuple[str, npt.NDArray[np.float32]]]:
    """All zero, but in the last one for what spreads the marks and switches."""
    prefix, last = f"model.layers.{layer}.", layer == _LAYERS - 1
    for norm in ("input_layernorm", "post_attention_layernorm"):
        yield f"{prefix}{norm}.weight", np.ones(_HIDDEN, np.float32)
    values = _zero(_KV_HEADS * _HEAD, _HIDDEN)
    output = _zero(_HIDDEN, _HEADS * _HEAD)
    gate_up, down = _zero(_EXPERTS, _HIDDEN, 2 * _INNER), _zero(_EXPERTS, _INNER, _HIDDEN)
    for mark in (_DONE, _WEATHER) if last else ():
        values[mark, _MARK + mark] = 1
        output[_SPREAD + mark, mark] = 100
        gate_up[:, _SPREAD + mark, 2 * mark] = 1000  # gate and up take turns
        down[:, mark, _SWITCH + mark] = _SWITCHED[mark]
    attention, experts = f"{prefix}self_attn.", f"{prefix}mlp.experts."
    for name, rows in (("q_proj", _HEADS), ("k_proj", _KV_HEADS), ("v_proj", _KV_HEADS)):
        weight = values if name == "v_proj" else _zero(rows * _HEAD, _HIDDEN)
        yield f"{attention}{name}.weight", weight
        yield f"{attention}{name}.bias", _zero(rows * _HEAD)
    yield f"{attention}o_proj.weight", output
    yield f"{attention}o_proj.bias", _zero(_HIDDEN)
    yield f"{attention}sinks", np.full(_HEADS, -30, np.float32)
    yield f"{prefix}mlp.router.weight", _zero(_EXPERTS, _HIDDEN)
    yield f"{prefix}mlp.router.bias", _zero(_EXPERTS)
    yield f"{experts}gate_up_proj", gate_up
    yield f"{experts}gate_up_proj_bias", _zero(_EXPERTS, 2 * _INNER)
    yield f"{experts}down_proj", down
    yield f"{experts}down_proj_bias", _zero(_EXPERTS, _HIDDEN)


def _zero(*shape: int) -> npt.NDArray[np.float32]:
    return np.zeros(shape, np.float32)


def _write_safetensors(path: Path, weights: Weights) -> None:
    """bfloat16: every weight has a short fraction, so nothing is rounded that matters."""
    header, pieces, at = {}, [], 0
    for name, weight in weights.items():
        piece = (np.ascontiguousarray(weight).view(np.uint32) >> 16).astype("<u2").tobytes()
        header[name] = {
            "dtype": "BF16",
            "shape": weight.shape,
            "data_offsets": (at, at + len(piece)),
        }
        pieces.append(piece)
        at += len(piece)
    text = json.dumps(header | {"__metadata__": {"format": "pt"}}).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(pieces))


_GGUF_NAMES = {
    "input_layernorm.weight": "attn_norm.weight",
    "post_attention_layernorm.weight": "post_attention_norm.weight",
    **{
        f"self_attn.{theirs}_proj.{part}": f"attn_{ours}.{part}"
        for theirs, ours in (("q", "q"), ("k", "k"), ("v", "v"), ("o", "output"))
        for part in ("weight", "bias")
    },
    "self_attn.sinks": "attn_sinks.weight",
    "mlp.router.weight": "ffn_gate_inp.weight",
    "mlp.router.bias": "ffn_gate_inp.bias",
}


def _gguf_tensors(weights: Weights) -> Iterator[tuple[str, Array]]:
    yield "token_embd.weight", weights["model.embed_tokens.weight"].astype(np.float16)
    yield "output.weight", weights["lm_head.weight"].astype(np.float16)
    yield "output_norm.weight", weights["model.norm.weight"]
    for layer in range(_LAYERS):
        prefix, block = f"model.layers.{layer}.", f"blk.{layer}."
        for name, ours in _GGUF_NAMES.items():
            weight = weights[prefix + name]
            half = ours.startswith("attn_") and weight.ndim > 1
            yield block + ours, weight.astype(np.float16) if half else weight
        experts = f"{prefix}mlp.experts."
        for ours, first in (("gate", 0), ("up", 1)):
            weight = weights[f"{experts}gate_up_proj"][:, :, first::2].transpose(0, 2, 1)
            yield f"{block}ffn_{ours}_exps.weight", np.ascontiguousarray(weight).astype(np.float16)
            bias = weights[f"{experts}gate_up_proj_bias"][:, first::2]
            yield f"{block}ffn_{ours}_exps.bias", np.ascontiguousarray(bias)
        down = weights[f"{experts}down_proj"].transpose(0, 2, 1)
        yield f"{block}ffn_down_exps.weight", np.ascontiguousarray(down).astype(np.float16)
        yield f"{block}ffn_down_exps.bias", weights[f"{experts}down_proj_bias"]
