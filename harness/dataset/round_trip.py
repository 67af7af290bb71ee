"""Prompts as text, for servers that take no ids, proved to be the prompts of the dataset.

The text of a prompt is that of its ids, special tokens by name. It is the prompt only where the tokenizer
makes the same ids of it again, as it does with all that it has made of a text. A column of text adds nothing:
what encodes to a row's ids is the text of these ids. All other prompts can be sent as ids alone.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from types import MappingProxyType
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from msgspec.structs import replace

from harness.config.protocol import Api
from harness.dataset.chat_messages import CHAT_FORMATS, Chat
from harness.dataset.model_template import ModelTemplate
from harness.dataset.prompt_texts import PromptTexts
from harness.dataset.samples import SampleSet
from harness.errors import ConfigError, DatasetError
from harness.text import first_few

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# What servers put before a text, as the model's tokenizer is configured; by the name of the tokenizer in a
# benchmark's definition. A chat template writes it itself.
_PUT_BEFORE: Mapping[str, int] = MappingProxyType({"llama-3.1": 128000, "deepseek-r1": 0})
_BATCH = 256
_NAMED = 5  # rows of an error
_REMEDY = "omit --api, or name one that sends ids"


def with_texts(
    samples: SampleSet,
    api: Api,
    known_as: str | None,
    tokenizer: "Tokenizer",
    template: ModelTemplate | None = None,
    first_row: int = 0,
) -> SampleSet:
    """The samples with the JSON of each prompt as text (``completions-text``) or as messages (``chat``).

    ``known_as``: the name of the tokenizer in the benchmark's definition. ``template``: that in the model's
    folder. Raises DatasetError where a prompt cannot be sent so, ConfigError where no prompt can.
    """
    rows = _Rows(samples, first_row)
    if samples.salt is not None:
        raise ConfigError(
            f"--api {api}: salted prompts are sent as ids, as their text has other ids; {_REMEDY}"
        )
    if api == "chat":
        return _as_messages(rows, _proved(rows, tokenizer), known_as, template)
    token = _PUT_BEFORE.get(known_as or "")
    texts = list(_proved(rows, tokenizer, token))
    before = "" if token is None else str(tokenizer.decode([token], skip_special_tokens=False))
    facts = PromptTexts(prompts=len(texts), messages=False, put_before=before)
    return replace(samples, texts=[msgspec.json.encode(text) for text in texts], as_text=facts)


class _Rows(msgspec.Struct, frozen=True):
    """The rows of a dataset, as errors name them."""

    samples: SampleSet
    first: int

    def refuse(self, wrong: Sequence[int], what: str, remedy: str = _REMEDY) -> None:
        """Raise DatasetError where any row is wrong."""
        if not wrong:
            return
        named = first_few((self.first + row for row in wrong), _NAMED)
        rows = "row" if len(wrong) == 1 else "rows"
        raise DatasetError(
            f"{self.samples.path}: {len(wrong)} of {len(self.samples)} prompts cannot be sent as text "
            f"({rows} {named}): {what}; {remedy}"
        )


def _proved(rows: _Rows, tokenizer: "Tokenizer", put_before: int | None = None) -> Iterator[str]:
    """The texts of all prompts, without a token that servers put before them.

    Raises DatasetError, after the last, for those that encode to other ids.
    """
    samples = rows.samples
    if put_before is not None:
        begins = samples.ids[samples.offsets[:-1]] == put_before
        name = tokenizer.decode([put_before], skip_special_tokens=False)
        rows.refuse(
            np.flatnonzero(~begins).tolist(),
            f"servers put {name} before a text, and these prompts do not begin with it",
        )
    wrong: list[int] = []
    skipped = int(put_before is not None)
    for start in range(0, len(samples), _BATCH):
        numbers = range(start, min(start + _BATCH, len(samples)))
        ids = [samples.tokens(row)[skipped:].tolist() for row in numbers]
        texts = tokenizer.decode_batch(ids, skip_special_tokens=False)
        again = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        wrong += [row for row, given, made in zip(numbers, ids, again, strict=True) if made.ids != given]
        yield from texts
    rows.refuse(wrong, "their text encodes to other ids, so a server would answer other prompts")


def _as_messages(
    rows: _Rows, texts: Iterator[str], known_as: str | None, template: ModelTemplate | None
) -> SampleSet:
    chat_format = CHAT_FORMATS.get(known_as or "")
    if chat_format is None:
        raise ConfigError(
            f"--api chat: the chat format of this benchmark's model is not known, only those of "
            f"{', '.join(CHAT_FORMATS)}; --api completions-text sends complete prompts"
        )
    remedy = "--api completions-text sends complete prompts"
    known = list(texts)
    chats = [chat_format.take_apart(text) for text in known]
    rows.refuse(
        [row for row, chat in enumerate(chats) if chat is None],
        f"the model's chat template does not give them; expected {chat_format.shape}",
        remedy,
    )
    found = [chat for chat in chats if chat is not None]
    first = found[0]
    rows.refuse(
        [row for row, chat in enumerate(found) if (chat.fields, chat.today) != (first.fields, first.today)],
        f"they need {_other(found)} where row {rows.first} needs {_shown(first)}, and a run has one for all",
        remedy,
    )
    if template is not None:
        rows.refuse(
            [row for row, chat in enumerate(found) if _rendered(chat, template) != known[row]],
            "the chat template in the model's folder renders other prompts of their messages",
            remedy,
        )
    facts = PromptTexts(
        prompts=len(found),
        messages=True,
        own_template=template is not None,
        fields=dict(first.fields),
        today=first.today,
    )
    return replace(rows.samples, texts=[msgspec.json.encode(chat.messages) for chat in found], as_text=facts)


def _shown(chat: Chat) -> str:
    fields = dict(chat.fields) | ({"date": chat.today} if chat.today else {})
    return msgspec.json.encode(fields).decode()


def _other(chats: Sequence[Chat]) -> str:
    first = _shown(chats[0])
    return next((shown for chat in chats if (shown := _shown(chat)) != first), first)


def _rendered(chat: Chat, template: ModelTemplate) -> str:
    fields = dict(chat.fields)
    of_template = fields.pop("chat_template_kwargs", {})
    day = date.fromisoformat(chat.today) if chat.today else date.today()
    return template.render(chat.messages, day.strftime, prompt=True, **of_template, **fields)
