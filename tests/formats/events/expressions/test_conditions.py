"""Conditions and derived columns of records, against a plain reading of each single record.

Covers: formats/events/expressions/derived.py, formats/events/expressions/filtered.py
Covers: formats/events/expressions/valued.py
Covers: formats/events/expressions/widened.py, formats/events/expressions/texts.py
"""

from __future__ import annotations

import json
from fractions import Fraction
from random import Random
from time import process_time
from typing import Any

import numpy as np
import pytest
from hushstream.formats.events.decode import Decoder, KeysAlone, RawRecord
from hushstream.formats.events.expressions import texts
from hushstream.formats.events.expressions.conditions import (
    Between,
    Condition,
    Every,
    Leaf,
    NumberIn,
    Present,
    Some,
    TextFits,
    TextIn,
    TruthIs,
    leaves,
)
from hushstream.formats.events.expressions.derived import (
    PARTS,
    Band,
    Cases,
    Derived,
    TextPart,
    TimePart,
    decimals_of,
)
from hushstream.formats.events.expressions.filtered import ScannedFields
from hushstream.formats.events.expressions.looked_up import PublicTable, row_fits
from hushstream.formats.events.expressions.texts import matching
from hushstream.formats.events.fields import InputFields, NumericField, PipelineFields

from ....judge import records as judge
from ..ways import by_columns, one_by_one

FARE = NumericField("fare", Fraction(0), Fraction(100), Fraction(1, 100))
FARE_OF: Any = ("fare", Fraction(0), Fraction(100), Fraction(1, 100))
ZONES = ["UTC", "Europe/Berlin", "Asia/Kathmandu", "America/St_Johns", "Pacific/Apia"]
TEXTS = ["", "a", "b", "é", "x" * 40, 'q"q', "line\n", "true", "1", "ÀB c", " a ", "a%b", "ß", "İx"]
STEPS: list[tuple[Any, ...]] = [
    ("lower",), ("upper",), ("trim", "both"), ("trim", "left"), ("trim", "right"),
    ("part", 1, 2), ("part", 2, -1), ("part", -2, -1), ("part", -3, 2),
    ("extract", "[a-x]+"), ("extract", "^(.)"), ("extract", "(?:b|(x+))"),
]  # fmt: skip
LIKES = ["", "%", "a%", "%b", "_", "%_x%", "a\\%b", "%a%b%", "x%x%x", "\\", "%\n", "__"]
TABLES = [
    PublicTable({"a": "x", "b": "aé", "1": "b", "x" * 40: "a%b", "3": "q", " a ": "ß"}),
    PublicTable({"a": 1, "b": 7, "3": 0, "true": 2}),
    PublicTable({"a": "0.5", "é": "2.5", "3": "7"}),
]
ROWS = {table.sha256: table.rows for table in TABLES}
NUMBERS = [0, 1, -1, 7, 2.5, -0.0, 0.1, 0.3, 1e300, 2**53 + 1, 10**400, -(10**400), 1e-9]
NUMBERS += [0.30000000000000004, 4503599627370497.5, 123456.78901234567]


def leaf(random: Random) -> Condition:
    field = random.choice(["fare", "n", "kind", "open", "page"])
    kind = random.randrange(7)
    if kind == 6:
        return on_row(random)
    if kind == 0:
        ends = sorted([Fraction(random.choice([0, 1, 7])), Fraction(random.choice([1, 5, 10**6]))])
        low = random.choice([None, ends[0]])
        opened = random.choice([True, False]), random.choice([True, False])
        return Between("n", low, ends[1], low is not None and opened[0], opened[1])
    if kind == 1:
        some = tuple(Fraction(str(n)) for n in random.sample([0, 1, 7, 2.5, 0.1], 2))
        return NumberIn("n", some, random.choice([True, False]))
    if kind == 2:
        return TextIn("kind", tuple(random.sample(TEXTS, 3)), random.choice([True, False]))
    if kind == 5:
        steps = tuple(random.choices(STEPS, k=random.randrange(3)))
        denied, test = random.choice([True, False]), random.choice(["in", "like", "matches"])
        values = {"in": TEXTS, "like": LIKES, "matches": ["a", "^x*$", "(a|é)", "[^a]"]}[test]
        chosen = random.sample(values, 3 if test == "in" else 1)
        return TextFits(random.choice(["kind", "page"]), steps, test, tuple(chosen), denied)
    if kind == 3:
        return TruthIs("open", random.choice([True, False]))
    return Present(field, random.choice([True, False]))


