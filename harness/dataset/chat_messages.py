"""A rendered chat prompt taken apart: the messages and fields from which its template makes it again."""

import re
from collections.abc import Callable, Mapping
from datetime import date
from types import MappingProxyType
from typing import Any

import msgspec

HARMONY_SYSTEM = """\
You are ChatGPT, a large language model trained by OpenAI.
Knowledge cutoff: 2024-06
Current date: {today}

Reasoning: {reasoning}

# Valid channels: analysis, commentary, final. Channel must be included for every message."""
"""gpt-oss's system message without tools, as its publisher describes the format."""

INSTRUCTIONS = "# Instructions\n\n"  # begins its message of a developer
_CUTTING_DATE = "Cutting Knowledge Date: December 2023\nToday Date: "

Message = Mapping[str, str]


class Chat(msgspec.Struct, frozen=True):
    """What a request must carry for the model's template to render a prompt."""

    messages: tuple[Message, ...]
    fields: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """of the request, beside the messages"""
    today: str = ""
    """the date that the template takes from the server's clock, such as 2025-09-01; "": it takes none"""


_NO_NAME = (
    r"([^<]*(?:<(?!\|[a-z0-9_]+\|>|｜)[^<]*)*)"  # text that names no special token of any of the models
)
_HARMONY = re.compile(
    r"<\|start\|>system<\|message\|>"
    + re.escape(HARMONY_SYSTEM)
    .replace(r"\{today\}", r"(\d{4}-\d\d-\d\d)")
    .replace(r"\{reasoning\}", "([a-z]+)")
    + rf"<\|end\|>(?:<\|start\|>developer<\|message\|>{re.escape(INSTRUCTIONS)}{_NO_NAME}<\|end\|>)?"
    rf"<\|start\|>user<\|message\|>{_NO_NAME}<\|end\|><\|start\|>assistant",
    re.DOTALL,
)
_LLAMA = re.compile(
    rf"<\|begin_of_text\|><\|start_header_id\|>system<\|end_header_id\|>\n\n{_CUTTING_DATE}([^\n]+)\n\n"
    rf"{_NO_NAME}<\|eot_id\|><\|start_header_id\|>user<\|end_header_id\|>\n\n{_NO_NAME}<\|eot_id\|>"
    r"<\|start_header_id\|>assistant<\|end_header_id\|>\n\n",
    re.DOTALL,
)
_DEEPSEEK = re.compile(
    rf"<｜begin▁of▁sentence｜>{_NO_NAME}<｜User｜>{_NO_NAME}<｜Assistant｜>(?:<think>\n)?",
    re.DOTALL,
)


def _harmony(text: str) -> Chat | None:
    found = _HARMONY.fullmatch(text)
    if found is None or not _is_date(found[1]):
        return None
    today, effort, developer, user = found.groups()
    messages = _messages(("developer", developer), ("user", user))
    return Chat(messages, {"reasoning_effort": effort}, today)


def _llama(text: str) -> Chat | None:
    found = _LLAMA.fullmatch(text)
    if found is None or found[2] != found[2].strip() or found[3] != found[3].strip():
        return None  # the template strips messages
    today, system, user = found.groups()
    fields = {"chat_template_kwargs": {"date_string": today}}  # which revisions of it take from the clock
    return Chat(_messages(("system", system or None), ("user", user)), fields)


def _deepseek(text: str) -> Chat | None:
    found = _DEEPSEEK.fullmatch(text)
    return found and Chat(_messages(("system", found[1] or None), ("user", found[2])))


def _messages(*parts: tuple[str, str | None]) -> tuple[Message, ...]:
    return tuple({"role": role, "content": text} for role, text in parts if text is not None)


def _is_date(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


class ChatFormat(msgspec.Struct, frozen=True):
    """How a model's prompts are rendered."""

    shape: str
    """of a prompt, in short"""
    take_apart: Callable[[str], Chat | None]
    """None for a text that the template cannot give"""


# By the name of the tokenizer in a benchmark's definition.
CHAT_FORMATS: Mapping[str, ChatFormat] = MappingProxyType(
    {
        "o200k_harmony": ChatFormat(
            "gpt-oss's system message, instructions of a developer or none, and one message of a user",
            _harmony,
        ),
        "llama-3.1": ChatFormat(
            "headers of a system message with 'Cutting Knowledge Date' and of one user's message", _llama
        ),
        "deepseek-r1": ChatFormat("<｜User｜>, one message, <｜Assistant｜>", _deepseek),
    }
)
