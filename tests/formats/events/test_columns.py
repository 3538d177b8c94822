"""Decoding by columns: on any input the answers are those of decoding each record.

Covers: formats/events/columns.py
Covers: formats/events/views.py, formats/events/json_scan.py, formats/events/key_scan.py
"""

from __future__ import annotations

import json
import math
import os
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
import pytest
from hushstream.agents.stages.ingest.unit_digests import UnitDigests
from hushstream.formats.events.columns import LEAST
from hushstream.formats.events.decode import Decoded, Decoder, KeysAlone, RawRecord
from hushstream.formats.events.expressions.looked_up import Lookup, PublicTable
from hushstream.formats.events.fields import InputFields, NumericField, PipelineFields
from hushstream.formats.events.json_scan import decimals
from hushstream.formats.events.views import UnitTexts
from hushstream.formats.schemas.schema import Pinned, Schema
from hushstream.mechanisms.columns import I64

from .ways import by_columns, one_by_one

FARE = NumericField("fare", Fraction(0), Fraction(100), Fraction(1, 4))
ROUNDS = int(os.environ.get("HUSH_RECORDS", "60000")) // 300


def made(
    how: str = "epoch_ms",
    unit: tuple[str, ...] = ("user",),
    limit: int = 5_000,
    **pipeline: Any,
) -> Decoder:
    fields = InputFields(None if how == "record" else "t", how, "UTC", unit, limit)
    one = PipelineFields(("page",), (FARE,), **pipeline)
    two = PipelineFields(("page", "kind"), ())
    none = PipelineFields((), ())
    return Decoder(fields, [one, two, none], [KeysAlone(), KeysAlone(), KeysAlone()])  # type: ignore[list-item]


def raw(values: list[bytes | None]) -> list[RawRecord]:
    return [RawRecord(n, 1000 + n, None, value) for n, value in enumerate(values)]


def told(found: Decoded) -> Any:
    """A decoded list in plain values; the order of its distinct keys does not matter."""
    n = len(found.time)
    good = [row for row in range(n) if row not in found.bad]
    views = []
    for view in found.views:
        keys = [view.keys[k] for k in view.key.tolist()]
        assert len(set(view.keys.tolist())) == len(view.keys)
        assert set(view.key.tolist()) == set(range(len(view.keys)))
        rows: I64 = view.rows
        views.append(
            (rows.tolist(), keys, view.value.tolist(), view.sign.tolist(),
             {row: (str(why), getattr(why, "path", "")) for row, why in view.bad.items()})
        )  # fmt: skip
    return (
        {row: int(found.time[row]) for row in good},
        {row: (type(found.unit[row]), found.unit[row]) for row in good},
        views,
        {row: (str(why), getattr(why, "path", "")) for row, why in found.bad.items()},
    )


def agree(decoder: Decoder, values: list[bytes | None]) -> None:
    records = raw(values)
    fast, slow = by_columns(decoder, records), one_by_one(decoder, records)
    assert told(fast) == told(slow), values
    good = [row for row in range(len(values)) if row not in slow.bad]
    for one, other in zip(placed(fast), placed(slow), strict=True):
        assert (one[good] == other[good]).all()


def placed(found: Decoded) -> tuple[Any, Any]:
    """Digests of the units, and whether they belong to other partitions."""
    return UnitDigests(bytes(32), "murmur2", 7, 3).look(found.unit)


TEXTS = [
    "",
    "a",
    "é",
    "\u2028",
    "𝄞",
    "x" * 40,
    'q"q',
    "b\\s",
    "new\nline",
    "/",
    "\x7f",
    "\u00e9" * 600,
]
NUMBERS = [
    *(0, 1, -1, 7, 10**17, -(10**17), 10**18, 2**63, 10**40, 1.5, -2.25, 0.1, 1e22, 1e-7),
    *(123456.789, 1e300, 0.30000000000000004, 4503599627370497.5, -0.0),
]


