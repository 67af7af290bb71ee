"""How a model's chat template renders an assistant's message: what is counted besides its text.

The official count of an answer is that of an empty user's message with the answer, less that with an empty
answer, both through the model's chat template (rules, section 2.8).
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec

from harness.dataset.model_template import ModelTemplate, open_model_template
from harness.endpoints.numbers.event_record import Message
from harness.errors import ConfigError

Encode = Callable[[Sequence[str]], list[int]]
"""numbers of tokens of texts"""

_USER = {"role": "user", "content": ""}


class Rendered(NamedTuple):
    """Texts whose tokens are added up, and a number that is added to them."""

    texts: tuple[str, ...]
    constant: int


class ChatTemplate(Protocol):
    """Renders messages with reasoning or tool calls; the official client counts others as plain text."""

    def render(self, message: Message) -> Rendered:
        """The texts of a message. Raises ConfigError where the template cannot render it."""


class HarmonyTemplate:
    """gpt-oss: special tokens separate the parts of a message, so that each part counts on its own.

    A thought is framed by six tokens: <|start|>assistant<|channel|>analysis<|message|>...<|end|>.
    """

    _THOUGHT_FRAME = 6

    def render(self, message: Message) -> Rendered:
        """As ChatTemplate."""
        if message.tool_calls:
            raise ConfigError("tool calls of gpt-oss: expected none, the benchmark has no tools")
        thought = (message.reasoning,) if message.reasoning else ()
        return Rendered((*thought, message.content), self._THOUGHT_FRAME * len(thought))


class NoTemplate:
    """A tokenizer without a chat template: only plain answers can be counted."""

    def __init__(self, tokenizer: Path) -> None:
        self._tokenizer = tokenizer

    def render(self, message: Message) -> Rendered:
        """As ChatTemplate."""
        raise ConfigError(
            f"{self._tokenizer}: no chat template, and answers have reasoning or tool calls, whose tokens it "
            "decides; expected the model's chat_template.jinja or tokenizer_config.json beside tokenizer.json"
        )


class JinjaTemplate:
    """A model's own template."""

    def __init__(self, template: ModelTemplate, encode: Encode) -> None:
        self._template = template
        (self._frame,) = encode([self._rendered(Message())])

    def render(self, message: Message) -> Rendered:
        """As ChatTemplate."""
        return Rendered((self._rendered(message),), -self._frame)

    def _rendered(self, message: Message) -> str:
        answer: dict[str, Any] = {"role": "assistant", "content": message.content}
        if message.reasoning:
            answer |= {"reasoning_content": message.reasoning}
        if message.tool_calls:
            answer |= {"tool_calls": [_with_arguments(call) for call in message.tool_calls]}
        # A constant for each date: dates are in the frame, which is subtracted.
        return self._template.render([_USER, answer], lambda form: form)


def open_template(folder: Path, encode: Encode) -> ChatTemplate:
    """The template in a model's folder. Raises ConfigError for one that cannot be used."""
    template = open_model_template(folder)
    return NoTemplate(folder) if template is None else JinjaTemplate(template, encode)


def _with_arguments(call: dict[str, Any]) -> dict[str, Any]:
    """The call with its arguments as an object where they are one in JSON: templates iterate over them."""
    function = call.get("function") or {}
    try:
        arguments = msgspec.json.decode(function.get("arguments") or b"null")
    except (msgspec.DecodeError, TypeError):
        return call
    return call | {"function": function | {"arguments": arguments}} if isinstance(arguments, dict) else call
