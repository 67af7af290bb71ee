"""How a model's chat template renders an assistant's message: what is counted besides its text.

The official count of an answer is that of an empty user's message with the answer, less that with an empty
answer, both through the model's chat template (rules, section 2.8).
"""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec

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
    """A model's own template, rendered as transformers does."""

    def __init__(self, source: str, special: Mapping[str, Any], encode: Encode) -> None:
        from jinja2.exceptions import TemplateError
        from jinja2.ext import loopcontrols
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _refuse
        environment.globals["strftime_now"] = _no_date
        self._failures, self._special = (
            (TemplateError, TypeError, ValueError, AttributeError, KeyError),
            special,
        )
        self._template = environment.from_string(source)
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
        try:
            return self._template.render(
                messages=[_USER, answer],
                add_generation_prompt=False,
                tools=None,
                documents=None,
                **self._special,
            )
        except self._failures as error:
            raise ConfigError(f"the model's chat template cannot render an answer: {error}") from error


def open_template(folder: Path, encode: Encode) -> ChatTemplate:
    """The template in a model's folder. Raises ConfigError for one that cannot be used."""
    settings = _settings(folder / "tokenizer_config.json")
    file = folder / "chat_template.jinja"
    source = file.read_text() if file.is_file() else settings.get("chat_template")
    if isinstance(source, list):  # several by name
        source = next((each.get("template") for each in source if each.get("name") == "default"), None)
    if not isinstance(source, str):
        return NoTemplate(folder)
    return JinjaTemplate(source, _special_tokens(settings), encode)


def _settings(file: Path) -> dict[str, Any]:
    try:
        return msgspec.json.decode(file.read_bytes(), type=dict[str, Any])
    except OSError:
        return {}
    except msgspec.DecodeError as error:
        raise ConfigError(f"{file}: {error}; expected the model's file") from error


def _special_tokens(settings: Mapping[str, Any]) -> dict[str, str]:
    """``bos_token`` and the like, as templates name them."""
    named = {name: value for name, value in settings.items() if name.endswith("_token")}
    texts = {name: value["content"] if isinstance(value, dict) else value for name, value in named.items()}
    return {name: text for name, text in texts.items() if isinstance(text, str)}


def _with_arguments(call: dict[str, Any]) -> dict[str, Any]:
    """The call with its arguments as an object where they are one in JSON: templates iterate over them."""
    function = call.get("function") or {}
    try:
        arguments = msgspec.json.decode(function.get("arguments") or b"null")
    except (msgspec.DecodeError, TypeError):
        return call
    return call | {"function": function | {"arguments": arguments}} if isinstance(arguments, dict) else call


def _to_json(value: Any, ensure_ascii: bool = False, indent: int | None = None, **options: Any) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **options)


def _refuse(reason: str) -> str:
    raise ValueError(reason)


def _no_date(form: str) -> str:
    """A constant: dates are in the frame, which is subtracted."""
    return form
