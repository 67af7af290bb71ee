"""Outputs without an answer are not decoded completely, and no grade depends on that."""

import random
import re

import numpy as np
import pytest

from harness.dataset import tokenizer
from harness.grading.decoding.harmony import HarmonyOutput, HarmonyText
from harness.grading.decoding.screen import Screen
from harness.grading.graders import aime, gpqa, livecodebench
from tests.harness.grading.logs import harmony_ids

# What the official rules look for, whole and in parts, between what they take out or overlook.
PIECES = (
    *("Answer", "ANSWER:", "answer. ", "an\u017fwer", "FINAL ANSWER", "An**swer**", "an****sw", "er", "s**w"),
    *("A", "b", " C ", "D)", "(", ":", "=", ".", "**", "*", "nd", "and "),
    *("\\n", "\\**n**", "\\'", "['", "']"),
    *("\\boxed{", "\\boxed", "{", "}", "70", " 0", "\u0667", "\u00e9", "\u2003", " ", "\n", "   " * 30),
    *("```python\n", "```", "``", "`", "py\n", "print(1)\n", "|>", "|", ">", "x", "Power ", "-", "9" * 80),
)
# A letter that only ignoring case makes one, marks of bold type within a word, a gap longer than is decoded.
HARD = (
    "An\u017fwer: 70",
    "So **a****n**s**w**e**r**: B",
    f"So Answer:{'**' * 40}B",
    rf"\boxed{{{chr(0x2003) * 80}70}}",
)
MARKERS = ("<|channel|>final<|message|>", "<|channel|>analysis<|message|>", "<|end|>", "<|return|>")


class Whole(HarmonyText):
    """Without the screen: the complete text is always read."""

    def __init__(self, ids: list[int]) -> None:
        super().__init__(tokenizer.decode(ids))
        self.prefix = self.suffix = ""
        self.defect = None

    def may_match(self, screen: Screen) -> bool:
        return True


def cut_at_random(text: str, rng: random.Random) -> list[int]:
    """Ids of the text in tokens that the encoder would not choose."""
    ids: list[int] = []
    for part in re.split(r"(<\|(?:channel|message|end|return)\|>)", text):
        if part in tokenizer.SPECIAL and rng.random() < 0.95:
            ids.append(tokenizer.SPECIAL[part])
            continue
        rest = part.encode()
        while rest:
            sizes = [size for size in range(1, 12) if rest[:size] in tokenizer.ranks()]
            size = rng.choice(sizes)
            ids.append(tokenizer.ranks()[rest[:size]])
            rest = rest[size:]
    return ids


@pytest.mark.parametrize("seed", range(12))
def test_verdicts_are_those_on_the_whole_text(seed: int) -> None:
    rng = random.Random(seed)
    for ids in (*(random_output(rng) for _ in range(40)), *(cut_at_random(text, rng) for text in HARD)):
        output, whole = HarmonyOutput(np.array(ids, np.int32)), Whole(ids)
        assert aime.official(output, "70") == aime.official(whole, "70"), whole.text
        assert gpqa.official(output, "B") == gpqa.official(whole, "B"), whole.text
        assert livecodebench.official_code(output) == livecodebench.official_code(whole), whole.text


def random_output(rng: random.Random) -> list[int]:
    few = (*rng.sample(PIECES, 6), *rng.choices(MARKERS, k=2))
    lead = rng.choice(("<|channel|>analysis<|message|>", "<|channel|>analysis<|message|>" + "we " * 70, ""))
    ids = cut_at_random(lead + "".join(rng.choices(few, k=rng.randrange(1, 40))), rng)
    if rng.random() < 0.1:  # a character cut in two
        ids.insert(rng.randrange(len(ids) + 1), tokenizer.ranks()[b"\xc3"])
    return ids


THOUGHT = (
    "We need the answer. The answer is and an answer choice; lower power. Put the answer in \\boxed{} later. "
    "Answer: unknown. Maybe x**2 or **bold** text. "
)


@pytest.mark.parametrize("final", [None, "I could not find it."])
def test_an_output_without_an_answer_is_not_decoded_whole(
    final: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    thought = THOUGHT * 100
    cut = tokenizer.encode_harmony(f"<|channel|>analysis<|message|>{thought}")
    ids = cut if final is None else harmony_ids(final, thought)
    longest, decode = 0, tokenizer.decode

    def counted(part: np.ndarray) -> str:
        nonlocal longest
        longest = max(longest, len(part))
        return decode(part)

    monkeypatch.setattr(tokenizer, "decode", counted)
    output = HarmonyOutput(np.array(ids, np.int32))
    for rules, truth in ((aime, "70"), (gpqa, "B")):
        assert rules.official(output, truth).answer is rules.strict(output, truth).answer is None
    assert livecodebench.official_code(output).code is livecodebench.strict_code(output).code is None
    assert longest < 200 < len(ids)


def test_letters_that_ignoring_case_takes_for_those_of_the_stems() -> None:
    """The screens' spellings are all there are: only the long s looks like a letter of "answer"."""
    others = "".join(chr(code) for code in range(128, 0x110000) if not 0xD800 <= code < 0xE000)
    assert re.findall("[answerABCD]", others, re.IGNORECASE) == ["\u017f"]


def test_a_stem_is_found_however_it_is_cut() -> None:
    screen = Screen(("answer",))
    for seed in range(100):
        ids = cut_at_random("x Answer", random.Random(seed))
        assert screen.may_match(np.array(ids, np.int32))
    for short in ([], [0]):
        assert not screen.may_match(np.array(short, np.int32))