def value(random: Random, depth: int = 0) -> Any:
    kind = random.randrange(9 if depth < 3 else 7)
    if kind < 3:
        return random.choice(TEXTS)
    if kind < 5:
        return random.choice(NUMBERS)
    if kind < 7:
        return random.choice([None, True, False])
    if kind == 7:
        return [value(random, depth + 1) for _ in range(random.randrange(3))]
    return {random.choice(TEXTS): value(random, depth + 1) for _ in range(random.randrange(3))}


def event(random: Random) -> bytes:
    """Mostly an event as producers send it, sometimes with anything in place of a field."""
    body: dict[str, Any] = {
        "user": random.choice(["u1", "u2", 17, "é"]),
        "page": random.choice(["a", "b", "a", 3, True]),
        "kind": random.choice(["x", "y", 0, False]),
        "t": random.randrange(0, 10**13),
        "fare": random.choice([1, 2.5, 100, -3, 12.25, 99.99]),
        "rest": value(random),
    }
    for _ in range(random.choice((0, 0, 0, 1, 2))):
        name = random.choice(list(body))
        if random.random() < 0.2:
            del body[name]
        else:
            body[name] = value(random)
    names = list(body)
    random.shuffle(names)
    blanks = random.choice([(",", ":"), (", ", ": "), (" ,\n", "\t:\r ")])
    text = json.dumps({n: body[n] for n in names}, ensure_ascii=random.random() < 0.5,
                      separators=blanks)  # fmt: skip
    if random.random() < 0.05:  # a doubled name
        text = text[:-1] + blanks[0] + '"page":"twice"}'
    return text.encode("utf-8", "surrogatepass")


JUNK = [
    *(b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b"0", b"-", b".", b"e", b"\x00", b"\xff"),
    *(b"\xc3", b"\xed\xa0\x80", b"\\u12", b"\\ud800", b"\\u0041", b"\t", b"\n", b"1e5", b"nul"),
    *(
        b"true",
        b"01",
        b"-0",
        b"\xf4\x90\x80\x80",
        b"\xe0\x80\x80",
        b"//",
        b"NaN",
        b"Infinity",
        b"'",
    ),
]


def hostile(random: Random) -> bytes | None:
    """An event with some of its bytes changed."""
    text = bytearray(event(random))
    for _ in range(random.choice((0, 0, 1, 1, 2, 4))):
        at = random.randrange(len(text) + 1)
        change = random.random()
        if change < 0.4:
            text[at:at] = random.choice(JUNK)
        elif change < 0.7:
            del text[at : at + random.choice((1, 1, 2, 9))]
        elif at < len(text):
            text[at] = random.randrange(256)
    end = random.random()
    if end < 0.01:
        return None
    return bytes(text) * 2 if end < 0.02 else bytes(text)


