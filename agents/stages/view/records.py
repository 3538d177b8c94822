"""The records of a view's release: rows and one manifest, as those of a pipeline.

All that its readers know of the guarantee is the source's: charge, unit, bounds and confidence are
those of the manifest that it was made of.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ....formats.canonical import encode
from ....topics.releases import MANIFEST, MANIFEST_SCHEMA, ROW, ROW_SCHEMA
from ...deployment.model import ReleaseView
from ..step import Out
from .computation import Made

_LEFT = ("cut", "space", "follows")
"""Members of a manifest that say something about the source alone."""


class Of(NamedTuple):
    """The release that a view's release is made of.

    Attributes:
        manifest: manifest of its first shard, as JSON.
        millis: time of its records: the scheduled time, in milliseconds.
    """

    manifest: Mapping[str, Any]
    millis: int


def records(view: ReleaseView, of: Of, rows: Sequence[Made]) -> list[Out]:
    """Make the records of a release: rows in their order, then the manifest."""
    return [*_rows(view, of, rows), _manifest(view, of, len(rows))]


def _rows(view: ReleaseView, of: Of, rows: Sequence[Made]) -> Iterator[Out]:
    told = of.manifest
    for row in rows:
        body = {
            "schema": ROW_SCHEMA,
            "release_id": _identity(view, told, row.encoded),
            "pipeline": view.name,
            "window": told["window"],
            "trigger": told["trigger"],
            "final": told["final"],
            "key": row.key,
            "values": row.values,
        }
        yield _out(view, of, row.encoded.decode(), body, (ROW, ROW_SCHEMA))


def _manifest(view: ReleaseView, of: Of, rows: int) -> Out:
    body = {name: value for name, value in of.manifest.items() if name not in _LEFT}
    body |= {
        "schema": MANIFEST_SCHEMA,
        "pipeline": view.name,
        "shard": 0,
        "shards": 1,
        "rows": rows,
        "key_names": list(view.key_names),
        "value_names": [one.label for one in view.values],
        "replaces": True,
        "public": {},
        "view": {"source": view.source.name, "digest": view.digest, "in_words": in_words(view)},
    }
    return _out(view, of, "manifest:0", body, (MANIFEST, MANIFEST_SCHEMA))


def in_words(view: ReleaseView) -> str:
    """Say what a view costs, and what its sums are of."""
    words = f"computed from what {view.source.name} released, which costs nothing more"
    sums = not view.whole or any(one.kind == "running" for one in view.values)
    return f"{words}; sums are of released keys alone" if sums else words


def _out(
    view: ReleaseView, of: Of, last: str, body: Mapping[str, Any], kind: tuple[str, str]
) -> Out:
    key = f"{view.name}|{of.manifest['window']['start']}|{last}".encode()
    header = ((kind[0], kind[1].encode()),)
    return Out(view.release_topic, 0, key, encode(body), of.millis, header)


def _identity(view: ReleaseView, told: Mapping[str, Any], key: bytes) -> str:
    """Name a row: the same row has the same name in every replay."""
    place = [told["privacy"]["charge"], view.name, told["window"]["start"], told["trigger"]]
    return hashlib.sha256(json.dumps([*place, key.decode()]).encode()).hexdigest()[:32]