def on_row(random: Random) -> Condition:
    """A condition on the table row that the field `kind` finds."""
    text = random.random() < 0.5
    tests: list[Leaf] = [Present("", random.choice([True, False]))]
    if text:
        tests += [TextIn("", tuple(random.sample(TEXTS, 3)), random.choice([True, False]))]
        tests += [TextFits("", (("part", 1, 1),), "like", (random.choice(LIKES),))]
    else:
        tests += [NumberIn("", (Fraction(1), Fraction(1, 2)), random.choice([True, False]))]
        tests += [Between("", Fraction(random.choice([0, 1])), None, random.choice([True, False]))]
    table = TABLES[0] if text else random.choice(TABLES[1:])
    return row_fits("kind", table, random.choice(tests))


def condition(random: Random, depth: int = 0) -> Condition:
    if depth == 2 or random.random() < 0.4:
        return leaf(random)
    parts = tuple(condition(random, depth + 1) for _ in range(random.randrange(1, 4)))
    return Every(parts) if random.random() < 0.5 else Some(parts)


def derived(random: Random) -> Derived:
    if random.random() < 0.5:
        return TimePart(random.choice(list(PARTS)), random.choice(ZONES))
    if random.random() < 0.3:
        return TextPart("kind", tuple(random.choices(STEPS, k=random.randrange(1, 3))))
    if random.random() < 0.4:
        conditions = tuple(condition(random) for _ in range(random.randrange(1, 4)))
        values = ['"a"', "true", "1", "false", "0", '"true"', '"é"', "-3", r'"q\"q"', r'"\n"']
        return Cases(conditions, tuple(random.choices(values, k=len(conditions) + 1)))
    width = Fraction(random.choice(["1", "10", "0.5", "0.1", "2.5", "0.25", "1000"]))
    return Band("n", width, random.choice([True, False]))


def event(random: Random) -> bytes:
    body: dict[str, Any] = {
        "user": random.choice(["u1", "u2", 17]),
        "t": random.choice([0, 1_550_000_000_123, random.randrange(4 * 10**12)]),
        "page": random.choice(TEXTS),
        "kind": random.choice(TEXTS),
        "fare": random.choice([*NUMBERS, round(random.uniform(-50, 50), random.randrange(4))]),
        "n": random.choice([*NUMBERS, round(random.uniform(-50, 50), random.randrange(4))]),
        "open": random.choice([True, False]),
    }
    for name in list(body)[2:]:
        if random.random() < 0.15:
            body[name] = random.choice([None, "a", 3, True, [1], {"b": 2}])
        if random.random() < 0.1:
            del body[name]
    return json.dumps(body, ensure_ascii=random.random() < 0.5).encode()


def told(where: Condition | None) -> dict[str, Any] | None:
    """A condition as a charged configuration states it."""
    if where is None:
        return None
    found: dict[str, Any] = {"kind": type(where).__name__.lower()}
    for name, value in vars(where).items():
        if name == "parts":
            found[name] = [told(part) for part in value]
        elif isinstance(value, Leaf):  # a condition on the row
            found |= {"test": told(value), "rows": ROWS[found["sha256"]]}
        elif isinstance(value, tuple):
            found[name] = [str(v) if isinstance(v, Fraction) else v for v in value]
        else:
            found[name] = str(value) if isinstance(value, Fraction) else value
    return found


