"""Avro and Protobuf by columns: neighbours, buffers, limits, and which reader is used.

Covers: formats/events/binary/scan.py, formats/events/binary/program.py, formats/events/scanned.py
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest
from hushstream.agents.stages.ingest.unit_digests import UnitDigests
from hushstream.formats.entries import FORMATS
from hushstream.formats.events.columns import LEAST
from hushstream.formats.events.decode import Decoded, Decoder
from hushstream.formats.events.fields import InputFields, PipelineFields
from hushstream.formats.events.raw import RawBatch
from hushstream.formats.schemas.schema import Pinned

from ..test_columns import KeysAlone, told
from ..ways import by_columns
from .avro_lists import BODY, avro_list, avro_of
from .proto_lists import proto_list
from .values import agree, columns_of, framed, made, raw, varint

LIST_OF: dict[str, Callable[[int], tuple[list[bytes | None], dict[int, Pinned]]]] = {
    "avro": avro_list,
    "protobuf": proto_list,
}


def by_record(found: Decoded) -> list[Any]:
    """Results for each record, in the order of the list."""
    times, units, views, bad = told(found)
    seen: list[dict[int, Any]] = []
    for rows, keys, value, sign, own in views:
        each = zip(keys, value, sign, strict=True)
        seen.append(dict(zip(rows, each, strict=True)) | own)
    return [
        (times.get(row), units.get(row), [view.get(row) for view in seen], bad.get(row))
        for row in range(len(found.time))
    ]


@pytest.mark.parametrize("encoding", LIST_OF)
def test_what_is_made_of_a_record_does_not_depend_on_its_neighbours(encoding: str) -> None:
    for seed in range(6):
        values, known = LIST_OF[encoding](seed)
        known = {number: pinned._replace(since=0) for number, pinned in known.items()}
        decoder = made(encoding)
        whole = by_record(by_columns(decoder, raw(values), known))
        order = list(range(len(values)))
        Random(seed).shuffle(order)
        moved = by_record(by_columns(decoder, raw([values[n] for n in order]), known))
        assert [whole[n] for n in order] == moved
        for row in range(0, len(values), 25):
            alone = by_record(by_columns(decoder, raw([values[row]]), known))
            assert alone == [whole[row]]


@pytest.mark.parametrize("encoding", LIST_OF)
def test_records_in_one_buffer_are_read_like_records_apart(encoding: str) -> None:
    values, known = LIST_OF[encoding](2)
    whole = [value or b"" for value in values]
    ends = np.cumsum([len(value) + 1 for value in whole]) + 10  # each ends with a zero: no headers
    begins = ends - [len(value) for value in whole]
    begins[[value is None for value in values]] = -1
    offsets = np.arange(len(values))
    none = np.full(len(values), -1)
    data = np.frombuffer(b"\xff" * 11 + b"\0".join(whole) + bytes(5), np.uint8)
    batch = RawBatch(data, offsets, offsets + 1000, none, none, begins, ends, ends, ends + 1)
    decoder = made(encoding)
    apart = told(by_columns(decoder, raw(values), known))
    assert told(by_columns(decoder, batch, known)) == apart
    part = [entry for n, entry in enumerate(by_record(decoder.decode(batch, known))) if n >= 100]
    assert by_record(decoder.decode(batch[100:], known)) == part


@pytest.mark.parametrize("encoding", LIST_OF)
def test_both_ways_agree_on_a_list_of_public_keys_and_at_the_limit_of_a_record(
    encoding: str,
) -> None:
    values, known = LIST_OF[encoding](1)
    agree(made(encoding, allowed=frozenset([b'["a"]', b"[0]"])), values, known)
    for limit in (30, 31, 32):
        agree(made(encoding, limit=limit), values, known)


def test_short_lists_and_inputs_that_the_loops_do_not_know_go_the_other_way() -> None:
    values, known = avro_list(0)
    assert type(made("avro").decode(raw(values[: LEAST - 1]), known).unit) is list
    nested = InputFields("a.t", "epoch_ms", "UTC", ("user",), 100, "protobuf")
    assert Decoder(nested, [PipelineFields(())], [KeysAlone()])._columns is None  # type: ignore[list-item]


@pytest.mark.parametrize("encoding", LIST_OF)
def test_programs_are_kept_for_some_schemas_and_made_again(
    encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hushstream.formats.events.binary import scanner

    monkeypatch.setattr(scanner, "_KEPT", 2)
    decoder = made(encoding)
    for seed in (0, 1, 0):
        agree(decoder, *LIST_OF[encoding](seed))
    assert len(columns_of(decoder)._scanner._programs) <= 2  # type: ignore[attr-defined]
    assert set(FORMATS) >= set(LIST_OF)


def test_units_are_hashed_as_the_text_that_they_stand_for() -> None:
    known = {1: avro_of({"user": "long"})}
    values: list[bytes | None] = [framed(1, varint(n << 1) + BODY[2:]) for n in range(LEAST)]
    found = by_columns(made("avro"), raw(values), known)
    here, other = (UnitDigests(bytes(32), "crc32", 3, 1) for _ in range(2))
    for one, two in zip(here.look(found.unit), other.look(list(range(LEAST))), strict=True):
        assert (one == two).all()
