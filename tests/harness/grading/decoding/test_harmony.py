"""A final section that is located on token ids is the one that the official rule finds in the text."""

import random
import re

import numpy as np
import pytest

from harness.dataset import tokenizer
from harness.grading.decoding.harmony import HarmonyOutput, HarmonyText
from harness.grading.decoding.output_decoder import HarmonyDecoder
from harness.grading.decoding.output_sources import RowTokens

MARKERS = ("<|channel|>final<|message|>", "<|channel|>analysis<|message|>", "<|end|>", "<|return|>")
PIECES = ("|>", "|", ">", "<", "final", "<|channel|>", " 12", "x", "a|b", "\u00e9", "\n", "9" * 80)


def cut_at_random(text: str, rng: random.Random) -> list[int]:
    """Ids of the text in tokens that the encoder would not choose; some markers are spelled out."""
    ids: list[int] = []
    spelled = b""  # a token of it may hold the end of a marker and the text behind it
    for part in [*re.split(r"(<\|(?:channel|message|end|return)\|>)", text), ""]:
        is_special = part in tokenizer.SPECIAL and rng.random() < 0.9
        if part and not is_special:
            spelled += part.encode()
            continue
        while spelled:
            sizes = [size for size in range(1, 12) if spelled[:size] in tokenizer.ranks()]
            size = rng.choice(sizes)
            ids.append(tokenizer.ranks()[spelled[:size]])
            spelled = spelled[size:]
        if is_special:
            ids.append(tokenizer.SPECIAL[part])
    return ids


@pytest.mark.parametrize("seed", range(12))
def test_the_official_section_is_that_of_the_text(seed: int) -> None:
    rng, sections = random.Random(seed), []
    for _ in range(60):
        text = "".join(rng.choices((*PIECES, *MARKERS * 2), k=rng.randrange(1, 20)))
        ids = cut_at_random(text, rng)
        output, whole = HarmonyOutput(np.array(ids, np.int32)), HarmonyText(tokenizer.decode(ids))
        assert (output.text, output.official_final) == (whole.text, whole.official_final)
        sections.append(output.official_final)
    assert None in sections and any(sections)


def test_ids_that_the_tokenizer_of_gpt_oss_does_not_list_are_no_text():
    """Its last is <|endofprompt|>: transformers 4.46.2 decodes those behind it to nothing."""
    text = "<|channel|>final<|message|>Answer: C<|endofprompt|><|return|>"
    listed = tokenizer.encode_harmony(text)
    ids = [listed[0], 200019, *listed[1:3], 201087, *listed[3:]]
    decoder = HarmonyDecoder(1000)
    output = decoder.output(RowTokens(0, np.array(ids, np.int32)))
    assert (output.text, output.official_final) == (text, "Answer: C<|endofprompt|>")
    assert (output.tokens, output.unknown) == (len(ids), 2)
    assert decoder.decode(np.array(ids, np.int32)) == text
