"""Digests of files by content, computed once for each state of a file.

A campaign keeps them beside its results, for ``status``: it would read all datasets and accuracy logs at each
call, and people look at it every minute.
"""

from functools import cached_property
from pathlib import Path

import msgspec

from harness.files import digest_of
from harness.json_files import read_kept, write_json

KEPT = "digests.json"


class Digests(msgspec.Struct, dict=True):
    """Those of a campaign. A file that was replaced, even by one of the same size, is read again."""

    folder: Path
    """of the campaign"""
    _asked: dict[str, str] = msgspec.field(default_factory=dict)

    def of(self, path: Path, kind: str = "sha256") -> str:
        """The digest in hex. Raises OSError."""
        state = path.stat()
        key = f"{kind} {state.st_size} {state.st_mtime_ns} {state.st_ino} {path}"
        if key not in self._asked:
            self._asked[key] = self._kept.get(key) or digest_of(path, kind)
        return self._asked[key]

    def keep(self) -> None:
        """Write what was asked for here, for the next process. Raises OSError."""
        if self._asked.items() <= self._kept.items():
            return
        self._kept.update(self._asked)
        write_json(self.folder / KEPT, self._asked)

    @cached_property
    def _kept(self) -> dict[str, str]:
        return read_kept(self.folder / KEPT)
