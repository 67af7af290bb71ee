"""Prompts as text: each is proved to be the ids of its row, with the tokenizer of each benchmark."""

import json
import random
from datetime import date
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from harness.config.benchmark import load_benchmark
from harness.dataset import prompt_texts
from harness.dataset import tokenizer as o200k
from harness.dataset.model_template import ModelTemplate, open_model_template
from harness.dataset.model_tokenizer import harmony_tokenizer, load_tokenizer
from harness.dataset.round_trip import with_texts
from harness.dataset.samples import load_samples
from harness.endpoints.salting import salted
from harness.errors import ConfigError, DatasetError
from tests.harness.dataset.test_chat_messages import DEEPSEEK_TEMPLATE, harmony
from tests.kit import sample_set
from tests.runs import SAMPLES

# Of each benchmark: its sample, the sample's tokenizer, and what servers put before a text.
BENCHMARKS = {
    "gpt-oss-120b": ("acc_sample.parquet", None, ""),
    "llama3.1-8b": ("cnn_sample.json", "cnn_sample_tokenizer.json", "<|begin_of_text|>"),
    "deepseek-r1": ("r1_sample.parquet", "r1_sample_tokenizer.json", "<｜begin▁of▁sentence｜>"),
}
FILE = Path("x.parquet")


@cache
def tokenizer_of(benchmark):
    name = BENCHMARKS[benchmark][1]
    return harmony_tokenizer() if name is None else load_tokenizer(SAMPLES / name)


def of_ids(prompts, api="completions-text", benchmark="gpt-oss-120b", template=None, first_row=0):
    known_as, tokenizer = load_benchmark(benchmark).tokenizer, tokenizer_of(benchmark)
    return with_texts(sample_set(FILE, prompts), api, known_as, tokenizer, template, first_row)


def of_texts(*texts, **options):
    return of_ids([o200k.encode_harmony(text) for text in texts], **options)


def sent(samples):
    """What the requests carry."""
    return [json.loads(samples.prompt(index)) for index in range(len(samples))]


@pytest.mark.engine
@pytest.mark.parametrize("benchmark", BENCHMARKS)
def test_a_text_and_what_servers_put_before_it_are_the_prompt(benchmark):
    file, _, before = BENCHMARKS[benchmark]
    known = load_benchmark(benchmark)
    samples = load_samples(SAMPLES / file, vocabulary_size=known.vocabulary_size)
    found = with_texts(samples, "completions-text", known.tokenizer, tokenizer_of(benchmark))
    assert found.as_text.put_before == before
    assert (f"ids, without the {before} that servers" in str(found.as_text)) == bool(before)
    assert found.as_text.prompts == len(samples) == len(found)
    for index in (0, 7, len(samples) - 1):
        text = before + json.loads(found.prompt(index))
        if benchmark == "gpt-oss-120b":
            assert o200k.encode_harmony(text) == samples.tokens(index).tolist()
        else:
            ids = tokenizer_of(benchmark).encode(text, add_special_tokens=False).ids
            assert ids == samples.tokens(index).tolist()


def test_a_part_of_the_samples_has_its_own_texts():
    found = of_texts("one", "two", "three")
    assert sent(found.part(1, 2)) == ["two", "three"]
    assert sent(found.head(1)) == ["one"]


ROUND_TRIPS = {
    "a leading space": " a",
    "unnormalized": "e\u0301 Å \u212b ﬁ",
    "a replacement character of its own": "\ufffd",
    "controls and quotes": '\x00\x7f"\\\u2028',
    "special tokens": "<|start|>user<|message|>a<|end|>",
    "names of none": "<|nothing|> <|im_start|> <|",
    "emoji of several parts": "🙂‍↔️👩🏽‍💻",
}


@pytest.mark.parametrize("which", ROUND_TRIPS)
def test_what_round_trips(which):
    text = ROUND_TRIPS[which]
    assert sent(of_texts(text)) == [text]


A = [64]  # "a"
OTHERS = {  # functions: the vocabulary takes each process of the tests 0.1 s
    "half a character": lambda: [*A, o200k.ranks()["漢".encode()[:2]]],
    "a name of a special token as plain text": lambda: o200k.encode("<|end|>"),
    "a word in two pieces": lambda: [*o200k.encode("hel"), *o200k.encode("lo")],
    "an id that gpt-oss's tokenizer.json does not have": lambda: [*A, 201087],
}


@pytest.mark.parametrize("which", OTHERS)
@pytest.mark.parametrize("api", ["completions-text", "chat"])
def test_what_does_not_is_refused_and_named(which, api):
    with pytest.raises(DatasetError, match=r"x\.parquet: 1 of 3 prompts .*\(row 101\).* omit --api"):
        of_ids([A, OTHERS[which](), A], api=api, first_row=100)


def test_the_first_of_many_are_named():
    half = OTHERS["half a character"]()
    prompts = [half if row % 3 == 1 else A for row in range(1000)]
    with pytest.raises(DatasetError, match=r"333 of 1000 .*\(rows 1, 4, 7, 10, 13 and 328 more\)"):
        of_ids(prompts)


def test_a_prompt_without_what_servers_put_before_it():
    with pytest.raises(DatasetError, match=r"servers put <\|begin_of_text\|> before .*"):
        of_ids([[128000, 403], [403]], benchmark="llama3.1-8b")


