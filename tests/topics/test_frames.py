"""Frames: decoding gives what was encoded, however often it was split."""

from __future__ import annotations

import subprocess
import sys
import zlib
from pathlib import Path

import hushstream.topics.frames as frames
import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hushstream.errors import EngineError
from hushstream.mechanisms.columns import Part, merge
from hushstream.mechanisms.keys import Keys, concat
from hushstream.topics.frames import Barrier, CellsFrame, EventsFrame, EventSlice
from hushstream.topics.records import Trigger, WiderTrigger, decode_clock, encode
from hypothesis import given, settings
from hypothesis import strategies as st

I64 = st.integers(-(1 << 63), (1 << 63) - 1)
RAW = st.binary(max_size=20)


@st.composite
def slices(draw):
    listed = draw(st.lists(RAW, min_size=1, max_size=8, unique=True))
    n = draw(st.integers(1, 30))
    c = draw(st.integers(0, 12))
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    top = (1 << 63) - 1
    return EventSlice(
        draw(st.integers(-(1 << 40), 1 << 40)),
        draw(st.integers(1, 1 << 31)),
        rng.integers(0, 256, (n, 16)).astype(np.uint8),
        Keys.of(listed),
        rng.integers(0, len(listed), n).astype(np.intp),
        rng.integers(-top, top, (n, c)),
        rng.choice(np.array([1, -1], np.int8), n),
    )


@st.composite
def parts(draw):
    listed = sorted(draw(st.lists(RAW, max_size=12, unique=True)))
    c, g = draw(st.integers(1, 12)), draw(st.integers(0, 4))
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    return Part(
        Keys.of(listed),
        rng.integers(0, 2, len(listed)).astype(np.uint8),
        rng.integers(-(1 << 62), 1 << 62, (len(listed), c)),
        rng.integers(-(1 << 62), 1 << 62, g),
    )


def rows(one: EventSlice) -> list[tuple[object, ...]]:
    return [
        (u.tobytes(), one.keys[k], tuple(v), int(s))
        for u, k, v, s in zip(one.unit, one.key, one.value.tolist(), one.sign, strict=True)
    ]


@given(slices(), st.integers(0, 1 << 30))
def test_events_come_back(one, origin):
    (frame,) = frames.encode_events(origin, one)
    taken = frames.decode(frame)
    assert isinstance(taken, EventsFrame)
    assert (taken.origin, taken.slice.window, taken.slice.batch) == (origin, one.window, one.batch)
    assert rows(taken.slice) == rows(one)
    assert taken.slice.value.dtype == np.int64 and taken.slice.sign.dtype == np.int8


@given(parts(), st.integers(-(1 << 40), 1 << 40), st.integers(1, 1 << 31))
def test_cells_come_back(part, window, batch):
    (frame,) = frames.encode_cells(3, window, batch, part)
    taken = frames.decode(frame)
    assert isinstance(taken, CellsFrame)
    assert (taken.origin, taken.window, taken.batch) == (3, window, batch)
    assert taken.part.key == part.key
    for name in ("lane", "sums", "totals"):
        assert getattr(taken.part, name).tolist() == getattr(part, name).tolist()


@given(slices(), st.integers(1, 40))
def test_events_are_split_by_partition_as_one_by_one(one, partitions):
    home = np.random.default_rng(partitions).integers(0, partitions, len(one.unit))
    made = dict(one.split(home))
    assert list(made) == sorted(set(home.tolist()))
    for partition, mine in made.items():
        apart = one.part(np.flatnonzero(home == partition))
        assert list(frames.encode_events(3, mine)) == list(frames.encode_events(3, apart))


@given(parts(), st.integers(1, 9))
def test_sums_are_split_by_partition_as_one_by_one(part, partitions):
    home = np.random.default_rng(partitions).integers(0, partitions, len(part.key))
    made = dict(frames.split_part(part, home))
    assert list(made) == sorted(set(home.tolist()))
    for partition, mine in made.items():
        apart = frames.take_part(part, np.flatnonzero(home == partition))
        assert list(frames.encode_cells(3, 0, 1, mine)) == list(frames.encode_cells(3, 0, 1, apart))


