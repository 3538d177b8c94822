"""Dead letters: what the copy contains under each policy, and what its headers state."""

from __future__ import annotations

import hashlib
import struct
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from hushstream.agents.stages.ingest.dead_letters import (
    ROOM,
    copy,
    dead_letters,
    failure_headers,
    late_records,
)
from hushstream.agents.stages.ingest.dead_letters import digest as hash_of
from hushstream.agents.stages.step import Step
from hushstream.errors import EngineError
from hushstream.formats.events.decode import RawRecord
from hushstream.formats.events.reasons import Reason, Unread
from hushstream.mechanisms.noise import derive
from hushstream.offline.engine import OfflineEngine
from hushstream.topics.records import Marker
from hypothesis import given
from hypothesis import strategies as st

from ....support import NAMES as TOPICS
from ....support import ORIGIN, SECRET, deployment, event, start, trigger

BASE = deployment().pipelines[0]
PLACE = ("events", 3)
NAMES = ["exception", "stacktrace", "message", "topic", "partition", "offset", "timestamp",
         "stage", "reason"]  # fmt: skip
RECORD = RawRecord(17, 1234, b"key", b"payload", (("trace", b"t"), ("none", None)))  # type: ignore[arg-type]


def step() -> Step:
    return Step(Marker("g", 0))


def pipeline(policy: str, **other: Any) -> Any:
    return replace(BASE, dlq_payload=policy, **other)


def digest(record: RawRecord) -> bytes:
    """Another implementation of the digest: every part after its length, -1 for None."""
    coded = [
        struct.pack(">q", -1 if part is None else len(part)) + (part or b"")
        for part in (record.key, record.value)
    ]
    made = hashlib.blake2b(b"".join(coded), digest_size=32, key=SECRET)
    return b"blake2b:" + made.hexdigest().encode()


def sent(policy: str, record: RawRecord) -> Any:
    return copy(
        pipeline(policy), "dlq", record, failure_headers(PLACE, record, "malformed"), SECRET
    )


def test_raw_copies_keep_everything_and_add_headers():
    out = sent("raw", RECORD)
    assert (out.topic, out.partition) == ("dlq", 0)
    assert (out.key, out.value) == (b"key", b"payload")
    assert out.headers[:2] == RECORD.headers
    added = dict(out.headers[2:])
    assert list(added) == [f"__streams.errors.{name}" for name in NAMES]
    assert added["__streams.errors.offset"] == b"17"
    assert added["__streams.errors.partition"] == b"3"
    assert added["__streams.errors.topic"] == b"events"
    assert added["__streams.errors.reason"] == b"malformed"


@pytest.mark.parametrize("policy,value", [("hash", digest(RECORD)), ("none", None)])
def test_other_policies_hold_no_byte_of_the_record(policy, value):
    out = sent(policy, RECORD)
    assert (out.key, out.value) == (None, value)
    assert [name for name, _ in out.headers] == [f"__streams.errors.{name}" for name in NAMES]
    assert b"payload" not in b"".join(v for _, v in out.headers)


PARTS = st.none() | st.binary(max_size=3)


@given(st.tuples(PARTS, PARTS), st.tuples(PARTS, PARTS))
def test_hashes_tell_different_records_apart_and_equal_ones_not(one, other):
    first, second = (RawRecord(n, n, *parts) for n, parts in enumerate((one, other)))
    assert (hash_of(first, SECRET) == hash_of(second, SECRET)) == (one == other)


def dead_hashes(secret: bytes) -> list[Any]:
    """The values that a whole run sends to the dead-letter and late topics under policy hash."""
    made = deployment()
    for p in made.pipelines:
        object.__setattr__(p, "dlq_payload", "hash")
    p = made.pipelines[0]
    log = [
        RawRecord(0, 9, b"k", b"{bad"),
        event(1, "u", "p", ORIGIN - 1),
        RawRecord(2, 9, b"k", b"{bad"),
    ]
    clock = [start(p), trigger(p, 1, [3])]
    run = OfflineEngine(made, TOPICS, secret, {("events", 0): log}, list(enumerate(clock)))
    run.run()
    return [o.value for topic in ("hush.p.dlq", "hush.p.late") for o in run.outs[topic]]


def test_hashes_need_the_secret_of_the_deployment():
    """A reader of the topics alone cannot test a guess of a record."""
    mine, theirs = dead_hashes(SECRET), dead_hashes(bytes(32))
    assert len(mine) == len(set(mine)) + 1 == 3 and mine[0] == mine[1]
    assert dead_hashes(SECRET) == mine
    assert not set(mine) & set(theirs)
    for plain in (b"{bad", b"k\0{bad", b"k{bad"):
        for made in (hashlib.sha256(plain), hashlib.blake2b(plain, digest_size=32)):
            assert made.hexdigest().encode() not in b" ".join(mine)
    # Each key has one purpose: the digests of units use another key.
    hashing = derive(SECRET, "hashing")
    assert hash_of(RawRecord(0, 9, b"k", b"{bad"), hashing) not in mine


