"""Clock records and markers: canonical bytes, read back unchanged.

Covers: formats/canonical.py
"""

from __future__ import annotations

import json

import msgspec
import pytest
from hushstream.errors import EngineError
from hushstream.topics.records import (
    Beat,
    Marker,
    Selected,
    Skipped,
    Start,
    Trigger,
    decode_clock,
    encode,
)
from hypothesis import given
from hypothesis import strategies as st

NUMBER = st.integers(-(1 << 53), 1 << 53)
OFFSETS = st.dictionaries(st.text(max_size=8), st.lists(st.integers(0, 1 << 62), max_size=4))
TEXT = st.text(max_size=12)

CLOCK = st.one_of(
    st.builds(Beat, NUMBER, OFFSETS),
    st.builds(Start, TEXT, NUMBER, NUMBER),
    st.builds(Skipped, TEXT, NUMBER, NUMBER, NUMBER),
    st.builds(
        Trigger, NUMBER, OFFSETS, TEXT, NUMBER, NUMBER, NUMBER, st.booleans(), NUMBER, NUMBER,
        NUMBER, TEXT, TEXT, TEXT,
    ),
)  # fmt: skip


@given(CLOCK)
def test_clock_records_come_back_as_they_were(record):
    data = encode(record)
    assert decode_clock(data) == record
    assert encode(decode_clock(data)) == data


@given(OFFSETS)
def test_bytes_do_not_depend_on_the_order_of_a_dictionary(offsets):
    turned = dict(reversed(offsets.items()))
    assert encode(Beat(1, offsets)) == encode(Beat(1, turned))
    assert b" " not in encode(Beat(1, {}))


def test_a_marker_of_an_older_worker_is_read_with_defaults():
    old = msgspec.json.decode(b'{"genesis":"g","applied":7}', type=Marker)
    assert old == Marker("g", 7)
    assert (old.clock, old.upstream, old.closed, old.progress) == (0, {}, {}, None)


@pytest.mark.parametrize(
    "data", [b"", b"{}", b'{"type":"other"}', b'{"type":"beat","time":"x","offsets":{}}', b"[1]"]
)
def test_what_is_no_clock_record_is_refused(data):
    with pytest.raises(EngineError, match="damaged"):
        decode_clock(data)


def test_selected_records_hold_no_more_than_their_fields():
    body = json.loads(encode(Selected(1, 2, 0, ["YQ=="], [2], False)))
    assert set(body) == {"type", "window", "trigger", "shard", "keys", "status", "done"}
