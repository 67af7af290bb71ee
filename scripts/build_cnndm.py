#!/usr/bin/env python3
"""Build llama3.1-8b's dataset from CNN-DailyMail 3.0.0: cnn_eval.json, or the edge benchmark's 5,000 rows.

usage: python scripts/build_cnndm.py --input-file PARQUET --tokenizer MODEL_FOLDER --output-file cnn_eval.json
"""

import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from harness.cli.flags import add_flags, flag, options, read  # noqa: E402
from harness.cli.main import exit_code_of, run_main  # noqa: E402
from harness.cli.parser import Parser, Synonym  # noqa: E402

_PROGRAM = "build_cnndm"
_SYNONYMS = {
    "--n-samples": Synonym("--total-count"),
    "--dataset-path": Synonym("--input-file"),
    "--model-id": Synonym("--tokenizer"),
    "--output": Synonym("--output-file"),
}


@options
class Options:
    """The command line."""

    input_file: Path = flag("validation split (parquet): article, highlights")
    tokenizer: Path = flag("folder of Llama-3.1-8B-Instruct, or its tokenizer.json")
    output_file: Path = flag("the JSON file to write")
    total_count: int | None = flag(
        "first N rows of the official shuffle: 5000 for llama3.1-8b-edge (default: all, not shuffled)",
        default=None,
        metavar="N",
    )


def main(arguments: Sequence[str]) -> int:
    """Write the file and one line about it; exit code 0, or 2 with one line on stderr."""
    parser = Parser(
        prog=_PROGRAM,
        description="Build llama3.1-8b's dataset from CNN-DailyMail 3.0.0.",
        synonyms=_SYNONYMS,
    )
    add_flags(parser, Options, ("input_file", "tokenizer", "output_file", "total_count"))
    given = read(Options, vars(parser.parse_args(arguments)))
    return exit_code_of(_PROGRAM, "warning", lambda: build(given))


def build(options: Options) -> int:
    """Raises HarnessError."""
    from harness.dataset import cnndm
    from harness.dataset.model_tokenizer import load_tokenizer
    from harness.errors import ConfigError

    tokenizer = load_tokenizer(options.tokenizer)
    cnndm.require_llama(tokenizer)
    articles = cnndm.read_articles(options.input_file)
    if len(articles) != cnndm.ROWS:
        print(
            f"{_PROGRAM}: warning: {options.input_file} has {len(articles)} rows, the validation split of "
            f"CNN-DailyMail 3.0.0 {cnndm.ROWS}: this is not the official dataset",
            file=sys.stderr,
        )
    rows = [articles[row] for row in cnndm.selected(len(articles), options.total_count)]
    try:
        tokens = cnndm.write_dataset(options.output_file, rows, tokenizer)
    except OSError as error:
        raise ConfigError(f"--output-file {options.output_file}: cannot write: {error.strerror}") from error
    print(f"{options.output_file}: {len(rows)} rows, {tokens} tokens")
    return 0


if __name__ == "__main__":
    run_main(main)