@given(st.integers(-3, 3), st.sampled_from(["value", "key", "header", "name", "wide"]))
def test_a_copy_that_would_not_fit_is_replaced_by_its_hash(beyond, where):
    filler = ROOM + beyond
    lengths = 10  # bytes that a header needs for its two lengths
    record = {
        "value": RawRecord(0, 0, None, b"v" * filler),
        "key": RawRecord(0, 0, b"k" * filler, None),
        "header": RawRecord(0, 0, None, b"", (("", b"h" * (filler - lengths)),)),
        "name": RawRecord(0, 0, None, b"", (("n" * (filler - lengths), b""),)),
        "wide": RawRecord(
            0, 0, b"k" * (filler % 2), b"", (("ü" * ((filler - lengths) // 2), b""),)
        ),
    }[where]
    out = sent("raw", record)
    if beyond > 0:
        assert (out.key, out.value) == (None, digest(record))
        assert len(out.headers) == len(NAMES)
    else:
        assert (out.key, out.value) == (record.key, record.value)
    # A broker accepts one megabyte, and a copy must fit with its headers.
    size = len(out.key or b"") + len(out.value or b"")
    size += sum(len(n) + len(v or b"") for n, v in out.headers)
    assert size < 1_000_000


@pytest.mark.parametrize("number", [100_000, 600_000])
def test_many_empty_headers_fit_as_well(number):
    """Each takes at least two bytes of a batch, although nothing is in it."""
    out = sent("raw", RawRecord(0, 0, None, b"not json", (("h", None),) * number))
    batch = DefaultRecordBatchBuilder(2, 0, 1, 0, 0, 0, 1 << 24)
    batch.append(0, 0, out.key, out.value, list(out.headers))
    assert len(batch.build()) < 1_000_000


def test_names_of_headers_end_where_any_client_sees_them_end():
    out = sent("raw", RawRecord(0, 0, None, b"x", (("a\0b", b"1"), ("", b"2"))))
    assert out.headers[:2] == (("a", b"1"), ("", b"2"))


@pytest.mark.parametrize("policy", ["raw", "hash", "none"])
@pytest.mark.parametrize("time", [-1, 0, 1234])
def test_a_copy_bears_the_time_of_its_writing_and_a_header_tells_the_records(policy, time):
    out = sent(policy, RawRecord(0, time, None, b"x"))
    assert out.timestamp is None
    assert dict(out.headers)["__streams.errors.timestamp"] == str(time).encode()


def test_each_bad_record_is_sent_and_counted_once_in_log_order():
    records = [RawRecord(i, 0, None, b"%d" % i) for i in range(5)]
    done = step()
    dead_letters(
        pipeline("raw"), PLACE, records, {3: "null", 1: "malformed", 4: "null"}, done, SECRET
    )
    assert [o.value for o in done.out] == [b"1", b"3", b"4"]
    assert {o.topic for o in done.out} == {"hush.p.dlq"}
    assert done.counts == Counter({("p", "invalid:null"): 2, ("p", "invalid:malformed"): 1})


def test_drop_counts_and_sends_nothing():
    done = step()
    dead_letters(pipeline("raw", dlq_topic=None), PLACE, [RECORD], {0: "null"}, done, SECRET)
    assert done.out == [] and done.counts == Counter({("p", "invalid:null"): 1})


def test_fail_stops_with_place_and_reason_alone():
    with pytest.raises(EngineError) as caught:
        failing = pipeline("raw", fail_on_error=True)
        dead_letters(failing, PLACE, [RECORD], {0: "null"}, step(), SECRET)
    text = str(caught.value)
    assert "null" in text and "events-3" in text and 'on_error = "dlq"' in text
    assert "payload" not in text and "key" not in text


def test_late_records_go_to_their_own_topic():
    done = step()
    late_records(pipeline("raw"), PLACE, [RECORD, RECORD], "late", done, SECRET)
    assert [o.topic for o in done.out] == ["hush.p.late"] * 2
    assert dict(done.out[0].headers)["__streams.errors.reason"] == b"late"


def test_headers_name_the_field_of_a_wrong_type_and_where_an_unread_batch_begins():
    path = dict(failure_headers(PLACE, RECORD, Reason.at("wrong_type", "user.id")))
    assert path["__streams.errors.path"] == b"user.id"
    assert path["__streams.errors.reason"] == b"wrong_type"
    unread = RawRecord(99, 1234, None, Unread.of("huge_batch", 17))
    headers = dict(failure_headers(PLACE, unread, "huge_batch"))
    assert headers["__streams.errors.first_offset"] == b"17"
    assert headers["__streams.errors.offset"] == b"99"
    for policy in ("raw", "hash", "none"):
        out = copy(pipeline(policy), "dlq", unread, (), SECRET)
        assert (out.key, out.value, out.headers) == (None, None, ())


def test_a_topic_that_pipelines_share_says_whose_each_copy_is_whatever_a_producer_wrote():
    forged = RECORD._replace(headers=(("__streams.errors.pipeline", b"q"),))
    for shared, told in ((False, b"q"), (True, b"p")):
        done = step()
        dead_letters(pipeline("raw", shared=shared), PLACE, [forged], {0: "null"}, done, SECRET)
        (out,) = done.out
        assert dict(out.headers)["__streams.errors.pipeline"] == told