def test_messages_and_the_fields_of_their_requests(monkeypatch):
    found = of_texts(harmony("Hi"), harmony("é\n <b>"), api="chat")
    assert sent(found) == [[{"role": "user", "content": user}] for user in ("Hi", "é\n <b>")]
    assert found.as_text.fields == {"reasoning_effort": "low"}
    assert found.as_text.own_template is False
    (deviation,) = found.as_text.deviations
    assert "2026-01-01" in deviation
    monkeypatch.setattr(prompt_texts, "date", SimpleNamespace(today=lambda: date(2026, 1, 1)))
    assert found.as_text.deviations == ()
    assert str(found.as_text) == (
        "messages for the server's chat template (by the rules of its format), "
        'reasoning_effort "low"; 2 of 2 encode to the same ids'
    )


def test_rows_of_different_effort_or_date_cannot_share_a_run():
    with pytest.raises(DatasetError, match=r'\(row 1\).*"high".* row 0 .*"low".*completions-text'):
        of_texts(harmony("a"), harmony("b", effort="high"), harmony("c"), api="chat")
    with pytest.raises(DatasetError, match=r'\(row 1\).*"date":"2026-01-02".* row 0 .*"date":"2026-01-01"'):
        of_texts(harmony("a"), harmony("b", today="2026-01-02"), api="chat")


def test_a_prompt_that_no_template_gives():
    with pytest.raises(DatasetError, match=r"\(row 1\).*chat template does not give.*completions-text"):
        of_texts(harmony("a"), "Why does ice float?", api="chat")


def deepseek(user, think=True):
    ids = tokenizer_of("deepseek-r1").encode(user, add_special_tokens=False).ids
    after = tokenizer_of("deepseek-r1").encode("<think>\n", add_special_tokens=False).ids
    return [0, 128803, *ids, 128804, *(after if think else ())]


def test_the_models_own_template_decides():
    template = ModelTemplate(DEEPSEEK_TEMPLATE, {"bos_token": "<｜begin▁of▁sentence｜>"})
    found = of_ids([deepseek("the two")], "chat", "deepseek-r1", template)
    assert sent(found) == [[{"role": "user", "content": "the two"}]]
    assert found.as_text.own_template is True
    without = ModelTemplate(DEEPSEEK_TEMPLATE, {})
    for prompts, other in (
        ([deepseek("a"), deepseek("a", think=False)], template),
        ([deepseek("a")], without),
    ):
        with pytest.raises(
            DatasetError, match=rf"\(row {len(prompts) - 1}\).*template in the model's folder"
        ):
            of_ids(prompts, "chat", "deepseek-r1", other)


def test_the_date_of_a_prompt_is_that_of_its_template():
    """gpt-oss's template takes it from the server's clock."""
    text = harmony("Hi", today="2026-01-01").replace("2026-01-01", '{{ strftime_now("%Y-%m-%d") }}')
    template = ModelTemplate(text.replace("Hi", "{{ messages[0].content }}"), {})
    found = of_texts(harmony("Hi"), harmony("Why"), api="chat", template=template)
    assert found.as_text.own_template is True
    assert "2026-01-01" in " ".join(found.as_text.deviations)


def test_a_template_is_the_default_one_of_several_in_the_models_folder(tmp_path):
    several = [{"name": "tools", "template": "{{ 1 }}"}, {"name": "default", "template": DEEPSEEK_TEMPLATE}]
    special = {"bos_token": {"content": "<｜begin▁of▁sentence｜>"}, "pad_token": {}, "add_bos_token": True}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": several} | special))
    template = open_model_template(tmp_path)
    assert of_ids([deepseek("a")], "chat", "deepseek-r1", template).as_text.own_template is True


BROKEN = {
    "settings of another form": ("tokenizer_config.json", b"[]"),
    "settings that are no JSON": ("tokenizer_config.json", b"{"),
    "settings that are no text": ("tokenizer_config.json", b'{"chat_template": "\xff"}'),
    "settings nested without end": ("tokenizer_config.json", b'{"chat_template": ' + b"[" * 100_000),
    "several without names": ("tokenizer_config.json", b'{"chat_template": ["{{ messages }}"]}'),
    "no template of jinja": ("chat_template.jinja", b"{% if"),
    "no text": ("chat_template.jinja", b"\xff"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_template_that_cannot_be_used_is_named(name, tmp_path):
    file, content = BROKEN[name]
    (tmp_path / file).write_bytes(content)
    with pytest.raises(ConfigError, match=str(tmp_path)):
        open_model_template(tmp_path)


def test_salted_prompts_are_ids():
    benchmark = load_benchmark("gpt-oss-120b")
    samples = load_samples(SAMPLES / "perf_sample.parquet", vocabulary_size=benchmark.vocabulary_size)
    with pytest.raises(ConfigError, match="salted"):
        with_texts(
            salted(samples, benchmark, 128, "1/r8/0", None),
            "chat",
            benchmark.tokenizer,
            tokenizer_of("gpt-oss-120b"),
        )


def test_a_model_whose_chat_format_is_not_known():
    with pytest.raises(ConfigError, match="chat format"):
        with_texts(sample_set(FILE, [A]), "chat", None, tokenizer_of("gpt-oss-120b"))


def test_many_prompts_are_compared_row_by_row():
    rng = random.Random(29)
    words = np.arange(1000, 2000)
    prompts = [o200k.encode(o200k.decode(rng.choices(words, k=20))) for _ in range(600)]
    found = of_ids(prompts)
    assert [o200k.encode(text) for text in sent(found)] == prompts
