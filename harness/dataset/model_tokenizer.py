"""A model's own tokenizer.json, read with the package tokenizers."""

from pathlib import Path
from typing import TYPE_CHECKING

from harness.errors import ConfigError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

TOKENIZER_FILE = "tokenizer.json"


def load_tokenizer(path: Path) -> "Tokenizer":
    """The tokenizer of a model's folder, or of its tokenizer.json; nothing is cut or padded.

    Raises ConfigError.
    """
    from tokenizers import Tokenizer

    file = path / TOKENIZER_FILE if path.is_dir() else path
    try:
        tokenizer = Tokenizer.from_buffer(file.read_bytes())
    except OSError as error:
        raise ConfigError(
            f"{file}: {error.strerror}; pass the folder of the model, or the {TOKENIZER_FILE} in it"
        ) from error
    except ValueError as error:
        reason = " ".join(str(error).split())[:200]
        raise ConfigError(f"{file}: no tokenizer: {reason}; expected the model's {TOKENIZER_FILE}") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer
