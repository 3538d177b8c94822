"""Releases of one pipeline as columns, and the state of a window at any of its triggers."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from operator import itemgetter
from typing import Any

import numpy as np

from ...mechanisms.columns import F64, I64
from ...topics.assembly import Released
from ...topics.cut_share import CutShare
from ...topics.releases import Row, Value

MOST = 6_000_000  # released numbers in memory: 32 bytes each
PARTS = ("value", "stddev", "low", "high")
At = tuple[int, int]
"""Start of a window in milliseconds since 1970, and trigger."""


@dataclass(frozen=True)
class Sheet:
    """Rows of one window, of one release or merged from several."""

    # start, end: of the window, milliseconds since 1970
    start: int
    end: int
    trigger: int  # of its newest release
    released: int  # scheduled time of that release, milliseconds
    final: bool  # whether that release is the window's last
    told: Any  # body of the manifest, shared by all rows
    ids: tuple[str, ...]  # JSON lists of key values, which identify rows; ascending
    values: F64  # (v, n, 4) by value name, row and `PARTS`; NaN where there is none
    boxes: F64  # (n, axes, 2) ends of cells; no axes if rows are not cells
    of: I64  # (n,) trigger of each row
    # the share of records that the bound cut, up to the newest release; None: unknown
    cut: CutShare | None = None

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.told.value_names)

    def column(self, name: str) -> F64:
        """(n, 4) one value of every row, by `PARTS`."""
        found: F64 = self.values[self.names.index(name)]
        return found

    def place(self, text: str) -> int | None:
        """Row of an id; None if it is not there."""
        place = bisect_left(self.ids, text)
        return place if place < len(self.ids) and self.ids[place] == text else None


def sheet_of(release: Released, texts: dict[str, str] | None = None) -> Sheet:
    """Turn a complete release into columns; ``texts`` interns ids."""
    told = release.manifest
    known = {} if texts is None else texts
    named = sorted(((key_id(row), row) for row in release.rows), key=itemgetter(0))
    ids, rows = [text for text, _ in named], [row for _, row in named]
    space = json.loads(bytes(told.space) or b"{}")
    axes = [axis["name"] for axis in space.get("axes", ())]
    return Sheet(
        start=millis(told.window.start),
        end=millis(told.window.end),
        trigger=told.trigger,
        released=millis(told.emitted_at),
        final=told.final,
        told=told,
        ids=tuple(known.setdefault(text, text) for text in ids),
        values=np.array(
            [[_parts(row.values.get(name)) for row in rows] for name in told.value_names],
            np.float64,
        ).reshape(len(told.value_names), len(rows), len(PARTS)),
        boxes=np.array([[row.box[axis] for axis in axes] for row in rows], np.float64).reshape(
            len(rows), len(axes), 2
        ),
        of=np.full(len(rows), told.trigger, np.int64),
        cut=release.cut,
    )


def key_id(row: Row) -> str:
    """Write the key of a row as one text: the JSON list of its values."""
    return json.dumps(list(row.key.values()), ensure_ascii=False)


def millis(time: datetime) -> int:
    """A time as milliseconds since 1970."""
    return round(time.timestamp() * 1000)


def _parts(one: Value | None) -> tuple[float, ...]:
    if one is None:
        return (np.nan,) * len(PARTS)
    return float(one.value), one.stddev, one.low, one.high


def merged(earlier: Sheet, later: Sheet) -> Sheet:
    """Merge two sheets of one window, in either order: each key keeps its newest row.

    If each release replaces its predecessor, only the newer sheet remains.
    """
    if later.trigger < earlier.trigger:
        earlier, later = later, earlier
    if later.told.replaces or not len(earlier):
        return later
    newer = set(later.ids)
    kept = np.array([i for i, text in enumerate(earlier.ids) if text not in newer], np.intp)
    ids = [earlier.ids[i] for i in kept.tolist()] + list(later.ids)
    order = np.array(sorted(range(len(ids)), key=ids.__getitem__), np.intp)
    return replace(
        later,
        ids=tuple(ids[i] for i in order.tolist()),
        values=np.concatenate([earlier.values[:, kept], later.values], axis=1)[:, order],
        boxes=np.concatenate([earlier.boxes[kept], later.boxes])[order],
        of=np.concatenate([earlier.of[kept], later.of])[order],
    )


class History:
    """Everything that is remembered of one pipeline's releases.

    At most ``most`` released numbers are kept; beyond that the oldest releases are dropped, but
    never the newest state of the newest window.
    """

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._held = 0
        self._texts: dict[str, str] = {}
        self._sheets: dict[At, Sheet] = {}
        self._states: dict[int, Sheet] = {}
        self.version = 0

    def add(self, release: Released) -> bool:
        """Add a complete release; False if it is already known."""
        sheet = sheet_of(release, self._texts)
        place = sheet.start, sheet.trigger
        if place in self._sheets:
            return False
        self._sheets[place] = sheet
        self._held += sheet.values.size // len(PARTS)
        state = self._states.get(sheet.start)
        self._states[sheet.start] = sheet if state is None else merged(state, sheet)
        self._forget()
        self.version += 1
        return True

    def _forget(self) -> None:
        while self._held > self._most and len(self._sheets) > 1:
            place = min(self._sheets)
            sheet = self._sheets.pop(place)
            self._held -= sheet.values.size // len(PARTS)
            if not any(start == place[0] for start, _ in self._sheets):
                del self._states[place[0]]
                used = (text for one in self._sheets.values() for text in one.ids)
                self._texts = {text: text for text in used}

    @property
    def last(self) -> int | None:
        """Scheduled time of the newest release, milliseconds; None: there is none."""
        return max((sheet.released for sheet in self._sheets.values()), default=None)

    @property
    def newest(self) -> Sheet | None:
        """State of the newest window."""
        return self._states[max(self._states)] if self._states else None

    def windows(self) -> list[dict[str, Any]]:
        """List the windows, newest first, with their releases, as JSON objects."""
        listed = []
        for start in sorted(self._states, reverse=True):
            state = self._states[start]
            mine = sorted(t for s, t in self._sheets if s == start)
            listed.append({
                "start": start, "end": state.end, "final": state.final, "rows": len(state),
                "trigger": state.trigger, "triggers": state.told.triggers,
                "releases": [[t, self._sheets[start, t].released] for t in mine],
            })  # fmt: skip
        return listed

    def state(self, start: int | None = None, trigger: int | None = None) -> Sheet | None:
        """Find the state of a window at a trigger.

        ``start`` is in milliseconds (None: the newest window); ``trigger`` is the last to include
        (None: all).
        """
        start = max(self._states, default=None) if start is None else start
        if start is None or start not in self._states:
            return None
        if trigger is None or trigger >= self._states[start].trigger:
            return self._states[start]
        found: Sheet | None = None
        for place in sorted(self._sheets):
            if place[0] == start and place[1] <= trigger:
                found = self._sheets[place] if found is None else merged(found, self._sheets[place])
        return found

    def sheets(self) -> Iterator[Sheet]:
        """Yield single releases, by window and trigger."""
        return (self._sheets[place] for place in sorted(self._sheets))
