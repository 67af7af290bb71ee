"""Text to token ids and back: o200k_harmony, or the tokenizer.json of any model."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from harness.batch.batch_options import DEFAULT_ENCODING, DecodeOptions, EncodeOptions
from harness.batch.formats import Ids, cut_off, id_line, read_ids, read_texts
from harness.cli.streams import require_stdout
from harness.dataset import tokenizer
from harness.dataset.model_tokenizer import load_tokenizer
from harness.errors import EXIT_VALID, ConfigError, DatasetError
from harness.files import atomic_write, explained_write, require_other
from harness.text import counted, show


class Encoding(msgspec.Struct, frozen=True):
    """``encode`` gives the ids of plain text, ``decode`` their text, special tokens by name."""

    vocabulary_size: int
    encode: Callable[[str], list[int]]
    decode: Callable[[Ids], str]


def open_encoding(name: str) -> Encoding:
    """An encoding by name or by the path of a tokenizer.json or its folder. Raises ConfigError."""
    if name == DEFAULT_ENCODING:
        return Encoding(tokenizer.VOCABULARY_SIZE, tokenizer.encode, tokenizer.decode)
    if not Path(name).exists():
        raise ConfigError(
            f"--encoding {name}: expected {DEFAULT_ENCODING}, or the path of a tokenizer.json or its folder"
        )
    model = load_tokenizer(Path(name))

    def encode(text: str) -> list[int]:
        return list(model.encode(text, add_special_tokens=False).ids)

    def decode(ids: Ids) -> str:
        return str(model.decode(ids.tolist(), skip_special_tokens=False))

    return Encoding(model.get_vocab_size(with_added_tokens=True), encode, decode)


def encode_lines(options: EncodeOptions) -> Iterator[bytes]:
    """A line of ids for every line of text. Raises ConfigError and DatasetError."""
    encoding = open_encoding(options.encoding)
    for number, text in enumerate(read_texts(options.input), start=1):
        if options.json:
            text = _from_json(options.input, number, text)
        yield id_line(encoding.encode(text))


def decode_lines(options: DecodeOptions) -> Iterator[bytes]:
    """The text of every line of ids, or of the requested line. Raises ConfigError, DatasetError."""
    encoding, wanted = open_encoding(options.encoding), options.line
    if wanted is not None and wanted < -1:
        raise ConfigError(f"line {wanted} asked for, expected 0 (the first) or more, or -1 for all")
    number = -1
    for number, ids in enumerate(read_ids(options.input, encoding.vocabulary_size)):
        if wanted is not None and wanted not in (-1, number):
            continue
        if wanted is not None:
            yield b"Decoding line %d:\n" % number
        text = encoding.decode(ids)
        yield (msgspec.json.encode(text) if options.json else text.encode()) + b"\n"
    if wanted is not None and wanted > number:
        raise DatasetError(
            f"{options.input}: {counted(number + 1, 'line')}, line {wanted} asked for, counted from 0"
        )


def convert(options: EncodeOptions | DecodeOptions) -> int:
    """Write the lines to the output file, which appears once it is complete, or to stdout.

    Returns the exit code; raises ConfigError and DatasetError.
    """
    lines = encode_lines(options) if isinstance(options, EncodeOptions) else decode_lines(options)
    if options.output is None:
        sys.stdout.buffer.writelines(lines)
    else:
        require_other(options.output, options.input)
        with explained_write(options.output, "--output"), atomic_write(options.output) as file:
            file.writelines(lines)
    require_stdout()
    if isinstance(options, DecodeOptions) and (warning := cut_off(options.input)):
        show(f"WARNING: {warning}", file=sys.stderr)
    return EXIT_VALID


def _from_json(path: Path, number: int, text: str) -> str:
    try:
        return msgspec.json.decode(text, type=str)
    except msgspec.DecodeError as error:
        raise DatasetError(f"{path}: line {number}: {error}, expected a JSON string (--json)") from error
