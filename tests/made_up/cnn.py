"""Made-up datasets of llama3.1-8b of the official sizes, and a tokenizer that reads the stubs' answers.

The stubs answer with ids that follow from the prompt. Here each id is a word, and the reference summary of a
row has some of the words that the stubs answer with: scores and lengths are near the official ones.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from harness.dataset.cnndm import TEMPLATE
from tests.stub.protocol import FIRST_ID, ID_RANGE, expected_ids

DATACENTER, EDGE = "llama3.1-8b", "llama3.1-8b-edge"
ROWS = {DATACENTER: 13368, EDGE: 5000}
FILES = {DATACENTER: "cnn_eval.json", EDGE: "sample_cnn_eval_5000.json"}
BEGIN, END_OF_TEXT, END_OF_MESSAGE, END_OF_TURN = 128000, 128001, 128008, 128009
ANSWER = 128  # tokens, the benchmark's limit

_SPECIAL = {BEGIN: "<|begin_of_text|>", END_OF_TEXT: "<|end_of_text|>"}
_SPECIAL |= {END_OF_MESSAGE: "<|eom_id|>", END_OF_TURN: "<|eot_id|>"}
_SENTENCE = 16  # words; neighbouring ids of an answer differ by one in their remainder
_COPIED, _OWN = 42, 30  # words of a reference: from the answer, and others
_PROMPT = 24  # tokens


@dataclass(frozen=True)
class MadeUp:
    """Files of one benchmark; ``release`` has the tests of its programs."""

    dataset: Path
    tokenizer: Path
    release: Path | None = None


def write(folder: Path, benchmark: str, rows: int | None = None) -> MadeUp:
    """Write the dataset and the tokenizer."""
    made = MadeUp(folder / FILES[benchmark], folder / "tokenizer.json")
    lines = (json.dumps(_row(_prompt(number))) for number in range(rows or ROWS[benchmark]))
    made.dataset.write_text("[\n" + ",\n".join(lines) + "\n]")
    made.tokenizer.write_text(json.dumps(_tokenizer()))
    return made


def _prompt(number: int) -> list[int]:
    more = (FIRST_ID + (number * 31 + i * 7919) % ID_RANGE for i in range(_PROMPT - 2))
    return [BEGIN, FIRST_ID + number, *more]


def _row(ids: list[int]) -> dict[str, object]:
    answer = [word(i) for i in expected_ids(ids, ANSWER)]
    others = [word(i) for i in ids[2 : 2 + _OWN]] or ["nothing"]
    own = [others[i % len(others)] for i in range(_OWN)]
    return {
        "instruction": {"llama": TEMPLATE},
        "input": " ".join(map(word, ids[1:])),
        "tok_input": ids,
        "output": " ".join(answer[_SENTENCE : _SENTENCE + _COPIED] + own),
    }


def word(token: int) -> str:
    """The text of an id: four characters, every sixteenth the last of a sentence."""
    number, place = divmod(token, _SENTENCE)
    letters = "".join(chr(ord("a") + number // 26**i % 26) for i in range(3))
    if place == 0:
        return f"{letters}."
    letters += chr(ord("a") + place)
    return letters.capitalize() if place == _SENTENCE - 1 else letters


def _tokenizer() -> dict[str, object]:
    """A word level model: decoding is what matters, no text is tokenized with it.

    The package gives an added token its own id only where the vocabulary has it too.
    """
    added = [
        {"id": token, "content": text, "special": True, "normalized": False}
        | dict.fromkeys(("single_word", "lstrip", "rstrip"), False)
        for token, text in _SPECIAL.items()
    ]
    return {
        **dict.fromkeys(("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor")),
        "version": "1.0",
        "added_tokens": added,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {
            "type": "WordLevel",
            "vocab": {f"\u0120{word(token)}": token for token in range(BEGIN)}
            | {text: token for token, text in _SPECIAL.items()},
            "unk_token": "unknown",
        },
    }
