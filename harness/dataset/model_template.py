"""A model's own chat template, rendered as transformers does."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.errors import ConfigError
from harness.json_files import read_json


class ModelTemplate:
    """Renders messages. ``special``: the model's ``bos_token`` and the like, as templates name them."""

    def __init__(self, source: str, special: Mapping[str, str]) -> None:
        from jinja2.ext import loopcontrols
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _refuse
        self._special = special
        self._template = environment.from_string(source)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        date: Callable[[str], str],
        *,
        prompt: bool = False,
        **variables: Any,
    ) -> str:
        """The text, with ``prompt`` up to the start of the answer. ``date`` formats that of the clock.

        Raises ConfigError where the template cannot render the messages.
        """
        given = {"tools": None, "documents": None, "strftime_now": date, **self._special, **variables}
        try:
            return self._template.render(messages=messages, add_generation_prompt=prompt, **given)
        except _failures() as error:
            raise ConfigError(f"the model's chat template cannot render messages: {error}") from error


def open_model_template(folder: Path) -> ModelTemplate | None:
    """The template in a model's folder; None where it has none. Raises ConfigError for a broken one."""
    settings, file = _settings(folder / "tokenizer_config.json"), folder / "chat_template.jinja"
    source = settings.get("chat_template")
    try:
        if file.is_file():
            source = file.read_text(encoding="utf-8")
        elif isinstance(source, list):  # several by name
            source = next((each["template"] for each in source if each["name"] == "default"), None)
        return ModelTemplate(source, _special_tokens(settings)) if isinstance(source, str) else None
    except _failures() as error:
        raise ConfigError(f"{folder}: an unusable chat template: {error}; copy the model's") from error


def _failures() -> tuple[type[Exception], ...]:
    """What a template that is not a model's raises when it is read, or by what it is given."""
    from jinja2.exceptions import TemplateError

    return TemplateError, TypeError, ValueError, AttributeError, KeyError


def _settings(file: Path) -> dict[str, Any]:
    return read_json(file, dict[str, Any], "expected the model's file") if file.is_file() else {}


def _special_tokens(settings: Mapping[str, Any]) -> dict[str, str]:
    """``bos_token`` and the like, as templates name them."""
    named = ((name, value) for name, value in settings.items() if name.endswith("_token"))
    texts = ((name, value.get("content") if isinstance(value, dict) else value) for name, value in named)
    return {name: text for name, text in texts if isinstance(text, str)}


def _to_json(value: Any, ensure_ascii: bool = False, indent: int | None = None, **options: Any) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **options)


def _refuse(reason: str) -> str:
    raise ValueError(reason)
