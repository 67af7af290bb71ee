"""The parser of every program's command line. Imports stay light, since ``--help`` uses them.

Flags are written in full, with hyphens or underscores; wrong usage is one line.
"""

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, wraps
from typing import Any, NoReturn, TypeVar

from harness.cli.door import is_open
from harness.text import one_line

Built = TypeVar("Built", bound=argparse.ArgumentParser)

SIGNAL_CODES = "129, 130, 143 ended by SIGHUP, SIGINT, SIGTERM"  # the exit codes that all programs share
_MOST_CHARACTERS = 500  # a message about wrong usage is cut here


def built_once(build: Callable[[], Built]) -> Callable[[], Built]:
    """Build a parser once for each way to call its program: a campaign reads hundreds of command lines."""
    parser = cache(lambda _: build())
    return wraps(build)(lambda: parser(is_open()))


@dataclass(frozen=True, slots=True)
class Synonym:
    """A flag of other harnesses that means ``flag``; ``effect`` describes a difference, "" for none."""

    flag: str
    effect: str = ""
    value: str = ""
    """what the flag gets, where the synonym is typed without a value"""


class Parser(argparse.ArgumentParser):
    """An ArgumentParser without abbreviations, with flags of other harnesses that the help does not show.

    ``synonyms`` mean one of our flags; ``needless`` ones name what is always so here, and have no effect;
    ``elsewhere`` says of others where what they name belongs, and of values as ``--flag value`` what they are
    called here. ``warnings`` are about the words of the latest command line.
    """

    def __init__(
        self,
        *,
        synonyms: Mapping[str, Synonym] | None = None,
        needless: Mapping[str, str] | None = None,
        elsewhere: Mapping[str, str] | None = None,
        **words: Any,
    ) -> None:
        super().__init__(**words, allow_abbrev=False)
        self.synonyms = synonyms or {}
        self.needless = needless or {}
        self.elsewhere = elsewhere or {}
        self.warnings: tuple[str, ...] = ()
        self.add_argument(
            "--version",
            action=_Version,
            nargs=0,
            dest=argparse.SUPPRESS,
            default=argparse.SUPPRESS,
            help="show the version and the commit",
        )

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse the words after flags have been replaced by this parser's own spelling."""
        found = super().parse_known_args(self._spelt(sys.argv[1:] if args is None else args), namespace)
        with suppress(OSError):  # removed: an error only where it is needed
            if wrong := not_text(os.getcwd()):  # noqa: PTH109 - pathlib is not loaded here
                self.error(f"the working directory {wrong}")
        return found

    def _spelt(self, words: Sequence[str]) -> list[str]:
        """The words with hyphens for underscores, and own flags for synonyms."""
        spelt: list[str] = []
        names: dict[str, str] = {}  # field -> the spelling that was typed
        warnings = []
        for index, word in enumerate(words):
            if word == "--":  # no flags follow
                spelt += words[index:]
                break
            typed, equals, value = word.partition("=")
            name = typed.replace("_", "-")
            if name in self.needless:
                warnings.append(f"{typed} has no effect: {self.needless[name]}")
                continue
            synonym = self._meant(name)
            if synonym is None:
                self._refuse_unknown(word)
                spelt.append(word)
                continue
            action = self._option_string_actions[synonym.flag]
            if names.setdefault(action.dest, name) != name and not _is_switch(action):
                self.error(f"{names[action.dest]} and {name} are the same flag; give one of them")
            if synonym.effect:
                warnings.append(f"{typed} is read as {synonym.flag}{_after(synonym.value)}: {synonym.effect}")
            spelt += [f"{synonym.flag}{equals}{value}", *filter(None, [synonym.value])]
        self.warnings = tuple(dict.fromkeys(warnings))
        return spelt

    def _meant(self, name: str) -> Synonym | None:
        """The own flag of a name, None for other words."""
        synonym = Synonym(name) if name in self._option_string_actions else self.synonyms.get(name)
        return synonym if synonym is not None and synonym.flag in self._option_string_actions else None

    def _refuse_unknown(self, word: str) -> None:
        """End with a line about a flag that there is not; commands know their flags themselves."""
        typed = word.partition("=")[0]
        name = typed.replace("_", "-")
        if name in self.elsewhere:
            self.error(f"{typed}: {self.elsewhere[name]}")
        if self._subparsers is None and name.startswith("--"):
            from difflib import get_close_matches

            near = get_close_matches(name, self._option_string_actions, 1, 0.75)
            self.error(f"unrecognized arguments: {word}{f'; did you mean {near[0]}?' if near else ''}")

    def add_subparsers(self, **words: Any) -> Any:
        """Commands, with a line in the help on where their flags are."""
        shown = f"'{self.prog} COMMAND --help' shows the flags of one"
        return super().add_subparsers(**{"title": "commands", "description": shown, **words})

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """As ArgumentParser, with the choice that a typo is near to."""
        names = [str(name) for name in action.choices or ()]
        if names and str(value) not in names:
            from difflib import get_close_matches

            typed = str(value).lower().replace("_", "-")
            for flag in action.option_strings:
                if here := self.elsewhere.get(f"{flag} {typed}"):
                    raise argparse.ArgumentError(action, f"{str(value)!a}: {here}")
            # Of llama3.1-8b-interactive, the key of LoadGen's, llama3.1-8b is meant, not llama3.1-8b-edge.
            begin = [name for name in names if typed.startswith(f"{name}-")]
            if near := begin or get_close_matches(typed, names, 1, 0.7):
                raise argparse.ArgumentError(action, f"{str(value)[:80]!a}: did you mean {near[0]}?")
        super()._check_value(action, value)

    def format_usage(self) -> str:
        """The words that are needed: the help has all others below."""
        needed = [_needed(action) for action in self._actions if action.required]
        return f"usage: {' '.join([self.prog, '[FLAG]...', *needed])}\n"

    def format_help(self) -> str:
        """As ArgumentParser, with the usage of one line."""
        self.usage = self.format_usage().removeprefix("usage: ").strip().replace("%", "%%")
        return super().format_help()

    def error(self, message: str) -> NoReturn:
        """End with exit code 2."""
        self.exit(2, f"{self.prog}: error: {one_line(message, _MOST_CHARACTERS)}; see {self.prog} --help\n")


class _Version(argparse.Action):
    """Print the version, which is looked up only then, and end."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        from harness.cli.door import version

        print(version())
        parser.exit()


def not_text(word: str) -> str:
    """What is wrong with a path or a text that no tokenizer, Arrow or JSON can take; "" for nothing."""
    try:
        word.encode()
    except UnicodeEncodeError:
        return (
            f"{word!a} is not text in this locale's encoding; write it in UTF-8, rename a file of that name, "
            "or set LC_ALL=C.UTF-8"
        )
    return ""


def _needed(action: argparse.Action) -> str:
    names = [*action.option_strings[:1], str(action.metavar or action.dest.upper())]
    return " ".join(names) + (" ..." if action.nargs in ("+", argparse.PARSER) else "")


def _is_switch(action: argparse.Action) -> bool:
    """Whether its spellings are opposites, of which the last one counts."""
    return isinstance(action, argparse.BooleanOptionalAction)


def _after(value: str) -> str:
    return f" {value}" if value else ""
