"""Release records: their fields, their bytes, and their statements about errors."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hushstream.agents.deployment.compile import compile_config
from hushstream.agents.stages.aggregate.release_records import Writer, named, significant
from hushstream.agents.stages.step import route
from hushstream.mechanisms.columns import Counted, Releases
from hushstream.mechanisms.keys import Keys
from hushstream.mechanisms.parts.bounds.stated import plain
from hushstream.topics.config.load import loads
from hypothesis import given
from hypothesis import strategies as st

from ....recorded.pipelines import COMMON, HEAD, SETTINGS, SURVEY, WINDOW
from ....support import deployment, trigger

MORE = """public_keys = ["a", "b"]
aggregate = [{ kind = "count" }, { kind = "sum", field = "fare", low = 0, high = 50, grid = 0.01 },
             { kind = "mean", field = "fare", low = 0, high = 50, grid = 0.01, name = "mean_fare" }]
"""
P = deployment(more=MORE).pipelines[0]
NAMES = [o.name for o in P.mechanism.traits.outputs]


def writer(p: Any = P, shard: int = 0) -> Writer:
    return Writer(p, trigger(p, 2, [0]), shard)


def releases(*rows: tuple[bytes, int, int]) -> Releases:
    """(key, count, sum in hundredths), with variances 16 and 2500."""
    n = len(rows)
    values = np.array([[r[1], r[2]] for r in rows], np.int64).reshape(n, 2)
    variance = np.tile(np.array([16.0, 2500.0]), (n, 1))
    status = np.ones(n, np.int32)
    return Releases(Keys.of(r[0] for r in rows), values, variance, status, {})


def bodies(p: Any, *rows: tuple[bytes, int, int]) -> list[dict[str, Any]]:
    return [json.loads(o.value or b"") for o in writer(p).rows(releases(*rows))]


def test_the_golden_record():
    """Readers parse these bytes, and replay compares them."""
    assert NAMES == ["count", "sum:fare"]
    (out,) = writer().rows(releases((b'["a"]', 100, 123456)))
    assert out.key == b'p|2019-03-01T00:00:00Z|["a"]'
    assert out.topic == "hush.p.releases.v1"
    assert out.headers == (("hush-row", b"hush.release/2"),)
    assert out.timestamp == 1_551_398_400_000 + 12 * 3600 * 1000
    assert json.loads(out.value or b"") == {
        "schema": "hush.release/2",
        "release_id": named(trigger(P, 2, [0]))(b'["a"]'),
        "pipeline": "p",
        "window": {"start": "2019-03-01T00:00:00Z", "end": "2019-03-02T00:00:00Z"},
        "trigger": 2,
        "final": False,
        "key": {"page": "a"},
        "values": {
            "count": {"value": 100, "stddev": 4.0, "low": 92.0, "high": 108.0},
            "sum_fare": {"value": 1234.56, "stddev": 0.5, "low": 1233.580018, "high": 1235.539982},
            "mean_fare": {
                "value": 12.3456,
                "stddev": 0.493849,
                "low": 11.377674,
                "high": 13.313526,
            },
        },
    }
    digest = hashlib.sha256(out.value or b"").hexdigest()
    assert digest[:16] == "c61ea311ff3e09ee"


def test_release_ids_name_charge_pipeline_window_trigger_and_key():
    base = trigger(P, 2, [0])
    others = [
        trigger(P, 2, [0], charge="cd" * 32),
        trigger(replace(P, name="q"), 2, [0]),
        trigger(P, 2, [0], window=1),
        trigger(P, 3, [0]),
    ]
    ids = [named(t)(b"k") for t in (base, *others)] + [named(base)(b"l")]
    assert len(set(ids)) == len(ids) and all(len(i) == 32 for i in ids)
    name = named(base)  # names of one release do not depend on each other
    assert [name(key) for key in (b"k", b"l", b"k")] == [ids[0], ids[-1], ids[0]]
    # The id contains neither the place nor the time of the cut.
    assert named(trigger(P, 2, [99], time=1))(b"k") == ids[0]


def test_the_manifest_holds_what_all_rows_have_in_common():
    out = writer(shard=0).manifest({"threshold": np.array([34], np.int64)}, b"n" * 16, 7)
    body = json.loads(out.value or b"")
    assert out.key == b"p|2019-03-01T00:00:00Z|manifest:0"
    assert out.headers == (("hush-manifest", b"hush.manifest/2"),)
    assert (body["rows"], body["replaces"], body["key_names"]) == (7, False, ["page"])
    assert body["value_names"] == ["count", "sum_fare", "mean_fare"] and "space" not in body
    assert body["schema"] == "hush.manifest/2"
    assert (body["shard"], body["shards"], body["trigger"], body["triggers"]) == (0, 1, 2, 4)
    assert body["mechanism"] == "histogram" and body["confidence_level"] == 0.95
    assert body["public"] == {"threshold": [34]} and body["nonce"] == "6e" * 16
    assert body["emitted_at"] == "2019-03-01T12:00:00Z"
    privacy = body["privacy"]
    assert (privacy["unit"], privacy["neighbouring"]) == ("user", "add_remove")
    assert (privacy["epsilon"], privacy["delta"]) == (8.0, 1e-4)
    assert privacy["pipeline_epsilon_limit"] is None and privacy["ledger_seq"] == 1
    assert privacy["mu2"] > 0 and privacy["charge"] == "ab" * 32
    assert {"config_hash", "code_version", "final", "window", "pipeline"} <= set(body)


def test_a_manifest_says_what_the_bound_cut_where_that_is_released() -> None:
    told = Counted(100_000, 80_000, 250_000.0, 90_000.0, 20)
    cut = json.loads(writer().manifest({}, bytes(16), 0, told).value or b"")["cut"]
    counts = {"arrived": 100_000, "accepted": 80_000, "cap": 20}
    spreads = {"arrived_stddev": 500.0, "accepted_stddev": 300.0}
    ends = {name: cut.pop(name) for name in ("low", "high")}
    assert cut == counts | spreads | {"share": 0.2}
    # The delta method's interval is close if the noise is small.
    reach = 1.96 * math.hypot(300, 0.8 * 500) / 100_000
    assert ends == pytest.approx({"low": 0.2 - reach, "high": 0.2 + reach}, abs=2e-4)
    lost = told._replace(arrived=900)
    cut = json.loads(writer().manifest({}, bytes(16), 0, lost).value or b"")["cut"]
    assert (cut["share"], cut["low"], cut["high"]) == (None, 0, 1)
    assert "cut" not in json.loads(writer().manifest({}, bytes(16), 0).value or b"")


def test_the_latest_topic_has_the_same_rows_and_a_tombstone_for_each_key_that_is_gone():
    """Readers of that topic need no filter: it has rows and tombstones, under the row's key."""
    (row,) = writer().rows(releases((b'["a"]', 100, 123456)))
    same, gone = writer().latest([row], [b'["b"]'])
    assert same == row._replace(topic="hush.p.latest.v1")
    assert gone.key == b'p|2019-03-01T00:00:00Z|["b"]' and gone.value is None
    assert gone.topic == "hush.p.latest.v1" and gone.headers == (("hush-gone", b"2"),)
    assert gone.timestamp == row.timestamp  # the scheduled time, like every public record
    assert list(writer(replace(P, latest_topic=None)).latest([row], [b'["b"]'])) == []


