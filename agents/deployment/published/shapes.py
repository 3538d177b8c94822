"""The shapes of a pipeline's released records; they follow from its configuration alone.

They are those of `docs/schemas`, with the names of this pipeline's keys and values in place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ....formats.events.keys import decode_key
from ....formats.values.shape import (
    INT64,
    NUMBER,
    REAL,
    SCALAR,
    TEXT,
    TRUTH,
    WHOLE,
    ValueShape,
    listed,
    mapped,
    maybe,
    record,
    shape_of,
)
from ....mechanisms.contract import ALWAYS, INSERTING, SIGNED
from ....topics.releases import MANIFEST, ROW
from ..model import Pipeline
from .statement import bounds, stated

Fields = Iterator[tuple[str, ValueShape]]

WINDOW = record(
    "Window",
    [("start", TEXT), ("end", TEXT)],
    "Event time that the release is about, ISO 8601; the end does not belong to it.",
)
NOISE = record("Noise", [("distribution", TEXT)])
PRIVACY = (
    ("unit", TEXT),
    ("neighbouring", TEXT),
    ("epoch", WHOLE),
    ("definition", TEXT),
    ("mu", REAL),
    ("mu2", REAL),
    ("pure_epsilon", REAL),
    ("epsilon", REAL),
    ("delta", REAL),
    ("pipeline_epochs", maybe(WHOLE)),
    ("pipeline_epsilon_total", maybe(REAL)),
    ("pipeline_epsilon_limit", maybe(REAL)),
    ("pipeline_delta_total", maybe(REAL)),
    ("pipeline_delta_limit", maybe(REAL)),
    ("ledger_seq", WHOLE),
    ("charge", TEXT),
)

CUT = record(
    "Cut",
    [
        ("arrived", WHOLE),
        ("arrived_stddev", REAL),
        ("accepted", WHOLE),
        ("accepted_stddev", REAL),
        ("cap", WHOLE),
        ("share", maybe(REAL)),
        ("low", REAL),
        ("high", REAL),
    ],
    "The share of records that the contribution bound cut, and the noisy counts it follows from.",
)


def shapes(p: Pipeline) -> Mapping[str, ValueShape]:
    """Collect the shapes of a pipeline's rows and manifests, by the names of their headers."""
    return {ROW: row(p), MANIFEST: manifest(p)}


def row(p: Pipeline) -> ValueShape:
    """Describe the rows of a pipeline."""
    return record("Row", _row(p), "A released row of Hushstream.")


def _row(p: Pipeline) -> Fields:
    yield "schema", TEXT
    yield "release_id", TEXT
    yield "pipeline", TEXT
    yield "window", WINDOW
    yield "trigger", WHOLE
    yield "final", TRUTH
    yield "key", record("Key", [(n, _key_type(p, at)) for at, n in enumerate(key_names(p))])
    yield "values", record("Values", [(name, maybe(_value(p))) for name in value_names(p)])
    if axes := [axis["name"] for axis in p.traits.keys.geometry().get("axes", ())]:
        doc = "Lower and upper end of the cell on each axis, in the input's unit."
        yield "box", record("Box", [(name, listed(REAL)) for name in axes], doc)
    if p.full_rows:
        yield from _common(p)


def _value(p: Pipeline) -> ValueShape:
    fields = [("value", NUMBER), ("stddev", REAL), ("low", REAL), ("high", REAL)]
    if p.non_negative:
        fields.append(("display_value", NUMBER))
    return record("Value", fields, "An unbiased estimate, and an interval that covers the noise.")


def _key_type(p: Pipeline, place: int) -> ValueShape:
    """Type of a key column: of a public list, that of its values, and otherwise any."""
    form = p.traits.keys
    if not form.of_record:
        return {"whole": WHOLE, "text": TEXT}[form.kinds[key_names(p)[place]]]
    found = [decode_key(key)[place] for key in p.public_keys or ()]
    for kind, shape in ((str, TEXT), (bool, TRUTH), (int, WHOLE)):
        if found and all(type(one) is kind for one in found):
            fits = kind is not int or all(one in INT64 for one in found)
            return shape if fits else SCALAR
    return SCALAR


def key_names(p: Pipeline) -> tuple[str, ...]:
    """Names of the key's fields."""
    return p.traits.keys.names(p.key_names)


def value_names(p: Pipeline) -> list[str]:
    """Names of the released values."""
    if p.in_parts:
        return [aggregate.label for aggregate in p.aggregates]
    return [output.name for output in p.traits.outputs]


def floored(p: Pipeline) -> frozenset[str]:
    """Values whose truth cannot be negative, as everybody knows from the configuration."""
    inserting = p.fields.sign is None
    natural = {a.label: all(c.low >= 0 for c in a.columns) for a in p.aggregates}
    if p.in_parts:
        return frozenset(name for name, whole in natural.items() if whole and inserting)
    inserting = inserting and all(natural.values())
    when = {SIGNED: False, INSERTING: inserting, ALWAYS: True}
    return frozenset(one.name for one in p.traits.outputs if when[one.least])


def manifest(p: Pipeline) -> ValueShape:
    """Describe the manifests of a pipeline."""
    return record("Manifest", _manifest(p), "What all rows of one shard and trigger share.")


def _manifest(p: Pipeline) -> Fields:
    yield "schema", TEXT
    yield "pipeline", TEXT
    yield "window", WINDOW
    yield "trigger", WHOLE
    yield "final", TRUTH
    yield from _common(p)
    yield "shard", WHOLE
    yield "shards", WHOLE
    yield "rows", WHOLE
    yield "key_names", listed(TEXT)
    yield "value_names", listed(TEXT)
    yield "replaces", TRUTH
    yield "nonce", TEXT
    yield "public", mapped(listed(WHOLE))
    if p.mechanism.stated(p.unit_name).counted:
        yield "cut", CUT
    if space := p.traits.keys.geometry():
        yield "space", _space(space)


def _common(p: Pipeline) -> Fields:
    """Describe what a manifest says, and rows that repeat it."""
    yield "triggers", WHOLE
    yield "mechanism", TEXT
    yield "confidence_level", REAL
    yield "noise", NOISE
    yield "privacy", record("Privacy", [*PRIVACY, *((name, REAL) for name in stated(p))])
    yield "bounds", shape_of(bounds(p), "Bounds")
    yield "key_threshold", maybe(NUMBER)
    yield "config_hash", TEXT
    yield "code_version", TEXT
    yield "emitted_at", TEXT


def _space(space: Mapping[str, Any]) -> ValueShape:
    """Describe a public space; a region stands in it where there is one."""
    points = listed(listed(REAL))
    axis = [("name", TEXT), ("low", REAL), ("high", REAL), ("kind", TEXT)]
    fields = [
        ("axes", listed(record("Axis", axis))),
        ("depth", WHOLE),
        ("split", TEXT),
        ("polygon", points),
        ("cells", listed(WHOLE)),
    ]
    if "region" in space:
        shape = [("type", TEXT), ("coordinates", listed(listed(points)))]
        fields.append(("region", record("Region", shape)))
    return record("Space", fields)
