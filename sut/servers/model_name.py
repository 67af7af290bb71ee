"""Whether a server's name for its model is the benchmark's model.

Servers report what they were given: a Hugging Face name, a local path, or a name that the user chose. Names
are compared by components, never as substrings: a draft model or a fine-tune holds the name of its base.
"""

import re
from collections.abc import Iterable
from enum import Enum


class Match(Enum):
    """A name is the wanted model's, a quantised or converted form of it, or another's."""

    SAME = "same"
    VARIANT = "variant"
    OTHER = "other"


# Words that name a number format, a quantisation tool or a file format, as in published names:
# gpt-oss-120b-w-mxfp4-a-fp8-Mlperf, fp4_quantized, gpt-oss-120b-GGUF, DeepSeek-R1-MXFP4-Preview.
_FORM_WORD = re.compile(
    r"w|a|kv|k|m|s|l|xl|of|0\d{4}"
    r"|w\d+a\d+(kv\d+)?|(w|a|kv|mx|nv)?(fp|bf|int|f|i?q|e)\d+(m\d+)?"
    r"|awq|gptq|gguf|ggml|hf|quant|quanti[sz]ed|quark|modelopt|autoround|marlin|ptq|dynamic|static"
    r"|mlperf|preview"
)
_VERSION = re.compile(r"v\d+")  # of a form, as in DeepSeek-R1-FP4-v2; alone it is another model's
# Folders below that of the model, as in /model/gpt-oss-120b/orig and in a Hugging Face cache.
_PLAIN_FOLDERS = frozenset(["orig", "original", "main", "hf", "model", "weights", "snapshots", "."])
REVISION = re.compile(r"[0-9a-f]{7,40}")  # of a model: a git hash, perhaps abbreviated
_SEPARATORS = re.compile(r"[-_. ]+")


def match_names(names: Iterable[str], wanted: str) -> Match:
    """The match of a server's names; ``wanted`` is ``publisher/name``.

    The names are its path and the name it serves under, which the user chooses. One of them must be the
    wanted model's, and none of them that of a relative such as its draft model.
    """
    found = {_match(name, wanted) for name in names}
    if _Relation.RELATIVE in found:
        return Match.OTHER
    if _Relation.VARIANT in found:
        return Match.VARIANT
    return Match.SAME if _Relation.SAME in found else Match.OTHER


class _Relation(Enum):
    SAME = "same"
    VARIANT = "variant"
    RELATIVE = "relative"  # holds the wanted name and more than a number format
    UNRELATED = "unrelated"


def _match(name: str, wanted: str) -> _Relation:
    publisher, _, model = wanted.lower().rpartition("/")
    relation = _Relation.SAME
    for part in reversed([part for part in name.lower().split("/") if part]):
        if part in _PLAIN_FOLDERS or REVISION.fullmatch(part):
            continue
        if model not in part and _is_form(part):
            relation = _Relation.VARIANT
            continue
        return _relation_of(part, publisher, model, relation)
    return _Relation.UNRELATED


def _relation_of(part: str, publisher: str, model: str, below: _Relation) -> _Relation:
    """``below``: the match of the folders below this part of the path."""
    first_word = publisher.split("-")[0]
    prefixes = ("", f"models--{publisher}--", f"{publisher}-", f"{publisher}_", f"{first_word}-")
    for text in (part.removeprefix(prefix) for prefix in prefixes):
        if text == model:
            return below
        if text.startswith(model) and text[len(model)] in "-_. " and _is_form(text[len(model) :]):
            return _Relation.VARIANT
    return _Relation.RELATIVE if model in part else _Relation.UNRELATED


def _is_form(text: str) -> bool:
    """Whether every word names a number format, a tool or a file format, or the version of such a form."""
    words = [word for word in _SEPARATORS.split(text) if word and not _VERSION.fullmatch(word)]
    return bool(words) and all(_FORM_WORD.fullmatch(word) for word in words)
