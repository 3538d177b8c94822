"""The judge uses the ratchet: any state finds the keys that it has not forgotten, and no others."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest
from hushstream.agents.deployment.compile import compile_config
from hushstream.mechanisms.noise import Charge
from hushstream.topics.config.access.ratchet_file import RatchetFile, create
from hushstream.topics.config.load import loads
from hushstream.topics.records import Trigger
from msgspec.structs import replace

from .outcomes import outcome
from .published import objections
from .ratchet import Forgotten, keys
from .test_histogram import COUNT, KEYS
from .worlds import HORIZONS, INPUT, PIPELINE, world

TEXT = INPUT.format(units=1, cells=2, partitioner="crc32", unit='"user"') + PIPELINE.format(
    name="p", key='["page"]', window=HORIZONS[4], more=f"aggregate = [{COUNT}]\n{KEYS}",
    epsilon=8, delta="1e-4", mechanism="",
)  # fmt: skip


def test_releases_under_a_ratchet_are_those_that_must_be(tmp_path: Path) -> None:
    made = compile_config(loads(TEXT, environ={}), {"events": 2})
    one = world(made, Random(1), 200, windows=4)
    clock = [replace(r, charge_seq=3 * r.epoch + 2) if isinstance(r, Trigger) else r
             for r in one.clock]  # fmt: skip
    create(tmp_path / "hush.ratchet")
    file = RatchetFile(tmp_path / "hush.ratchet")
    first = json.loads(file.path.read_text())
    charges = sorted({Charge(t.charge_seq, "p", t.epoch) for t in clock if isinstance(t, Trigger)})
    assert len(charges) == 4
    own = {"p": lambda t: file.key(Charge(t.charge_seq, t.pipeline, t.epoch))}
    # Only the first state knows the key of epoch 0; the later state has kept that of epoch 1.
    moved = RatchetFile(file.path)
    moved.forget(6, charges, lambda one: one == charges[0])
    later = json.loads(file.path.read_text())
    ((releases, published),) = outcome(made, one.logs, clock, own=own, secret=keys(first))
    assert objections(releases, published) == [] and len(releases) == 15
    assert {keys(later)({"charge_seq": c.number, "pipeline": "p", "epoch": c.epoch})
            for c in charges[1:]} == {moved.key(c) for c in charges[1:]}  # fmt: skip
    with pytest.raises(Forgotten, match="epoch 0 of pipeline 'p'"):
        list(outcome(made, one.logs, clock, own=own, secret=keys(later)))
    other = dict(first, key="00" * 32)
    ((releases, published),) = outcome(made, one.logs, clock, own=own, secret=keys(other))
    assert len(objections(releases, published)) > 10