@given(slices(), st.integers(1500, 4000))
@settings(max_examples=40)
def test_events_are_split_at_the_limit_and_stay_in_order(one, limit):
    before = frames.LIMIT
    frames.LIMIT = limit
    try:
        sent = list(frames.encode_events(0, one))
    finally:
        frames.LIMIT = before
    taken = [frames.decode(frame).slice for frame in sent]
    assert all(len(f) <= limit or len(s.unit) == 1 for f, s in zip(sent, taken, strict=True))
    assert [row for s in taken for row in rows(s)] == rows(one)


@given(slices(), parts())
def test_what_is_split_before_it_is_encoded_would_be_split_afterwards(one, part):
    columns = (one.unit, one.key.astype(np.int32), one.sign, one.value)
    (frame,) = frames.encode_events(0, one)
    assert frames._least(one.keys, columns) < len(frame)
    (frame,) = frames.encode_cells(0, 1, 1, part)
    assert frames._least(part.key, (part.lane, part.sums)) < len(frame)


@given(parts(), st.integers(900, 2000))
@settings(max_examples=40)
def test_cells_are_split_at_the_limit_and_stay_in_order(part, limit):
    part = part._replace(totals=np.zeros_like(part.totals))
    before = frames.LIMIT
    frames.LIMIT = limit
    try:
        sent = list(frames.encode_cells(0, 1, 1, part))
    finally:
        frames.LIMIT = before
    taken = [frames.decode(frame).part for frame in sent]
    assert all(len(f) <= limit or len(p.key) <= 1 for f, p in zip(sent, taken, strict=True))
    assert concat([p.key for p in taken]) == part.key
    assert np.concatenate([p.sums for p in taken]).tolist() == part.sums.tolist()


def test_a_real_list_stays_below_the_brokers_limit():
    rng = np.random.default_rng(0)
    n = 20_000
    one = EventSlice(
        0, 1, rng.integers(0, 256, (n, 16)).astype(np.uint8),
        Keys.of(rng.bytes(1000) for _ in range(3000)), rng.integers(0, 3000, n).astype(np.intp),
        rng.integers(0, 1 << 60, (n, 4)), np.ones(n, np.int8),
    )  # fmt: skip
    sent = list(frames.encode_events(0, one))
    assert len(sent) > 4
    assert max(map(len, sent)) <= frames.LIMIT < 1_000_000
    assert sum(len(frames.decode(frame).slice.unit) for frame in sent) == n


@given(st.lists(I64, max_size=4), st.integers(0, 5))
def test_barriers_carry_their_whole_trigger(totals, origin):
    trigger = Trigger(5, {"a": [1, 2]}, "p", 7, -3, 2, True, 9, -1, 4, "ab" * 32, "hash", "version")
    barrier = Barrier(origin, trigger, np.array(totals, np.int64))
    taken = frames.decode(frames.encode_barrier(barrier))
    assert isinstance(taken, Barrier)
    assert (taken.origin, taken.trigger) == (origin, trigger)
    assert taken.totals.tolist() == totals and taken.totals.dtype == np.int64
    assert frames.seems_barrier(frames.encode_barrier(barrier))


def test_a_frame_that_names_a_barrier_is_none_by_that():
    keys = Keys.of([b"barrier", b"kind\0\7barrier"])
    units, sign = np.zeros((2, 16), np.uint8), np.ones(2, np.int8)
    one = EventSlice(0, 1, units, keys, np.arange(2), np.empty((2, 0), np.int64), sign)
    part = Part(keys, np.zeros(2, np.uint8), np.ones((2, 1), np.int64), np.zeros(1, np.int64))
    for frame in (*frames.encode_events(0, one), *frames.encode_cells(0, 0, 1, part)):
        assert not frames.seems_barrier(frame)
    assert not frames.seems_barrier(b"") and not frames.seems_barrier(b"barrier")


@given(slices(), st.data())
def test_a_part_of_a_slice_has_the_keys_of_its_rows_only(one, data):
    chosen = data.draw(st.lists(st.integers(0, len(one.unit) - 1), max_size=20, unique=True))
    some = one.part(np.array(sorted(chosen), np.intp))
    assert rows(some) == [rows(one)[i] for i in sorted(chosen)]
    assert set(some.keys) == {one.keys[one.key[i]] for i in chosen}


