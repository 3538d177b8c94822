"""Noise for trying settings on a sample: public, so never for a release."""

from __future__ import annotations

from .keyed import STEADY, KeyedNoise

_SECRET = b"public noise of the advice alone"


def noise_of(pipeline: str, *place: int) -> KeyedNoise:
    """The noise of one run over one window; ``place`` distinguishes runs and windows."""
    return KeyedNoise(
        _SECRET, charge=bytes(32), mechanism="advice", config=b"", pipeline=pipeline,
        window="/".join(map(str, place)), nonces=STEADY, test=True,
    )  # fmt: skip