def described(one: Derived) -> dict[str, Any]:
    if isinstance(one, Cases):
        cases = [told(condition) for condition in one.conditions]
        return {"kind": "cases", "cases": cases, "values": one.constants}
    plain = {n: str(v) if isinstance(v, Fraction) else v for n, v in vars(one).items()}
    return {"kind": type(one).__name__.lower(), **plain}


def columns(random: Random) -> tuple[NumericField, ...]:
    """Columns: the fare of all records, the fare of some, and a count of some."""
    some = NumericField(*FARE_OF, where=condition(random), called="some")
    counted = NumericField(None, *FARE_OF[1:3], Fraction(1), condition(random), "counted")
    return random.choice([(FARE,), (some,), (some, counted), (counted, FARE, some)])


def summed(column: NumericField) -> dict[str, Any]:
    """A value column as a charged configuration states it."""
    told_: dict[str, Any] = {"kind": "sum", "field": column.field}
    told_ |= {n: str(getattr(column, n)) for n in ("low", "high", "grid")}
    if column.where is None:
        return told_
    return told_ | {"where": told(column.where), "column": column.called}


def read(fields: PipelineFields, value: bytes) -> Any:
    """The judge's reading of a record; it shares no code with the decoder."""
    config = {
        "input": {
            "max_record_bytes": 5000,
            "time": {"format": "epoch_ms", "field": "t"},
            "unit": ["user"],
        },
        "key": list(fields.key),
        "derive": {name: described(one) for name, one in fields.derived.items()},
        "where": told(fields.where),
        "aggregate": [summed(column) for column in fields.columns],
        "sign": None,
        "inputs": None,
        "mechanism": {"kind": "histogram"},
    }
    return judge.read(config, 0, value)


def rows_of(decoded: Any) -> dict[int, tuple[bytes, tuple[int, ...]]]:
    (view,) = decoded.views
    keys = [view.keys[k] for k in view.key.tolist()]
    found = zip(view.rows.tolist(), keys, view.value.tolist(), strict=True)
    return {row: (key, tuple(value)) for row, key, value in found}


@pytest.mark.spread(9)
@pytest.mark.parametrize("seed", range(60))
def test_decoders_and_the_judge_agree(seed: int) -> None:
    random = Random(seed)
    where = condition(random) if random.random() < 0.8 else None
    names = ["one", "two"][: random.randrange(3)]
    fields = PipelineFields(
        ("page", *names), columns(random), where=where, derived={n: derived(random) for n in names}
    )
    decoder = Decoder(InputFields("t", "epoch_ms", "UTC", ("user",), 5000), [fields], [KeysAlone()])  # type: ignore[list-item]
    values = [event(random) for _ in range(200)]
    records = [RawRecord(n, 0, None, value) for n, value in enumerate(values)]
    slow = one_by_one(decoder, records)
    wanted = {
        row: (found.key, found.values)
        for row, value in enumerate(values)
        if (found := read(fields, value)) is not None
    }
    assert rows_of(slow) == wanted
    alone = {}
    for row, record in enumerate(records):
        part = one_by_one(decoder, [record])
        if rows_of(part):
            alone[row] = rows_of(part)[0]
        assert set(part.views[0].bad.values()) <= set(slow.views[0].bad.values())
    assert alone == wanted  # no neighbour changes a record's result
    if decoder._columns is not None:
        fast = by_columns(decoder, records)
        assert rows_of(fast) == wanted
        assert fast.views[0].bad == slow.views[0].bad
        assert fast.bad == slow.bad


def decode(fields: PipelineFields, *bodies: dict[str, Any]) -> Any:
    decoder = Decoder(InputFields("t", "epoch_ms", "UTC", ("user",), 5000), [fields], [KeysAlone()])  # type: ignore[list-item]
    whole = [{"user": "u", "t": 0, "page": "p"} | body for body in bodies]
    return one_by_one(
        decoder, [RawRecord(n, 0, None, json.dumps(body).encode()) for n, body in enumerate(whole)]
    )


