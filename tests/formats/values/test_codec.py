"""Every record of every mechanism is written in each encoding and read back unchanged."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest
from hushstream.formats.bytes_in import BrokenBytes, schema_id
from hushstream.formats.values.codec import (
    JSON,
    WRITTEN,
    Announced,
    Described,
    Encoding,
    ReleaseCodec,
    UnknownSchema,
    digest,
    to_json,
)
from hushstream.formats.values.shape import TEXT, WHOLE, record
from hushstream.topics.config.load import loads
from hushstream.topics.records import encode
from hushstream.topics.releases import ROW

from ...recorded.pipelines import cases, text_of
from .records import CHANGES, bodies, described

SMALL = record("Row", [("schema", TEXT), ("trigger", WHOLE)])
PLACES = [(case, "plain") for case in cases()]
PLACES += [("histogram-sums", "full"), ("topl", "full"), ("phdstream", "full")]
PLACES += [("phdstream", "region"), ("privhp", "region")]


@pytest.mark.spread(12)
@pytest.mark.parametrize("encoding", WRITTEN)
@pytest.mark.parametrize("case,change", PLACES)
def test_every_record_of_every_mechanism_comes_back_as_it_was(
    case: str, change: str, encoding: Any
) -> None:
    known = described(case, change)
    codec = ReleaseCodec(
        {h: Described(encoding, n, s) for n, (h, s) in enumerate(known.items(), 7)}
    )
    found = bodies(case, change)
    for header, body in found:
        value = codec.encode(header, body)
        assert value == codec.encode(header, dict(reversed(body.items())))  # order does not matter
        assert schema_id(value) == codec.records[header].number
        assert json.loads(codec.to_json(value)) == body
    assert {header for header, _ in found} == set(known)


def test_json_stays_as_it_is() -> None:
    body = {"trigger": 1, "schema": "s", "x": 1.5}
    assert JSON.encode(ROW, body) == encode(body) and JSON.to_json(encode(body)) == encode(body)
    assert JSON.to_json(None) == b"" and schema_id(None) is None and schema_id(b"\0\0\0") is None


@pytest.mark.parametrize("encoding", WRITTEN)
def test_a_record_says_by_itself_which_schema_it_has(encoding: Any) -> None:
    one = Described(encoding, 300, SMALL)
    value = one.encode({"schema": "s", "trigger": 3})
    assert value[:5] == b"\0\0\0\1\x2c"
    assert json.loads(to_json(value, {300: one})) == {"schema": "s", "trigger": 3}
    with pytest.raises(UnknownSchema, match=r"schema 300, which no announcement"):
        to_json(value, {})


@pytest.mark.parametrize("encoding", ["avro", "protobuf"])
def test_what_has_another_shape_is_neither_written_nor_read(encoding: Any) -> None:
    one = Described(encoding, 1, SMALL)
    body = {"schema": "s", "trigger": 3}
    for wrong in ({"schema": "s"}, body | {"more": 1}, {"schema": "s", "triggers": 3}):
        with pytest.raises((KeyError, ValueError)):
            one.encode(wrong)
    with pytest.raises(ValueError, match="64 bits"):
        one.encode({"schema": "s", "trigger": 1 << 63})
    value = one.encode(body)
    for cut in (value[:-1], value + b"\0"):
        with pytest.raises(BrokenBytes):
            one.to_json(cut)
    if encoding == "protobuf":
        with pytest.raises(BrokenBytes):
            one.to_json(value[:5] + b"\2" + value[6:])


def test_a_schema_is_the_same_text_each_time_and_what_is_announced_is_what_is_read() -> None:
    texts = {e: WRITTEN[e].schema(SMALL, "hush.p") for e in WRITTEN}
    assert texts == {e: WRITTEN[e].schema(SMALL, "hush.p") for e in WRITTEN}
    assert len({digest(text) for text in texts.values()}) == 3
    told = Announced("t", ROW, "avro", 4, SMALL)
    assert told.described == Described("avro", 4, SMALL)


def test_settings_offer_the_same_encodings() -> None:
    for encoding in get_args(Encoding):
        text = f'[registry]\nurl = "http://x"\n{text_of("histogram-plain")}'
        text += f'[pipeline.release]\nencoding = "{encoding}"\n'
        assert loads(text, environ={}).pipeline[0].release.encoding == encoding
    assert set(get_args(Encoding)) == {"json", *WRITTEN}
    assert set(CHANGES) == {"plain", "full", "region"}
