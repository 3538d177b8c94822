"""Values of producers, plain and spoilt, and the comparison of both ways to read them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from fractions import Fraction
from random import Random
from typing import Any

import pytest
from hushstream.formats.events.columns import ColumnDecoder
from hushstream.formats.events.decode import Decoder, RawRecord
from hushstream.formats.events.expressions.conditions import Between, Some, TextIn
from hushstream.formats.events.fields import InputFields, NumericField, PipelineFields
from hushstream.formats.events.views import UnitTexts
from hushstream.formats.schemas.schema import Pinned

from ..test_columns import KeysAlone, placed, told
from ..ways import by_columns, one_by_one

FARE = NumericField("fare", Fraction(0), Fraction(100), Fraction(1, 4))
LISTS = int(os.environ.get("HUSH_RECORDS", "30000")) // 250
NEEDED = ("user", "page", "kind", "t", "fare")
WHERE = Some((TextIn("kind", ("a", "é"), denied=True), Between("fare", high=Fraction(2))))
TEXTS = ["", "a", "b", "é", "\u2028", "𝄞", "x" * 40, 'q"q', "b\\s", "new\nline", "\x7f", "é" * 600]
INTEGERS = [0, 1, -1, 7, 63, -64, 2**31 - 1, -(2**31)]
LONGS = [*INTEGERS, 10**12, 1_700_000_000_000, 2**53 + 1, 2**63 - 1, -(2**63)]
REALS = [0.0, 1.5, -2.25, 12.125, 1e300, float("inf"), float("nan"), -0.0, 0.1]


def made(encoding: str, limit: int = 3_000, how: str = "epoch_ms", **pipeline: Any) -> Decoder:
    fields = InputFields(None if how == "record" else "t", how, "UTC", ("user",), limit, encoding)
    one = PipelineFields(("page",), (FARE,), **pipeline)
    two = PipelineFields(("page", "kind"), ())
    none = PipelineFields((), ())
    return Decoder(fields, [one, two, none], [KeysAlone()] * 3)  # type: ignore[list-item]


def columns_of(decoder: Decoder) -> ColumnDecoder:
    found = decoder._columns
    assert found is not None
    return found


def raw(values: list[bytes | None]) -> list[RawRecord]:
    return [RawRecord(n, 1000 + n, None, value) for n, value in enumerate(values)]


def agree(decoder: Decoder, values: list[bytes | None], known: Mapping[int, Pinned]) -> int:
    """Compare both ways; return how many records the loops read on their own."""
    records = raw(values)
    fast, slow = by_columns(decoder, records, known), one_by_one(decoder, records, known)
    assert told(fast) == told(slow), values
    good = [row for row in range(len(values)) if row not in slow.bad]
    for one, other in zip(placed(fast), placed(slow), strict=True):
        assert (one[good] == other[good]).all()
    assert isinstance(fast.unit, UnitTexts)
    return len(values) - len(fast.unit.rest)


def never(decoder: Decoder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoder, "_each", None)


def framed(number: int, payload: bytes) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + payload


def varint(value: int, longer: int = 0) -> bytes:
    """A number of variable length, padded with ``longer`` redundant bytes."""
    value &= (1 << 64) - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    for _ in range(longer):
        out[-1] |= 0x80
        out.append(0)
    return bytes(out)


HUGE = [varint(n) for n in (2**63 - 1, 2**63, 2**64 - 1, 2**40, 2**31)]
JUNK = [
    *HUGE,
    b"\xff" * 10,
    b"\xff" * 11,
    b"\x80" * 9 + b"\x7f",
    b"\x80\x00",
    b"\0",
    b"\1",
    b"\xff",
]


def spoilt(random: Random, payload: bytes) -> bytes:
    """A value with some of its bytes changed."""
    out = bytearray(payload)
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        at = random.randrange(len(out) + 1)
        change = random.random()
        if change < 0.3:
            out[at:at] = random.choice(JUNK)
        elif change < 0.5:
            del out[at : at + random.choice((1, 1, 2, 9))]
        elif change < 0.6:
            del out[at:]
        elif change < 0.7:
            out += random.choice(JUNK)
        elif at < len(out):
            out[at] = random.choice((out[at] ^ 1 << random.randrange(8), random.randrange(256)))
    return bytes(out)
