"""Text whose tokens are known: of these words every sequence encodes to one id each with gpt-oss's tokenizer.

A word is a space and lower-case letters, in any script, that are one token together. The tokenizer cuts text
before such a space, so that no word grows together with its neighbour.
"""

from collections.abc import Sequence
from functools import cache

from tokenizers import Tokenizer, models, pre_tokenizers

from harness.dataset import tokenizer
from harness.dataset.model_tokenizer import spell

from .protocol import FIRST_ID, expected_ids


def expected_words(prompt_ids: list[int], n: int) -> list[int]:
    """The n output token ids for a prompt where the answer is text: ``expected_ids``, each as a word."""
    words = word_ids()
    return [words[(token - FIRST_ID) % len(words)] for token in expected_ids(prompt_ids, n)]


def text_of(ids: Sequence[int]) -> str:
    """The text of the ids; special tokens by name."""
    return tokenizer.decode(ids)


def ids_of(text: str) -> list[int]:
    """The ids of a text; names of special tokens are these tokens."""
    return tokenizer.encode_harmony(text)


def word_tokenizer() -> Tokenizer:
    """gpt-oss's without its merges, which take seconds to build: right for words, all else is "!"."""
    vocabulary = {"!": 0, **{spell(tokenizer.token_bytes(token)): token for token in word_ids()}}
    built = Tokenizer(models.WordLevel(vocabulary, unk_token="!"))
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    built.pre_tokenizer = pre_tokenizers.Sequence([tokenizer.word_splitter(), to_bytes])
    return built


@cache
def word_ids() -> tuple[int, ...]:
    """All words, by id: about 64 000, a quarter of them with characters of several bytes."""
    return tuple(
        token for token, text in enumerate(tokenizer.vocabulary()) if token >= FIRST_ID and _is_word(text)
    )


def _is_word(token: bytes) -> bool:
    try:
        text = token.decode()
    except UnicodeDecodeError:
        return False
    return text[0] == " " and text[1:].isalpha() and text.islower()
