"""The parser of every program's command line. Imports stay light, since ``--help`` uses them.

Flags are written in full, with hyphens or underscores; wrong usage is one line.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from harness.config.rounds import available_rounds
from harness.config.run_options import available_benchmarks, available_models

SIGNAL_CODES = "129, 130, 143 ended by SIGHUP, SIGINT, SIGTERM"  # the exit codes that all programs share
_MOST_CHARACTERS = 500  # of a message about wrong usage


@dataclass(frozen=True, slots=True)
class Synonym:
    """A flag of other harnesses that means ``flag``; ``effect`` describes a difference, "" for none."""

    flag: str
    effect: str = ""


class Parser(argparse.ArgumentParser):
    """An ArgumentParser without abbreviations, with synonyms that the help does not show.

    ``warnings`` are about the words of the latest command line.
    """

    def __init__(self, *, synonyms: Mapping[str, Synonym] | None = None, **words: Any) -> None:
        super().__init__(**words, allow_abbrev=False)
        self.synonyms = synonyms or {}
        self.warnings: tuple[str, ...] = ()

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse the words after flags have been replaced by this parser's own spelling."""
        return super().parse_known_args(self._spelt(sys.argv[1:] if args is None else args), namespace)

    def _spelt(self, words: Sequence[str]) -> list[str]:
        """The words with hyphens for underscores, and own flags for synonyms."""
        spelt: list[str] = []
        names: dict[str, str] = {}  # the name that was typed for each of the own flags
        warnings = []
        for word in words:
            typed, equals, value = word.partition("=")
            name = typed.replace("_", "-")
            synonym = self.synonyms.get(name, Synonym(name))
            if not typed.startswith("--") or synonym.flag not in self._option_string_actions:
                spelt.append(word)
                continue
            if names.setdefault(synonym.flag, name) != name:
                self.error(f"{names[synonym.flag]} and {name} are the same flag; give one of them")
            if synonym.effect:
                warnings.append(f"{typed} is read as {synonym.flag}: {synonym.effect}")
            spelt.append(f"{synonym.flag}{equals}{value}")
        self.warnings = tuple(dict.fromkeys(warnings))
        return spelt

    def error(self, message: str) -> NoReturn:
        """End with exit code 2."""
        self.exit(2, f"{self.prog}: error: {_one_line(message)}; see {self.prog} --help\n")


def add_benchmark(group: argparse._ActionsContainer) -> None:
    """The flags for a benchmark that configs/ defines, and for the round whose rules hold."""
    group.add_argument(
        "--benchmark",
        type=_benchmark,
        choices=tuple(available_benchmarks()),
        help="benchmark definition in configs/ (default: %(default)s)",
    )
    add_round(group)


def add_round(group: argparse._ActionsContainer) -> None:
    """The flag for a round that configs/rounds/ defines."""
    group.add_argument(
        "--round",
        choices=available_rounds(),
        help="round of MLPerf Inference whose rules hold, from configs/rounds/ (default: %(default)s)",
    )


def _benchmark(name: str) -> str:
    if name in available_models():
        raise argparse.ArgumentTypeError(
            f"{name} is a model without an MLPerf benchmark; run_batch.py --model {name} takes plain prompts"
        )
    return name


def path(text: str) -> Path:
    """A flag's path; argparse names the flag where the text is no path."""
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
