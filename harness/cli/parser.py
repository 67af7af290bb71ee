"""The parser of every program's command line. Imports stay light, since ``--help`` uses them.

Flags are written in full, with hyphens or underscores; wrong usage is one line.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

SIGNAL_CODES = "129, 130, 143 ended by SIGHUP, SIGINT, SIGTERM"  # the exit codes that all programs share
_MOST_CHARACTERS = 500  # a message about wrong usage is cut here


@dataclass(frozen=True, slots=True)
class Synonym:
    """A flag of other harnesses that means ``flag``; ``effect`` describes a difference, "" for none."""

    flag: str
    effect: str = ""


class Parser(argparse.ArgumentParser):
    """An ArgumentParser without abbreviations, with flags of other harnesses that the help does not show.

    ``synonyms`` mean one of our flags; ``needless`` ones name what is always so here, and have no effect.
    ``warnings`` are about the words of the latest command line.
    """

    def __init__(
        self,
        *,
        synonyms: Mapping[str, Synonym] | None = None,
        needless: Mapping[str, str] | None = None,
        **words: Any,
    ) -> None:
        super().__init__(**words, allow_abbrev=False)
        self.synonyms = synonyms or {}
        self.needless = needless or {}
        self.warnings: tuple[str, ...] = ()

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse the words after flags have been replaced by this parser's own spelling."""
        return super().parse_known_args(self._spelt(sys.argv[1:] if args is None else args), namespace)

    def _spelt(self, words: Sequence[str]) -> list[str]:
        """The words with hyphens for underscores, and own flags for synonyms."""
        spelt: list[str] = []
        names: dict[str, str] = {}  # our flag -> the spelling that was typed
        warnings = []
        for word in words:
            typed, equals, value = word.partition("=")
            name = typed.replace("_", "-")
            if name in self.needless:
                warnings.append(f"{typed} has no effect: {self.needless[name]}")
                continue
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


def _one_line(message: str) -> str:
    text = " ".join(message.split())
    return ascii(text)[1:-1][:_MOST_CHARACTERS] if not text.isprintable() else text[:_MOST_CHARACTERS]