def test_what_a_condition_leaves_out_is_no_fault() -> None:
    fields = PipelineFields(("page",), where=TextIn("kind", ("a",)))
    found = decode(fields, {"kind": "b", "page": None}, {"kind": "a", "page": None}, {"kind": "a"})
    (view,) = found.views
    assert view.rows.tolist() == [2]
    assert view.bad == {1: "missing_key"}


def test_a_value_of_another_type_is_a_fault_of_that_pipeline() -> None:
    fields = PipelineFields(("page",), where=TextIn("kind", ("a",), denied=True))
    (view,) = decode(fields, {"kind": 7}, {"kind": None}, {"kind": "b"}, {}).views
    assert view.rows.tolist() == [2]
    assert view.bad == {0: "wrong_type"}


def test_a_number_without_a_band_has_no_key() -> None:
    fields = PipelineFields(("band",), derived={"band": Band("fare", Fraction(1, 10))})
    (view,) = decode(fields, {"fare": 1e300}, {}, {"fare": 0.3}, {"fare": -0.05}).views
    assert view.bad == {0: "missing_key", 1: "missing_key"}
    assert [view.keys[k] for k in view.key.tolist()] == [b'["0.3"]', b'["-0.1"]']


def test_parts_of_a_time_follow_their_zone_through_a_change_of_clocks() -> None:
    before = 1_553_993_940_000_000  # 2019-03-31 00:59 UTC; Berlin skips an hour next
    time = np.array([before, before + 60_000_000], np.int64)
    assert TimePart("hour", "Europe/Berlin").values(time) == [1, 3]
    assert TimePart("hour").values(time) == [0, 1]
    early = np.array([0], np.int64)
    assert TimePart("date", "America/St_Johns").values(early) == ["1969-12-31"]
    assert TimePart("weekday").values(early) == [4]


def test_bands_have_the_decimals_of_their_width() -> None:
    numbers = np.array([0.3, -0.3, 12.34, np.nan])
    assert Band("x", Fraction(1, 10)).values(numbers) == ["0.3", "-0.3", "12.3", None]
    assert Band("x", Fraction(10), nearest=True).values(numbers) == [0, 0, 10, None]
    with pytest.raises(ValueError, match="at most 9 decimals"):
        decimals_of(Fraction(1, 3))


@pytest.mark.parametrize("pattern", ["%a%b%c%a%b%c%d", "(?:a*)*$|(?:a|a)*c$"])
def test_no_pattern_takes_more_than_linear_time(pattern: str) -> None:
    fits = matching("like" if pattern.startswith("%") else "matches", (pattern,))
    for size in (500, 30_000):  # backtracking would take seconds, and then for ever
        text = "ab" * size + "c" * size + "!"
        began = process_time()
        fits(text)
        assert process_time() - began < 1


def test_a_function_is_computed_once_for_each_distinct_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []
    monkeypatch.setitem(texts._STEPS, "lower", lambda: lambda text: asked.append(text) or "x")
    fields = PipelineFields(
        ("low",),
        where=TextFits("kind", (("lower",),), "in", ("x",)),
        derived={"low": TextPart("kind", (("lower",),))},
    )
    decoder = Decoder(InputFields("t", "epoch_ms", "UTC", ("user",), 5000), [fields], [KeysAlone()])  # type: ignore[list-item]
    bodies = [{"user": "u", "t": 0, "kind": "AB"[n % 2]} for n in range(1000)]
    records = [RawRecord(n, 0, None, json.dumps(b).encode()) for n, b in enumerate(bodies)]
    for read_all in (by_columns, one_by_one):
        (view,) = read_all(decoder, records).views
        assert len(view.rows) == 1000
        assert sorted(asked) == ["A", "A", "B", "B"]  # once in WHERE, once in the key
        asked.clear()


