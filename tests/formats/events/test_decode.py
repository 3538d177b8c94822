"""The decoder: every reason is reached, nothing raises, and good records are read exactly.

Covers: formats/events/fields.py, formats/events/types.py, formats/events/reasons.py
Covers: formats/events/records.py
"""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hushstream.errors import ConfigError
from hushstream.formats.events.decode import Decoder, KeysAlone, RawRecord
from hushstream.formats.events.fields import InputFields, NumericField, PipelineFields
from hushstream.formats.events.keys import MAX_KEY, decode_key, encode_key
from hushstream.formats.events.reasons import REASONS
from hushstream.formats.events.views import MAX_UNIT
from hushstream.mechanisms.columns import Encoded
from hushstream.mechanisms.key_form import ONE_ROW
from hushstream.mechanisms.keys import Keys
from hypothesis import given
from hypothesis import strategies as st

FARE = NumericField("fare", Fraction(0), Fraction(50), Fraction(1, 100))


def decoder(
    unit: tuple[str, ...] = ("user",),
    key: tuple[str, ...] = ("page",),
    time: str | None = "t",
    how: str = "epoch_us",
    zone: str = "UTC",
    limit: int = 1_000_000,
    **pipeline: Any,
) -> Decoder:
    fields = InputFields(time, how, zone, unit, limit)
    return Decoder(fields, [PipelineFields(key, **pipeline)], [KeysAlone()])  # type: ignore[list-item]


def raw(*bodies: Any) -> list[RawRecord]:
    values = [b if isinstance(b, bytes) or b is None else json.dumps(b).encode() for b in bodies]
    return [RawRecord(i, 1_000, None, v) for i, v in enumerate(values)]


def body(**changes: Any) -> dict[str, Any]:
    return {"user": "u", "page": "p", "t": 5, "fare": 1.5, "del": False} | changes


def without(name: str) -> dict[str, Any]:
    return {k: v for k, v in body().items() if k != name}


