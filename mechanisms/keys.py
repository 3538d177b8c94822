"""Columns of byte strings in Arrow's layout: one buffer and offsets, no object per key."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from ..errors import ContractError

Bytes = NDArray[np.uint8]
Index = NDArray[np.intp]

_SORTED_WIDTH = 64  # bytes; longer keys are distinguished by a dictionary
_PIECE = 1 << 18  # bytes gathered at once: indexing each byte needs three words


class Keys:
    """An immutable column of n byte strings.

    Attributes:
        data: (bytes,) uint8, the strings one after the other.
        offsets: (n+1,) int64; string i is ``data[offsets[i]:offsets[i+1]]``.

    >>> keys = Keys.of([b"b", b"a", b"b"])
    >>> distinct, row = keys.unique()
    >>> distinct.tolist(), row.tolist()
    ([b'a', b'b'], [1, 0, 1])
    """

    __slots__ = ("data", "offsets")

    def __init__(self, data: Bytes, offsets: NDArray[np.int64]) -> None:
        self.data = data
        self.offsets = offsets

    @classmethod
    def of(cls, strings: Iterable[bytes]) -> Keys:
        """Keys from any iterable of byte strings, in its order."""
        listed = strings if isinstance(strings, list) else list(strings)
        offsets = np.zeros(len(listed) + 1, np.int64)
        np.cumsum(np.fromiter(map(len, listed), np.int64, len(listed)), out=offsets[1:])
        return cls(np.frombuffer(bytearray().join(listed), np.uint8), offsets)

    @classmethod
    def fixed(cls, matrix: Bytes) -> Keys:
        """Keys from an (n, width) matrix of bytes."""
        rows, width = matrix.shape
        data = np.ascontiguousarray(matrix).reshape(-1)
        return cls(data, np.arange(rows + 1, dtype=np.int64) * width)

    @classmethod
    def of_codes(cls, codes: NDArray[np.uint64]) -> Keys:
        """Eight-byte big-endian keys, whose byte order is the order of the integers."""
        big = np.ascontiguousarray(codes, dtype=">u8")
        return cls.fixed(big.view(np.uint8).reshape(len(big), 8))

    def codes(self) -> NDArray[np.uint64]:
        """The integers behind keys made by `of_codes`.

        Raises:
            ContractError: a key is not eight bytes long.
        """
        if len(self) and self.width() != 8:
            raise ContractError("keys are not eight bytes wide")
        return self.packed().view(">u8").reshape(-1).astype(np.uint64)

    def width(self) -> int | None:
        """The common width of all keys; None if there are none or they differ."""
        if len(self) == 0:
            return None
        widths = np.diff(self.offsets)
        return int(widths[0]) if bool((widths == widths[0]).all()) else None

    def packed(self) -> Bytes:
        """The bytes of all keys, contiguous from the first offset."""
        return np.ascontiguousarray(self.data[self.offsets[0] : self.offsets[-1]])

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.tolist())

    @overload
    def __getitem__(self, row: int | np.integer) -> bytes: ...
    @overload
    def __getitem__(self, row: slice | NDArray[np.generic]) -> Keys: ...
    def __getitem__(self, row: int | np.integer | slice | NDArray[np.generic]) -> bytes | Keys:
        if isinstance(row, slice):
            begin, end, step = row.indices(len(self))
            if step == 1:
                return self._span(begin, max(begin, end))
            return self.take(np.arange(len(self))[row])
        if isinstance(row, np.ndarray):
            return self.take(np.flatnonzero(row) if row.dtype == np.bool_ else row)
        i = int(row) + (len(self) if row < 0 else 0)
        return self.data[self.offsets[i] : self.offsets[i + 1]].tobytes()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Keys) and self.tolist() == other.tolist()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        # Keys are private until released: a repr must never show them.
        return f"Keys(n={len(self)})"

    def tolist(self) -> list[bytes]:
        """All keys as Python byte strings."""
        blob = self.data.tobytes()
        ends = self.offsets.tolist()
        return [blob[a:b] for a, b in itertools.pairwise(ends)]

    def take(self, rows: NDArray[Any]) -> Keys:
        """The keys at ``rows`` (any order, repeats allowed); a span shares their bytes."""
        if _consecutive(rows) and rows[0] >= 0 and rows[-1] < len(self):
            return self._span(int(rows[0]), int(rows[-1]) + 1)
        starts = self.offsets[:-1][rows]
        widths = self.offsets[1:][rows] - starts
        offsets = np.zeros(len(widths) + 1, np.int64)
        np.cumsum(widths, out=offsets[1:])
        return Keys(gather(self.data, starts, offsets), offsets)

    def followed(self, tails: NDArray[np.uint8]) -> Keys:
        """Each key followed by its row of (k, w) bytes: injective, since w is fixed.

        >>> Keys.of([b"a", b""]).followed(np.array([[1], [2]], np.uint8)).tolist()
        [b'a\\x01', b'\\x02']
        """
        wide = tails.shape[1]
        offsets = self.offsets - self.offsets[0] + wide * np.arange(len(self.offsets))
        tail = offsets[1:, None] - wide + np.arange(wide)
        data, body = np.empty(int(offsets[-1]), np.uint8), np.ones(int(offsets[-1]), np.bool_)
        body[tail] = False
        data[tail], data[body] = tails, self.packed()
        return Keys(data, offsets)

    def _span(self, begin: int, end: int) -> Keys:
        """The keys in [begin, end), without a copy of their bytes."""
        if begin == 0 and end == len(self) and self.offsets[0] == 0:
            return self
        offsets = self.offsets[begin : end + 1]
        return Keys(self.data[offsets[0] : offsets[-1]], offsets - offsets[0])

    def unique(self) -> tuple[Keys, Index]:
        """Distinct keys in canonical (byte-wise) order, and the row of each key among them."""
        width = self.width()
        if width is not None and 0 < width <= 8:
            return self._unique_short(width)
        if len(self) and int(np.diff(self.offsets).max()) <= _SORTED_WIDTH:
            return self._unique_words()
        listed = self.tolist()
        distinct = sorted(set(listed))
        place = {key: row for row, key in enumerate(distinct)}
        return Keys.of(distinct), np.fromiter(map(place.__getitem__, listed), np.intp, len(listed))

    def _unique_words(self) -> tuple[Keys, Index]:
        """Sort as big-endian words padded with zeros; the length decides among equal ones."""
        widths = np.diff(self.offsets)
        # A common prefix distinguishes no keys. Seven bytes and the length make one word, which
        # sorts in half the time of two.
        skip = max(int(widths.max()) - 7, 0)
        short = self._alike(skip)
        words = 1 if short else -(-int(widths.max()) // 8)
        padded = np.zeros((len(self), 8 * words + (skip if short else 0)), np.uint8)
        padded[np.arange(padded.shape[1]) < widths[:, None]] = self.packed()
        if short:
            rest = np.ascontiguousarray(padded[:, skip:]).view(">u8").astype(np.uint64)
            columns = rest | (widths - skip).astype(np.uint64)[:, None]
            order = np.argsort(columns[:, 0])
        else:
            columns = padded.view(">u8").astype(np.uint64)
            order = np.lexsort((widths, *columns.T[::-1]))
        new = np.ones(len(self), bool)
        same = (columns[order[1:]] == columns[order[:-1]]).all(axis=1)
        new[1:] = ~(same & (widths[order[1:]] == widths[order[:-1]]))
        row = np.empty(len(self), np.intp)
        row[order] = new.cumsum() - 1
        return self.take(order[new]), row

    def _alike(self, count: int) -> bool:
        """Whether all keys share their first ``count`` bytes, of which the last differ soonest."""
        starts = self.offsets[:-1]
        if count > int(np.diff(self.offsets).min()):
            return False
        heads = (self.data[starts + place] for place in reversed(range(count)))
        return all(bool((head == head[0]).all()) for head in heads)

    def _unique_short(self, width: int) -> tuple[Keys, Index]:
        padded = np.zeros((len(self), 8), np.uint8)
        padded[:, 8 - width :] = self.packed().reshape(len(self), width)
        codes, inverse = np.unique(padded.view(">u8").reshape(-1), return_inverse=True)
        matrix = codes.astype(">u8").view(np.uint8).reshape(len(codes), 8)[:, 8 - width :]
        return Keys.fixed(matrix), inverse.astype(np.intp)


def _consecutive(rows: NDArray[Any]) -> bool:
    """Whether ``rows`` lists every row from its first to its last."""
    if rows.dtype == np.bool_ or len(rows) == 0 or int(rows[-1]) - int(rows[0]) != len(rows) - 1:
        return False
    return bool((np.diff(rows) == 1).all())


def gather(data: Bytes, begins: NDArray[np.int64], offsets: NDArray[np.int64]) -> Bytes:
    """(offsets[-1],) bytes: strings from anywhere in ``data``, concatenated.

    Args:
        data: (bytes,) array that holds them.
        begins: (n,) start of each in ``data``.
        offsets: (n+1,) from 0, start and end of each in the result.
    """
    out = np.empty(int(offsets[-1]), np.uint8)
    row = 0
    while row < len(begins):
        # At least one row per step: memory then follows the size of a row, not of all rows.
        end = max(int(np.searchsorted(offsets, offsets[row] + _PIECE, "right")) - 1, row + 1)
        at = slice(int(offsets[row]), int(offsets[end]))
        shift = np.repeat(begins[row:end] - offsets[row:end], np.diff(offsets[row : end + 1]))
        shift += np.arange(at.start, at.stop)
        out[at] = data[shift]
        row = end
    return out


def concat(columns: Iterable[Keys]) -> Keys:
    """One column after the other."""
    parts = list(columns)
    data = [part.packed() for part in parts]
    widths = [np.diff(part.offsets) for part in parts]
    offsets = np.concatenate([np.zeros(1, np.int64), *widths]).cumsum()
    return Keys(np.concatenate([np.empty(0, np.uint8), *data]), offsets)