@given(parts())
def test_taking_all_rows_in_pieces_merges_to_the_same(part):
    part = part._replace(totals=np.zeros_like(part.totals))
    half = len(part.key) // 2
    pieces = [
        frames.take_part(part, np.arange(a, b)) for a, b in ((half, len(part.key)), (0, half))
    ]
    whole, again = merge([part]), merge(pieces)
    assert whole.key == again.key and whole.sums.tolist() == again.sums.tolist()


@given(st.lists(RAW, max_size=20), st.data())
def test_keys_survive_arrow_even_when_cut_from_a_longer_column(listed, data):
    cut = data.draw(st.integers(0, len(listed)))
    keys = Keys.of(listed)[cut:]
    array = frames.binary(keys)
    assert array.to_pylist() == listed[cut:]
    assert frames.keys_of(array).tolist() == listed[cut:]
    assert frames.keys_of(pa.array(listed, pa.binary())[cut:]).tolist() == listed[cut:]


@pytest.mark.parametrize("change", [{b"version": b"2"}, {b"kind": b"other"}])
def test_a_frame_of_another_version_or_kind_is_not_guessed_at(change):
    schema = pa.schema([], {b"kind": b"cells", b"version": b"1", b"origin": b"0", b"window": b"0",
                            b"batch": b"1"} | change)  # fmt: skip
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays([], schema=schema))
    body = sink.getvalue().to_pybytes()
    with pytest.raises(EngineError, match=r"lacks its checksum.*upgrade this worker"):
        frames.decode(body)
    with pytest.raises(EngineError, match=r"another version|an unknown kind"):
        frames.decode(sealed(body))


def sealed(body: bytes) -> bytes:
    """A frame body with a correct checksum, whatever its content."""
    return body + b"hsh1" + zlib.crc32(body).to_bytes(4, "big")


SLICE = EventSlice(
    0, 1, np.zeros((2, 16), np.uint8), Keys.of([b"a", b"b"]), np.array([0, 1]),
    np.array([[1], [2]]), np.ones(2, np.int8),
)  # fmt: skip
(FRAME,) = frames.encode_events(0, SLICE)


def test_every_flipped_bit_of_a_frame_is_noticed():
    assert isinstance(frames.decode(FRAME), EventsFrame)
    for bit in range(0, 8 * len(FRAME), 3):
        hurt = bytearray(FRAME)
        hurt[bit // 8] ^= 1 << bit % 8
        with pytest.raises(EngineError, match="damaged"):
            frames.decode(bytes(hurt))


@pytest.mark.parametrize("cut", [0, 1, 8, 100, len(FRAME) - 9, len(FRAME) - 1])
def test_a_frame_that_was_cut_is_noticed(cut):
    with pytest.raises(EngineError, match="damaged"):
        frames.decode(FRAME[:cut])


def _sent(columns: dict[str, pa.Array], **meta: str) -> bytes:
    about = {b"kind": b"events", b"version": b"1", b"origin": b"0", b"window": b"0", b"batch": b"1"}
    about |= {name.encode(): text.encode() for name, text in meta.items()}
    schema = pa.schema([pa.field(n, a.type) for n, a in columns.items()], about)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays(list(columns.values()), schema=schema))
    return sealed(sink.getvalue().to_pybytes())


UNIT = pa.array([b"u" * 16] * 2, pa.binary(16))
SIGN = pa.array([1, 1], pa.int8())


def _key(indices: list[int | None], keys: list[bytes | None]) -> pa.Array:
    chosen = pa.array(indices, pa.int32())
    return pa.DictionaryArray.from_arrays(chosen, pa.array(keys, pa.binary()), safe=False)


