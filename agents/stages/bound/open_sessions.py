"""Sessions of one unit each: runs of its records of one key, with no pause longer than a gap.

A unit's open sessions of an epoch are one row. A record joins the session of its key that lies
within the gap of its time; one that lies within the gap of two joins both. So the sessions of a set
of records do not depend on their order, and each is a maximal run of them. A trigger closes those
whose last event lies in its window and before an edge; each is then one record for the contribution
bound. Records beyond the trigger's cut have no part in that, wherever they stand in the log of
several upstreams: until the trigger is closed they make sessions of their own.

*Statement.* Neighbours are streams of which one has all records of one unit in one epoch, the other
none of them, and all other records are the same in both, on the same side of every cut. Then the
sessions that reach the bound of that epoch differ by sessions of that unit alone, those of all
other epochs are the same, and what the unit adds is bounded as for records: the bound's Q holds for
sessions in place of records, so every sensitivity that was computed from Q stands.

*Proof.* A row is a function of the records of its unit and epoch: `take` reads the row, and the
records of the same unit, in the order of their log, and nothing else; whether there is room
(``MOST``) depends on that row and on cuts. Records of two epochs never share a row, so no session
lies in two: one that goes on over an epoch's end is cut there. `close` compares the last event with
an edge that a trigger states, which is the same for both neighbours. So without the unit's records
its rows are empty and give no session, and all other rows are the same. The bound is applied to
what `close` gives, after which nothing joins a session any more; it holds for any sequence of
records of a unit, so it holds for this one. ∎

Were the bound applied to records first, a session of any length would be paid for once by its first
record, and grow with others; were sessions closed by the records of other units, these would change
when one unit is taken away, and no bound on one unit's records would cover that.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ....compiled import writeable
from ....errors import EngineError
from ....mechanisms.columns import I64
from ....mechanisms.keys import Keys, gather

MOST = 64
"""Open sessions of a unit in an epoch; a record that would begin one more is dropped."""


class ClosedSessions(NamedTuple):
    """Sessions that are over: by unit, then by their last event, then by key."""

    unit: NDArray[np.intp]  # (s,) row of the unit
    keys: Keys  # (k,) distinct
    key: NDArray[np.intp]  # (s,)
    first: I64  # (s,) microseconds since 1970
    last: I64  # (s,)
    events: I64  # (s,)
    rows: Keys  # (u,) what stays open; an empty one stands for nothing


def take(
    rows: Keys, unit: NDArray[np.intp], keys: Keys, key: NDArray[np.intp], time: I64, gap: int,
    beyond: I64 | None = None, closed: int = 0,
) -> tuple[Keys, int]:  # fmt: skip
    """Let records join the open sessions of their units.

    Args:
        rows: (u,) rows of the units; an empty one stands for none.
        unit: (n,) row of each record's unit, in log order.
        keys, key: distinct keys, and (n,) that of each record.
        time: (n,) event times, microseconds since 1970, all of one epoch.
        gap: microseconds, at most, between two neighbouring records of a session.
        beyond: (n,) ordinal of the last trigger whose cut the record is beyond; None: of none that
            is not closed.
        closed: ordinal of the last trigger that is closed.

    Returns:
        (u,) new rows, and the number of records that were dropped for want of room.

    Raises:
        EngineError: a row has a length that no unit's row has, or more sessions than there may be.
    """
    from .session_scan import HEAD
    from .session_scan import take as joined

    if int(_counted(rows).max(initial=0)) > MOST:
        raise EngineError("a unit's stored row is damaged: it has too many sessions")
    order = np.argsort(unit, kind="stable")  # a unit's records stay in log order
    begins = np.searchsorted(unit[order], np.arange(len(rows) + 1)).astype(np.int64)
    key = key[order].astype(np.int64)
    beyond = np.zeros(len(key), np.int64) if beyond is None else beyond[order]
    widths = np.diff(keys.offsets)[key]
    size = int(rows.offsets[-1] - rows.offsets[0]) + int(widths.sum()) + HEAD * len(key)
    out, ends = np.empty(size, np.uint8), np.empty(len(rows) + 1, np.int64)
    left = joined(
        writeable(rows.data), rows.offsets, begins, writeable(keys.data), keys.offsets, key,
        np.ascontiguousarray(time[order]), beyond, closed, gap, MOST, out, ends,
    )  # fmt: skip
    return Keys(out[: int(ends[-1])], ends), int(left)


def settled(rows: Keys, gap: int, closed: int) -> Keys:
    """Join sessions to those that waited for the last trigger that is closed; see `take`."""
    none = np.zeros(0, np.intp)
    return take(rows, none, Keys.of([]), none, none, gap, closed=closed)[0]


def close(rows: Keys, low: int, high: int) -> ClosedSessions:
    """Take out the sessions whose last event lies in [``low``, ``high``), microseconds since 1970.

    Sessions of records beyond a cut that is not closed stay.

    Raises:
        EngineError: a row has a length that no unit's row has.
    """
    from .session_scan import keep, read

    s = int(_counted(rows).sum())
    unit, begin, end, first, last, events, beyond = np.empty((7, s), np.int64)
    data = writeable(rows.data)
    read(data, rows.offsets, unit, begin, end, first, last, events, beyond)
    over = (last >= low) & (last < high) & (beyond == 0)
    out, ends = np.empty(len(data), np.uint8), np.empty(len(rows) + 1, np.int64)
    size = keep(data, rows.offsets, over, out, ends)
    offsets = np.zeros(int(over.sum()) + 1, np.int64)
    np.cumsum((end - begin)[over], out=offsets[1:])
    keys, key = Keys(gather(data, begin[over], offsets), offsets).unique()
    order = np.lexsort((key, last[over], unit[over]))
    unit, first, last, events = (one[over][order] for one in (unit, first, last, events))
    return ClosedSessions(
        unit.astype(np.intp), keys, key[order], first, last, events, Keys(out[:size], ends)
    )


def _counted(rows: Keys) -> I64:
    """(u,) how many sessions the rows hold."""
    from .session_scan import count

    number = np.empty(len(rows), np.int64)
    if not count(writeable(rows.data), rows.offsets, number):
        raise EngineError("a unit's stored row is damaged: it was cut or lengthened")
    return number
