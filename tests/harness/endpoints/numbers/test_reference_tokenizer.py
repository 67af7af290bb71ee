import random
import shutil

import msgspec
import pytest

from harness.config.benchmark import load_benchmark
from harness.dataset.model_template import ModelTemplate
from harness.dataset.model_tokenizer import harmony_tokenizer, load_tokenizer
from harness.endpoints.numbers.chat_template import HarmonyTemplate, JinjaTemplate, NoTemplate
from harness.endpoints.numbers.event_record import Answer, Event, Message, after_first, whole
from harness.endpoints.numbers.reference_tokenizer import ReferenceTokenizer, open_reference
from harness.errors import ConfigError
from harness.grading.decoding.output_decoder import tokenizer_file
from tests.harness.endpoints.numbers.event_files import TOKENIZER
from tests.runs import SAMPLES

PIECES = [
    *("Hello", " world", "  ", "\n", "\n\n", "don't", "I'LL", "12345", " 7", "中文字", "é", "🙂"),
    *(
        "<|end|>",
        "<|",
        "|>",
        "end",
        ".",
        " ...",
        "!?",
        "\t",
        "\u00a0",
        "<|end_of_text|>",
        "A",
        "bC",
        "/",
        "\r\n",
    ),
]


def texts(seed: int, count: int) -> list[tuple[str, str]]:
    drawn = random.Random(seed)
    pairs = []
    for _ in range(count):
        text = "".join(drawn.choices(PIECES, k=drawn.randint(1, 30)))
        cut = drawn.randint(0, len(text))
        pairs.append((text[:cut], text[cut:]))
    return pairs


def check(reader: ReferenceTokenizer, seed: int) -> None:
    """Of any text cut anywhere: the tokens of both together, and of the rest alone."""
    pairs = texts(seed, 2000)
    totals, suffixes = reader.count_answers([Answer((first, rest)) for first, rest in pairs])
    assert totals.tolist() == reader.count_texts([first + rest for first, rest in pairs])
    assert suffixes.tolist() == [
        number if rest else 0
        for number, (_, rest) in zip(reader.count_texts([rest for _, rest in pairs]), pairs, strict=True)
    ]


def test_where_it_is_found(tmp_path):
    gpt_oss, llama = load_benchmark("gpt-oss-120b"), load_benchmark("llama3.1-8b")
    dataset = SAMPLES / "cnn_sample.json"
    assert tokenizer_file(gpt_oss, dataset, None) is None
    assert tokenizer_file(llama, dataset, None) == TOKENIZER
    assert tokenizer_file(gpt_oss, dataset, str(TOKENIZER)) == TOKENIZER
    with pytest.raises(ConfigError, match="no such file"):
        tokenizer_file(llama, dataset, str(tmp_path / "missing"))


@pytest.mark.engine
@pytest.mark.parametrize("seed", range(3))
def test_a_cut_anywhere(seed):
    check(open_reference(TOKENIZER), seed)


@pytest.mark.engine
def test_a_cut_anywhere_in_harmony():
    check(ReferenceTokenizer(harmony_tokenizer(), HarmonyTemplate()), 7)


def test_most_cuts_are_not_tokenized_twice(monkeypatch):
    """A cut before a word decides nothing about the tokens around it."""
    reader = open_reference(TOKENIZER)
    encoded = []
    loaded = reader._tokenizer
    monkeypatch.setattr(reader, "_tokenizer", Counting(loaded, encoded))
    answer = Answer(("The", " quick brown fox jumps over the lazy dog, and then over all the others."))
    (total,), (suffix,) = reader.count_answers([answer])
    assert (total, suffix) == (
        suffix + 1,
        len(loaded.encode(after_first(answer).content, add_special_tokens=False)),
    )
    assert whole(answer).content not in encoded


class Counting:
    """The tokenizer, which keeps what it encoded."""

    def __init__(self, loaded, encoded):
        self._loaded, self._encoded = loaded, encoded

    def __getattr__(self, name):
        return getattr(self._loaded, name)

    def encode_batch_fast(self, batch, **options):
        self._encoded += batch
        return self._loaded.encode_batch_fast(batch, **options)


TOOLS = [[{"index": 1, "id": "b", "function": {"name": "g", "arguments": "{"}},
          {"index": 0, "id": "a", "function": {"name": "f", "arguments": "1"}}],
         [{"index": 1, "function": {"arguments": "}"}}]]  # fmt: skip


def frozen(value):
    return tuple(map(frozen, value)) if isinstance(value, list) else value


