"""All rows that a shard keeps: tags, sortable numbers and fixed-width layouts.

A key begins with the tag of its row. Numbers in keys are big-endian, signed numbers shifted
(`sortable`), so keys sort by window, and all windows below some number are one range (`below`).

=========  =========  ===========================================  ==========================
tag        stage      key after the tag                            value
=========  =========  ===========================================  ==========================
UNIT       bound      pipeline number, epoch, digest of the unit   what the unit has left
TOTAL      bound      pipeline number, window, micro-batch         shard-wide totals, int64
TOTAL      aggregate  ordinal of the trigger                       sum of all barriers' totals
RUN        aggregate  window, micro-batch, run, chunk              a frame of partial sums
ROW        aggregate  window, key                                  due trigger, state
DUE        aggregate  window, due trigger, key                     empty: a local index
STATUS     aggregate  window, key                                  public status, int32
OPEN       aggregate  (none)                                       the release in progress
HELD       aggregate  key                                          a computed row
MANIFEST   aggregate  (none)                                       the held release's manifest
NONCE      aggregate  window                                       nonces of its noise, by trigger
CHAIN      aggregate  window                                       windows whose rows it carries
SHOWN      aggregate  window, key                                  empty: in the latest topic
PAIR       aggregate  window, name of a pair (`mechanisms.pairs`)  empty: a value is known
SCHEMA     ingest     id in the registry                           offset, and the schema
SAID       ingest     id in the registry                           the same, of attributes
ATTRIBUTED ingest     digest of what is kept of a unit             offset that was reached
STORY      view       view, window, key                            values to look back at
TOLD       view       view                                         its last release
MARKER     all        (none)                                       what has been applied
POSITION   all        (none)                                       next changelog offset: local
SEEN       all        (none)                                       the newest POSITION and MARKER
                                                                   that were not saved: local
INDEX      all        all of a UNIT key but the digest             its blocks (`units.epoch`): local
BLOCK      all        number                                       UNIT rows (`units.packed`): local
=========  =========  ===========================================  ==========================

A unit's open sessions (`stages.bound.open_sessions`) are also a UNIT row, under its pipeline's
number plus 2^15, and so are its attributes, under 2^15 - 1. If units have a cap, the epoch in the
key of a UNIT row is a period, and the row begins with a purse, followed by what the unit has left
in each open epoch (`stages.bound.purses`). For direct pipelines, the ingest shard keeps the rows of
bound. A ROW whose numbers are mostly 0 is packed (`rows.sparse`). Rows marked *local* are derived
from others and never go to the changelog.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

UNIT, TOTAL, RUN, ROW, DUE, STATUS, PAIR = b"u", b"t", b"f", b"r", b"d", b"s", b"p"
OPEN, HELD, MANIFEST, NONCE, SHOWN, SCHEMA = b"o", b"h", b"m", b"n", b"l", b"x"
CHAIN, STORY, TOLD, ATTRIBUTED, SAID = b"c", b"v", b"w", b"a", b"y"
MARKER, POSITION = b"\x00marker", b"\x00place"
PLAIN_POSITION = b"\x00position"  # of tables in the earlier layout, with one stored row per unit
SEEN = b"\x00seen"
INDEX, BLOCK = b"\x00units", b"b"

HEAD = 1 + 8  # tag and window before a key
_SESSIONS = 1 << 15  # more than any deployment's pipelines
_ATTRIBUTES = _SESSIONS - 1  # no pipeline has this number
DIGEST = 16  # bytes
UNIT_WIDTH = 1 + 2 + 8 + DIGEST  # bytes of a unit's key: tag, pipeline number, epoch, digest
Range = tuple[bytes, bytes]  # start ≤ key < end


def sortable(number: int) -> bytes:
    """Encode a signed integer as eight bytes whose order is the order of the integers.

    >>> sortable(-1) < sortable(0) < sortable(1)
    True
    """
    return (number + (1 << 63)).to_bytes(8, "big")


def unsortable(data: bytes) -> int:
    """Decode the integer that `sortable` encoded."""
    return int.from_bytes(data, "big") - (1 << 63)


def after(prefix: bytes) -> bytes:
    """Find a key greater than every key that begins with ``prefix``.

    >>> after(b"ab"), after(b"a\\xff")
    (b'ac', b'b')
    """
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes([stripped[-1] + 1]) if stripped else b"\xff" * 40


def below(prefix: bytes, number: int) -> Range:
    """Span the keys whose number after ``prefix``, a window or epoch, is less than ``number``."""
    return prefix, prefix + sortable(number)


# -- keys -----------------------------------------------------------------------------------------


def units_of(pipeline: int) -> bytes:
    """Prefix the unit rows of a pipeline, given by its number in the ledger."""
    return UNIT + pipeline.to_bytes(2, "big")


def sessions_of(pipeline: int) -> bytes:
    """Prefix the rows of open sessions of a pipeline, which are stored like rows of units.

    >>> sessions_of(3)
    b'u\\x80\\x03'
    """
    return units_of(pipeline + _SESSIONS)


def attributes_of(kept: bytes) -> bytes:
    """Prefix the rows of attributes of units; eight bytes identify the list of kept attributes."""
    return units_of(_ATTRIBUTES) + kept


def of_unit(key: bytes) -> bool:
    """Whether a key is of a unit's row."""
    return len(key) == UNIT_WIDTH and key[:1] == UNIT