BAD: list[tuple[str, Any]] = [
    ("null", None),
    ("oversized", b" " * 20_001),
    ("malformed", b""),
    ("malformed", b"{"),
    ("malformed", b"\xff\xfe"),
    ("malformed", b'{"user":NaN}'),
    ("malformed", b'{"user":"\xed\xa0\x80","page":"p","t":5}'),
    ("malformed", b'{"user":"\\ud800","page":"p","t":5}'),
    ("malformed", b'{"a":' * 3_000 + b"}" * 3_000),  # skipped fields may nest to any depth
    ("wrong_type", b"[]"),
    ("wrong_type", b"7"),
    ("wrong_type", body(user=1.5)),
    ("wrong_type", body(user=True)),
    ("wrong_type", body(user=[1])),
    ("wrong_type", body(page={"a": 1})),
    ("wrong_type", body(t="5")),
    ("wrong_type", body(fare="1.5")),
    ("wrong_type", body(fare=True)),
    ("wrong_type", b'{"user":"u","page":"p","t":5,"fare":1e999}'),
    ("missing_unit", body(user=None)),
    ("missing_unit", without("user")),
    ("huge_unit", body(user="x" * (MAX_UNIT + 1))),
    ("huge_unit", body(user="é" * (MAX_UNIT // 2 + 1))),
    ("missing_time", body(t=None)),
    ("missing_time", without("t")),
    ("bad_time", body(t=-1)),
    ("bad_time", body(t=253_402_300_800_000_000)),
    ("bad_time", body(t=1 << 63)),
    ("bad_time", body(t=1 << 200)),
    ("bad_time", body(t=1e300)),
    ("missing_key", body(page=None)),
    ("missing_key", without("page")),
    ("empty_key", body(page="")),
    ("huge_key", body(page="x" * MAX_KEY)),
    ("missing_value", body(fare=None)),
    ("missing_value", without("fare")),
    ("not_finite", b'{"user":"u","page":"p","t":5,"fare":1' + b"0" * 400 + b"}"),
    ("bad_sign", body(**{"del": "perhaps"})),
    ("bad_sign", body(**{"del": 7})),
]


@pytest.mark.parametrize("reason,bad", BAD, ids=[f"{r}-{i}" for i, (r, _) in enumerate(BAD)])
def test_each_bad_record_has_its_reason_and_its_neighbours_are_read(reason, bad):
    found = decoder(columns=(FARE,), sign="del", limit=20_000).decode(raw(body(), bad, body()))
    (view,) = found.views
    assert found.bad | view.bad == {1: reason}
    assert view.rows.tolist() == [0, 2]
    assert view.value.tolist() == [[150], [150]]
    assert view.keys.tolist() == [b'["p"]'] and view.key.tolist() == [0, 0]
    assert found.unit[0] == found.unit[2] == "u" and found.time[[0, 2]].tolist() == [5, 5]


def test_every_reason_of_the_decoder_is_reached():
    # The stage that knows the partitioner checks the partition of a unit.
    # Reasons about schemas have their own test.
    others = {"wrong_partition", "huge_batch", "unknown_schema", "wrong_schema"}
    assert {reason for reason, _ in BAD} == set(REASONS) - others


@pytest.mark.parametrize(
    ("bad", "path"),
    [
        (body(user=[1]), "user"),
        (body(t="secret"), "t"),
        (body(page={"secret": 1}), "page"),
        (without("user"), "user"),
        (body(t=-5), "t"),
        (without("page"), "page"),
        (without("fare"), "fare"),
        (body(**{"del": "secret"}), "del"),
        (b"{bad", ""),
        (b"[1]", ""),
    ],
)
def test_a_reason_names_the_field_and_nothing_of_the_record(bad, path):
    found = decoder(columns=(FARE,), sign="del", limit=20_000).decode(raw(body(), bad))
    reason = (found.bad | found.views[0].bad)[1]
    assert getattr(reason, "path", "") == path and reason in REASONS


JSON = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-(1 << 80), 1 << 80), st.floats(),
        st.text(max_size=5), st.sampled_from(["delete", "insert", "2019-03-01", 10**400]),
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)  # fmt: skip
FIELD = st.sampled_from(["user", "page", "t", "fare", "del", "x"])
NOISE = st.one_of(
    st.none(),
    st.binary(max_size=30),
    JSON.map(lambda v: json.dumps(v).encode()),
    st.dictionaries(FIELD, JSON, max_size=6).map(lambda v: json.dumps(v).encode()),
    st.builds(lambda v, n: json.dumps(v).encode()[:n], st.just(body()), st.integers(0, 60)),
)


@given(st.lists(NOISE, max_size=12), st.sampled_from(["epoch_us", "epoch_s", "iso", "record"]))
def test_no_record_ever_raises_and_each_has_one_fate(values, how):
    records = [RawRecord(i, i - 1, None, v) for i, v in enumerate(values)]
    made = decoder(columns=(FARE,), sign="del", how=how)
    found = made.decode(records)
    (view,) = found.views
    bad = found.bad | view.bad
    assert set(bad.values()) <= set(REASONS)
    assert not set(found.bad) & set(view.bad)
    assert sorted([*bad, *view.rows.tolist()]) == list(range(len(records)))
    # Single records get the same result: no record affects another.
    for row, record in enumerate(records):
        alone = made.decode([record])
        assert (alone.bad | alone.views[0].bad).get(0) == bad.get(row)
        if row not in bad:
            assert alone.time[0] == found.time[row]


@given(st.lists(st.tuples(st.text(max_size=4), st.text(max_size=3), st.integers(0, 1 << 50)),
                max_size=20))  # fmt: skip
def test_good_records_are_read_exactly(events):
    records = raw(*({"user": u, "page": "k" + p, "t": t} for u, p, t in events))
    found = decoder().decode(records)
    (view,) = found.views
    assert found.unit == [u for u, _, _ in events]
    assert found.time.tolist() == [t for _, _, t in events]
    pages = [decode_key(view.keys[k]) for k in view.key]
    assert pages == [["k" + p] for _, p, _ in events]
    assert len(set(view.keys)) == len(view.keys)


KEY_VALUE = st.one_of(
    st.text(max_size=6), st.booleans(), st.integers(-(1 << 70), 1 << 70), st.sampled_from([0, 1])
)


@given(st.lists(st.tuples(KEY_VALUE, KEY_VALUE), max_size=10))
def test_composite_keys_are_encoded_injectively(values):
    typed = {tuple((type(v), v) for v in pair) for pair in values}
    encoded = {encode_key(pair) for pair in values}
    assert len(encoded) == len(typed)
    for pair in values:
        again = decode_key(encode_key(pair))
        assert [(type(v), v) for v in again] == [(type(v), v) for v in pair]


def test_true_and_one_and_the_text_one_are_three_keys():
    events = [body(page=True), body(page=1), body(page="1"), body(page=1), body(page=True)]
    (view,) = decoder().decode(raw(*events)).views
    assert [view.keys[k] for k in view.key] == [b"[true]", b"[1]", b'["1"]', b"[1]", b"[true]"]


def test_the_longest_key_and_unit_are_accepted():
    longest = "x" * (MAX_KEY - len('[""]'))
    found = decoder().decode(raw(body(page=longest, user="é" * (MAX_UNIT // 2))))
    assert not found.bad and not found.views[0].bad
    assert len(found.views[0].keys[0]) == MAX_KEY


def test_one_bad_key_does_not_hide_a_bad_value_of_another_pipeline():
    fields = InputFields("t", "epoch_us", "UTC", ("user",))
    both = [PipelineFields(("page",)), PipelineFields((), (FARE,))]
    made = Decoder(fields, both, [KeysAlone(), KeysAlone()])  # type: ignore[list-item]
    found = made.decode(raw(body(page=None), body(fare=None), body()))
    assert found.bad == {}
    assert [v.bad for v in found.views] == [{0: "missing_key"}, {1: "missing_value"}]
    assert [v.rows.tolist() for v in found.views] == [[1, 2], [0, 2]]


def test_nested_paths_and_null_parents():
    made = decoder(unit=("user.id", "user.org"), key=("a.b.c",), time="meta.t")
    good = {"user": {"id": 1, "org": "x"}, "a": {"b": {"c": "k"}}, "meta": {"t": 3}}
    found = made.decode(
        raw(good, good | {"user": None}, good | {"a": {"b": None}}, good | {"meta": None},
            good | {"user": {"id": 1, "org": None}}, good | {"a": 7})
    )  # fmt: skip
    assert found.unit[0] == (1, "x") and found.time[0] == 3
    assert found.bad == {1: "missing_unit", 3: "missing_time", 4: "missing_unit"}
    assert found.views[0].bad == {2: "missing_key", 5: "wrong_type"}


def test_fields_with_names_that_are_no_identifiers():
    found = decoder(unit=("user id",), key=("class",), time="@t").decode(
        raw({"user id": "u", "class": "k", "@t": 1})
    )
    assert not found.bad and found.views[0].keys.tolist() == [b'["k"]']


def test_a_field_cannot_be_a_value_and_a_parent():
    with pytest.raises(ConfigError, match="'a'"):
        decoder(unit=("a",), key=("a.b",))
    with pytest.raises(ConfigError, match=r"a\.b"):
        decoder(unit=("a.b.c",), key=("a.b",))


def test_a_field_with_two_roles_is_judged_by_each():
    fields = InputFields("t", "epoch_us", "UTC", ("fare",))
    both = [PipelineFields(("fare",)), PipelineFields(("t",), (FARE,), sign="t")]
    made = Decoder(fields, both, [KeysAlone(), KeysAlone()])  # type: ignore[list-item]
    values: list[Any] = [3, "3", True, 1.0, None]
    found = made.decode(raw(*(body(fare=v, t=1) for v in values), body(t="x", fare=3)))
    # A unit is a text or an integer: True and 1.0 would pass for 1.
    assert found.unit[:2] == [3, "3"]
    assert found.bad == {2: "wrong_type", 3: "wrong_type", 4: "missing_unit", 5: "wrong_type"}
    assert [v.bad for v in found.views] == [{}, {1: "wrong_type"}]
    assert found.views[1].value.tolist() == [[300]]


@pytest.mark.parametrize("value", ["5", True, None, 1.5, "2019-03-01"])
@pytest.mark.parametrize("how", ["epoch_us", "iso"])
def test_a_time_that_is_a_key_too(how, value):
    found = decoder(key=("t",), how=how).decode(raw(body(t=value)))
    good = type(value) is float if how == "epoch_us" else value == "2019-03-01"
    assert (0 not in found.bad) == good


def test_values_are_clipped_and_rounded_to_the_grid():
    fares = [-5, 0, 0.004, 0.006, 49.999, 50, 1e308, -1e308]
    (view,) = decoder(columns=(FARE,)).decode(raw(*(body(fare=f) for f in fares))).views
    assert view.value[:, 0].tolist() == [0, 0, 0, 1, 5000, 5000, 5000, 0]


def test_signs():
    values = [True, False, 1, -1, "insert", "delete", None]
    found = decoder(sign="del").decode(raw(*(body(**{"del": v}) for v in values)))
    assert found.views[0].sign.tolist() == [-1, 1, 1, -1, 1, -1, 1]


def test_a_public_list_drops_other_keys_without_calling_them_bad():
    allowed = frozenset([encode_key(("p",))])
    found = decoder(allowed=allowed).decode(raw(body(), body(page="other"), body(page=None)))
    assert found.views[0].rows.tolist() == [0]
    assert found.views[0].bad == {2: "missing_key"}


VALUES = st.sampled_from(
    [
        None,
        1,
        -1,
        2.5,
        True,
        False,
        "u",
        "5",
        "2019-03-01T00:00:00Z",
        "",
        [1],
        {"x": 1},
        {"x": "1"},
        1e300,
    ]
)
READERS = (
    PipelineFields(("page",)),
    PipelineFields(("page", "n"), (FARE,)),
    PipelineFields(("at.x",), sign="page"),
    PipelineFields(("user",), (NumericField("t", Fraction(0), Fraction(9), Fraction(1)),)),
    PipelineFields(("fare",), (NumericField("at.x", Fraction(0), Fraction(9), Fraction(1)),)),
    PipelineFields((), (NumericField("page", Fraction(0), Fraction(9), Fraction(1)),)),
)
NAMES = st.sampled_from(["user", "page", "n", "at", "t", "fare", "other"])
TAILS = st.sampled_from([b"", b',"junk":1e999', b',"junk":"\xff"', b',"fare":1e999', b',"'])


def counted(found: Any, place: int) -> list[Any]:
    """A pipeline's counted records: row, time, unit, key, value and sign."""
    view = found.views[place]
    rows = zip(view.rows.tolist(), view.key.tolist(), view.value.tolist(), view.sign, strict=True)
    return [
        (row, found.time[row], found.unit[row], view.keys[key], value, sign)
        for row, key, value, sign in rows
    ]


@given(
    st.lists(st.tuples(st.dictionaries(NAMES, VALUES), TAILS), max_size=6),
    st.lists(st.sampled_from(READERS), min_size=2, max_size=4),
)
def test_what_a_pipeline_counts_does_not_depend_on_its_neighbours(records, readers):
    """A wrong type in a field of another pipeline once made this pipeline lose the record."""
    values = [
        json.dumps(body(n=1, at={"x": 2}) | given).encode()[:-1] + tail + b"}"
        for given, tail in records
    ]
    fields = InputFields("t", "epoch_us", "UTC", ("user",))
    log = raw(*values)
    plain = [KeysAlone() for _ in readers]
    together = Decoder(fields, readers, plain).decode(log)  # type: ignore[arg-type]
    for place, reader in enumerate(readers):
        alone = Decoder(fields, [reader], [KeysAlone()]).decode(log)  # type: ignore[list-item]
        assert counted(together, place) == counted(alone, 0)
        assert set(together.bad) | set(together.views[place].bad) == (
            set(alone.bad) | set(alone.views[0].bad)
        )


class Slots:
    """A mechanism with slots of event time."""

    traits = replace(KeysAlone.traits, inputs=("time",), keys=ONE_ROW)

    def encode(self, columns: dict[str, Any]) -> Any:
        keys, key = np.unique(columns["time"], return_inverse=True)
        keep = np.ones(len(key), bool)
        return Encoded(Keys.of_codes(keys.astype(np.uint64)), key, np.zeros((len(key), 0)), keep)


@pytest.mark.parametrize("how,value", [("iso", "1970-01-01T00:00:01Z"), ("epoch_s", 1)])
def test_an_event_time_in_a_field_called_time_is_the_event_time(how: str, value: Any) -> None:
    """The field was once taken for a numeric input, and every record was dropped."""
    fields = InputFields("time", how, "UTC", ("user",))
    made = Decoder(fields, [PipelineFields((), inputs={})], [Slots()])  # type: ignore[list-item]
    found = made.decode(raw({"user": "u", "time": value}))
    assert found.views[0].bad == {} and found.views[0].keys.tolist() == [
        (1_000_000).to_bytes(8, "big")
    ]
