"""Attributes in the first stage: as of the clock and of a record's own unit, for any steps."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hushstream.agents.clock.log import ClockLog, Entry
from hushstream.agents.deployment.compile import compile_config
from hushstream.agents.deployment.model import Input
from hushstream.agents.stages.ingest import attributes
from hushstream.agents.stages.ingest.attributes import UnitAttributes
from hushstream.agents.stages.ingest.beside import Beside
from hushstream.agents.stages.ingest.schemas import NoSchemas, SchemaSource
from hushstream.agents.stages.ingest.stage import IngestStage
from hushstream.agents.stages.ingest.unit_digests import UnitDigests
from hushstream.agents.stages.step import Out, Step
from hushstream.formats.events.raw import RawRecord
from hushstream.mechanisms.noise import derive
from hushstream.offline.engine import Log, VirtualShard
from hushstream.topics.config.load import loads
from hushstream.topics.frames import CellsFrame, decode
from hushstream.topics.records import Beat
from hypothesis import given, settings
from hypothesis import strategies as st

from ....judge.worlds import HORIZONS, INPUT, PIPELINE
from ....support import NAMES, ORIGIN, SECRET, start

USERS = """
[[input]]
name = "users"
topic = "users"
unit = "id"
partitioner = "murmur2"
attributes_of = "events"
time = { format = "record" }
"""
BUDGET = 6
TEXT = (
    INPUT.format(units=1, cells=1, partitioner="murmur2", unit='"user"')
    + USERS
    + PIPELINE.format(
        name="p", key='["country"]', window=HORIZONS[4], epsilon=8, delta="0.01",
        more='derive.country = { attribute = "country", otherwise = "none" }',
        mechanism=f", budget = {BUDGET}, adaptive_weight = 0",
    )
)  # fmt: skip
MADE = compile_config(loads(TEXT, environ={}))
(SOURCE,) = MADE.streams
(PIPE,) = SOURCE.pipelines

Told = tuple[str, Any]  # a unit and its country
Turn = tuple[list[Told], list[str]]  # what is stated, and units with a record, up to a beat
Write = Callable[[str, Any], bytes | None]
UNITS = ("a", "b", "c")


class Pieces:
    """A topic of attributes that delivers late and in pieces."""

    def __init__(self, records: Sequence[RawRecord], piece: int) -> None:
        self._log, self._piece, self._late = Log(records), piece, True

    def read(
        self, topic: str, partition: int, begin: int, end: int
    ) -> tuple[Sequence[RawRecord], int] | None:
        self._late = not self._late and self._piece < 9
        if self._late:
            return None
        found = [one for one in self._log.since(begin, 1 << 30)[0] if one.offset < end]
        if len(found) <= self._piece:
            return found, end
        return found[: self._piece], found[self._piece - 1].offset + 1


def said(unit: str, country: Any) -> bytes | None:
    """A JSON record that states a country, or None to delete the statement."""
    return None if country == "gone" else json.dumps({"id": unit, "country": country}).encode()


def world(
    turns: Sequence[Turn], write: Write = said
) -> tuple[list[RawRecord], list[RawRecord], list[Entry]]:
    events, stated, clock = list[RawRecord](), list[RawRecord](), [(0, start(PIPE))]
    for told, came in turns:
        for unit, country in told:
            stated.append(RawRecord(2 * len(stated), 0, unit.encode(), write(unit, country)))
        for unit in came:
            value = json.dumps({"user": unit, "t": ORIGIN + len(events)})
            events.append(RawRecord(len(events), 0, unit.encode(), value.encode()))
        ends = {"events": [len(events)], "users": [2 * len(stated)]}
        clock.append((len(clock), Beat(ORIGIN + len(clock), ends)))
    return events, stated, clock


def contents(
    turns: Sequence[Turn], piece: int = 9, step: int = 40_000, anew: bool = False,
    source: Input = SOURCE, write: Write = said, schemas: SchemaSource | None = None,
) -> Counter[bytes]:  # fmt: skip
    """Accepted records by key, after the bound; with ``anew``, the stage reopens at each step."""
    events, stated, entries = world(turns, write)
    clock = ClockLog({PIPE.name: PIPE.mechanism.traits.horizon}, entries, forgets=False)
    beside = Beside(schemas=schemas or NoSchemas(), stated=Pieces(stated, piece))
    stage = IngestStage(source, 0, NAMES, SECRET, clock, beside, step)
    shard = VirtualShard(stage, Log(events), NAMES.genesis)
    found: Counter[bytes] = Counter()

    def take(done: Step) -> None:
        for out in done.out:
            if out.topic == NAMES.cells("p"):
                _add(found, out)

    rests = 0
    while rests < 4:  # more of the log may come
        rests = 0 if shard.advance(1 << 20, take) else rests + 1
        if anew and rests == 0:
            stage.open(shard._store, shard._marker)
    assert stage.position == len(events)
    return found


def _add(found: Counter[bytes], out: Out) -> None:
    frame = decode(out.value or b"")
    if isinstance(frame, CellsFrame):
        for key, one in zip(frame.part.key, frame.part.sums[:, 0].tolist(), strict=True):
            found[key] += one


def expected(turns: Sequence[Turn]) -> Counter[bytes]:
    """The same, computed one record after the other."""
    known: dict[str, Any] = {}
    used: dict[str, Counter[str]] = {}
    found: Counter[bytes] = Counter()
    for told, came in turns:
        for unit, country in told:
            known[unit] = None if country == "gone" else country
        for unit in came:
            key = json.dumps([known.get(unit) or "none"]).encode()
            mine = used.setdefault(unit, Counter())
            if sum(n * n for n in mine.values()) + 2 * mine[key.decode()] + 1 <= BUDGET:
                mine[key.decode()] += 1
                found[key] += 1
    return found


COUNTRIES = st.sampled_from(["DE", "FR", "", None, "gone"])
TOLD = st.tuples(st.sampled_from(UNITS), COUNTRIES)
TURNS = st.lists(
    st.tuples(st.lists(TOLD, max_size=5), st.lists(st.sampled_from(UNITS), max_size=6)),
    max_size=5,
)


@settings(max_examples=60, deadline=None)
@given(TURNS, st.integers(1, 9), st.integers(1, 4), st.booleans())
def test_a_record_meets_what_its_unit_has_stated_up_to_its_beat(
    turns: list[Turn], piece: int, step: int, anew: bool
):
    assert contents(turns, piece, step, anew) == expected(turns)


def without(turns: Sequence[Turn], unit: str) -> list[Turn]:
    return [
        ([one for one in told if one[0] != unit], [one for one in came if one != unit])
        for told, came in turns
    ]


def shift(turns: Sequence[Turn], unit: str) -> int:
    """Σ m² over keys of what one unit adds; the noise must cover it."""
    one, other = contents(turns), contents(without(turns, unit))
    return sum((one[key] - other[key]) ** 2 for key in {*one, *other})


@settings(max_examples=40, deadline=None)
@given(TURNS, st.sampled_from(UNITS))
def test_without_a_unit_and_its_attributes_the_rest_stays_within_the_bound(
    turns: list[Turn], unit: str
):
    assert shift(turns, unit) <= BUDGET


CROWD = tuple(f"u{n}" for n in range(20))
LED: list[Turn] = [([("a", "DE")], ["a", *CROWD])]
"""One unit states a country, and twenty others send a record each."""


def test_attributes_of_another_unit_would_break_the_bound(monkeypatch: pytest.MonkeyPatch):
    assert shift(LED, "a") <= BUDGET
    complete, leader = UnitAttributes.complete, digest_of("a")

    def misled(self: Any, reader: Any, given: Any, view: Any, digests: Any, step: Any) -> Any:
        others = np.repeat(leader[None], len(digests), axis=0)
        return complete(self, reader, given, view, others, step)

    monkeypatch.setattr(UnitAttributes, "complete", misled)
    assert shift(LED, "a") > 20**2 > BUDGET


def digest_of(unit: str) -> Any:
    """The digest that stands for a unit in the stages."""
    return UnitDigests(derive(SECRET, "hashing"), "murmur2", 1, 0).look([unit])[0][0]


def test_what_cannot_be_read_or_strays_is_a_dead_letter_and_states_nothing():
    letters = dead([b'{"id": "a"', b'{"country": "DE"}', b'{"id": "a", "country": 1.5}'])
    assert letters == ["malformed", "missing_unit", "wrong_type"]


UNITS = ["--5", "-", "-0", "007", "5", "-5", "٣", "9" * 5000]


def test_any_key_of_a_deletion_is_read():
    assert dead([None] * len(UNITS), UNITS) == ["huge_unit"]


def dead(values: Sequence[bytes | None], units: Sequence[str] = ()) -> list[str]:
    names = units or ["a"] * len(values)
    stated = [
        RawRecord(n, 0, name.encode(), value)
        for n, (name, value) in enumerate(zip(names, values, strict=True))
    ]
    events = [RawRecord(0, 0, b"a", json.dumps({"user": "a", "t": ORIGIN}).encode())]
    beat = Beat(ORIGIN, {"events": [1], "users": [len(stated)]})
    clock = ClockLog({PIPE.name: 4}, [(0, start(PIPE)), (1, beat)], forgets=False)
    stage = IngestStage(SOURCE, 0, NAMES, SECRET, clock, Beside(stated=Pieces(stated, 9)))
    shard = VirtualShard(stage, Log(events), NAMES.genesis)
    found: list[str] = []

    def collect(step: Step) -> None:
        letters = (out for out in step.out if out.topic == PIPE.dlq_topic)
        found.extend(dict(one.headers)["__streams.errors.reason"].decode() for one in letters)

    for _ in range(4):
        shard.advance(100, collect)
    return found


def test_a_key_that_attributes_make_too_long_is_a_dead_letter(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(attributes, "MAX_KEY", 5)
    assert dead([b'{"id": "a", "country": "DE"}']) == ["huge_key"]


def test_a_stage_that_opens_again_reads_on():
    events, stated, entries = world([([("a", "DE")] * 3, ["a"])] * 2)
    begins: list[int] = []

    class Asked(Pieces):
        def read(self, topic: str, partition: int, begin: int, end: int) -> Any:
            begins.append(begin)
            return super().read(topic, partition, begin, end)

    clock = ClockLog({PIPE.name: 4}, entries, forgets=False)
    stage = IngestStage(SOURCE, 0, NAMES, SECRET, clock, Beside(stated=Asked(stated, 2)), 1)
    shard = VirtualShard(stage, Log(events), NAMES.genesis)
    for _ in range(20):
        if shard.advance(9, lambda step: None):
            stage.open(shard._store, shard._marker)
    assert begins == sorted(begins) and begins.count(0) <= 2 and begins[-1] > 0
