"""The comparison has teeth: it names each lost, doubled or changed record of a release topic."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from functools import cache
from random import Random

import pytest
from hushstream.agents.deployment.compile import compile_config
from hushstream.topics.config.load import loads

from .histogram import Release
from .logs import charges, until_published
from .outcomes import outcome
from .published import Published, objections
from .stream import Objection
from .test_histogram import COUNT, KEYS
from .worlds import HORIZONS, INPUT, PIPELINE, World, world

TEXT = INPUT.format(units=1, cells=2, partitioner="crc32", unit='"user"') + PIPELINE.format(
    name="p", key='["page"]', window=HORIZONS[4], more=f"aggregate = [{COUNT}]\n{KEYS}",
    epsilon=8, delta="1e-4", mechanism="",
)  # fmt: skip


@cache
def released() -> tuple[list[Release], list[Published]]:
    made = compile_config(loads(TEXT, environ={}), {"events": 2})
    one: World = world(made, Random(1), 100, windows=2)
    ((releases, published),) = outcome(made, one.logs, one.clock)
    return releases, published


def at(published: list[Published], schema: str, nth: int) -> int:
    """The index of the ``nth`` record with this schema."""
    kinds = [json.loads(value)["schema"] == schema for _, value in published]
    return [n for n, mine in enumerate(kinds) if mine][nth]


def changed(published: list[Published], place: int, **values: object) -> list[Published]:
    key, value = published[place]
    one = key, json.dumps(json.loads(value) | values).encode()
    return [*published[:place], one, *published[place + 1 :]]


ROW, MANIFEST = "hush.release/2", "hush.manifest/2"
TAMPERED: list[tuple[str, Callable[[list[Published]], list[Published]]]] = [
    ("was not released", lambda p: p[: at(p, ROW, 2)] + p[at(p, ROW, 2) + 1 :]),
    ("was released 2 times", lambda p: [*p, p[at(p, ROW, 2)]]),
    ("differs in ['values']", lambda p: changed(p, at(p, ROW, 2), values={"count": 1})),
    ("differs in ['release_id']", lambda p: changed(p, at(p, ROW, 2), release_id="0" * 32)),
    ("was released and must be hidden",
     lambda p: [*p, (p[at(p, ROW, 0)][0] + b" ", p[at(p, ROW, 0)][1])]),
    ("has not released it", lambda p: p[: at(p, MANIFEST, 2)] + p[at(p, MANIFEST, 2) + 1 :]),
    ("has released it 2 times", lambda p: [*p, p[at(p, MANIFEST, 2)]]),
    ("key_threshold", lambda p: changed(p, at(p, MANIFEST, 2), key_threshold=3)),
    ("released without a trigger", lambda p: p + changed(p[at(p, ROW, 0) :][:1], 0, trigger=9)),
]  # fmt: skip


def test_nothing_is_missing_while_no_shard_has_published():
    due = Release({"index": 1}, "2019-03-01T00:00:00Z", {b"a": {}}, {}, None)
    assert objections([due], []) == []


def test_what_was_published_is_what_it_must_be():
    releases, published = released()
    assert objections(releases, published) == []
    assert sum(len(release.rows) for release in releases) == 28


@pytest.mark.parametrize(("said", "tamper"), TAMPERED, ids=[said for said, _ in TAMPERED])
def test_what_was_tampered_with_is_named(said, tamper):
    releases, published = released()
    found = objections(releases, tamper(published))
    assert found and all(said in one for one in found)


def test_what_is_still_to_come_is_not_missed():
    releases, published = released()
    last = at(published, MANIFEST, -1)
    assert objections(releases, published[:last]) == []


def test_what_was_fired_as_the_workers_were_stopped_is_not_judged():
    """Logs between stages may lack its records; they must have those of what was published."""
    releases, published = released()
    end = releases[3].trigger["index"], releases[3].start
    early = [(k, v) for k, v in published
             if (json.loads(v)["trigger"], k.split(b"|")[1].decode()) in
             {(one.trigger["index"], one.start) for one in releases[:4]}]  # fmt: skip

    def lacking(whole: int) -> Iterator[Release]:
        yield from releases[:whole]
        raise Objection("the units log lacks a record")

    found = list(until_published(lacking(4), early))
    assert (found[-1].trigger["index"], found[-1].start) == end and len(found) == 4
    with pytest.raises(Objection, match="lacks a record"):
        list(until_published(lacking(3), early))
    assert list(until_published(releases, [])) == []


def test_a_trigger_needs_its_charge_and_the_ledger_its_chain():
    first = json.dumps({"seq": 0, "prev_hash": "0" * 64, "kind": "genesis", "body": {}}).encode()
    body = {"pipeline": "p", "epoch": 3}
    second = json.dumps(
        {"seq": 1, "prev_hash": hashlib.sha256(first).hexdigest(), "kind": "charge", "body": body}
    ).encode()
    paid = {"type": "trigger", "ordinal": 1, **body, "charge": hashlib.sha256(second).hexdigest()}
    assert list(charges([first, second], [paid])) == []
    (wrong,) = charges([first, second], [paid | {"epoch": 4}])
    assert "was not paid for" in wrong
    (wrong,) = charges([first, second], [paid | {"charge": "0" * 64}])
    assert "was not paid for" in wrong
    assert "chain is broken" in next(charges([second], [paid]))
