"""Everything that a worker, or a replay, was started with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ...mechanisms.noise import Charge
from ...topics.config.access.ratchet_file import RatchetFile
from ...topics.config.load import Config
from ...topics.names import Names
from ...topics.signatures import Sealing, SigningKey
from ..clock.begins import begin_of
from ..clock.ledger import Ledger
from ..clock.loss.accept import Lost, resumed
from ..clock.witness import Witness
from ..deployment.model import Deployment, Input
from ..stages.aggregate.computation import NoiseKey


@dataclass(frozen=True)
class WorkerSetup:
    """The findings of `admission.prepare`, checked."""

    config: Config
    deployment: Deployment
    names: Names  # of all topics, with the genesis id of the ledger
    ledger: Ledger  # as it was read at the start
    secret: bytes  # the root key
    data_dir: Path
    member: str  # stable name of this worker in the consumer group; empty: it has none
    # first offsets of the inputs, by the pipeline that was declared then
    begins: Mapping[str, list[int]]
    witness: Witness | None = None  # what remembers the last trigger; None without `engine.witness`
    # noise keys of pipelines that have one of their own
    own: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    accepted: Sequence[Lost] = ()  # losses of raw records that the ledger accepts, in order
    # epochs that the clock charges at once, by pipeline
    owed: Mapping[str, int] = field(default_factory=dict)
    # signs releases and ledger; None: they are unsigned, or this only reads
    signing: SigningKey | None = field(default=None, repr=False)
    ratchet: RatchetFile | None = None  # keys of pipelines that forget them; None: none does

    @property
    def sealing(self) -> Sealing | None:
        """The way in which releases are sealed; None if the deployment signs nothing."""
        public = self.ledger.public_key
        if public is None:
            return None
        return Sealing(self.ledger.records[0].hash(), public, self.signing)

    @property
    def noise_keys(self) -> dict[str, NoiseKey]:
        """Noise keys of pipelines that have others than the root key, by name."""
        found: dict[str, NoiseKey] = dict(self.own)
        if self.ratchet is not None:
            key = self.ratchet.key
            for p in self.deployment.pipelines:
                if p.own_key == self.ratchet.name:
                    found[p.name] = lambda t: key(Charge(t.charge_seq, t.pipeline, t.epoch))
        return found

    def begin_of(self, source: Input, partition: int) -> int:
        """Look up the first offset of a partition, as of the input's first declared pipeline."""
        return begin_of(self.begins, self.ledger, source)[partition]

    def resume_of(self, source: Input, partition: int) -> int:
        """Look up where a partition goes on after records that were lost; 0 if none were."""
        known = resumed(self.accepted).get(source.topic, [])
        return known[partition] if partition < len(known) else 0
