#!/usr/bin/env python3
"""Write the folder of a model without weights, and print its path.

Any Python 3 will do, since servers have environments of their own.
"""

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
# Of each model's own edge variant, too.
_ARCHITECTURES = ROOT / "configs/architectures"


def main(words: list[str]) -> int:
    """Write the folder; returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("name", metavar="NAME", help="of configs/architectures, without .json")
    parser.add_argument("layers", metavar="LAYERS", nargs="?", type=int, help="default: those of the model")
    given = parser.parse_args(words)
    model, layers = given.name, given.layers
    source = _ARCHITECTURES / f"{model.removesuffix('-edge')}.json"
    if not source.is_file():
        known = ", ".join(sorted(path.stem for path in _ARCHITECTURES.glob("*.json")))
        print(f"dummy_model.py: no architecture of {model} is known, expected {known}", file=sys.stderr)
        return 2
    config = architecture(source)
    name = f"{source.stem}-dummy-weights"
    if layers and layers != config["num_hidden_layers"]:
        config["num_hidden_layers"], name = layers, f"{name}-{layers}-layers"
    users = os.environ.get("XDG_CACHE_HOME") or Path(os.environ.get("HOME", "/"), ".cache")
    # The second is for a checkout that only its owner may write to.
    for folder in (ROOT / ".cache" / name, Path(users, "mlperf-llm-harness", name)):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
            write_tokenizer(folder, config)
        except OSError as error:
            reason = f"{folder}: {error.strerror}"
            continue
        print(folder)
        return 0
    print(f"dummy_model.py: {reason}; export XDG_CACHE_HOME=FOLDER that can be written to", file=sys.stderr)
    return 2


def architecture(source: Path) -> dict[str, Any]:
    """A config.json; ``like`` in a file names the one from which it differs in the other keys."""
    found: dict[str, Any] = json.loads(source.read_text(encoding="utf-8"))
    like = found.pop("like", None)
    return architecture(source.with_name(f"{like}.json")) | found if like else found


def write_tokenizer(folder: Path, config: dict[str, Any]) -> None:
    """A word for each id, ``t17``: engines want a tokenizer, and none is needed for requests with ids."""
    vocabulary = {f"t{number}": number for number in range(config["vocab_size"])}
    ends = config["eos_token_id"]
    end = f"t{ends[0] if isinstance(ends, list) else ends}"
    tokenizer: dict[str, Any] = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "t0"},
    }
    of_transformers = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": end}
    generation = {"eos_token_id": ends, "bos_token_id": config["bos_token_id"]}
    for name, document in (
        ("tokenizer.json", tokenizer),
        ("tokenizer_config.json", of_transformers),
        ("generation_config.json", generation),
    ):
        (folder / name).write_text(json.dumps(document) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
