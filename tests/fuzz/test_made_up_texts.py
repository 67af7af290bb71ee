"""Texts and ids that hypothesis makes up.

It looks for constants in the sources of all modules that are loaded: with the quick loop 2 s of CPU.
"""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.dataset import tokenizer as o200k
from harness.dataset.model_tokenizer import harmony_tokenizer
from harness.errors import DatasetError
from tests.harness.dataset.test_round_trip import of_ids, sent
from tests.harness.grading.graders.test_graders import PIECES, grade_everything, harmony

pytestmark = pytest.mark.engine


@settings(max_examples=100, deadline=None)
@given(st.one_of(st.text(), st.lists(st.sampled_from(PIECES), max_size=40).map("".join)))
def test_no_text_crashes_a_grader(text: str):
    grade_everything(text)
    grade_everything(harmony(text))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.integers(0, 201087), min_size=1, max_size=12), min_size=1, max_size=8))
def test_random_ids_by_another_encoder(prompts):
    """The own encoder, pinned to the real one; it knows more of the reserved names than tokenizer.json."""
    wrong = [
        row
        for row, ids in enumerate(prompts)
        if o200k.encode_harmony(o200k.decode(ids)) != ids or max(ids) > o200k.SPECIAL["<|endofprompt|>"]
    ]
    if not wrong:
        assert sent(of_ids(prompts)) == [o200k.decode(ids) for ids in prompts]
        return
    with pytest.raises(DatasetError) as caught:
        of_ids(prompts)
    counted, named = re.search(r"(\d+) of \d+ .*\(rows? ([\d, ]+)", str(caught.value)).groups()
    assert int(counted) == len(wrong)
    assert [int(row) for row in named.replace(" and", "").split(",")] == wrong[:5]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(min_size=1), min_size=1, max_size=6))
def test_what_a_tokenizer_made_of_a_text_is_text(texts):
    """No text column is needed: all that it says are the ids."""
    assert sent(of_ids([list(harmony_tokenizer().encode(text).ids) for text in texts])) == texts
