"""Memory of a view: values of windows before, to look back at, and sums over all of them.

A row for each key of each window, in the state of the shard. A release of a window replaces what an
earlier release of it has left; windows that no release can look back at any more are deleted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

import msgspec

from ...deployment.model import ReleaseView
from ...state.layout import STORY, TOLD, sortable
from ...state.store import Changes, StateReader, scan_prefix
from .estimates import Noisy

Numbers = Mapping[str, Noisy | None]
"""Values of the source, by name, of one key of the view."""


class Reached(msgspec.Struct, frozen=True):
    """The place that a view has come to.

    Attributes:
        digest: digest of the view.
        done: the last release: scheduled time (ms), start of the window, number of the trigger.
        windows: numbers of those that are remembered, ascending.
        out: records of the release in progress that are published.
    """

    digest: str
    done: tuple[int, int, int] | None = None
    windows: tuple[int, ...] = ()
    out: int = 0


def reached(view: ReleaseView, reader: StateReader) -> Reached | None:
    """Read the place that a view has come to; None before its first release."""
    (row,) = reader.get_many([TOLD + identity(view.name)])
    return None if row is None else msgspec.msgpack.decode(row, type=Reached)


def reach(view: ReleaseView, place: Reached, rows: Changes) -> None:
    """Put it into the rows of a step."""
    rows[TOLD + identity(view.name)] = msgspec.msgpack.encode(place)


def identity(name: str) -> bytes:
    """Eight bytes that stand for a view in the keys of rows."""
    return hashlib.sha256(name.encode()).digest()[:8]


class _Remembered(msgspec.Struct, frozen=True, array_like=True):
    """One key of one window: values, and sums over all windows up to it; numbers as texts."""

    values: list[tuple[str, float, tuple[float, float] | None, bool] | None]
    sums: list[tuple[str, float, bool]]


class Lookback:
    """The past of one view, as a release of one window sees it.

    Args:
        number: number of the window.
        windows: numbers of the windows that are remembered, ascending.
        overlap: result of the function of this name.
    """

    def __init__(
        self,
        view: ReleaseView,
        reader: StateReader,
        number: int,
        windows: Sequence[int],
        overlap: int = 0,
    ) -> None:
        looks = [one for one in view.values if one.historic]
        self._names = list(dict.fromkeys(one.of for one in looks))
        endless = (one.of for one in looks if one.kind == "running" and one.windows is None)
        self._endless = list(dict.fromkeys(endless))
        self._back = max((one.windows or 1 for one in looks), default=0)
        self._overlap = overlap
        self._prefix = STORY + identity(view.name)
        self._reader, self._number, self._windows = reader, number, windows
        self._loaded: dict[int, dict[bytes, _Remembered]] = {}

    def before(self, name: str, key: bytes, back: int) -> Noisy | None:
        """The value of a key ``back`` windows before; None where it was not released."""
        kept = self._window(self._number - back).get(key)
        told = None if kept is None else kept.values[self._names.index(name)]
        return None if told is None else Noisy(Fraction(told[0]), *told[1:])

    def sum_before(self, name: str, key: bytes) -> Noisy | None:
        """The sum of a key's values over all windows before; None where there are none."""
        earlier = [number for number in self._windows if number < self._number]
        kept = self._window(earlier[-1]).get(key) if earlier else None
        if kept is None:
            return None
        value, variance, floored = kept.sums[self._endless.index(name)]
        return Noisy(Fraction(value), variance, None, floored) if value else None

    def remember(self, rows: Mapping[bytes, Numbers], final: bool, changes: Changes) -> list[int]:
        """Put what later windows look back at into a step.

        Args:
            rows: values by encoded key.
            final: whether this is the last release of its window.

        Returns:
            The windows that are remembered then, ascending.
        """
        if not self._names:
            return []
        earlier = [number for number in self._windows if number < self._number]
        carried = self._window(earlier[-1]) if earlier and self._endless else {}
        for key in self._window(self._number).keys() - rows.keys() - carried.keys():
            changes[self._row(self._number, key)] = None
        for key in sorted(rows.keys() | carried.keys()):
            kept = self._kept(key, rows.get(key, {}))
            changes[self._row(self._number, key)] = msgspec.msgpack.encode(kept)
        windows = sorted({*self._windows, self._number})
        if not final:
            return windows
        floor = self._number - self._back - self._overlap
        # A sum over all windows is carried on from the newest one, however old that is.
        old = [number for number in windows[:-1] if number < floor]
        for number in old:
            changes.update((row, None) for row, _ in self._scan(number))
        return [number for number in windows if number not in old]

    def _kept(self, key: bytes, numbers: Numbers) -> _Remembered:
        values = [_plain(numbers.get(name)) for name in self._names]
        sums = []
        for name in self._endless:
            parts = [numbers.get(name), self.sum_before(name, key)]
            found = [one for one in parts if one is not None]
            value = sum((one.value for one in found), Fraction(0))
            variance = sum(one.variance for one in found)
            sums.append((str(value) if found else "", variance, all(one.floored for one in found)))
        return _Remembered(values, sums)

    def _window(self, number: int) -> dict[bytes, _Remembered]:
        if number not in self._loaded:
            there = self._scan(number) if number in self._windows else iter(())
            head = len(self._prefix) + 8
            self._loaded[number] = {
                row[head:]: msgspec.msgpack.decode(value, type=_Remembered) for row, value in there
            }
        return self._loaded[number]

    def _scan(self, number: int) -> Iterator[tuple[bytes, bytes]]:
        return scan_prefix(self._reader, self._prefix + sortable(number))

    def _row(self, number: int, key: bytes) -> bytes:
        return self._prefix + sortable(number) + key


def _plain(one: Noisy | None) -> tuple[str, float, tuple[float, float] | None, bool] | None:
    return None if one is None else (str(one.value), one.variance, one.ends, one.floored)


def overlap(view: ReleaseView) -> int:
    """Count the windows after a window that begin to be released before that one is done."""
    windows = view.source.windows
    last = windows.times(0)[-1]
    found = 0
    while windows.times(found + 1)[0] < last:
        found += 1
    return found
