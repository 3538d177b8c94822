"""Canonical JSON: one text per value, so that equal records have equal bytes and digests."""

from __future__ import annotations

import msgspec

_ENCODER = msgspec.json.Encoder(order="deterministic")


def encode(record: object) -> bytes:
    """Encode as canonical JSON: sorted keys, without white space."""
    return _ENCODER.encode(record)
