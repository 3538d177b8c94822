"""Forgetting: a key is deleted once every shard has published the last trigger of its epoch."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hushstream.agents.clock.ledger import Ledger, Record
from hushstream.agents.clock.log import ClockLog
from hushstream.agents.clock.timeline import NEVER, fold
from hushstream.agents.deployment.compile import compile_config
from hushstream.agents.deployment.model import Deployment
from hushstream.agents.worker import forgetting
from hushstream.agents.worker.forgetting import Forgetting, LedgerTail, check_ratchet, over
from hushstream.agents.worker.setup import WorkerSetup
from hushstream.errors import EngineError, RewoundError
from hushstream.mechanisms.noise import Charge
from hushstream.topics.config.access.ratchet_file import RatchetFile, create, ratchet_of
from hushstream.topics.config.load import loads
from hushstream.topics.config.model import Kafka
from hushstream.topics.records import ClockRecord, Marker, Retired, Skipped

from ...support import NAMES, ORIGIN, SECRET, deployment, start, trigger

TOML = """
[[input]]
name = "events"
topic = "events"
unit = "user"
time = { field = "t", format = "epoch_us" }
""" + "".join(
    f"""
[[pipeline]]
name = "{name}"
input = "events"
key = ["page"]
window = {{ length = "1d" }}
triggers = {{ every = "6h" }}
budget = {{ epsilon = 1.0, delta = 1e-6 }}
{more}
"""
    for name, more in (("p", "forget_keys = true"), ("q", ""))
)
EPOCH = {"schedule": 'epoch = "2d"\nschedule'}  # two windows of four triggers


class World:
    """A deployment of two shards without a broker; the test writes its ledger and markers."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, **given: Any) -> None:
        create(folder / "hush.ratchet")
        self.file = RatchetFile(folder / "hush.ratchet")
        plain = deployment(cells=2, swap=EPOCH, **given)
        (source,) = plain.inputs
        forgets = tuple(
            p if p.name == "plain" else replace(p, own_key=self.file.name) for p in source.pipelines
        )
        self.made: Deployment = replace(plain, inputs=(replace(source, pipelines=forgets),))
        self.clock = ClockLog({p.name: p.traits.horizon for p in self.made.pipelines})
        self.closed: dict[str, list[int | None]] = {p.name: [0, 0] for p in self.made.pipelines}
        self.ledger: list[bytes] = []
        self.read = 0  # number of requests to the cluster
        for p in self.made.pipelines:
            self.say(start(p))
        self.record("genesis", {})
        monkeypatch.setattr(forgetting, "last_markers", self._markers)
        monkeypatch.setattr(forgetting, "read_to_end", self._read)
        self.forgetting = Forgetting(Kafka(), NAMES, self.made.pipelines, self.file, self.clock)

    def say(self, record: ClockRecord) -> None:
        self.clock.append(self.clock.end, record)

    def record(self, kind: str, body: dict[str, Any]) -> None:
        self.ledger.append(json.dumps({"seq": len(self.ledger), "kind": kind, "body": body,
                                       "time": 0, "prev_hash": ""}).encode())  # fmt: skip

    def charge(self, name: str, epoch: int) -> Charge:
        key = "00" * 16 if name == "plain" else self.file.name
        self.record("charge", {"pipeline": name, "epoch": epoch, "key_fingerprint": key})
        return Charge(len(self.ledger) - 1, name, epoch)

    def fire(self, name: str, ordinals: Sequence[int]) -> None:
        p = next(p for p in self.made.pipelines if p.name == name)
        for n in ordinals:
            self.say(trigger(p, n, [0], (n - 1) // 4))

    async def _markers(
        self, kafka: Kafka, logs: dict[str, int], place: object
    ) -> dict[str, list[Marker | None]]:
        self.read += 1
        names = {NAMES.changelog("aggregate", name): name for name in self.closed}
        return {
            log: [None if n is None else Marker("abcdef", 0, closed={names[log]: n})
                  for n in self.closed[names[log]]]
            for log in logs
        }  # fmt: skip

    async def _read(self, kafka: Kafka, topic: str, partition: int, place: int) -> Any:
        assert topic == NAMES.ledger
        yield [], place, len(self.ledger)
        for n in range(place, len(self.ledger)):
            yield [type("R", (), {"value": self.ledger[n]})()], n + 1, len(self.ledger)

    def kept(self) -> list[tuple[str, int]]:
        asyncio.run(self.forgetting.round())
        return [(one.pipeline, one.epoch) for one in self.file.kept]


def test_a_key_goes_once_all_shards_have_published_the_last_trigger(tmp_path, monkeypatch):
    world = World(tmp_path, monkeypatch)
    first = world.charge("p", 0)
    world.fire("p", range(1, 9))  # both windows of epoch 0
    second = world.charge("p", 1)
    world.fire("p", [9])
    key = world.file.key(first)
    for closed in ([0, 0], [None, 9], [8, 7], [4, 9]):
        world.closed["p"] = closed
        assert world.kept() == [("p", 0), ("p", 1)]
        assert world.file.key(first) == key and world.file.step == 3
    world.closed["p"] = [8, 8]
    assert world.kept() == [("p", 1)]
    with pytest.raises(EngineError, match="was forgotten"):
        world.file.key(first)
    assert world.file.key(second)


def test_nothing_is_asked_for_while_nothing_has_ended(tmp_path, monkeypatch):
    world = World(tmp_path, monkeypatch)
    world.charge("p", 0)
    world.kept()
    asked = world.read
    world.fire("p", range(1, 4))
    world.kept()
    assert world.read == asked  # no window has ended
    world.fire("p", range(4, 9))
    for _ in range(2):
        world.kept()
    assert world.read == asked + 2  # the end of the epoch is not published yet
    world.closed["p"] = [8, 8]
    for _ in range(2):
        world.kept()
    assert world.read == asked + 3


def test_each_pipeline_goes_by_its_own_epochs(tmp_path, monkeypatch):
    world = World(tmp_path, monkeypatch, pipelines=("p", "q", "plain"))
    world.charge("q", 0)
    world.charge("plain", 0)
    world.charge("p", 0)
    later = world.charge("gone", 0)  # of a pipeline that is not configured here
    world.fire("p", range(1, 9))
    world.fire("q", range(1, 5))
    world.closed |= {"p": [8, 8], "q": [4, 4]}
    assert world.kept() == [("q", 0), ("gone", 0)]
    assert world.file.key(later) and world.file.step == 5
    world.fire("q", range(5, 9))
    world.closed["q"] = [8, 8]
    assert world.kept() == [("gone", 0)]


def test_what_was_refused_or_retired_needs_no_key(tmp_path, monkeypatch):
    world = World(tmp_path, monkeypatch)
    world.charge("p", 0)
    world.fire("p", range(1, 9))
    world.say(Skipped("p", 1, 2, ORIGIN, 4))
    world.charge("p", 2)
    (p,) = world.made.pipelines
    for n in range(9, 17):
        world.say(trigger(p, n, [0], (n - 1) // 4 + 2))
    world.say(Retired("p", 6, ORIGIN))
    world.closed["p"] = [8, 15]
    assert world.kept() == [("p", 2)]
    world.closed["p"] = [16, 15]
    assert world.kept() == [("p", 2)]
    world.closed["p"] = [16, 16]
    assert world.kept() == []


def test_what_is_unknown_is_kept():
    one = Charge(3, "p", 5)
    found = [over(one, floors) for floors in ({}, {"p": None}, {"p": 5}, {"p": 6}, {"p": NEVER})]
    assert found == [False, False, False, True, True]


def test_a_gap_in_the_ledger_is_no_reason_to_forget():
    tail = LedgerTail("ab" * 16, 0)
    tail.take(b'{"seq":0,"kind":"genesis","body":{"deployment":"d"}}')
    with pytest.raises(EngineError, match="gap before record 2"):
        tail.take(b'{"seq":2,"kind":"charge","body":{"pipeline":"p","epoch":1}}')


def test_a_start_on_an_older_cluster_is_refused(tmp_path, monkeypatch):
    world = World(tmp_path, monkeypatch)
    ledger = Ledger(records=[Record(n, "", "x", 0, {}) for n in range(3)])
    ledger.charges = {("p", e): Record(e + 1, "", "charge", 0, {}) for e in (0, 1)}
    (p,) = world.made.pipelines
    half = [start(p), *(trigger(p, n, [0], (n - 1) // 4) for n in range(1, 6))]
    line = fold(half, {"p": 4})  # window 0 is over, window 1 of epoch 0 is not
    check_ratchet(world.file, ledger, world.made, line)
    charges = [Charge(1, "p", 0), Charge(2, "p", 1)]
    world.file.forget(3, charges, lambda one: False)
    check_ratchet(world.file, ledger, world.made, line)
    world.file.forget(3, [], lambda one: one.epoch == 0)
    with pytest.raises(EngineError, match="noise key of epoch 0 was forgotten"):
        check_ratchet(world.file, ledger, world.made, line)
    whole = fold([*half, *(trigger(p, n, [0], 1) for n in range(6, 9))], {"p": 4})
    check_ratchet(world.file, ledger, world.made, whole)
    world.file.forget(4, [], lambda one: False)
    with pytest.raises(RewoundError, match="passed 4 ledger records, and there are 3"):
        check_ratchet(world.file, ledger, world.made, whole)


def test_pipelines_that_forget_never_release_under_the_root_key(tmp_path: Path) -> None:
    made = create(tmp_path / "hush.ratchet")
    config = loads(f'[secret]\nratchet = "{made.name}"\n' + TOML, folder=tmp_path, environ={})
    deployment = compile_config(config, {"events": 1})
    assert {p.name: p.own_key for p in deployment.pipelines} == {"p": made.name, "q": None}
    ratchet = ratchet_of(config)
    setup = WorkerSetup(
        config, deployment, NAMES, Ledger(), SECRET, tmp_path, "", {}, ratchet=ratchet
    )
    keys = setup.noise_keys
    assert set(keys) == {"p"} and callable(keys["p"])
    p = deployment.pipelines[0]
    first = trigger(p, 1, [0])
    assert keys["p"](first) == made.of(Charge(first.charge_seq, "p", first.epoch))
    assert replace(setup, ratchet=None, own={"q": SECRET}).noise_keys == {"q": SECRET}
