"""Compiled loops that run a program over many records and find what each needed field holds.

They agree with the reader of single records, or leave a record to it if the record is broken or
unusual. All loops are in one file, because numba's cache checks only a loop's own file for changes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ....compiled import compiled
from ..json_scan import sequence
from ..types import FALSE, INTEGER, REAL, TEXT, TRUE
from . import avro_program as avro
from . import proto_program as proto
from .program import MOST_DEPTH, TRUE_END, TRUTHS

HALF = 8  # a kind used only in this file: the bits of a four-byte real
WIDTH = 20  # characters of the longest integer, with its sign
_TRUTH_END = len(TRUTHS)

Bytes = NDArray[np.uint8]
I64 = NDArray[np.int64]

_END, _REFUSE, _JUMP, _NEXT = avro.END, avro.REFUSE, avro.JUMP, avro.NEXT
_TRUTH, _NARROW, _SKIP = avro.TRUTH, avro.NARROW, avro.SKIP
_NUMBER, _SYMBOL, _UNION = avro.NUMBER, avro.SYMBOL, avro.UNION
_TWO_32 = 1 << 32
_VARINT, _EIGHT, _SIZED, _FOUR = 0, 1, 2, 5  # wire types


@compiled
def varint(data: Bytes, at: int, end: int) -> tuple[np.uint64, int]:
    """A number of variable length, and the place after it; -1 if it does not end in time."""
    value = np.uint64(0)
    shift = np.uint64(0)
    for _ in range(10):
        if at >= end:
            return value, -1
        byte = np.uint64(data[at])
        at += 1
        value |= (byte & np.uint64(0x7F)) << shift
        if byte < np.uint64(0x80):
            return value, at
        shift += np.uint64(7)
    return value, -1


@compiled
def signed(value: np.uint64) -> int:
    """The number that a zigzag number stands for."""
    one = np.uint64(1)
    return int(np.int64((value >> one) ^ (np.uint64(0) - (value & one))))


@compiled
def little(data: Bytes, at: int, width: int) -> np.uint64:
    """A little-endian number of a fixed width."""
    value = np.uint64(0)
    for n in range(width):
        value |= np.uint64(data[at + n]) << np.uint64(8 * n)
    return value


@compiled
def plain(data: Bytes, at: int, end: int) -> bool:
    """Whether bytes are UTF-8 that needs no escapes in JSON."""
    while at < end:
        one = data[at]
        if one < 0x20 or one == 0x22 or one == 0x5C:
            return False
        size = 1
        if one >= 0x80:
            size = sequence(data, at, end)
            if size == 0:
                return False
        at += size
    return True


@compiled
def symbol(symbols: I64, first: int, count: int, number: int) -> int:
    """The line of a symbol, by its number; -1 if there is none."""
    low, high = first, first + count
    while low < high:
        middle = (low + high) // 2
        if symbols[middle, 0] < number:
            low = middle + 1
        else:
            high = middle
    return low if low < first + count and symbols[low, 0] == number else -1


@compiled
def truth(true: bool, texts: int, kind: Bytes, low: I64, high: I64, field: int) -> None:
    """Note a truth value."""
    kind[field] = TRUE if true else FALSE
    low[field] = texts if true else texts + TRUE_END
    high[field] = texts + TRUE_END if true else texts + _TRUTH_END


@compiled
def avro_fixed(
    data: Bytes, at: int, end: int, what: int, a: int, texts: int,
    kind: Bytes, low: I64, high: I64, whole: I64,
) -> int:  # fmt: skip
    """Read a value of a fixed length; return its bytes, or -1 to leave it to the other reader."""
    if what == _TRUTH:
        if at >= end or data[at] > 1:
            return -1
        if a >= 0:
            truth(data[at] == 1, texts, kind, low, high, a)
        return 1
    size = a if what == _SKIP else (4 if what == _NARROW else 8)
    if size > end - at:
        return -1
    if what != _SKIP and a >= 0:
        kind[a] = HALF if what == _NARROW else REAL
        whole[a] = np.int64(little(data, at, size))
    return size


@compiled
def avro_counted(
    data: Bytes, at: int, end: int, what: int, a: int, b: int, c: int, value: int,
    symbols: I64, texts: int, kind: Bytes, low: I64, high: I64, whole: I64,
) -> int:  # fmt: skip
    """Read what follows a number; return its bytes, or -1 to leave it to the other reader."""
    if what == _NUMBER:
        if a >= 0:
            kind[a] = INTEGER
            whole[a] = value
        return 0
    if what == _SYMBOL:
        if value < 0 or value >= c:
            return -1
        if a >= 0:
            kind[a] = TEXT
            low[a], high[a] = texts + symbols[b + value, 1], texts + symbols[b + value, 2]
        return 0
    if value < 0 or value > end - at:
        return -1
    if a >= 0:
        if not plain(data, at, at + value):
            return -1
        kind[a] = TEXT
        low[a], high[a] = at, at + value
    return value


@compiled
def avro_record(
    data: Bytes, at: int, end: int, code: I64, jumps: I64, symbols: I64, texts: int,
    kind: Bytes, low: I64, high: I64, whole: I64, left: I64,
) -> bool:  # fmt: skip
    """Run a program over one record; False leaves it to the other reader."""
    step, depth, size = 0, 0, 0
    while True:
        what, a, b, c = code[step, 0], code[step, 1], code[step, 2], code[step, 3]
        step += 1
        if what == _END:
            return bool(at == end)
        if what == _REFUSE:
            return False
        if what == _JUMP:
            step = a
        elif what == _NEXT:
            left[depth - 1] -= 1
            if left[depth - 1] > 0:
                step = a + 1
            else:
                depth -= 1
                step = a
        elif what < _NUMBER:
            size = avro_fixed(data, at, end, what, a, texts, kind, low, high, whole)
            if size < 0:
                return False
            at += size
        else:
            raw, at = varint(data, at, end)
            if at < 0:
                return False
            value = signed(raw)
            if what < _UNION:
                size = avro_counted(data, at, end, what, a, b, c, value,
                                    symbols, texts, kind, low, high, whole)  # fmt: skip
                if size < 0:
                    return False
                at += size
            elif what == _UNION:
                if value < 0 or value >= b:
                    return False
                step = jumps[a + value]
            elif value == 0:  # end of the blocks
                step = a
            elif value < 0:  # the block's size in bytes follows
                raw, at = varint(data, at, end)
                size = signed(raw)
                if at < 0 or size < 0 or size > end - at:
                    return False
                at += size
                step -= 1
            else:
                left[depth] = value
                depth += 1


@compiled
def proto_value(
    raw: np.uint64, what: int, first: int, count: int, symbols: I64, texts: int,
    kind: Bytes, low: I64, high: I64, whole: I64, place: int,
) -> bool:  # fmt: skip
    """Note a field that is a number on the wire; False leaves it to the other reader."""
    small = int(np.int64(raw & np.uint64(0xFFFFFFFF)))
    if what == proto.TRUTH:
        truth(raw != np.uint64(0), texts, kind, low, high, place)
        return True
    if what == proto.FLOAT or what == proto.DOUBLE:
        kind[place] = HALF if what == proto.FLOAT else REAL
        whole[place] = np.int64(raw)
        return True
    value = int(np.int64(raw))
    if what == proto.UINT32:
        value = small
    elif what == proto.INT32 or what == proto.ENUM or what == proto.SFIXED32:
        value = small - _TWO_32 if small >= _TWO_32 // 2 else small
    elif what == proto.SINT32:
        value = signed(raw & np.uint64(0xFFFFFFFF))
    elif what == proto.SINT64:
        value = signed(raw)
    elif (what == proto.UINT64 or what == proto.FIXED64) and value < 0:
        return False  # more than 63 bits
    if what == proto.ENUM:
        line = symbol(symbols, first, count, value)
        if line < 0:
            return False
        kind[place] = TEXT
        low[place], high[place] = texts + symbols[line, 1], texts + symbols[line, 2]
        return True
    kind[place] = INTEGER
    whole[place] = value
    return True


@compiled
def wire_of(what: int) -> int:
    """The wire type of a kind of field; with another it is an unknown field."""
    if what == proto.TEXT_OF:
        return _SIZED
    if what == proto.FIXED32 or what == proto.SFIXED32 or what == proto.FLOAT:
        return _FOUR
    if what == proto.FIXED64 or what == proto.SFIXED64 or what == proto.DOUBLE:
        return _EIGHT
    return _VARINT


@compiled
def proto_record(
    data: Bytes, at: int, end: int, code: I64, symbols: I64, texts: int,
    kind: Bytes, low: I64, high: I64, whole: I64,
) -> bool:  # fmt: skip
    """Read one message; False leaves it to the other reader."""
    while at < end:
        key, at = varint(data, at, end)
        if at < 0 or key >> np.uint64(3) == np.uint64(0):
            return False
        wire = np.int64(key & np.uint64(7))
        number = np.int64(key >> np.uint64(3))
        raw = np.uint64(0)
        size = 0
        if wire == _VARINT:
            raw, at = varint(data, at, end)
            if at < 0:
                return False
        elif wire == _SIZED:
            raw, at = varint(data, at, end)
            size = int(np.int64(raw))
            if at < 0 or size < 0 or size > end - at:
                return False
        else:
            width = 8 if wire == _EIGHT else (4 if wire == _FOUR else 0)
            if width == 0 or width > end - at:
                return False
            raw = little(data, at, width)
            at += width
        for line in range(len(code)):
            if code[line, 0] != number:
                continue
            what, place = code[line, 1], code[line, 2]
            if what == proto.REFUSE:
                return False
            if wire_of(what) != wire:
                break
            if what == proto.TEXT_OF:
                if not plain(data, at, at + size):
                    return False
                kind[place] = TEXT
                low[place], high[place] = at, at + size
            elif not proto_value(raw, what, code[line, 3], code[line, 4], symbols, texts,
                                 kind, low, high, whole, place):  # fmt: skip
                return False
            break
        at += size
    return True


@compiled
def scan(
    data: Bytes, begin: I64, end: I64, rows: I64, ordered: bool, code: I64, jumps: I64,
    symbols: I64, absent: I64, texts: int,
    kind: NDArray[np.uint8], low: I64, high: I64, whole: I64, known: NDArray[np.bool_],
) -> None:  # fmt: skip
    """Run a program over some records.

    Args:
        data: buffer of the records and of the program's texts.
        begin, end: (n,) bounds of each record, without its frame.
        rows: numbers of the records of this program.
        ordered: whether it is an Avro program, whose values come in order.
        code, jumps, symbols, absent: parts of the program; the last is its ``begin``.
        texts: offset of the program's texts.
        kind, low, high, whole: (n, f) output, content of each field: for texts and truth values
            begin and end, for integers the number, for reals their bits.
        known: (n,) output, whether the program recognises a record as valid.
    """
    left = np.zeros(MOST_DEPTH + 2, np.int64)
    for row in rows:
        for field in range(len(absent)):
            kind[row, field] = absent[field, 0]
            whole[row, field] = absent[field, 1]
            low[row, field], high[row, field] = texts + absent[field, 2], texts + absent[field, 3]
        if ordered:
            known[row] = avro_record(
                data, begin[row], end[row], code, jumps, symbols, texts,
                kind[row], low[row], high[row], whole[row], left,
            )  # fmt: skip
        else:
            known[row] = proto_record(
                data, begin[row], end[row], code, symbols, texts,
                kind[row], low[row], high[row], whole[row],
            )  # fmt: skip


@compiled
def spell(
    room: Bytes, kind: NDArray[np.uint8], low: I64, high: I64, whole: I64,
    known: NDArray[np.bool_], fields: I64, begin: int,
) -> None:  # fmt: skip
    """Write the integers of some fields as text, and note the places.

    Args:
        room: output buffer, `WIDTH` bytes for each field of each record.
        kind, low, high, whole, known: results of `scan`; places are set.
        fields: (k,) numbers of the fields.
        begin: the first place to write to.
    """
    digits = np.empty(WIDTH, np.uint8)
    for row in range(len(known)):
        if not known[row]:
            continue
        for slot in range(len(fields)):
            field = fields[slot]
            if kind[row, field] != INTEGER:
                continue
            value = whole[row, field]
            # The magnitude of the least int64 does not fit into an int64.
            rest = np.uint64(value) if value >= 0 else np.uint64(-(value + 1)) + np.uint64(1)
            count = 0
            while True:
                digits[count] = np.uint8(rest % np.uint64(10)) + 0x30
                rest //= np.uint64(10)
                count += 1
                if rest == np.uint64(0):
                    break
            at = begin + (row * len(fields) + slot) * WIDTH
            low[row, field] = at
            if value < 0:
                room[at] = 0x2D
                at += 1
            for n in range(count):
                room[at + n] = digits[count - 1 - n]
            high[row, field] = at + count
