"""A release is complete once all its manifests and rows have arrived, in any order."""

from __future__ import annotations

import random
from functools import cache

import msgspec
import pytest
from hushstream.cli.releases import _single
from hushstream.reading.tables import table_of
from hushstream.topics.assembly import (
    REMEMBERED,
    Assembly,
    Released,
    in_order,
    newest,
    sorted_rows,
)
from hushstream.topics.releases import CutTold, Manifest, Row, decode_public
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from rich.table import Table

from ..recorded.pipelines import outs


@cache
def records(case: str) -> tuple[list[Row | Manifest], list[Row]]:
    """Decoded records of the release topic, and of the compacted latest topic."""
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
    """Without any one record its release is missing, and all others are complete."""
    given, _ = records("histogram-sums")
    gone = data.draw(st.integers(0, len(given) - 1))
    left = complete(given[:gone] + given[gone + 1 :], "histogram-sums")
    places = {(r.window.start, r.trigger) for r in left}
    lost = given[gone].window.start, given[gone].trigger
    assert lost not in places and len(places) == 7


def _as_view(release: Released, rows: list[Row]) -> Released:
    manifests = [replace(m, view=msgspec.Raw(b'{"source":"p"}')) for m in release.manifests]
    return Released(tuple(rows), tuple(replace(m, replaces=True) for m in manifests))


def test_rows_of_a_view_keep_its_order() -> None:
    given, _ = records("histogram-sums")
    release = max(complete(given, "histogram-sums"), key=lambda one: len(one.rows))
    for seed in range(3):
        mixed = random.Random(seed).sample(release.rows, len(release.rows))
        view = _as_view(release, mixed)
        assert sorted_rows(view) == [row for _, row in newest([view])] == mixed
        assert sorted_rows(Released(tuple(mixed), release.manifests)) == sorted(mixed, key=in_order)
        for latest in (False, True):
            table = table_of([view], latest=latest)
            assert table["zone"].to_pylist() == [row.key["zone"] for row in mixed]
        (_, shown, *_) = _single(view)
        assert isinstance(shown, Table)
        assert list(shown.columns[0].cells) == [row.key["zone"] for row in mixed]


def test_copies_of_records_change_nothing() -> None:
    given, _ = records("histogram-plain")
    assert len(complete([*given, *given], "histogram-plain")) == 8
    assert len(complete([r for one in given for r in (one, one)], "histogram-plain")) == 8


def test_records_of_other_pipelines_are_passed_over() -> None:
    given, _ = records("histogram-plain")
    assembly = Assembly("other")
    assert [assembly.take(r) for r in (*given, None)] == [None] * (len(given) + 1)
    assert assembly.incomplete == 0


def later(record: Row | Manifest) -> Row | Manifest:
    """The record, as of a pipeline that follows."""
    if isinstance(record, Manifest):
        return replace(record, pipeline="next", follows=("first", "histogram-plain"))
    return replace(record, pipeline="next")


def test_a_reader_goes_on_with_the_pipelines_that_follow() -> None:
    given, _ = records("histogram-plain")
    both = random.Random(1).sample([*given, *map(later, given)], 2 * len(given))

    def taken(name: str, onward: bool) -> list[Released]:
        assembly = Assembly(name, onward)
        return [release for r in both if (release := assembly.take(r)) is not None]

    assert [len(taken(name, True)) for name in ("histogram-plain", "next", "first")] == [16, 8, 8]
    assert {r.pipeline for r in taken("histogram-plain", False)} == {"histogram-plain"}
    found = taken("histogram-plain", True)
    assert set(table_of(found)["pipeline"].to_pylist()) == {"histogram-plain", "next"}
    assert "pipeline" not in table_of(taken("next", True)).column_names


def test_memory_of_what_is_complete_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hushstream.topics.assembly.REMEMBERED", 3)
    assembly = Assembly("histogram-plain")
    for record in records("histogram-plain")[0]:
        assembly.take(record)
    assert len(assembly._done) == len(assembly._order) == 3 < REMEMBERED
    assert assembly.incomplete == 0


@pytest.mark.parametrize(
    "case", ["histogram-sums", "histogram-rounds", "phdstream", "privhp", "pak", "tops", "topl"]
)
def test_the_newest_rows_are_those_of_the_latest_topic(case: str) -> None:
    """The newest rows of complete releases are the rows of the latest topic."""
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


def test_a_release_says_what_its_bound_cut_or_nothing() -> None:
    given, _ = records("histogram-debiased")
    for release in complete(given, "histogram-debiased"):
        (told,) = {one.cut for one in release.manifests}  # shards of a simulation share noise
        assert told is not None and release.cut == (told.share, told.low, told.high)
    plain, _ = records("histogram-sums")
    assert {one.cut for one in complete(plain, "histogram-sums")} == {None}


def test_shards_with_noises_of_their_own_are_joined() -> None:
    """The mean of two shards has half the variance, so its interval is narrower."""
    given, _ = records("histogram-debiased")
    release = complete(given, "histogram-debiased")[-1]
    first, second = release.manifests
    one = CutTold(100_000, 300.0, 80_000, 200.0, 100, 0.2, 0.1, 0.3)
    other = msgspec.structs.replace(one, arrived=101_000, accepted=80_200)
    both = (msgspec.structs.replace(first, cut=one), msgspec.structs.replace(second, cut=other))
    joined = Released(release.rows, both).cut
    assert joined is not None and joined.share == pytest.approx(1 - 80_100 / 100_500, abs=1e-6)
    alone = Released(release.rows, (both[0], both[0])).cut
    assert alone is not None and alone.share == 0.2
    width = (joined.high - joined.low) / (alone.high - alone.low)
    assert width == pytest.approx(2**-0.5, rel=0.01)
