"""Sessions: runs of one unit's records of one key, with no pause longer than a gap.

One row holds a unit's open sessions of an epoch. A record joins the session of its key that lies
within the gap of its time; a record within the gap of two sessions merges them. So the sessions of
a set of records do not depend on the order of the records, and each is a maximal run. A trigger
closes the sessions whose last event lies in its window and before an edge; each is then one record
for the contribution bound. Records beyond the trigger's cut take no part in that, wherever they
stand in the log of several upstreams: they form separate sessions until the trigger is closed.

*Statement.* Neighbours are two streams: one has all records of one unit in one epoch, the other has
none of them, and all other records are the same in both, on the same side of every cut. Then the
sessions that reach the bound of that epoch differ by sessions of that unit alone, and those of all
other epochs are the same. The unit's contribution is bounded as for records: the bound's Q holds
for sessions in place of records, so every sensitivity computed from Q stands.

*Proof.* A row is a function of the records of its unit and epoch: `take` reads the row, and the
records of the same unit, in the order of their log, and nothing else; whether there is room
(``MOST``) depends on that row and on cuts. Records of two epochs never share a row, so no session
lies in two epochs: a session that continues past an epoch's end is cut there. `close` compares the
last event with an edge that a trigger states, which is the same for both neighbours. So without the
unit's records, its rows are empty and give no session, and all other rows are the same. The bound
is applied to the result of `close`, after which nothing joins a session any more. The bound holds
for any sequence of a unit's records, hence for this one. ∎

If the bound were applied to records first, the first record of a session would pay for all of it,
however long. If records of other units closed sessions, taking one unit away would change the
sessions of others, and no bound on one unit's records would cover that.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ....errors import EngineError
from ....mechanisms.columns import I64, writeable
from ....mechanisms.keys import Keys, gather

MOST = 64
"""Most open sessions of a unit in an epoch; a record that would begin another is dropped."""


class ClosedSessions(NamedTuple):
    """Closed sessions, sorted by unit, then last event, then key."""

    unit: NDArray[np.intp]  # (s,) row of the unit
    keys: Keys  # (k,) distinct
    key: NDArray[np.intp]  # (s,)
    first: I64  # (s,) microseconds since 1970
    last: I64  # (s,)
    events: I64  # (s,)
    rows: Keys  # (u,) sessions that stay open; an empty row stands for none


def take(
    rows: Keys, unit: NDArray[np.intp], keys: Keys, key: NDArray[np.intp], time: I64, gap: int,
    beyond: I64 | None = None, closed: int = 0,
) -> tuple[Keys, int]:  # fmt: skip
    """Add records to the open sessions of their units.

    Args:
        rows: (u,) rows of the units; an empty one stands for none.
        unit: (n,) row of each record's unit, in log order.
        keys, key: distinct keys, and (n,) the index of each record's key.
        time: (n,) event times, microseconds since 1970, all of one epoch.
        gap: most microseconds between two consecutive records of a session.
        beyond: (n,) ordinal of the last trigger whose cut the record is beyond; None: no record is
            beyond the cut of an open trigger.
        closed: ordinal of the last closed trigger.

    Returns:
        (u,) new rows, and the number of records dropped because of `MOST`.

    Raises:
        EngineError: a row has an impossible length, or more than `MOST` sessions.
    """
    from .session_scan import HEAD
    from .session_scan import take as joined

    if int(_counted(rows).max(initial=0)) > MOST:
        raise EngineError("a unit's stored row is damaged: it has too many sessions")
    order = np.argsort(unit, kind="stable")  # keeps a unit's records in log order
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
    """Merge the sessions that waited for the last closed trigger; see `take`."""
    none = np.zeros(0, np.intp)
    return take(rows, none, Keys.of([]), none, none, gap, closed=closed)[0]


def close(rows: Keys, low: int, high: int) -> ClosedSessions:
    """Take out the sessions whose last event lies in [``low``, ``high``), microseconds since 1970.

    Sessions of records beyond the cut of an open trigger stay.

    Raises:
        EngineError: a row has an impossible length."""
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
    """Number of sessions (u,) in each row."""
    from .session_scan import count

    number = np.empty(len(rows), np.int64)
    if not count(writeable(rows.data), rows.offsets, number):
        raise EngineError("a unit's stored row is damaged: it was cut or lengthened")
    return number
