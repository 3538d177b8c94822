"""A compiled scanner of JSON events: where each needed field stands, without an object per record.

It accepts a subset of JSON and leaves every other record to `Decoder`. The two must agree on every
record that it accepts.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...compiled import compiled
from .types import FALSE, INTEGER, MISSING, NULL, OTHER, REAL, TEXT, TRUE

DIGITS = 18  # of an integer, so that it fits into 64 bits
EXACT = 15  # digits of a decimal whose digits and power of ten are both exact doubles
POWERS = 22
DEPTH = 60  # of nested lists and objects
_TENS = np.array([10.0**n for n in range(POWERS + 1)])

Bytes = NDArray[np.uint8]
I64 = NDArray[np.int64]


@compiled
def blank(data: Bytes, at: int, end: int) -> int:
    """The first place from ``at`` on that is not white space."""
    while at < end and (
        data[at] == 0x20 or data[at] == 0x0A or data[at] == 0x0D or data[at] == 0x09
    ):
        at += 1
    return at


@compiled
def sequence(data: Bytes, at: int, end: int) -> int:
    """Bytes of the UTF-8 sequence that begins with a byte above 127; 0 if it is not valid."""
    first = data[at]
    low, high = 0x80, 0xBF
    if 0xC2 <= first <= 0xDF:
        more = 1
    elif 0xE0 <= first <= 0xEF:
        more = 2
        if first == 0xE0:
            low = 0xA0
        elif first == 0xED:
            high = 0x9F
    elif 0xF0 <= first <= 0xF4:
        more = 3
        if first == 0xF0:
            low = 0x90
        elif first == 0xF4:
            high = 0x8F
    else:
        return 0
    if at + more >= end:
        return 0
    if data[at + 1] < low or data[at + 1] > high:
        return 0
    for n in range(2, more + 1):
        if data[at + n] < 0x80 or data[at + n] > 0xBF:
            return 0
    return more + 1


@compiled
def escape(data: Bytes, at: int, end: int) -> int:
    """Bytes of the escape that begins with a backslash; 0 if it is none, or a surrogate."""
    if at + 1 >= end:
        return 0
    what = data[at + 1]
    for known in b'"\\/bfnrt':
        if what == known:
            return 2
    if what != 0x75 or at + 6 > end:
        return 0
    code = 0
    for n in range(2, 6):
        one = data[at + n]
        if 0x30 <= one <= 0x39:
            code = code * 16 + (one - 0x30)
        elif 0x41 <= one <= 0x46:
            code = code * 16 + (one - 0x37)
        elif 0x61 <= one <= 0x66:
            code = code * 16 + (one - 0x57)
        else:
            return 0
    return 0 if 0xD800 <= code <= 0xDFFF else 6


@compiled
def string(data: Bytes, at: int, end: int) -> tuple[int, bool]:
    """The place of the quote that ends a string, and whether the string has no escapes.

    ``at`` is after the opening quote; the place is -1 where the string is not valid.
    """
    plain = True
    while at < end:
        one = data[at]
        if one == 0x22:
            return at, plain
        if one < 0x20:
            return -1, plain
        if one == 0x5C:
            size = escape(data, at, end)
            plain = False
        elif one >= 0x80:
            size = sequence(data, at, end)
        else:
            size = 1
        if size == 0:
            return -1, plain
        at += size
    return -1, plain


@compiled
def number(data: Bytes, at: int, end: int) -> tuple[int, int]:
    """The end of a number and its kind; the end is -1 where it is not valid."""
    negative = data[at] == 0x2D
    if negative:
        at += 1
    begin = at
    while at < end and 0x30 <= data[at] <= 0x39:
        at += 1
    size = at - begin
    if size == 0 or (size > 1 and data[begin] == 0x30):
        return -1, OTHER
    kind = INTEGER
    if size > DIGITS or (negative and data[begin] == 0x30):
        kind = OTHER
    if at < end and data[at] == 0x2E:
        at += 1
        begin = at
        while at < end and 0x30 <= data[at] <= 0x39:
            at += 1
        if at == begin:
            return -1, OTHER
        kind = REAL
    if at < end and (data[at] == 0x65 or data[at] == 0x45):
        at += 1
        if at < end and (data[at] == 0x2B or data[at] == 0x2D):
            at += 1
        begin = at
        while at < end and 0x30 <= data[at] <= 0x39:
            at += 1
        if at == begin:
            return -1, OTHER
        kind = OTHER
    return at, kind


@compiled
def word(data: Bytes, at: int, end: int) -> tuple[int, int]:
    """The end of true, false or null and its kind; the end is -1 for anything else."""
    if at + 4 <= end and data[at] == 0x74:
        if data[at + 1] == 0x72 and data[at + 2] == 0x75 and data[at + 3] == 0x65:
            return at + 4, TRUE
    elif at + 4 <= end and data[at] == 0x6E:
        if data[at + 1] == 0x75 and data[at + 2] == 0x6C and data[at + 3] == 0x6C:
            return at + 4, NULL
    elif (
        at + 5 <= end
        and data[at] == 0x66
        and data[at + 1] == 0x61
        and data[at + 2] == 0x6C
        and data[at + 3] == 0x73
        and data[at + 4] == 0x65
    ):
        return at + 5, FALSE
    return -1, OTHER


@compiled
def scalar(data: Bytes, at: int, end: int) -> tuple[int, int]:
    """The end of a value without nested ones, and its kind; the end is -1 if it is not valid."""
    if at >= end:
        return -1, OTHER
    one = data[at]
    if one == 0x22:
        close, plain = string(data, at + 1, end)
        if close < 0:
            return -1, OTHER
        return close + 1, TEXT if plain else OTHER
    if one == 0x2D or 0x30 <= one <= 0x39:
        return number(data, at, end)
    return word(data, at, end)


@compiled
def nested(data: Bytes, at: int, end: int) -> int:
    """The end of a list or an object with all that it holds; -1 if it is not valid."""
    objects = np.uint64(0)  # one bit for each level: whether it is an object
    depth = 0
    fresh = True  # directly after an opening bracket
    while True:
        at = blank(data, at, end)
        if at >= end:
            return -1
        one = data[at]
        inside = depth > 0 and not fresh
        if depth > 0 and (one == 0x7D or one == 0x5D):
            if (one == 0x7D) != (objects & np.uint64(1) == np.uint64(1)):
                return -1
            at += 1
            objects >>= np.uint64(1)
            depth -= 1
            fresh = False
            if depth == 0:
                return at
            continue
        if inside:
            if one != 0x2C:
                return -1
            at = blank(data, at + 1, end)
            if at >= end:
                return -1
            one = data[at]
            if one == 0x7D or one == 0x5D:
                return -1
        if depth > 0 and objects & np.uint64(1) == np.uint64(1):
            if one != 0x22:
                return -1
            at, _ = string(data, at + 1, end)
            if at < 0:
                return -1
            at = blank(data, at + 1, end)
            if at >= end or data[at] != 0x3A:
                return -1
            at = blank(data, at + 1, end)
            if at >= end:
                return -1
            one = data[at]
        if one == 0x7B or one == 0x5B:
            if depth >= DEPTH:
                return -1
            objects = (objects << np.uint64(1)) | np.uint64(one == 0x7B)
            depth += 1
            fresh = True
            at += 1
            continue
        at, _ = scalar(data, at, end)
        if at < 0:
            return -1
        fresh = False


@compiled
def which(data: Bytes, low: int, high: int, names: Bytes, ends: I64) -> int:
    """The number of the needed field with this name; -1 if it is none."""
    begin = 0
    for field in range(len(ends)):
        size = ends[field] - begin
        if size == high - low:
            same = True
            for n in range(size):
                if names[begin + n] != data[low + n]:
                    same = False
                    break
            if same:
                return field
        begin = ends[field]
    return -1


@compiled
def record(
    data: Bytes, at: int, end: int, names: Bytes, ends: I64,
    kind: Any, low: Any, high: Any,
) -> bool:  # fmt: skip
    """Scan one record; False if it is not known to be valid."""
    at = blank(data, at, end)
    if at >= end or data[at] != 0x7B:
        return False
    at = blank(data, at + 1, end)
    if at >= end:
        return False
    if data[at] == 0x7D:
        return blank(data, at + 1, end) == end
    while True:
        if at >= end or data[at] != 0x22:
            return False
        close, plain = string(data, at + 1, end)
        if close < 0 or not plain:  # an escaped name may mean a needed field
            return False
        field = which(data, at + 1, close, names, ends)
        at = blank(data, close + 1, end)
        if at >= end or data[at] != 0x3A:
            return False
        at = blank(data, at + 1, end)
        if at >= end:
            return False
        begin = at
        if data[at] == 0x7B or data[at] == 0x5B:
            at = nested(data, at, end)
            what = OTHER
        else:
            at, what = scalar(data, at, end)
        if at < 0:
            return False
        if field >= 0:
            if kind[field] != MISSING or what == OTHER:  # repeated, or not read here
                return False
            kind[field] = what
            inner = 1 if what == TEXT else 0
            low[field] = begin + inner
            high[field] = at - inner
        at = blank(data, at, end)
        if at >= end:
            return False
        if data[at] == 0x7D:
            return blank(data, at + 1, end) == end
        if data[at] != 0x2C:
            return False
        at = blank(data, at + 1, end)


@compiled
def scan(
    data: Bytes, begin: I64, end: I64, names: Bytes, ends: I64, most: int,
    kind: NDArray[np.uint8], low: I64, high: I64, known: NDArray[np.bool_],
) -> None:  # fmt: skip
    """Scan all records.

    Args:
        begin, end: (n,) bounds of each record; a begin below 0 means none.
        names: names of the f needed fields, one after the other, as JSON writes them without
            quotes.
        ends: (f,) of the names.
        most: maximal bytes of a record; larger ones are not read.
        kind, low, high: (n, f) output, type, begin and end of each field.
        known: (n,) output, whether this scanner recognises a record as valid.
    """
    for row in range(len(begin)):
        known[row] = (
            begin[row] >= 0
            and end[row] - begin[row] <= most
            and record(data, begin[row], end[row], names, ends, kind[row], low[row], high[row])
        )


@compiled
def integers(data: Bytes, low: I64, high: I64, wanted: NDArray[np.bool_], out: I64) -> None:
    """Read the integers of wanted rows."""
    for row in range(len(low)):
        if not wanted[row]:
            continue
        at = low[row]
        negative = data[at] == 0x2D
        if negative:
            at += 1
        value = 0
        while at < high[row]:
            value = value * 10 + (data[at] - 0x30)
            at += 1
        out[row] = -value if negative else value


@compiled
def decimals(
    data: Bytes, low: I64, high: I64, known: NDArray[np.bool_], out: NDArray[np.float64]
) -> None:
    """Read the decimals of known rows; a row that would need rounding becomes unknown."""
    for row in range(len(low)):
        if not known[row]:
            continue
        at = low[row]
        negative = data[at] == 0x2D
        if negative:
            at += 1
        value, digits, behind, point = 0, 0, 0, False
        while at < high[row]:
            one = data[at]
            at += 1
            if one == 0x2E:
                point = True
                continue
            value = value * 10 + (one - 0x30)
            if value > 0:
                digits += 1
            if point:
                behind += 1
            if digits > EXACT or behind > POWERS:
                break
        if digits > EXACT or behind > POWERS:
            known[row] = False
            continue
        real = value / _TENS[behind]
        out[row] = -real if negative else real
