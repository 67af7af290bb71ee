"""The commands of run_batch.py that need no server."""

import sys

from harness.batch.batch_options import DecodeOptions, EncodeOptions, FileOptions, ScoreOptions
from harness.batch.encoding import convert, decode_lines, encode_lines
from harness.batch.formats import cut_off
from harness.cli.signals import interruptible
from harness.cli.streams import require_stdout
from harness.errors import EXIT_VALID
from harness.text import show


def run(options: FileOptions) -> int:
    """Run a command; returns the exit code. Raises HarnessError."""
    with interruptible():
        match options:
            case EncodeOptions():
                convert(options, encode_lines(options), _to_stdout)
                require_stdout()
            case DecodeOptions():
                convert(options, decode_lines(options), _to_stdout)
                require_stdout()
                if warning := cut_off(options.input):
                    show(f"WARNING: {warning}", file=sys.stderr)
            case ScoreOptions():
                from harness.batch.score import score

                return score(options)
    return EXIT_VALID


def _to_stdout(line: bytes) -> None:
    sys.stdout.buffer.write(line)