@pytest.mark.parametrize(
    ("answer", "rest"),
    [
        (Answer(("a", "b")), Message("b")),
        (Answer(("a",)), Message()),
        (Answer("all"), Message()),
        (Answer(()), Message()),
        (Answer("out", ("r1", "r2")), Message("out", "r2")),
        (Answer("out", ("r1",)), Message("out", "")),
        (Answer(("o1", "o2"), ("r1", "r2")), Message("o1o2", "r2")),
        (Answer("out", "not streamed"), Message()),
    ],
)
def test_what_follows_the_first_fragment(answer, rest):
    assert after_first(answer) == rest


def test_tool_calls_are_put_together_by_index():
    calls = whole(Answer("", None, frozen(TOOLS))).tool_calls
    assert [(call["id"], call["function"]) for call in calls] == [
        ("a", {"name": "f", "arguments": "1"}),
        ("b", {"name": "g", "arguments": "{}"}),
    ]
    (rest,) = after_first(Answer("", None, frozen(TOOLS))).tool_calls
    assert rest["function"]["arguments"] == "}"


def test_a_template_counts_what_it_adds():
    loaded = load_tokenizer(TOKENIZER)

    def encode(texts):
        return [len(each.ids) for each in loaded.encode_batch(list(texts), add_special_tokens=False)]

    source = (
        "{% for m in messages %}<|begin_of_text|>{{ m.role }}:"
        "{% if m.reasoning_content %} think {{ m.reasoning_content }} done{% endif %} {{ m.content }}"
        "{% endfor %}"
    )
    reader = ReferenceTokenizer(loaded, JinjaTemplate(ModelTemplate(source, {}), encode))
    (total,), (suffix,) = reader.count_answers([Answer("yes", ("because", " of this"))])
    frame, full, rest = encode(
        [f"assistant:{text} {out}" for text, out in
         (("", ""), (" think because of this done", "yes"), (" think  of this done", "yes"))]
    )  # fmt: skip
    assert (total, suffix) == (full - frame, rest - frame)


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [('{"a": 1}', "1"), ({"a": 1}, "1"), ("[1]", ""), ('{"a":', ""), (None, "")],
    ids=["text", "object", "no object", "cut off", "none"],
)
def test_a_template_gets_the_arguments_of_a_call_as_an_object(arguments, shown):
    source = "{% for c in messages[1].tool_calls %}{{ c.function.arguments.a }}{% endfor %}"
    template = JinjaTemplate(ModelTemplate(source, {}), lambda texts: [len(text) for text in texts])
    call = {"function": {"name": "f", "arguments": arguments}}
    assert template.render(whole(Answer("", None, (call,)))).texts == (shown,)


@pytest.mark.parametrize("calls", ["[1]", "[[1]]", '[{"function": 1}]', '[[{"index": "a"}]]'])
def test_tool_calls_of_another_form_are_no_event(calls):
    answer = f'["TextModelOutput", "", null, {calls}]'
    line = f'{{"event_type": "sample.complete", "timestamp_ns": 1, "data": {answer}}}'
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(line, type=Event)


def test_a_template_that_refuses_and_one_that_is_missing():
    def encode(texts):
        return [0 for _ in texts]

    with pytest.raises(ConfigError, match="not in this house"):
        JinjaTemplate(ModelTemplate("{{ raise_exception('not in this house') }}", {}), encode)
    with pytest.raises(ConfigError, match="chat_template"):
        open_reference(TOKENIZER).count_answers([Answer("yes", ("because",))])
    assert isinstance(open_reference(TOKENIZER)._template, NoTemplate)


@pytest.mark.parametrize("named", ["", "tokenizer.json"])
def test_the_template_is_the_one_beside_the_tokenizer(tmp_path, named):
    shutil.copy(TOKENIZER, tmp_path / "tokenizer.json")
    (tmp_path / "chat_template.jinja").write_text("{% for one in messages %}{{ one.content }}{% endfor %}")
    assert isinstance(open_reference(tmp_path / named)._template, JinjaTemplate)


@pytest.mark.engine
def test_harmony_counts_the_frame_of_a_thought():
    """<|start|>assistant<|channel|>analysis<|message|>...<|end|>: six tokens besides the thought's."""
    reader = ReferenceTokenizer(harmony_tokenizer(), HarmonyTemplate())
    framed = "<|start|>assistant<|channel|>analysis<|message|>We think.<|end|>"
    (total,), _ = reader.count_answers([Answer("So: 42.", ("We", " think."))])
    assert total == sum(reader.count_texts([framed, "So: 42."]))
