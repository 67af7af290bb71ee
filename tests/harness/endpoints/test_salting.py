"""The salt in the prompts of each benchmark, read back with its tokenizer."""

import math
import re

import msgspec
import numpy as np
import pytest

from harness.config.benchmark import load_benchmark
from harness.dataset import tokenizer
from harness.dataset.model_tokenizer import load_tokenizer
from harness.dataset.salt import RenderedSalt, SaltIds
from harness.dataset.samples import load_samples
from harness.endpoints.curve import Curve, Point, SeedSet
from harness.endpoints.salting import FORMATS, salt_ids, salt_seed, salted, with_salt
from harness.errors import ConfigError
from tests.kit import sample_set
from tests.runs import SAMPLES

SEEDS = SeedSet(
    name="A", cohort="", published="2026-10-C1", scheduler=1, sample_index=586478644936801402, model=3
)
POINT = Point(name="r8", concurrency=8, band="low", issue_s=1.0, passes=1)
CURVE = Curve(
    benchmark="gpt-oss-120b",
    model_name="gpt-oss-120b",
    c_min=1,
    c_max=64,
    points=(POINT,),
    samples=64,
    accuracy_samples=0,
    seeds=SEEDS,
)
# Of each benchmark: its sample, and the text that stands before the salt.
BENCHMARKS = {
    "gpt-oss-120b": ("perf_sample.parquet", "<|end|><|start|>user<|message|>"),
    "deepseek-r1": ("r1_sample.parquet", "<｜begin▁of▁sentence｜><｜User｜>"),
    "llama3.1-8b": ("cnn_sample.json", "<|begin_of_text|>"),
}


def of(benchmark, bits=128, seed="1/r8/0"):
    """The samples of a benchmark without the salt and with it."""
    known = load_benchmark(benchmark)
    samples = load_samples(SAMPLES / BENCHMARKS[benchmark][0], vocabulary_size=known.vocabulary_size)
    return samples, salted(samples, known, bits, seed, None)


def text_of(benchmark, ids):
    if benchmark == "gpt-oss-120b":
        return tokenizer.decode(ids)
    path = SAMPLES / f"{BENCHMARKS[benchmark][0].partition('.')[0]}_tokenizer.json"
    return load_tokenizer(path).decode(list(ids), skip_special_tokens=False)


@pytest.mark.parametrize("benchmark", BENCHMARKS)
@pytest.mark.parametrize("bits", [64, 128, 256])
def test_the_decoded_prompt_has_the_mark_at_the_start_of_the_users_text(benchmark, bits):
    samples, found = of(benchmark, bits)
    salt, before = found.salt, BENCHMARKS[benchmark][1]
    assert bits <= salt.ids.count * math.log2(len(salt.ids.alphabet)) < bits + 8
    for index in (0, 7, len(samples) - 1):
        ids, at, count = found.tokens(index).tolist(), int(salt.at[index]), salt.ids.count
        ids[at : at + count] = salt.ids.of(index)
        text, plain = text_of(benchmark, ids), text_of(benchmark, samples.tokens(index))
        mark = re.search(r"\[[0-9a-f]{16,}\] ", text)
        assert mark is not None and text[: mark.start()].endswith(before)
        assert text.replace(mark[0], "", 1) == plain
    assert (found.lengths - samples.lengths == salt.ids.count + 3).all()
    assert not found.ids.flags.writeable


def test_each_point_and_each_run_of_it_has_a_seed_of_its_own():
    seeds = [
        salt_seed(CURVE, POINT, 0),
        salt_seed(CURVE, POINT, 1),
        salt_seed(CURVE, msgspec.structs.replace(POINT, name="r81"), 0),
        salt_seed(
            msgspec.structs.replace(CURVE, seeds=msgspec.structs.replace(SEEDS, sample_index=1)), POINT, 0
        ),
    ]
    assert len(set(seeds)) == 4


def test_salts_follow_from_seed_and_query_alone():
    (_, one), (_, again) = of("gpt-oss-120b"), of("gpt-oss-120b")
    other = of("gpt-oss-120b", seed="1/r8/1")[1]
    queries = range(3000)
    salts = [[found.salt.ids.of(query) for query in queries] for found in (one, again, other)]
    assert salts[0] == salts[1]
    assert len({*salts[0], *salts[2]}) == 6000
    # Each id of the alphabet is as frequent: 3 000 salts of 19 symbols out of 128.
    counts = np.unique(np.array(salts[0]), return_counts=True)[1]
    assert len(counts) == 128 and 330 < counts.min() <= counts.max() < 570


def test_a_rendered_salt_has_the_same_ids():
    ids = SaltIds("seed", (15, 16, 20_000, 3), 32)
    rendered = RenderedSalt(ids)
    for query in (0, 5, 1 << 31, (1 << 32) - 1):
        assert rendered.of(query) == b",".join(b"%d" % one for one in ids.of(query))
    assert rendered.width == len(b"15,") * 32 - 1


def test_a_part_of_the_samples_keeps_their_places():
    _, found = of("gpt-oss-120b")
    part = found.part(5, 3)
    assert part.salt.at.tolist() == found.salt.at[5:8].tolist()
    at, count = int(part.salt.at[0]), part.salt.ids.count
    assert set(part.tokens(0)[at : at + count].tolist()) == {part.salt.ids.alphabet[0]}


def test_the_first_user_message_is_the_one():
    """Few-shot prompts have several; what comes before the first is the shared part."""
    prompt = [1, 9, 2, 9, 3]
    found = with_salt(sample_set("x", [prompt, [9]]), SaltIds("", (7, 8), 2), (5,), (6,), {"user": (9,)})
    assert found.tokens(0).tolist() == [1, 9, 5, 7, 7, 6, 2, 9, 3]
    assert found.tokens(1).tolist() == [9, 5, 7, 7, 6]
    assert found.salt.at.tolist() == [3, 2]


def test_a_template_is_preferred_to_the_start_of_the_text():
    marks = FORMATS["llama-3.1"].user_text
    (header, begin) = marks.values()
    prompts = [[*begin, 50, *header, 60], [*begin, 60]]
    found = with_salt(sample_set("x", prompts), SaltIds("", (7, 8), 1), (), (), marks)
    assert found.tokens(0).tolist() == [*begin, 50, *header, 7, 60]
    assert found.tokens(1).tolist() == [*begin, 7, 60]


def test_no_salt_changes_nothing():
    samples, found = of("gpt-oss-120b", 0)
    assert found is samples


def test_prompts_of_another_format_are_refused_in_one_line():
    known = load_benchmark("gpt-oss-120b")
    with pytest.raises(ConfigError) as caught:
        salted(sample_set("other.parquet", [[200006, 1428, 200008, 1], [5, 6]]), known, 128, "", None)
    line = str(caught.value)
    assert "\n" not in line
    for word in ("other.parquet", "row 1", "<|start|>user<|message|>", "200006 1428 200008", "1 of 2 rows"):
        assert word in line


def test_a_tokenizer_without_digits_is_refused():
    with pytest.raises(ConfigError, match="no token '0'"):
        salt_ids(lambda text: None, 64, "")
