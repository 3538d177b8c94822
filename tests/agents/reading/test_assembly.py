"""Releases are complete when all manifests and all of their rows are there, in whatever order."""

from __future__ import annotations

import random
from functools import cache

import pytest
from hushstream.agents.reading.assembly import REMEMBERED, Assembly, Released, in_order, newest
from hushstream.topics.releases import Manifest, Row, decode_public
from hypothesis import given
from hypothesis import strategies as st

from ...recorded.pipelines import outs


@cache
def records(case: str) -> tuple[list[Row | Manifest], list[Row]]:
    """What a reader decodes of the release topic, and of the compacted latest topic."""
    releases, latest = outs(case)
    decoded = [decode_public(out.headers, out.value) for out in releases]
    kept = {out.key: decode_public(out.headers, out.value) for out in latest}
    return [r for r in decoded if r is not None], [r for r in kept.values() if isinstance(r, Row)]


def complete(found: list[Row | Manifest], pipeline: str) -> list[Released]:
    assembly = Assembly(pipeline)
    return [release for r in found if (release := assembly.take(r)) is not None]


@pytest.mark.parametrize("case", ["histogram-sums", "phdstream", "pak"])
@pytest.mark.parametrize("seed", range(3))
def test_whatever_the_order_each_release_comes_once_and_whole(case: str, seed: int) -> None:
    given, _ = records(case)
    mixed = random.Random(seed).sample(given, len(given))
    found = {(r.window.start, r.trigger): r for r in complete(mixed, case)}
    rows = [r for r in given if isinstance(r, Row)]
    assert len(found) == len({(r.window.start, r.trigger) for r in given}) == 8
    assert sum(len(r.rows) for r in found.values()) == len(rows)
    for release in found.values():
        assert {row.trigger for row in release.rows} <= {release.trigger}
        assert [m.shard for m in release.manifests] == list(range(release.manifest.shards))
        assert release.final == (release.trigger == 4)


@given(st.data())
def test_a_release_that_lacks_anything_is_never_shown(data: st.DataObject) -> None:
    """Take one record away: the release that it belongs to is missing, all others are there."""
    given, _ = records("histogram-sums")
    gone = data.draw(st.integers(0, len(given) - 1))
    left = complete(given[:gone] + given[gone + 1 :], "histogram-sums")
    places = {(r.window.start, r.trigger) for r in left}
    lost = given[gone].window.start, given[gone].trigger
    assert lost not in places and len(places) == 7


def test_copies_of_records_change_nothing() -> None:
    given, _ = records("histogram-plain")
    assert len(complete([*given, *given], "histogram-plain")) == 8
    assert len(complete([r for one in given for r in (one, one)], "histogram-plain")) == 8


def test_records_of_other_pipelines_are_passed_over() -> None:
    given, _ = records("histogram-plain")
    assembly = Assembly("other")
    assert [assembly.take(r) for r in (*given, None)] == [None] * (len(given) + 1)
    assert assembly.incomplete == 0


def test_memory_of_what_is_complete_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hushstream.agents.reading.assembly.REMEMBERED", 3)
    assembly = Assembly("histogram-plain")
    for record in records("histogram-plain")[0]:
        assembly.take(record)
    assert len(assembly._done) == len(assembly._order) == 3 < REMEMBERED
    assert assembly.incomplete == 0


@pytest.mark.parametrize(
    "case", ["histogram-sums", "histogram-rounds", "phdstream", "privhp", "pak", "tops", "topl"]
)
def test_the_newest_rows_are_those_of_the_latest_topic(case: str) -> None:
    """Two ways to the same: from complete releases, and from the topic that workers write."""
    given, latest = records(case)
    found = newest(random.Random(1).sample(complete(given, case), 8))
    assert {row.release_id for _, row in found} == {row.release_id for row in latest}
    assert all(row in release.rows for release, row in found)
    starts = [release.window.start for release, _ in found]
    assert starts == sorted(starts)


def test_keys_are_told_apart_and_sorted_whatever_their_types() -> None:
    row = next(r for r in records("histogram-plain")[0] if isinstance(r, Row))
    keys = [True, 1, "1", 10, 2.5, "a", False]
    made = [Row(**{f: getattr(row, f) for f in row.__struct_fields__} | {"key": {"k": key}})
            for key in keys]  # fmt: skip
    assert len({in_order(one) for one in made}) == len(keys)
    ordered = [one.key["k"] for one in sorted(made, key=in_order)]
    assert [repr(key) for key in ordered] == ["False", "True", "1", "2.5", "10", "'1'", "'a'"]
