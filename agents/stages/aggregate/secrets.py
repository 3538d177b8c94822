"""The secrets of a process, and the source of the nonces of its noise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ....topics.signatures import Sealing
from .computation import NoiseKey
from .nonces import Opening


@dataclass(frozen=True)
class Secrets:
    """The keys of noise and signatures, and the source of nonces, of one process.

    Attributes:
        root: noise key, from which the digests of units are derived too.
        opening: source of nonces, asked at every opening of a shard.
        own: noise keys of pipelines that have their own.
        sealing: signer of releases; None: releases are not signed.
    """

    root: bytes = field(repr=False)
    opening: Opening
    own: Mapping[str, NoiseKey] = field(default_factory=dict, repr=False)
    sealing: Sealing | None = field(default=None, repr=False)

    def of(self, pipeline: str) -> NoiseKey:
        """Look up the noise key of a pipeline."""
        return self.own.get(pipeline, self.root)
