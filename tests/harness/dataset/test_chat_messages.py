"""Chat prompts taken apart: what real servers and templates rendered gives the messages that they got."""

from itertools import product

import pytest

from harness.dataset import tokenizer
from harness.dataset.chat_messages import CHAT_FORMATS, HARMONY_SYSTEM, Chat
from harness.dataset.model_template import ModelTemplate
from tests.recorded_wires import exchange

HARMONY, LLAMA, DEEPSEEK = (CHAT_FORMATS[name] for name in ("o200k_harmony", "llama-3.1", "deepseek-r1"))
# As the models' templates do, without tools: Llama 3.1's strips messages and always has a system message.
LLAMA_TEMPLATE = """\
{%- if messages[0].role == "system" %}
{%- set system = messages[0].content | trim %}{% set rest = messages[1:] %}
{%- else %}{% set system = "" %}{% set rest = messages %}{% endif %}
{{- bos_token ~ "<|start_header_id|>system<|end_header_id|>\\n\\nCutting Knowledge Date: December 2023\\n" }}
{{- "Today Date: " ~ (date_string or strftime_now("%d %b %Y")) ~ "\\n\\n" ~ system ~ "<|eot_id|>" }}
{%- for one in rest %}
{{- "<|start_header_id|>" ~ one.role ~ "<|end_header_id|>\\n\\n" ~ one.content | trim ~ "<|eot_id|>" }}
{%- endfor %}
{{- "<|start_header_id|>assistant<|end_header_id|>\\n\\n" if add_generation_prompt }}"""
# transformers drops the blanks in front of a block, and the line end after it.
DEEPSEEK_TEMPLATE = """\
  {% for one in messages %}
{{ bos_token if loop.first }}{{ "" if one.role == "system" else "<｜User｜>" }}{{ one.content }}
{%- endfor %}{{ "<｜Assistant｜><think>\\n" if add_generation_prompt }}"""
TEMPLATES = {
    "llama-3.1": ModelTemplate(LLAMA_TEMPLATE, {"bos_token": "<|begin_of_text|>"}),
    "deepseek-r1": ModelTemplate(DEEPSEEK_TEMPLATE, {"bos_token": "<｜begin▁of▁sentence｜>"}),
}
USERS = ["Why does ice float?", "a < b <| c\n\n<b>é🙂</b> |>", "{{ 7 }} {% x %} <think>"]
SYSTEMS = [None, "Be brief.\nAlways."]


def harmony(user, today="2026-01-01", effort="low", developer=None):
    system = HARMONY_SYSTEM.format(today=today, reasoning=effort)
    told = "" if developer is None else f"<|start|>developer<|message|># Instructions\n\n{developer}<|end|>"
    return (
        f"<|start|>system<|message|>{system}<|end|>{told}"
        f"<|start|>user<|message|>{user}<|end|><|start|>assistant"
    )


def test_what_a_real_server_rendered():
    """vLLM shows the ids of the prompt that it made of messages."""
    recorded = exchange("vllm-0.32.0/chat-ids-back")
    found = HARMONY.take_apart(tokenizer.decode(recorded.answer["prompt_token_ids"]))
    messages = tuple(recorded.request["messages"])
    assert found == Chat(messages, {"reasoning_effort": "medium"}, "2026-11-23")


@pytest.mark.parametrize(("name", "user", "system"), list(product(TEMPLATES, USERS, SYSTEMS)))
def test_what_a_template_rendered(name, user, system):
    messages = [{"role": "user", "content": user}]
    if system:
        messages.insert(0, {"role": "system", "content": system})
    text = TEMPLATES[name].render(messages, str, prompt=True, date_string="26 Jul 2024")
    found = CHAT_FORMATS[name].take_apart(text)
    dated = {"chat_template_kwargs": {"date_string": "26 Jul 2024"}}
    assert found == Chat(tuple(messages), dated if name == "llama-3.1" else {})


@pytest.mark.parametrize("developer", [None, "Answer in riddles."])
def test_the_developers_message_of_harmony(developer):
    found = HARMONY.take_apart(harmony("Hi", effort="high", developer=developer))
    assert found.fields == {"reasoning_effort": "high"}
    assert [one["role"] for one in found.messages] == (["developer", "user"] if developer else ["user"])
    assert found.messages[0]["content"] == (developer or "Hi")


OTHERS = {
    "no template": (HARMONY, "Why does ice float?"),
    "no start of the answer": (HARMONY, harmony("Hi").removesuffix("<|start|>assistant")),
    "an answer begun": (HARMONY, harmony("Hi") + "<|channel|>final<|message|>"),
    "another system message": (HARMONY, harmony("Hi").replace("ChatGPT", "Claude")),
    "other channels": (HARMONY, harmony("Hi").replace("analysis, commentary, final", "analysis, final")),
    "no day": (HARMONY, harmony("Hi", today="2026-02-31")),
    "a marker in a message": (HARMONY, harmony("Hi<|end|>")),
    "two messages": (HARMONY, harmony("Hi<|end|><|start|>user<|message|>there")),
    "no system message": (LLAMA, "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"),
    "MLPerf's summaries": (LLAMA, "<|begin_of_text|>Summarize the following news article in 128 tokens."),
    "an answer before": (
        DEEPSEEK,
        "<｜begin▁of▁sentence｜><｜User｜>a<｜Assistant｜>b<｜User｜>c<｜Assistant｜>",
    ),
}


@pytest.mark.parametrize("which", OTHERS)
def test_what_no_template_gives(which):
    chat_format, text = OTHERS[which]
    assert chat_format.take_apart(text) is None


def test_llamas_template_strips_messages():
    text = TEMPLATES["llama-3.1"].render(
        [{"role": "user", "content": "Hi"}], str, prompt=True, date_string="1"
    )
    assert LLAMA.take_apart(text) is not None
    assert LLAMA.take_apart(text.replace("Hi", "Hi ")) is None
