"""The packages that programs may import: those of the Python that runs the evaluator."""

import hashlib
import re
import site
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from harness.record.provenance import package_version

# What programs find in the official environment too, and setup.sh installs: distributions by module.
OFFICIAL: Mapping[str, str] = {
    "numpy": "numpy",
    "scipy": "scipy",
    "sklearn": "scikit-learn",
    "numba": "numba",
    "networkx": "networkx",
    "sympy": "sympy",
    "mpmath": "mpmath",
    "pandas": "pandas",
}
_ABSENT = re.compile(r"(?:^|: )ModuleNotFoundError: No module named '(\w+)[\w.]*'$")
_WORD = re.compile(r"[^\W\d]\w*")
_IMPORTED = re.compile(r"(?:^|;)[ \t]*(?:from[ \t]+(\w+)|import[ \t]+([\w., \t]+))", re.MULTILINE)
_MODULE = re.compile(r"(?:^|,)[ \t]*(\w+)")  # each of: a.b as c, d


def versions() -> dict[str, str | None]:
    """The versions of Python and of the official environment's packages; None where one is absent."""
    return {"Python": sys.version.split()[0]} | {name: package_version(name) for name in OFFICIAL.values()}


def absent_module(detail: str) -> str | None:
    """The package whose absence ended a program, from its error; None for any other end."""
    found = _ABSENT.search(detail)
    if not found or found[1] in sys.stdlib_module_names or found[1] in _installed():
        return None
    return found[1]


def extra_modules(code: str) -> set[str]:
    """The installed modules that a program imports and the official environment is not known to have."""
    found = {name for one, more in _IMPORTED.findall(code) for name in (one, *_MODULE.findall(more))}
    return found & _installed() - OFFICIAL.keys()


def used_by(code: str) -> str:
    """What a program's result depends on here: empty where it names no installed package.

    Else all packages and their versions, since those that it names import others.
    """
    return "" if _installed().isdisjoint(_WORD.findall(code)) else _state()


@cache
def _installed() -> frozenset[str]:
    """The modules at the top of all installed packages."""
    return frozenset(name.partition(".")[0] for name in _entries()) - sys.stdlib_module_names


@cache
def _state() -> str:
    """Digest of the names in the folders of packages; those of their metadata have the versions."""
    return hashlib.sha256("\n".join(_entries()).encode()).hexdigest()


@cache
def _entries() -> tuple[str, ...]:
    folders = [Path(folder) for folder in site.getsitepackages()]
    return tuple(sorted(entry.name for folder in folders if folder.is_dir() for entry in folder.iterdir()))
