"""A signed deployment in memory: its ledger and its release topic, as on a broker."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

from hushstream.agents.clock.ledger import SIGNED, Ledger
from hushstream.agents.deployment.published.statement import charge_body
from hushstream.formats.events.decode import RawRecord
from hushstream.offline.engine import OfflineEngine, Recorded
from hushstream.reading.proof import Checkpoint, Proof, prove
from hushstream.topics.signatures import Sealing, SigningKey

from ..support import DAY, NAMES, ORIGIN, SECRET, deployment, event, start, trigger

KEY = SigningKey(bytes(range(100, 132)))
OTHER = SigningKey(bytes(range(50, 82)))
TOPIC = "hush.p.releases.v1"
SHARDS, PARTITIONS = 3, 2

Logs = tuple[tuple[RawRecord, ...], ...]


class World(NamedTuple):
    """The public topics of a deployment."""

    ledger: tuple[bytes, ...]
    releases: Logs

    def prove(self, pinned: str = "", known: Checkpoint | None = None) -> Proof:
        """Prove this world as a reader of it would."""
        return prove(
            lambda: Ledger.read(self.ledger),
            lambda topic, partition: self.releases[partition] if topic == TOPIC else (),
            lambda topic: len(self.releases) if topic == TOPIC else 0,
            "test",
            pinned,
            known,
        )


def ledger_of(p, key: SigningKey | None = KEY, epochs: Sequence[int] = (0, 1)) -> Ledger:
    """A ledger that declares a pipeline and charges its epochs; signed if ``key`` is given."""
    made = Ledger(key=key)
    body = {"format": 2, "genesis": NAMES.genesis, "deployment": NAMES.deployment}
    if key is not None:
        body |= {"format": SIGNED, "public_key": key.public}
    made.take(made.next("genesis", 1, body).encode())
    declared = {
        "pipeline": p.name, "number": 0, "config": p.config,
        "partitions": {NAMES.cells(p.name): p.cells_partitions},
        "placement": {"release_partitions": p.release_partitions},
    }  # fmt: skip
    made.take(made.next("pipeline", 2, declared).encode())
    for epoch in epochs:
        charge = charge_body(p, epoch, "1.0", "key") | {"salt": f"salt {epoch}"}
        made.take(made.next("charge", 60_000_000, charge).encode())
    return made


def world(
    key: SigningKey | None = KEY,
    sealing: Sealing | None = None,
    paid: Sequence[int] = (0, 0, 0, 0, 1, 1, 1, 1),
    hop: bool = False,
) -> World:
    """Two windows of a histogram, four triggers each, over three shards and two partitions.

    Args:
        key: key for the ledger, and for releases unless ``sealing`` is given; None for unsigned.
        paid: epoch of the charge that each trigger names.
        hop: whether to use eight overlapping windows of a day each instead.
    """
    swap = {"cells_partitions": "release_partitions = 2\ncells_partitions"}
    if hop:
        swap |= {'length = "1d"': 'length = "1d", hop = "6h"'}
    made = deployment(cells=SHARDS, mechanism=", adaptive_weight = 0", swap=swap)
    (p,) = made.pipelines
    ledger = ledger_of(p, key)
    if key is not None and sealing is None:
        sealing = Sealing(ledger.records[0].hash(), key.public, key)
    drawn = random.Random(7)
    events = [
        event(n, f"u{n % 90}", f"p{drawn.randrange(6)}", ORIGIN + DAY * (n >= 200))
        for n in range(400)
    ]
    windows = range(8) if hop else [(n - 1) // 4 for n in range(1, 9)]
    charges = [ledger.charges[p.name, epoch].hash() for epoch in paid]
    triggers = [trigger(p, n, [50 * n], windows[n - 1], charge=charges[n - 1]) for n in range(1, 9)]
    run = OfflineEngine(
        made,
        NAMES,
        SECRET,
        {("events", 0): events},
        list(enumerate([start(p), *triggers])),
        Recorded(sealing=sealing),
    )
    run.run()
    logs: list[list[RawRecord]] = [[] for _ in range(PARTITIONS)]
    for out in run.outs[TOPIC]:
        log = logs[out.partition]
        log.append(RawRecord(len(log), out.timestamp or 0, out.key, out.value, out.headers))
    return World(tuple(record.encode() for record in ledger.records), tuple(map(tuple, logs)))