HOSTILE = {
    "an index beyond the dictionary": {"unit": UNIT, "key": _key([0, 9], [b"a"]), "sign": SIGN},
    "a negative index": {"unit": UNIT, "key": _key([0, -1], [b"a"]), "sign": SIGN},
    "a null index": {"unit": UNIT, "key": _key([0, None], [b"a"]), "sign": SIGN},
    "a null key": {"unit": UNIT, "key": _key([0, 1], [b"a", None]), "sign": SIGN},
    "a sign of 2": {"unit": UNIT, "key": _key([0, 0], [b"a"]), "sign": pa.array([1, 2], pa.int8())},
    "a null unit": {
        "unit": pa.array([b"u" * 16, None], pa.binary(16)), "key": _key([0, 0], [b"a"]),
        "sign": SIGN,
    },
    "a column less": {"unit": UNIT, "key": _key([0, 0], [b"a"])},
    "another type": {"unit": UNIT, "key": _key([0, 0], [b"a"]), "sign": pa.array([1, 1])},
    "another value column": {
        "unit": UNIT, "key": _key([0, 0], [b"a"]), "sign": SIGN, "v1": pa.array([1, 1])
    },
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_frame_with_a_right_checksum_and_wrong_content_is_refused(name):
    with pytest.raises(EngineError, match="damaged"):
        frames.decode(_sent(HOSTILE[name]))


@pytest.mark.parametrize("last", [3, 1 << 20, -1, (1 << 31) - 1])
def test_offsets_beyond_the_bytes_of_the_keys_are_refused(last):
    told = np.array([0, 1, 2], np.int32).tobytes()
    hurt = FRAME.replace(told, np.array([0, 1, last], np.int32).tobytes(), 1)[:-8]
    assert hurt != FRAME[:-8]  # keys come first
    with pytest.raises(EngineError, match="damaged"):
        frames.decode(sealed(hurt))


@pytest.mark.parametrize("text", ["", "x", "1_0", " 1", "9" * 5000, str(1 << 63), "1.0"])
def test_scalars_of_a_frame_are_integers_of_64_bits(text):
    columns = {"unit": UNIT, "key": _key([0, 0], [b"a"]), "sign": SIGN}
    assert isinstance(frames.decode(_sent(columns)), EventsFrame)
    with pytest.raises(EngineError, match="damaged"):
        frames.decode(_sent(columns, window=text))


def test_a_barrier_without_rows_of_its_own_is_all_that_is_taken():
    with pytest.raises(EngineError, match="damaged"):
        frames.decode(_sent({"x": pa.array([1])}, kind="barrier", trigger="{}", totals="[]"))
    with pytest.raises(EngineError, match="damaged"):
        frames.decode(_sent({}, kind="barrier", trigger="{}", totals="[1e400]"))


@given(parts(), slices())
def test_columns_are_the_bytes_that_arrow_itself_makes_of_numbers(part, events):
    ours = [*frames.encode_cells(1, 0, 1, part), *frames.encode_events(1, events)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frames, "_column", lambda numbers: pa.array(np.ascontiguousarray(numbers)))
        theirs = [*frames.encode_cells(1, 0, 1, part), *frames.encode_events(1, events)]
    assert ours == theirs


LOADED = """
import sys
import numpy as np
from hushstream.mechanisms.columns import Part
from hushstream.mechanisms.keys import Keys
from hushstream.topics import frames
from hushstream.topics.frames import EventSlice
before = set(sys.modules)
one, keys = np.ones(1, np.int64), Keys.of([b"a"])
part = Part(keys, np.zeros(1, np.uint8), one[:, None], one)
events = EventSlice(0, 1, np.zeros((1, 16), np.uint8), keys, one - 1, one[:, None],
                    np.ones(1, np.int8))
for frame in [*frames.encode_cells(0, 0, 1, part), *frames.encode_events(0, events)]:
    frames.decode(frame)
print(sorted(name for name in set(sys.modules) - before if "pandas" in name))
"""


def test_frames_do_not_load_pandas_which_takes_longer_than_the_first_step():
    done = subprocess.run(
        [sys.executable, "-c", LOADED],
        capture_output=True, text=True, check=True, cwd=Path(frames.__file__).parents[2],
    )  # fmt: skip
    assert done.stdout.strip() == "[]"


def test_a_barrier_of_a_grown_deployment_cannot_be_read_by_a_version_that_knows_no_growth():
    wide = WiderTrigger(
        1, {"events": [5, 1]}, "p", 1, 0, 1, False, 1, 0, 1, "ab" * 32, "cd" * 32, "1.0"
    )
    sent = frames.encode_barrier(Barrier(0, wide, np.zeros(0, np.int64)))
    taken = frames.decode(sent)
    assert isinstance(taken, Barrier) and taken.trigger == wide
    assert decode_clock(encode(wide)) == wide and isinstance(wide, Trigger)
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(encode(wide), type=Trigger)  # as that version decodes it
