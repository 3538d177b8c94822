"""Noise keys of a replay; releases of epochs whose keys were erased cannot be compared.

Windows of such epochs are recomputed like all others, because bounds and units logs are checked
with them, but under a key that was never used; the comparison leaves out their releases.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path

from ..agents.deployment.model import Deployment
from ..agents.stages.aggregate.computation import NoiseKey
from ..agents.worker.setup import WorkerSetup
from ..mechanisms.noise import Charge
from ..topics.config.access.escrow import open_escrow
from ..topics.records import Trigger

Sealed = Mapping[str, Mapping[Charge, bytes]]
"""Keys opened by an auditor, by ratchet."""


class ReplayKeys:
    """The noise keys of a deployment that this machine or an auditor has."""

    def __init__(self, plan: WorkerSetup, deployment: Deployment, sealed: Sealed) -> None:
        self._ratchet = plan.ratchet
        self._names = {
            p.name: p.own_key
            for p in deployment.pipelines
            if p.own_key is not None and p.name not in plan.own
        }
        self._sealed = sealed
        self._nobodys = secrets.token_bytes(32)
        self.own: dict[str, NoiseKey] = {**plan.own, **dict.fromkeys(self._names, self._key)}

    def forgotten(self, triggers: Iterable[Trigger]) -> list[Trigger]:
        """List the triggers whose noise cannot be drawn again."""
        return [t for t in triggers if t.pipeline in self._names and self._known(t) is None]

    def _key(self, trigger: Trigger) -> bytes:
        return self._known(trigger) or self._nobodys

    def _known(self, trigger: Trigger) -> bytes | None:
        charge = Charge(trigger.charge_seq, trigger.pipeline, trigger.epoch)
        ratchet, name = self._ratchet, self._names[trigger.pipeline]
        if ratchet is not None and ratchet.name == name and (key := ratchet.known(charge)):
            return key
        return self._sealed.get(name or "", {}).get(charge)


def opened(path: Path, key_file: Path, keys: ReplayKeys, triggers: Iterable[Trigger]) -> Sealed:
    """Open an auditor's escrow, whose file first appears when a key is forgotten.

    Raises:
        ConfigError: the file is missing although ``keys`` lack one that ``triggers`` need, or as
            `open_escrow`.
    """
    if not path.exists() and not keys.forgotten(triggers):
        return {}
    return open_escrow(path, key_file)


def left_out(pipeline: str, forgotten: Iterable[Trigger]) -> str:
    """State the epochs whose releases were not compared."""
    epochs = sorted({t.epoch for t in forgotten})
    return (
        f"pipeline {pipeline!r}: nothing is compared of {len(epochs)} epochs, {epochs[0]} to "
        f"{epochs[-1]}: their noise keys were forgotten (--escrow-key opens sealed ones)"
    )
