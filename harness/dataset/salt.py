"""The salt of prompts: ids that no two queries share, where a prompt's shared beginning ends.

A salt is a text of hexadecimal digits in brackets, such as ``[0f3a...] ``. Its ids follow from a seed and the
query's id alone, so that anyone can repeat them; a hash makes them, not a sequence, so that workers need no
order among them.
"""

import hashlib

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec.structs import replace


class SaltIds(msgspec.Struct, frozen=True):
    """The ids of the salt of any query: a number of symbols, each one id of an alphabet."""

    seed: str
    alphabet: tuple[int, ...]
    """ids; their number is a power of two, at most 256"""
    count: int
    """symbols of a salt"""

    @property
    def key(self) -> bytes:
        """The key of the hash of a query's id. Of each byte the lowest bits choose an id."""
        return hashlib.blake2b(self.seed.encode(), digest_size=32).digest()

    def of(self, query_id: int) -> tuple[int, ...]:
        """The ids of a query's salt."""
        most = len(self.alphabet) - 1
        digest = hashlib.blake2b(
            query_id.to_bytes(8, "little"), digest_size=self.count, key=self.key
        ).digest()
        return tuple(self.alphabet[byte & most] for byte in digest)


class RenderedSalt:
    """The text of salts in the JSON list of a prompt, ids and commas between them."""

    __slots__ = ("_base", "_text_of", "width")

    def __init__(self, ids: SaltIds) -> None:
        most = len(ids.alphabet) - 1
        self._base = hashlib.blake2b(digest_size=ids.count, key=ids.key)
        self._text_of = [b"%d" % ids.alphabet[byte & most] for byte in range(256)].__getitem__
        self.width = len(b",".join([b"%d" % ids.alphabet[0]] * ids.count))
        """bytes of the placeholder"""

    def of(self, query_id: int) -> bytes:
        """The text of a query's salt."""
        one = self._base.copy()
        one.update(query_id.to_bytes(8, "little"))
        return b",".join(map(self._text_of, one.digest()))


class Salt(msgspec.Struct, frozen=True, eq=False):
    """The salt of a dataset's prompts, which hold a placeholder: the alphabet's first id for each symbol."""

    ids: SaltIds
    at: npt.NDArray[np.int64]
    """the place of the first symbol in each prompt, shape (n,)"""

    def part(self, first: int, last: int) -> "Salt":
        """That of the samples from first up to last."""
        return replace(self, at=self.at[first:last])
