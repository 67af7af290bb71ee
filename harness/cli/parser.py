"""How every program reads its command line: flags in full, wrong usage in one line. Imports stay light."""

import argparse
from pathlib import Path
from typing import Any, NoReturn

_MOST_CHARACTERS = 500  # of a message about wrong usage


class Parser(argparse.ArgumentParser):
    """Flags in full only, and one line for wrong usage."""

    def __init__(self, **words: Any) -> None:
        super().__init__(**words, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        """End with exit code 2."""
        self.exit(2, f"{self.prog}: error: {_one_line(message)}; see {self.prog} --help\n")


def path(text: str) -> Path:
    """A flag's path; argparse names the flag where it is none."""
    if not text:
        raise argparse.ArgumentTypeError("the path is empty")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise argparse.ArgumentTypeError(
            f"{text!a} is not text in this locale's encoding; rename it, or set LC_ALL=C.UTF-8"
        ) from None
    return Path(text)


def _one_line(message: str) -> str:
    text = " ".join(message.split())
    return ascii(text)[1:-1][:_MOST_CHARACTERS] if not text.isprintable() else text[:_MOST_CHARACTERS]
