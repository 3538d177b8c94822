"""The judge reads the product's records in every encoding, with libraries of others."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hushstream.formats.values.codec import WRITTEN, Described, ReleaseCodec

from ..formats.values.records import CHANGES, bodies, described
from ..recorded.pipelines import cases
from .encodings import Texts, plain, told

PLACES = [(case, "plain") for case in cases()]
PLACES += [("histogram-sums", "full"), ("topl", "full"), ("phdstream", "region")]


def written(case: str, change: str, encoding: Any) -> tuple[ReleaseCodec, Texts]:
    """The product's codec for a case, and the texts of its schemas."""
    known = enumerate(described(case, change).items(), 300)
    codec = {header: Described(encoding, n, shape) for n, (header, shape) in known}
    texts = {
        one.number: (encoding, WRITTEN[encoding].schema(one.shape, "hush.some"))
        for one in codec.values()
    }
    return ReleaseCodec(codec), texts


@pytest.mark.spread(12)
@pytest.mark.parametrize("encoding", WRITTEN)
@pytest.mark.parametrize(("case", "change"), PLACES)
def test_every_record_of_every_mechanism_is_read(case: str, change: str, encoding: Any) -> None:
    codec, texts = written(case, change, encoding)
    found = bodies(case, change)
    for header, body in found[:12] + found[-4:]:
        assert json.loads(plain(codec.encode(header, body), texts)) == body
    assert change in CHANGES


@pytest.mark.parametrize("encoding", WRITTEN)
def test_what_is_not_of_its_schema_is_refused(encoding: Any) -> None:
    codec, texts = written("histogram-plain", "plain", encoding)
    header, body = bodies("histogram-plain")[0]
    value = codec.encode(header, body)
    for wrong in (value + b"\x02", value[:-1], value[:5] + b"\x07" + value[6:]):
        with pytest.raises((ValueError, EOFError, KeyError)):
            plain(wrong, texts)
    with pytest.raises(KeyError):
        plain(b"\0\0\0\0\1" + value[5:], texts)


def test_names_that_a_format_does_not_allow_stand_in_its_comments() -> None:
    assert [told(*pair) for pair in (
        ("trip_zone", "trip.zone. The zone."), ("a__b", "a. b."), ("start", "Start. Of a window."),
        ("n_2", "n"), ("x9", "9."), ("plain", ""),
    )] == ["trip.zone", "a. b", "start", "n_2", "9", "plain"]  # fmt: skip


def test_json_is_left_as_it_is() -> None:
    assert plain(b'{"a":1}', {}) == b'{"a":1}' and plain(None, {}) == b""
