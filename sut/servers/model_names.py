"""Whether a server's name for its model is that of the wanted one."""

import re
from collections.abc import Iterable
from enum import Enum

# Words that name a number format, a quantisation tool or a file format, as in published names:
# gpt-oss-120b-w-mxfp4-a-fp8-Mlperf, fp4_quantized, gpt-oss-120b-GGUF, DeepSeek-R1-MXFP4-Preview.
_FORM_WORD = re.compile(
    r"w|a|kv|k|m|s|l|xl|xx?s|nl|ud|moe|of|0\d{4}"
    r"|w\d+a\d+(kv\d+)?|(w|a|kv|mx|nv)?(fp|bf|int|f|[it]?q|e)\d+(m\d+)?"
    r"|i1|awq|gptq|gguf|ggml|hf|quant|quanti[sz]ed|quark|modelopt|autoround|marlin|ptq|dynamic|static"
    r"|mlperf|mlpinf|preview"
)
_VERSION = re.compile(r"v\d+")  # of a form, as in DeepSeek-R1-FP4-v2; alone it is that of another model
# Folders below that of the model, as in /model/gpt-oss-120b/orig and in a Hugging Face cache.
_PLAIN_FOLDERS = frozenset(["orig", "original", "main", "hf", "model", "weights", "snapshots", "."])
REVISION = re.compile(r"[0-9a-f]{7,40}")  # a model's revision: a git hash, perhaps abbreviated
# The same at the end of a folder's name; a date is none.
NAMED_REVISION = re.compile(r"[-_@](?=\d*[a-f])(?=[a-f]*\d)[0-9a-f]{7,40}$")
# Before a name in a Hugging Face cache (models--publisher--name) and llama.cpp's (publisher_repository_file).
_CACHE_NAME = re.compile(r"models--[^/]+?--|[^/]+-gguf_(?=[^/]+\.gguf$)")
_SEPARATORS = re.compile(r"(?<=q\d)_[01](?![0-9a-z])|[-_. ]+")  # the first of a GGUF's Q8_0


class Match(Enum):
    """Whose name of a model it is."""

    SAME = "same"
    """The wanted model's."""
    VARIANT = "variant"
    """A quantised or converted form's."""
    RELATIVE = "relative"
    """It holds the wanted name and more than a number format: a draft model's, or a fine-tune's."""
    OTHER = "other"


def match_names(names: Iterable[str], wanted: str) -> Match:
    """SAME, VARIANT or OTHER, of a server's names; ``wanted`` is ``publisher/name``.

    Servers report what they were given: a Hugging Face name, a local path, or a name that the user chose.
    Names are compared by components, never as substrings: a draft model or a fine-tune holds the name of its
    base. One of the names must be the wanted model's, and none of them that of a relative.
    """
    found = {_match_name(name, wanted) for name in names}
    if Match.RELATIVE in found:
        return Match.OTHER
    if Match.VARIANT in found:
        return Match.VARIANT
    return Match.SAME if Match.SAME in found else Match.OTHER


def _match_name(name: str, wanted: str) -> Match:
    publisher, _, model = wanted.lower().rpartition("/")
    found = Match.SAME
    for part in reversed([part for part in name.lower().split("/") if part]):
        if part in _PLAIN_FOLDERS or REVISION.fullmatch(part):
            continue
        if model not in part and _is_form(part):
            found = Match.VARIANT
            continue
        return _match_part(part, publisher, model, found)
    return Match.OTHER


def _match_part(part: str, publisher: str, model: str, below: Match) -> Match:
    """``below``: the match of the folders below this part of the path."""
    first_word = publisher.split("-")[0]
    prefixes = ("", f"{publisher}-", f"{publisher}_", f"{first_word}-")
    bare = _without_cache(NAMED_REVISION.sub("", part), model)
    for text in (bare.removeprefix(prefix) for prefix in prefixes):
        if text == model:
            return below
        if text.startswith(model) and text[len(model)] in "-_. " and _is_form(text[len(model) :]):
            return Match.VARIANT
    return Match.RELATIVE if model in part else Match.OTHER


def _without_cache(part: str, model: str) -> str:
    """Without what a cache puts before a name: publisher, repository and, for llama.cpp, a folder in it.

    llama.cpp writes repository_folder_file where the file is in a folder such as Q4_K_M.
    """
    bare = _CACHE_NAME.sub("", part)
    folder, _, rest = bare.rpartition(f"_{model}")
    is_folder = bare != part and _is_form(folder.removeprefix(model))
    return model + rest if is_folder else bare


def _is_form(text: str) -> bool:
    """Whether every word names a number format, a tool or a file format, or the version of such a form."""
    words = [word for word in _SEPARATORS.split(text) if word and not _VERSION.fullmatch(word)]
    return bool(words) and all(_FORM_WORD.fullmatch(word) for word in words)