@pytest.mark.spread(2)
@pytest.mark.parametrize("how", ["epoch_s", "epoch_ms", "epoch_us", "record"])
def test_both_ways_agree_on_every_record_whatever_it_holds(how):
    random = Random(f"{how} 20")
    for _ in range(ROUNDS // 4 + 1):
        some = hostile if random.random() < 0.7 else event
        agree(made(how), [some(random) for _ in range(300)])


def test_both_ways_look_up_the_same_values_of_texts_and_numbers():
    table = PublicTable({"1": "one", "p2": "two", "0": 0, "-7": True, "a\nb": "broken"})
    zone = Lookup("kind", table, "other")
    fields = InputFields("t", "epoch_ms", "UTC", ("user",), 5_000)
    decoder = Decoder(
        fields, [PipelineFields(("zone",), (FARE,), derived={"zone": zone})], [KeysAlone()]
    )
    kinds = [1, "1", "p2", 0, -7, "-7", "a\nb", "é", "", None, True, 1.5, 10**20, "01", [], {}]
    bodies: list[dict[str, Any]] = [{"user": 1, "t": 5, "fare": 1, "kind": kind} for kind in kinds]
    values = [json.dumps(body).encode() for body in [*bodies, {"user": 1, "t": 5, "fare": 1}]]
    agree(decoder, [*values * 9])
    (view,) = one_by_one(decoder, raw(values)).views
    found = [json.loads(view.keys[k])[0] for k in view.key.tolist()]
    others = ["other"] * 2
    assert found == [
        "one",
        "one",
        "two",
        0,
        True,
        True,
        "broken",
        *others,
        "other",
        *others,
        "other",
    ]
    assert sorted(view.bad) == [10, 11, 14, 15]


def test_both_ways_agree_on_a_list_of_public_keys():
    random = Random(5)
    for _ in range(20):
        agree(made(allowed=frozenset([b'["a"]', b"[3]"])), [hostile(random) for _ in range(200)])


def test_both_ways_agree_at_every_limit():
    texts = ["x" * n for n in (0, 1, 1019, 1020, 1021, 4095, 4096, 4097, 4998)]
    bodies = [{"user": t, "page": "a", "kind": "k", "t": 5, "fare": 1} for t in texts]
    bodies += [{"user": "u", "page": t, "kind": "k", "t": 5, "fare": 1} for t in texts]
    bodies += [{"user": "u", "page": "a", "kind": "k", "t": t, "fare": 1}
               for t in (-1, 0, 253_402_300_799_999, 253_402_300_800_000, 10**17, 1.5)]  # fmt: skip
    bodies += [{"user": "u", "page": "a", "kind": "k", "t": 5, "fare": f}
               for f in (0.125, 0.375, 99.875, 1e15, 123456789012345.6, 1234567890123456.7,
                         -0.0, 5e-324)]  # fmt: skip
    agree(made(), [json.dumps(body).encode() for body in bodies])
    agree(made(limit=60), [json.dumps(body).encode() for body in bodies])


def test_a_deep_value_is_skipped_or_left_to_the_other_way():
    events = [b'{"user":"u","page":"a","kind":1,"t":1,"fare":2,"deep":' + b"[" * n + b"]" * n + b"}"
              for n in (1, 59, 60, 61, 62, 63, 64, 65, 66, 200, 900)]  # fmt: skip
    odd = """[{"a":[1,{}]}] [1,] [,1] {"a"} {"a":} {"a":1,} [1} {"a":1] []] [[] {1:2}
             [{"a":[]},{"b":{}}] [\n] {\t} [1\r2]"""  # fmt: skip
    events += [b'{"user":"u","page":"a","kind":1,"t":1,"fare":2,"deep":' + text.encode() + b"}"
               for text in odd.split(" ")]  # fmt: skip
    agree(made(), events)


def test_a_field_that_comes_twice_is_left_to_the_other_way():
    """It checks each value and takes the last, so a wrong first value matters."""
    some = (b'"a"', b'"b"', b"1.5", b"[]", b"null", b"true", b'""')
    for name in (b"page", b"\\u0070age"):  # the second is the first, escaped
        whole = b'{"user":"u","page":%s,"kind":1,"t":1,"fare":2,"' + name + b'":%s}'
        agree(made(), [whole % (one, other) for one in some for other in some])


def test_every_way_to_write_a_number_is_one_unit():
    """A second spelling of a number would be a second unit, with its own bound."""
    ways = (b"0", b"-0", b"7", b"07", b"7.0", b"7e0", b"70e-1", b'"7"', b"-7")
    agree(made(), [b'{"user":%s,"page":"a","kind":1,"t":1,"fare":2}' % way for way in ways] * 9)


def decimal(random: Random) -> str:
    whole = random.randrange(10 ** random.randrange(1, 19))
    return (
        f"{random.choice(('', '-'))}{whole}.{random.randrange(10 ** random.randrange(1, 24)):05d}"
    )


def test_decimals_are_those_of_the_standard_library_or_left_to_it():
    random, known = Random(3), 0
    for _ in range(200):
        texts = [decimal(random) for _ in range(50)]
        data = np.frombuffer("".join(texts).encode(), np.uint8)
        high = np.cumsum([len(text) for text in texts])
        low = high - [len(text) for text in texts]
        sure, out = np.ones(len(texts), bool), np.zeros(len(texts))
        decimals(data, low, high, sure, out)
        assert [float(t) for t, ok in zip(texts, sure, strict=True) if ok] == out[sure].tolist()
        known += int(sure.sum())
    assert known > 1_000


def test_plain_events_never_take_the_slow_way(monkeypatch):
    """Otherwise the agreement above would say nothing about the scanner."""
    decoder = made()
    monkeypatch.setattr(decoder, "_each", None)
    body = {
        "user": "u1",
        "page": "é",
        "kind": False,
        "t": 17,
        "fare": 12.5,
        "x": [{"y": "\u00e9\n"}],
        "z": 1e5,
    }
    text = json.dumps(body, ensure_ascii=False).encode()
    found = decoder.decode(raw([text] * LEAST))
    assert isinstance(found.unit, UnitTexts) and not found.unit.rest
    assert [len(view.rows) for view in found.views] == [LEAST] * 3
    assert found.views[0].value[0, 0] == math.floor(12.5 * 4) and found.time[0] == 17_000


def test_short_lists_and_inputs_that_it_does_not_know_go_the_other_way():
    decoder = made()
    assert type(decoder.decode(raw([b"{}"] * (LEAST - 1))).unit) is list
    assert made(unit=("user", "page"))._columns is None
    assert made(unit=("user.id",))._columns is None
    assert made(sign="del")._columns is None
    assert made(how="iso")._columns is None


def test_units_read_like_a_list():
    data = np.frombuffer(b"u117", np.uint8)
    low, high = np.array([0, 2, 0]), np.array([2, 4, 0])
    units = UnitTexts(data, low, high, np.array([False, True, False]), {2: None})
    assert list(units) == ["u1", 17, None] == units[:]
    assert len(units) == 3 and units[1] == 17
    with pytest.raises(IndexError):
        units[3]


IDS = {
    1: Pinned(Schema("JSON", "{}"), 0),
    2: Pinned(Schema("JSON", "{ }"), 150),  # unknown to records before offset 150
    3: Pinned(Schema("AVRO", "{}"), 0),
    1 << 31: Pinned(Schema("JSON", "{}"), 0),
}
HEADS = [
    *[bytes([0]) + number.to_bytes(4, "big") for number in (1, 1, 1, 2, 3, 9, 1 << 31)],
    b"", b"\0", b"\0\0\0\0", b"\1\0\0\0\1",
]  # fmt: skip


def registered(limit: int = 5_000) -> Decoder:
    fields = InputFields("t", "epoch_ms", "UTC", ("user",), limit, "json_schema")
    one = PipelineFields(("page",), (FARE,))
    two = PipelineFields(("page", "kind"), ())
    return Decoder(fields, [one, two], [KeysAlone(), KeysAlone()])  # type: ignore[list-item]


@pytest.mark.parametrize("limit", [5_000, 120])
def test_values_behind_the_id_of_a_schema_are_read_as_one_by_one(limit: int) -> None:
    random, decoder = Random(11), registered(limit)
    assert decoder._columns is not None
    for _ in range(max(ROUNDS // 10, 5)):
        values: list[bytes | None] = [
            random.choice(HEADS[:4] if random.random() < 0.8 else HEADS) + event(random)
            for _ in range(300)
        ]
        values[17], values[40], values[41] = None, b"", HEADS[0]
        values[60] = HEADS[0] + b"x" * (limit - 5)
        values[61] = HEADS[0] + b" " * (limit - 4)
        records = raw(values)
        fast, slow = decoder.decode(records, IDS), one_by_one(decoder, records, IDS)
        assert told(fast) == told(slow)
        assert told(decoder.decode(records)) == told(one_by_one(decoder, records))


def test_all_plain_values_behind_an_id_are_read_by_columns(monkeypatch) -> None:
    decoder = registered()
    body = b'{"user":"u","page":"a","kind":"x","t":1,"fare":2}'
    records = raw([HEADS[0] + body] * LEAST)
    monkeypatch.setattr(decoder, "_each", None)
    assert len(decoder.decode(records, IDS).views[0].rows) == LEAST
