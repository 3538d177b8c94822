"""Records of the public topics are decoded by their header, and refused if damaged."""

from __future__ import annotations

import pytest
from hushstream.errors import EngineError
from hushstream.mechanisms.sums import HELD
from hushstream.topics.config.aggregates.numbers import GRIDS
from hushstream.topics.releases import MANIFEST, ROW, Manifest, Row, decode_public

from ..recorded.pipelines import outs


@pytest.mark.parametrize("case", ["histogram-sums", "phdstream", "tops", "topl"])
def test_rows_manifests_and_tombstones_are_told_apart(case: str) -> None:
    releases, latest = outs(case)
    kinds = {ROW: Row, MANIFEST: Manifest}
    for out in (*releases, *latest):
        found = decode_public(out.headers, out.value)
        wanted = kinds.get(out.headers[0][0])
        assert found is None if wanted is None else type(found) is wanted
    rows = [r for o in releases if isinstance(r := decode_public(o.headers, o.value), Row)]
    assert bool(rows[0].box) == (case == "phdstream")
    assert {type(row.key) for row in rows} == {dict}


@pytest.mark.parametrize(
    "old,new",
    [
        (b'"trigger":1', b'"trigger":1.5'),
        (b'00:00:00Z","s', b'00:00:00","s'),
        (b'"value":', b'"value":1' + b"0" * 400),
        (b'"value":', b'"value":-1' + b"0" * 400),
        (b'"value":', b'"value":1' + b"0" * 5000),
        (b'"key":{', b'"key":{"a":[1],'),
    ],
)
def test_a_row_with_a_value_that_no_table_holds_is_refused(old: bytes, new: bytes) -> None:
    row = next(out for out in outs("histogram-sums")[0] if out.headers[0][0] == ROW)
    assert decode_public(row.headers, row.value) is not None
    value = (row.value or b"").replace(
        b'"start":"2019-03-01T00:00:00Z"}', b'"start":"2019-03-01T00:00:00Z","s":1}'
    )
    assert decode_public(row.headers, value) is not None and old in value
    with pytest.raises(EngineError, match="damaged"):
        decode_public(row.headers, value.replace(old, new, 1))


@pytest.mark.parametrize("sign", [1, -1])
def test_the_largest_sum_on_the_coarsest_grid_is_read_exactly(sign: int) -> None:
    row = next(out for out in outs("histogram-sums")[0] if out.headers[0][0] == ROW)
    most = int(sign * HELD * GRIDS[1])
    for place in (b'"value":', b'"display_value":%d,"value":'):
        told = place.replace(b"%d", b"%d" % most) + b"%d" % most + b',"ignored":'
        found = decode_public(row.headers, (row.value or b"").replace(b'"value":', told, 1))
        assert isinstance(found, Row)
        (value,) = (one for one in found.values.values() if one and one.value == most)
        assert value.display_value == (most if b"display" in place else None)


def test_a_window_tells_how_many_of_its_hops_it_holds() -> None:
    manifests = [out for out in outs("histogram-hopping")[0] if out.headers[0][0] == MANIFEST]
    told = [one.hops for o in manifests if (one := decode_public(o.headers, o.value))]
    assert told[0] == (1, 4) and told[-1] == (4, 4)
    plain = next(out for out in outs("histogram-sums")[0] if out.headers[0][0] == MANIFEST)
    found = decode_public(plain.headers, plain.value)
    assert isinstance(found, Manifest) and found.hops is None
    damaged = (manifests[0].value or b"").replace(b'"hops":[1,4]', b'"hops":[1]')
    with pytest.raises(EngineError, match="damaged"):
        decode_public(manifests[0].headers, damaged)


def test_a_mean_of_cut_values_tells_how_many_are_cut() -> None:
    manifests = [out for out in outs("topl")[0] if out.headers[0][0] == MANIFEST]
    told = [one.beyond for o in manifests if (one := decode_public(o.headers, o.value))]
    assert told[0] is None and all(low <= share <= high for share, low, high in filter(None, told))
    plain = [out for out in outs("topl-plain")[0] if out.headers[0][0] == MANIFEST]
    silent = [decode_public(out.headers, out.value) for out in plain]
    assert all(isinstance(one, Manifest) and one.beyond is None for one in silent)
    assert any(told)


def test_records_of_other_versions_are_passed_over() -> None:
    assert decode_public(((ROW, b"hush.release/1"),), b'{"schema":"hush.release/1"}') is None
    assert decode_public((), b"{}") is None
    assert decode_public((("hush-gone", b"3"),), None) is None


@pytest.mark.parametrize("kind,schema", [(ROW, b"hush.release/2"), (MANIFEST, b"hush.manifest/2")])
@pytest.mark.parametrize("value", [None, b"", b"{", b"[]", b"{}", b"\xff", b"[" * 5000])
def test_a_damaged_record_is_an_error(kind: str, schema: bytes, value: bytes | None) -> None:
    with pytest.raises(EngineError, match="damaged"):
        decode_public(((kind, schema),), value)
