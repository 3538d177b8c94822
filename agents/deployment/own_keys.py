"""Noise keys of pipelines' own, known to a deployment by their fingerprints alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ...mechanisms.noise import fingerprint
from .model import Deployment


def with_keys(deployment: Deployment, own: Mapping[str, bytes]) -> Deployment:
    """Give each pipeline that has a noise key of its own the fingerprint of that key.

    Args:
        own: these keys by pipeline, 32 bytes each.
    """
    inputs = [
        replace(
            source,
            pipelines=tuple(
                replace(p, own_key=fingerprint(own[p.name])) if p.name in own else p
                for p in source.pipelines
            ),
        )
        for source in deployment.inputs
    ]
    return replace(deployment, inputs=tuple(inputs))


def fingerprints(deployment: Deployment, secret: bytes) -> dict[str, str]:
    """Tell under which noise key each pipeline releases, by the key's fingerprint."""
    common = fingerprint(secret)
    return {p.name: p.own_key or common for p in deployment.pipelines}
