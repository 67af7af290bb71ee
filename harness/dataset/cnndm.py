"""llama3.1-8b's dataset made of CNN-DailyMail 3.0.0, as MLCommons distributes it.

Template, order and layout are those of language/llama3.1-8b/download_cnndm.py in mlcommons/inference.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from harness.dataset.table import open_table
from harness.errors import ConfigError, DatasetError
from harness.files import atomic_write

if TYPE_CHECKING:
    from tokenizers import Tokenizer

TEMPLATE = (
    "Summarize the following news article in 128 tokens. Please output the summary only, without any other "
    "text.\n\nArticle:\n{input}\n\nSummary:"
)
ROWS = 13368  # the validation split has
_BEGIN_OF_TEXT = 128000  # Llama's tokenizer puts it before every text
_SHUFFLE_SEED = 42
_AT_ONCE = 256  # prompts that are tokenized together


class Article(NamedTuple):
    """A row of CNN-DailyMail."""

    text: str
    highlights: str


def read_articles(path: Path) -> list[Article]:
    """The rows of a file with the columns ``article`` and ``highlights``. Raises DatasetError."""
    table = open_table(path)
    columns = [table.column(name) for name in ("article", "highlights")]
    articles = [Article(*row) for row in zip(*columns, strict=True)]
    for number, article in enumerate(articles):
        if not all(isinstance(text, str) for text in article):
            raise DatasetError(f"{path}: row {number}: article and highlights are not texts")
    if not articles:
        raise DatasetError(f"{path}: no rows, expected articles; download it again")
    return articles


def selected(rows: int, count: int | None) -> Sequence[int]:
    """The rows of a dataset in its order: all, or the first ``count`` after a shuffle.

    The shuffle is the one of Hugging Face's ``datasets`` with seed 42. Raises ConfigError for a wrong count.
    """
    if count is None:
        return range(rows)
    if not 1 <= count <= rows:
        raise ConfigError(f"--total-count is {count}, expected 1 to {rows}, the rows of the input file")
    return [int(row) for row in np.random.default_rng(_SHUFFLE_SEED).permutation(rows)[:count]]


def require_llama(tokenizer: "Tokenizer") -> None:
    """Raise ConfigError for a tokenizer that begins a text with another id than Llama 3.1's."""
    begins = tokenizer.encode("").ids
    if begins != [_BEGIN_OF_TEXT]:
        raise ConfigError(
            f"the tokenizer begins a text with {begins[:3]}, Llama 3.1's with [{_BEGIN_OF_TEXT}]; "
            "pass the tokenizer.json of Llama-3.1-8B-Instruct"
        )


def write_dataset(path: Path, articles: Sequence[Article], tokenizer: "Tokenizer") -> int:
    """Write the articles as prompts, in this order; returns the number of tokens. Raises OSError."""
    tokens = 0
    with atomic_write(path) as file:
        for number, (article, ids) in enumerate(_tokenized(articles, tokenizer)):
            file.write((",\n" if number else "[\n").encode())
            file.write(_row(article, ids).encode())
            tokens += len(ids)
        file.write(b"\n]")
    return tokens


def _tokenized(articles: Sequence[Article], tokenizer: "Tokenizer") -> Iterator[tuple[Article, list[int]]]:
    for start in range(0, len(articles), _AT_ONCE):
        some = articles[start : start + _AT_ONCE]
        encodings = tokenizer.encode_batch([TEMPLATE.format(input=article.text) for article in some])
        yield from zip(some, (encoding.ids for encoding in encodings), strict=True)


def _row(article: Article, ids: Sequence[int]) -> str:
    """The output of json.dump with an indent of 4, whose slowest part by far is a line for each id."""
    numbers = ",\n            ".join(map(str, ids))
    return f"""\
    {{
        "instruction": {{
            "llama": {_json(TEMPLATE)}
        }},
        "input": {_json(article.text)},
        "tok_input": [
            {numbers}
        ],
        "output": {_json(article.highlights)}
    }}"""


def _json(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