def test_full_rows_repeat_the_manifest():
    full = replace(P, full_rows=True)
    (row,) = bodies(full, (b'["a"]', 5, 100))
    manifest = json.loads(writer(full).manifest({}, bytes(16), 1).value or b"")
    own = {"schema", "shard", "shards", "rows", "key_names", "value_names", "replaces", "public"}
    shared = set(manifest) - own - {"nonce"}
    assert shared <= set(row)
    assert all(row[name] == manifest[name] for name in shared)
    assert row["schema"] == "hush.release/2"


@pytest.mark.parametrize("count", [0, -3])
def test_a_mean_without_records_is_null(count):
    (row,) = bodies(P, (b'["a"]', count, 100))
    assert row["values"]["mean_fare"] is None
    assert row["values"]["count"]["value"] == count


def test_display_never_replaces_the_unbiased_value():
    shown = replace(P, non_negative=True)
    (row,) = bodies(shown, (b'["a"]', -7, -250))
    assert row["values"]["count"] | {"stddev": 0, "low": 0, "high": 0} == {
        "value": -7, "display_value": 0, "stddev": 0, "low": 0, "high": 0,
    }  # fmt: skip
    assert row["values"]["sum_fare"]["display_value"] == 0
    assert row["values"]["sum_fare"]["value"] == -2.5
    assert "display_value" not in bodies(P, (b'["a"]', 1, 1))[0]["values"]["count"]


