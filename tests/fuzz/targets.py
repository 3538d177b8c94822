"""Every parser of foreign input, with real input and the errors that it may raise."""

from __future__ import annotations

from collections.abc import Callable

from .of_events import events, framed, reports, schemas
from .of_state import damaged_frames, forged_frames, units
from .of_texts import regions, statements, surveys, toml
from .of_topics import (
    batches,
    clock,
    coded,
    ledger,
    markers,
    releases,
    requests,
    seals,
    selected,
    torn_batches,
)
from .target import Target

TARGETS: dict[str, Callable[[], Target]] = {
    "events": events,
    "iso events": lambda: events(iso=True),
    "reports": reports,
    "avro": lambda: framed("avro"),
    "protobuf": lambda: framed("protobuf"),
    "schemas": schemas,
    "batches": batches,
    "torn batches": torn_batches,
    "requests": requests,
    "ledger": ledger,
    "clock": clock,
    "selected": selected,
    "releases": releases,
    "coded": coded,
    "markers": markers,
    "units": units,
    "damaged frames": damaged_frames,
    "forged frames": forged_frames,
    "toml": toml,
    "statements": statements,
    "regions": regions,
    "surveys": surveys,
    "seals": seals,
}
