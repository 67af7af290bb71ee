"""Writes a tiny gpt-oss in Hugging Face's format with the real tokenizer: make_tiny_gpt_oss.py DIR

26 M random parameters, always the same. Runs in the SGLang environment (torch, transformers) and takes 10 s.
DIR also gets o200k_base.tiktoken, where TIKTOKEN_ENCODINGS_BASE can point to.
"""

import base64
import hashlib
import json
import sys
from pathlib import Path

# Last, so that this repository's folders datasets/ and sglang/ cannot shadow the packages.
sys.path.append(str(Path(__file__).resolve().parents[3]))

from harness.dataset import tokenizer
from harness.dataset.model_tokenizer import harmony_tokenizer

# openai/gpt-oss-120b's own tokenizer.json.
_TOKENIZER_SHA256 = "0614fe83cadab421296e664e1f48f4261fa8fef6e03e63bb75c20f38e37d07d3"


def main(directory: Path) -> None:
    """Write the model, its tokenizer and the encoding file."""
    directory.mkdir(parents=True, exist_ok=True)
    write_model(directory)
    write_tokenizer(directory)
    write_encoding(directory)


def write_model(directory: Path) -> None:
    """``config.json`` and ``model.safetensors``, bfloat16."""
    import torch
    from transformers import GptOssConfig, GptOssForCausalLM

    special = tokenizer.SPECIAL
    config = GptOssConfig(
        vocab_size=tokenizer.VOCABULARY_SIZE,
        hidden_size=64,
        intermediate_size=64,
        num_hidden_layers=2,
        layer_types=["sliding_attention", "full_attention"],
        sliding_window=128,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        num_local_experts=4,
        num_experts_per_tok=2,
        max_position_embeddings=131072,
        tie_word_embeddings=False,
        bos_token_id=special["<|startoftext|>"],
        eos_token_id=special["<|return|>"],
        pad_token_id=special["<|endoftext|>"],
    )
    torch.manual_seed(0)
    model = GptOssForCausalLM(config).to(torch.bfloat16)
    ends = ("<|return|>", "<|endoftext|>", "<|call|>")
    model.generation_config.eos_token_id = [special[name] for name in ends]
    model.save_pretrained(directory)


def write_tokenizer(directory: Path) -> None:
    """``tokenizer.json``, byte for byte that of gpt-oss-120b; exits where it is not."""
    from transformers import PreTrainedTokenizerFast

    PreTrainedTokenizerFast(
        tokenizer_object=harmony_tokenizer(),
        bos_token="<|startoftext|>",
        eos_token="<|return|>",
        pad_token="<|endoftext|>",
        clean_up_tokenization_spaces=False,
    ).save_pretrained(directory)
    digest = hashlib.sha256((directory / "tokenizer.json").read_bytes()).hexdigest()
    if digest != _TOKENIZER_SHA256:
        sys.exit(f"tokenizer.json: sha256 {digest}, expected gpt-oss-120b's {_TOKENIZER_SHA256}")
    # SGLang reads the file four times where the class is the general one, 12 s of CPU more in each process.
    file = directory / "tokenizer_config.json"
    config = json.loads(file.read_text()) | {"tokenizer_class": "GPT2TokenizerFast"}
    del config["backend"]
    file.write_text(json.dumps(config))


def write_encoding(directory: Path) -> None:
    """``o200k_base.tiktoken``, which openai-harmony would download."""
    lines = (b"%b %d\n" % (base64.b64encode(token), rank) for token, rank in tokenizer.ranks().items())
    (directory / "o200k_base.tiktoken").write_bytes(b"".join(lines))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
