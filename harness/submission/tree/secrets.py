"""The search for secrets in a tree: Kingfisher's rules and those in configs/submission/, offline."""

import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from harness.files import CONFIG_DIR

if TYPE_CHECKING:
    from kingfisher_sdk import Finding, Scanner

_OWN_RULES = CONFIG_DIR / "submission/secrets.yaml"
_OWN = "harness."  # the ids of those rules begin so
_THREADS = 4
_PART_BYTES = 1 << 20
_ARCHIVES = (".gz", ".tgz", ".zip", ".tar", ".xz", ".bz2", ".whl")


class Secret(msgspec.Struct, frozen=True):
    """A place in a file, and the kind of secret there; never its text."""

    path: Path
    line: int
    """of a file in an archive, the line in that file"""
    kind: str


def find_secrets(paths: Sequence[Path]) -> Iterator[Secret]:
    """One secret for each line that has any. Folders and links among ``paths`` are skipped."""
    files = [path for path in paths if path.is_file() and not path.is_symlink()]
    if files:
        _scanner()  # else each thread makes its own: 6 s of CPU where no compiled rules are kept
    with ThreadPoolExecutor(_THREADS) as threads:  # the scanner is native and runs without Python's lock
        for secrets in threads.map(_secrets_of, _parts(files)):
            yield from secrets


def _parts(files: Sequence[Path]) -> Iterator[list[Path]]:
    """The files in groups of some size: to hand over a small one costs more than to scan it."""
    part, size = [], 0
    for path in files:
        part.append(path)
        size += path.stat().st_size
        if size > _PART_BYTES:
            yield part
            part, size = [], 0
    yield part


def _secrets_of(files: Sequence[Path]) -> list[Secret]:
    found = []
    for path in files:
        lines = {one.location["line"]: one for one in reversed(_scan(path)) if _is_secret(path, one)}
        found += [Secret(path, line, _kind(one)) for line, one in sorted(lines.items())]
    return found


def _scan(path: Path) -> list["Finding"]:
    """Everything that a rule matches in a file of any size and encoding, and in the members of an archive."""
    from kingfisher_sdk import ScanInput, expand_archives

    found = _scanner().scan_file(path)
    if path.suffix.lower() in _ARCHIVES:
        try:
            for member in _scanner().scan_inputs(expand_archives([ScanInput.from_file(path)])):
                found += member.findings
        except (RuntimeError, ValueError):  # it is damaged, encrypted or too large: its bytes were searched
            return found
    return found


@cache
def _scanner() -> "Scanner":
    from kingfisher_sdk import DetectionPolicy, Rules, Scanner  # here: it takes a third of a second

    return Scanner(Rules([_OWN_RULES]), policy=DetectionPolicy())


def _kind(found: "Finding") -> str:
    """``a private key`` of our rules, ``slack-webhook-url`` of Kingfisher's, whose names are sentences."""
    own = found.rule_id.startswith(_OWN)
    return found.rule_name if own else found.rule_id.rpartition(".")[2]


# In these files a value needs no quotes; in others an unquoted word is an expression or prose.
_SETTINGS = re.compile(
    r"(?:Make|Docker)file.*|[^.]*|.*\.(?:sh|bash|env|ya?ml|toml|ini|cfg|conf|properties|service|netrc|txt|log)",
    re.IGNORECASE,
)
_REFERENCE = re.compile(r"[$%{@*~.]|\w+[(\[]|(?=.*/)(?=.*[._-])[\w./-]+$")  # names a variable or a file
_PATH = re.compile(r"[\w/]*/[\w/]*$")  # a value in base64 may look so too
_PLACEHOLDER = re.compile(
    r"your|exampl|test|dummy|fake|placeholder|sample|redacted|change.?me|xxx|\.\.\.|\*\*\*|abc.?123|12345"
    r"|secret|passw|token|credential|(?:api|access|private).?key|environ|getenv"
    r"|^(?:none|null|true|false|default|optional|required|empty)$",
    re.IGNORECASE,
)
_SHORT = 20  # longer words have the letters of a placeholder by chance
_LEAST = 16  # a shorter word is not recognized as random
# Changes of class per letter: random words have 0.58, names such as ConvertBn2D2Conv 0.25.
_CHANGES = 0.4
_UPPER_LOWER_DIGIT = ((True, False, False), (False, True, False), (False, False, True))


def _is_secret(path: Path, found: "Finding") -> bool:
    """Whether a match is a literal, and not the name of a variable, a reference or a placeholder."""
    value = found.secret
    match found.rule_id:
        case "harness.assigned":
            return _is_assigned(path, found.captures, value)
        case "harness.random" | "harness.user":
            return _is_mixed(value)
        case "harness.command" | "harness.url":
            return _is_literal(value)
    return found.visible and (len(value) > _SHORT or not _PLACEHOLDER.search(value))


def _is_assigned(path: Path, parts: Mapping[str, str], value: str) -> bool:
    name, separator, opened, after = (parts.get(part, "") for part in ("name", "sep", "open", "after"))
    is_flag, sign = name.startswith("-"), separator.strip()
    if not (sign or is_flag) or not _is_literal(value) or (opened and not after.startswith(opened)):
        return False
    if "certain" not in parts:  # token, auth and the like also mean parts of models
        return sign != ">" and (_is_random(value) or _is_mixed(value))
    if sign == ">":  # <password>X</password>
        return after.startswith("</")
    is_variable = name.isupper() and separator == "=" and not after.startswith(("(", "["))
    is_rest_of_line = _SETTINGS.fullmatch(path.name) and not after.strip(" \t&;|\\\"',")
    in_a_list = "before" in parts  # User=me;Password=X
    return bool(opened or is_flag or is_variable or is_rest_of_line or in_a_list) or _is_random(value)


def _is_random(value: str) -> bool:
    return len(value) >= _LEAST and sum(map(str.isdigit, value)) >= 3 and any(map(str.isalpha, value))


def _is_literal(value: str) -> bool:
    if _REFERENCE.match(value):
        return False
    return _is_mixed(value) or not (_PATH.match(value) or _PLACEHOLDER.search(value))


def _is_mixed(value: str) -> bool:
    """Whether upper case, lower case and digits change as often as in random words."""
    kinds = [(letter.isupper(), letter.islower(), letter.isdigit()) for letter in value]
    changes = sum(one != other for one, other in pairwise(kinds))
    enough = all(kinds.count(kind) >= 2 for kind in _UPPER_LOWER_DIGIT)
    return len(value) >= _LEAST and enough and changes >= _CHANGES * len(value)