def block_row(number: int) -> bytes:
    """Name a block of rows of units."""
    return BLOCK + number.to_bytes(8, "big")


def totals_of(pipeline: int) -> bytes:
    """Prefix the totals of a pipeline, given by its number in the ledger, at a bound shard."""
    return TOTAL + pipeline.to_bytes(2, "big")


def bound_total(pipeline: int, window: int, batch: int) -> bytes:
    """Name one bound shard's totals of a micro-batch."""
    return totals_of(pipeline) + sortable(window) + batch.to_bytes(4, "big")


def trigger_total(ordinal: int) -> bytes:
    """Name the sum of totals from one trigger's barriers at an aggregate shard."""
    return TOTAL + ordinal.to_bytes(8, "big")


def trigger_of(key: bytes) -> int:
    """Read the ordinal in a key of `trigger_total`."""
    return int.from_bytes(key[1:9], "big")


def run_prefix(window: int, batch: int, run: int) -> bytes:
    """Prefix the chunks of one sorted run."""
    return RUN + sortable(window) + batch.to_bytes(4, "big") + run.to_bytes(4, "big")


def run_chunk(prefix: bytes, chunk: int) -> bytes:
    """Name one chunk of the run with this prefix."""
    return prefix + chunk.to_bytes(4, "big")


def run_of(key: bytes) -> tuple[int, int, int]:
    """Read window, micro-batch and run in a chunk's key."""
    batch, run = int.from_bytes(key[9:13], "big"), int.from_bytes(key[13:17], "big")
    return unsortable(key[1:9]), batch, run


def rows_of(window: int) -> bytes:
    """Prefix the key rows of a window."""
    return ROW + sortable(window)


def key_of(row: bytes) -> bytes:
    """Read the key in the name of a key row."""
    return row[HEAD:]


def statuses_of(window: int) -> bytes:
    """Prefix the public statuses of a window."""
    return STATUS + sortable(window)


def nonces_of(window: int) -> bytes:
    """Name the row with the nonces of a window's noise."""
    return NONCE + sortable(window)


def chain_of(window: int) -> bytes:
    """Name the row with the length of a window's chain."""
    return CHAIN + sortable(window)


def shown_of(window: int) -> bytes:
    """Prefix the keys of a window that the latest topic shows."""
    return SHOWN + sortable(window)


def pairs_of(window: int) -> bytes:
    """Prefix the pairs of key and value seen in a window."""
    return PAIR + sortable(window)


def schema_row(number: int, tag: bytes = SCHEMA) -> bytes:
    """Name the row with the schema of an id in this partition.

    The tag ``SAID`` is for the attribute topic, which has its own offsets.
    """
    return tag + number.to_bytes(4, "big")


def schema_number(row: bytes) -> int:
    """Read the schema's id in the name of its row.

    >>> schema_number(schema_row(7))
    7
    """
    return int.from_bytes(row[len(SCHEMA) :], "big")


def due_at(window: int, due: int) -> bytes:
    """Prefix the index of keys that are due at a trigger; -1 stands for every trigger."""
    return DUE + sortable(window) + (due & 0xFFFFFFFF).to_bytes(4, "big")


# -- values ---------------------------------------------------------------------------------------


def key_row(state: DTypeLike) -> np.dtype[Any]:
    """Lay out a key row: its due trigger, then the state of its key."""
    return np.dtype([("due", "<i4"), ("state", state)])


def index_entries(key: bytes, value: bytes | None) -> dict[bytes, bytes | None]:
    """Make the local index entries of a row that was stored or restored.

    An entry is a hint. When a row's due trigger moves, its old entry stays, and is skipped as stale
    when that trigger comes.

    Args:
        key: key of any row; only key rows have entries.
        value: value of the row; None: it was deleted.
    """
    if key[:1] != ROW or value is None:
        return {}
    due = int.from_bytes(value[:4], "little", signed=True)
    return {} if due == 0 else {due_at(unsortable(key[1:HEAD]), due) + key[HEAD:]: b""}


def pack_held(value: NDArray[np.int64], variance: NDArray[np.float64]) -> list[bytes]:
    """Encode n computed rows.

    Args:
        value: (n, c) values in grid steps.
        variance: (n, c) variances in squared grid steps.
    """
    table = [value.astype("<i8").view("<u8"), variance.astype("<f8").view("<u8")]
    blob = np.ascontiguousarray(np.concatenate(table, axis=1)).tobytes()
    width = 16 * value.shape[1]
    return [blob[place * width : (place + 1) * width] for place in range(len(value))]


def unpack_held(rows: Sequence[bytes]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Decode the values and variances that `pack_held` encoded."""
    table = np.frombuffer(b"".join(rows), "<u8")
    table = table.reshape(len(rows), -1) if rows else table.reshape(0, 0)
    columns = table.shape[1] // 2
    value = np.ascontiguousarray(table[:, :columns]).view("<i8").astype(np.int64)
    variance = np.ascontiguousarray(table[:, columns:]).view("<f8").astype(np.float64)
    return value, variance