@given(st.sampled_from([0.5, 0.8, 0.95, 0.99]), st.integers(-(1 << 40), 1 << 40))
def test_intervals_hold_their_confidence(confidence, count):
    (row,) = bodies(replace(P, confidence=confidence), (b'["a"]', count, 0))
    value = row["values"]["count"]
    # Φ(z) - Φ(-z) = erf(z/√2), to the six digits that are written; also for large values. Rounded
    # noise lies within the whole number to which less than half a step is missing.
    normal = value["stddev"] * math.sqrt(2) * _erfinv(confidence)
    expected = max(normal, math.ceil(normal - 0.5))
    for end, exact in (("low", count - expected), ("high", count + expected)):
        assert math.isclose(value[end], max(exact, 0), rel_tol=6e-6, abs_tol=1e-3)
    assert value["value"] == count


def ends(p: Any, count: int, total: int) -> list[list[float]]:
    """Both ends of the intervals of count, sum and mean, without nulls."""
    (row,) = bodies(p, (b'["a"]', count, total))
    return [[one["low"], one["high"]] for one in row["values"].values() if one is not None]


def test_an_interval_ends_at_zero_where_nothing_is_below() -> None:
    assert [low for low, _ in ends(P, 3, 20)] == [0, 0, 0]
    assert ends(P, -20, -2000)[0] == [0, 0]
    assert all(low < high for low, high in ends(P, -3, -20))


def test_an_interval_goes_below_zero_where_the_truth_may_be() -> None:
    deletes = deployment(more=MORE + 'sign = "gone"\n').pipelines[0]
    assert all(low < 0 for low, _ in ends(deletes, 3, 20))
    signed = deployment(more=MORE.replace("low = 0", "low = -1")).pipelines[0]
    count, *others = ends(signed, 3, 20)
    assert count[0] == 0 and all(low < 0 for low, _ in others)


@given(st.integers(-(1 << 40), 1 << 40), st.integers(-(1 << 40), 1 << 40))
def test_a_mean_of_reports_lies_in_the_range_and_their_sum_stays_unbiased(mean, total):
    p = compile_config(loads(SURVEY, environ={})).inputs[0].pipelines[0]
    value, variance = np.array([[mean, total]]), np.array([[900.0, 900.0]])
    out = Releases(Keys.of([b""]), value, variance, np.ones(1, np.int32), {})
    (row,) = (json.loads(one.value or b"")["values"] for one in writer(p).rows(out))
    assert row["mean"]["value"] == min(max(mean / 100, 0), 400)
    assert 0 <= row["mean"]["low"] <= row["mean"]["value"] <= row["mean"]["high"] <= 400
    assert row["sum"]["value"] == total / 100


@pytest.mark.parametrize(
    ("kind", "more", "floored"),
    [
        ("phdstream", "", {"count", "unbiased"}),
        ("phdstream", 'sign = "gone"\n', {"count", "unbiased"}),  # deletes only what is there
        ("pak", "", {"sum", "prefix"}),
        ("pak", 'sign = "gone"\n', set()),
        ("tops", "", {"sum", "prefix"}),
    ],
)
def test_which_values_of_a_mechanism_are_never_negative(
    kind: str, more: str, floored: set[str]
) -> None:
    settings = SETTINGS[kind].replace('sign = "gone"', "")
    text = HEAD.format(partitioner="none") + COMMON.format(name=kind, window=WINDOW)
    p = compile_config(loads(text + more + settings, environ={})).inputs[0].pipelines[0]
    assert writer(p)._values._floored == floored


def _erfinv(p: float) -> float:
    low, high = 0.0, 5.0
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if math.erf(middle) < p else (low, middle)
    return low


@given(st.lists(st.text(max_size=5), min_size=1, max_size=20, unique=True), st.integers(1, 4))
def test_rows_keep_their_order_and_lie_where_their_key_belongs(pages, partitions):
    keys = sorted(json.dumps([p]).encode() for p in pages)
    p = replace(P, release_partitions=partitions)
    outs = list(writer(p).rows(releases(*((k, 1, 1) for k in keys))))
    assert [o.key.split(b"|", 2)[2] for o in outs if o.key] == keys
    assert [o.partition for o in outs] == route(Keys.of(keys), partitions).tolist()
    assert {json.loads(o.value or b"")["key"]["page"] for o in outs} == set(pages)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_six_significant_digits(value):
    once = significant(value)
    assert significant(once) == once
    assert math.isclose(once, value, rel_tol=5.1e-6, abs_tol=1e-300)


def test_exact_values_as_numbers():
    assert plain(Fraction(7)) == 7 and isinstance(plain(Fraction(7)), int)
    assert plain(Fraction(1, 4)) == 0.25
    assert plain(Fraction(1 << 80)) == 1 << 80