def test_loops_read_a_field_once_whatever_the_number_of_its_conditions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The cached field gives the same results as reading each record."""
    read: list[str] = []

    def told(name: str) -> None:
        inner = getattr(ScannedFields, name)
        monkeypatch.setattr(
            ScannedFields,
            name,
            lambda self, path, *role: read.append(path) or inner(self, path, *role),
        )

    told("_distinct")
    told("_numbers")
    conditions = [TextFits("kind", (), "like", (f"{one}%",)) for one in "AB"]
    conditions += [Between("n", Fraction(low), Fraction(low + 5)) for low in (0, 3)]
    columns = tuple(
        NumericField(None, Fraction(0), Fraction(1), Fraction(1), one, f"c{place}")
        for place, one in enumerate(conditions)
    )
    fields = PipelineFields(("user",), columns)
    decoder = Decoder(InputFields("t", "epoch_ms", "UTC", ("user",), 5000), [fields], [KeysAlone()])  # type: ignore[list-item]
    bodies = [{"user": "u", "t": 0, "kind": "ABC"[n % 3], "n": n % 10} for n in range(999)]
    bodies += [{"user": "u", "t": 0, "kind": 7, "n": 1}, {"user": "u", "t": 0, "n": "A"}]
    records = [RawRecord(n, 0, None, json.dumps(b).encode()) for n, b in enumerate(bodies)]
    found, wanted = by_columns(decoder, records), one_by_one(decoder, records)
    assert sorted(read) == ["kind", "n"]
    np.testing.assert_array_equal(found.views[0].value, wanted.views[0].value)
    assert found.views[0].value.sum(axis=0).tolist() == [333, 333, 600, 600]


def test_a_text_of_which_nothing_is_left_has_no_key() -> None:
    how = TextPart("kind", (("extract", "^a(.*)"),))
    fields = PipelineFields(("k",), derived={"k": how})
    (view,) = decode(fields, {"kind": "abc"}, {"kind": "b"}, {"kind": "a"}, {"kind": 3}).views
    assert [view.keys[k] for k in view.key.tolist()] == [b'["bc"]']
    assert view.bad == {1: "missing_key", 2: "empty_key", 3: "wrong_type"}


def test_a_record_outside_a_condition_needs_no_number() -> None:
    sale = NumericField(*FARE_OF, where=TextIn("kind", ("sale",)), called="sales")
    fields = PipelineFields(("page",), (sale,))
    bodies = [{"kind": "sale", "fare": 3}, {"kind": "visit"}, {"kind": "sale"}, {"fare": 4}]
    (view,) = decode(fields, *bodies).views
    assert view.rows.tolist() == [0, 1, 3]
    assert view.value[:, 0].tolist() == [300, 0, 0]
    assert view.bad == {2: "missing_value"}


def test_a_text_of_which_nothing_is_left_fulfils_neither_a_condition_nor_its_denial() -> None:
    for denied in (False, True):
        where = TextFits("kind", (("extract", "a+"),), "in", ("aa",), denied)
        (view,) = decode(PipelineFields(("page",), where=where), {"kind": "b"}, {"kind": "a"}).views
        assert view.rows.tolist() == [1] * denied


def test_characters_are_counted_from_both_ends() -> None:
    steps = [("part", 2, 2), ("part", -2, -1), ("part", -3, 2), ("part", -9, 2), ("part", 9, -1)]
    assert [texts.changed(["abcd"], [step]) for step in steps] == [
        ["bc"], ["cd"], ["bc"], ["ab"], [""],
    ]  # fmt: skip


def test_leaves_are_found_at_every_depth() -> None:
    one, two = Present("a"), TruthIs("b", True)
    assert list(leaves(Every((one, Some((two, one)))))) == [one, two, one]
    assert list(leaves(None)) == []
