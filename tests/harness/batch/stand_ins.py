"""Tiny stand-ins: a WordNet of a few words, a roberta with random weights, and a package named bert_score."""

import json
import string
from collections.abc import Iterable
from pathlib import Path

from harness.dataset import tokenizer

# Part of speech, its letter, and the words of each synset.
_SYNSETS: dict[str, tuple[str, list[tuple[str, ...]]]] = {
    "noun": ("n", [("car", "automobile", "machine"), ("dog", "hound"), ("house", "home"), ("big_cat",)]),
    "verb": ("v", [("run", "sprint"), ("buy", "purchase"), ("see", "behold")]),
    "adj": ("a", [("quick", "fast"), ("big", "large")]),
    "adv": ("r", [("fast", "quickly")]),
}
TEXT = """the a car cars automobile machine dog dogs hound run runs running sprint buy purchase purchased
quick fast quickly big large house home Homes see beheld . , it on tree trees"""


def make_wordnet(folder: Path) -> Path:
    """Files as WordNet 3.0 has them: data and index of each part of speech, exceptions, names."""
    folder.mkdir(parents=True)
    (folder / "lexnames").write_text("00\tadj.all\t3\n")
    for pos, (letter, synsets) in _SYNSETS.items():
        (folder / f"{pos}.exc").write_text("beheld behold\n" if pos == "verb" else "")
        data = "  1 made-up words\n"
        offsets: dict[str, list[int]] = {}
        for words in synsets:
            offset = len(data)
            for word in words:
                offsets.setdefault(word, []).append(offset)
            listed = " ".join(f"{word} 0" for word in words)
            frames = " 00" if pos == "verb" else ""
            data += f"{offset:08d} 00 {letter} {len(words):02x} {listed} 000{frames} | made up  \n"
        (folder / f"data.{pos}").write_text(data)
        index = "".join(
            f"{word} {letter} {len(at)} 0 {len(at)} 0 {' '.join(f'{one:08d}' for one in at)}  \n"
            for word, at in sorted(offsets.items())
        )
        (folder / f"index.{pos}").write_text("  1 made-up words\n" + index)
    return folder


def write_ids(path: Path, texts: Iterable[str]) -> Path:
    """A file of the texts' ids, a line each."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(" ".join(map(str, tokenizer.encode(text))) + " \n" for text in texts))
    return path


def make_roberta(folder: Path) -> None:
    """24 layers of 16 hidden values. Needs torch and transformers."""
    import torch
    from transformers import RobertaConfig, RobertaModel

    folder.mkdir()
    letters = [*string.printable[:94], *map(chr, range(0x100, 0x144)), *map(chr, range(0xA1, 0x100))]
    merges = ["t h", "th e", "\u0120 the", "a r"]
    words = ["<s>", "<pad>", "</s>", "<unk>", *dict.fromkeys(letters), *("".join(m.split()) for m in merges)]
    vocabulary = {word: number for number, word in enumerate([*words, "<mask>"])}
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *merges, ""]))
    settings = {"tokenizer_class": "RobertaTokenizer", "model_max_length": 512}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 24, "num_attention_heads": 2, "intermediate_size": 32}
    model = RobertaModel(
        RobertaConfig(vocab_size=len(vocabulary), max_position_embeddings=514, type_vocab_size=1, **sizes)
    )
    with torch.no_grad():
        for weights in model.parameters():
            if weights.dim() > 1:
                weights.normal_(0, 0.3)
    model.save_pretrained(folder)


_PACKAGE = '''
import sys


class Scores(list):
    def tolist(self):
        return list(self)


class BERTScorer:
    """The share of equal words; calls says how it was called."""

    calls = []

    def __init__(self, **given):
        BERTScorer.calls.append(given)

    def score(self, cands, refs, batch_size):
        BERTScorer.calls.append((len(cands), batch_size))
        if not all(cands):
            print("Warning: Empty candidate sentence detected", file=sys.stderr)
        if "fail" in cands[0]:
            raise RuntimeError("out of\\nmemory")
        both = zip(map(set, map(str.split, cands)), map(set, map(str.split, refs)))
        f1 = Scores(2 * len(a & b) / max(len(a) + len(b), 1) for a, b in both)
        return f1, f1, f1
'''


def make_bert_score(folder: Path, transformers: str = "4.57.6") -> Path:
    """A folder for sys.path with packages of these names and versions."""
    for file, text in {
        "bert_score/__init__.py": _PACKAGE,
        "transformers/__init__.py": "",
        "transformers/utils/__init__.py": "",
        "transformers/utils/logging.py": "set_verbosity_error = disable_progress_bar = lambda: None\n",
        f"transformers-{transformers}.dist-info/METADATA": f"Name: transformers\nVersion: {transformers}\n",
    }.items():
        path = folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder
