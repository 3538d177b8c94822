"""Schemas are looked up when a record needs one, but not for each foreign record."""

from __future__ import annotations

from typing import Any

import pytest
from hushstream.agents.deployment.published.shapes import shapes
from hushstream.formats.events.decode import RawRecord
from hushstream.formats.values.codec import Described, UnknownSchema
from hushstream.reading import schemas as module
from hushstream.reading.schemas import Schemas
from hushstream.topics.config.model import Kafka
from hushstream.topics.releases import ROW, ROW_SCHEMA, Row

from ..formats.values.records import bodies, pipeline
from ..recorded.pipelines import outs

HEADERS = ((ROW, ROW_SCHEMA.encode()),)
KNOWN = Described("avro", 3, shapes(pipeline("histogram-sums"))[ROW])


def record(value: bytes | None) -> RawRecord:
    return RawRecord(0, 0, b"k", value, HEADERS)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []

    def announced(cluster: Any, topic: str) -> dict[int, Described]:
        found.append(topic)
        return {3: KNOWN}

    monkeypatch.setattr(module, "announced", announced)
    return found


def test_a_record_in_another_form_is_the_row_that_json_gives(asked: list[str]) -> None:
    body = next(body for header, body in bodies("histogram-sums") if header == ROW)
    plain = next(o for o in outs("histogram-sums")[0] if o.headers[0][0] == ROW)
    reader = Schemas(Kafka(), "t")
    wanted = reader.decode(record(plain.value))
    assert asked == [] and isinstance(wanted, Row)
    for _ in range(2):
        assert reader.decode(record(KNOWN.encode(body))) == wanted
    assert asked == ["t"]


def test_an_unknown_schema_is_an_error_that_asks_once(asked: list[str]) -> None:
    reader = Schemas(Kafka(), "t")
    for _ in range(3):
        with pytest.raises(UnknownSchema, match="schema 9"):
            reader.decode(record(b"\0\0\0\0\x09rest"))
    assert asked == ["t"]
