"""Keys of a replay: from this machine or an auditor; without a key, epochs are left out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hushstream.agents.stages.step import Out
from hushstream.agents.worker.setup import WorkerSetup
from hushstream.errors import ConfigError
from hushstream.formats.events.decode import RawRecord
from hushstream.mechanisms.noise import Charge
from hushstream.offline.compare import ReleaseCheck, ReplayOutcome
from hushstream.offline.engine import OfflineEngine, Recorded
from hushstream.offline.replay_keys import ReplayKeys, left_out, opened
from hushstream.topics.config.access.escrow import Escrow
from hushstream.topics.config.access.ratchet_file import RatchetFile, create
from hushstream.topics.records import Trigger

from ..support import DAY, NAMES, ORIGIN, SECRET, deployment, event, start, trigger
from ..topics.config.access.test_escrow import auditor

OWN = bytes(range(100, 132))


def setup(made: Any, ratchet: RatchetFile | None, own: dict[str, bytes]) -> WorkerSetup:
    found = SimpleNamespace(ratchet=ratchet, own=own, deployment=made)
    return cast("WorkerSetup", found)


def world(tmp_path: Path) -> tuple[Any, RatchetFile, list[Trigger]]:
    """Pipeline p forgets its keys, q has its own key, r has the deployment's."""
    create(tmp_path / "hush.ratchet")
    file = RatchetFile(tmp_path / "hush.ratchet")
    # With so much noise on listed keys, two draws never give the same releases.
    listed = 'public_keys = [["k0"], ["k1"], ["k2"]]'
    swap = {"epsilon = 8.0": "epsilon = 0.05"}
    plain = deployment(pipelines=("p", "q", "r"), more=listed, swap=swap)
    (source,) = plain.inputs
    named = {"p": file.name, "q": "0" * 32}
    pipelines = tuple(replace(p, own_key=named.get(p.name)) for p in source.pipelines)
    made = replace(plain, inputs=(replace(source, pipelines=pipelines),))
    fired = [
        trigger(p, 4 * w + 1, [60 * (w + 1)], w, index=1, charge=f"{w:064x}")
        for w in range(2)
        for p in made.pipelines
    ]
    numbered = [_paid(t, 3 + t.window) for t in fired]
    return made, file, numbered


def _raw(out: Out, offset: int) -> RawRecord:
    return RawRecord(offset, out.timestamp or 0, out.key, out.value, tuple(out.headers))


def _paid(t: Trigger, seq: int) -> Trigger:
    values = {name: getattr(t, name) for name in t.__struct_fields__}
    return Trigger(**values | {"charge_seq": seq, "ordinal": t.window + 1})


def outs(made: Any, triggers: list[Trigger], own: dict[str, Any]) -> dict[str, list[Any]]:
    log = [event(n, f"u{n}", f"k{n % 3}", ORIGIN + n // 60 * DAY) for n in range(120)]
    entries = list(enumerate([*(start(p) for p in made.pipelines), *triggers]))
    run = OfflineEngine(made, NAMES, SECRET, {("events", 0): log}, entries, Recorded(own=own))
    run.run()
    return {p.name: run.outs[p.release_topic] for p in made.pipelines}


def test_forgotten_epochs_are_left_out_and_sealed_keys_bring_them_back(tmp_path: Path) -> None:
    made, file, triggers = world(tmp_path)
    mine = [t for t in triggers if t.pipeline == "p"]
    charges = [Charge(t.charge_seq, "p", t.epoch) for t in mine]
    sealed = {file.name: {one: file.key(one) for one in charges}}
    own = {"q": OWN}
    whole = ReplayKeys(setup(made, file, own), made, {})
    assert whole.forgotten(triggers) == []
    published = outs(made, triggers, whole.own)
    assert published["r"] == outs(made, triggers, {})["r"]  # r's keys are never forgotten

    file.forget(4, charges, lambda one: one == charges[0])
    without = ReplayKeys(setup(made, file, own), made, {})
    assert without.forgotten(triggers) == mine[:1]
    again = outs(made, triggers, without.own)
    assert again["q"] == published["q"] and again["r"] == published["r"]
    assert again["p"] != published["p"]
    p = made.pipelines[0]
    for left, agrees in ((set[int](), False), ({0}, True)):
        check, outcome = ReleaseCheck(p, mine, None, without=left), ReplayOutcome()
        for out in again["p"]:
            check.expect(out)
        for offset, out in enumerate(published["p"]):
            check.take(out.partition, _raw(out, offset), True)
        check.finish(outcome)
        assert outcome.agrees == agrees and outcome.compared > 1

    nowhere = ReplayKeys(setup(made, None, own), made, {})
    assert nowhere.forgotten(triggers) == mine
    for ratchet in (file, None):
        opened = ReplayKeys(setup(made, ratchet, own), made, sealed)
        assert opened.forgotten(triggers) == []
        assert outs(made, triggers, opened.own) == published
    other = ReplayKeys(setup(made, None, own), made, {"ab" * 16: sealed[file.name]})
    assert other.forgotten(triggers) == mine


def test_an_escrow_may_be_missing_until_a_key_is_forgotten(tmp_path: Path) -> None:
    made, file, triggers = world(tmp_path)
    secret, public = auditor(tmp_path, "a")
    place, charge = tmp_path / "hush.escrow", Charge(triggers[0].charge_seq, "p", 0)
    own = {"q": OWN}
    assert opened(place, secret, ReplayKeys(setup(made, file, own), made, {}), triggers) == {}
    other_machine = ReplayKeys(setup(made, None, own), made, {})
    with pytest.raises(ConfigError, match="sealed keys cannot be read"):
        opened(place, secret, other_machine, triggers)
    key = file.key(charge)
    file.forget(4, [charge], lambda one: True)
    without = ReplayKeys(setup(made, file, own), made, {})
    with pytest.raises(ConfigError, match="sealed keys cannot be read"):
        opened(place, secret, without, triggers)
    Escrow(place, public).add(file.name, [(charge, key)])
    assert opened(place, secret, without, triggers) == {file.name: {charge: key}}


def test_what_is_left_out_is_said(tmp_path: Path) -> None:
    _, _, triggers = world(tmp_path)
    said = left_out("p", triggers)
    assert "'p'" in said and "of 2 epochs, 0 to 1: their noise keys were forgotten" in said
