"""Shapes follow from the configuration: names of keys and values, and types of public keys."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hushstream.agents.deployment.compile import compile_config
from hushstream.agents.deployment.model import Pipeline
from hushstream.agents.deployment.published.shapes import manifest, row, shapes
from hushstream.formats.values.shape import SCALAR, TEXT, TRUTH, WHOLE, ValueShape
from hushstream.topics.config.load import loads
from hushstream.topics.releases import MANIFEST, ROW

from ....formats.values.records import pipeline
from ....recorded.pipelines import cases, text_of

SCHEMAS = Path(__file__).parents[4] / "docs" / "schemas"


def field(shape: ValueShape, *names: str) -> ValueShape:
    for name in names:
        shape = dict(shape.fields)[name]
    return shape


def keyed(keys: str) -> Pipeline:
    text = text_of("histogram-public").replace('[["z0"], ["z1"], ["z9"]]', keys)
    (one,) = compile_config(loads(text, environ={})).pipelines
    return one


@pytest.mark.parametrize(
    "keys,shape",
    [
        ('["a", "b"]', TEXT),
        ("[1, 2]", WHOLE),
        ("[true, false]", TRUTH),
        ('[1, "a"]', SCALAR),
        ("[1, true]", SCALAR),
    ],
)
def test_a_public_list_tells_the_type_of_its_keys(keys: str, shape: ValueShape) -> None:
    assert field(row(keyed(keys)), "key", "zone") == shape


def test_other_keys_may_be_anything_and_own_keys_are_known() -> None:
    assert field(row(pipeline("histogram-plain")), "key", "zone") == SCALAR
    assert field(row(pipeline("tops")), "key", "slot") == WHOLE
    assert field(row(pipeline("privhp")), "key", "cell") == TEXT
    assert field(row(pipeline("topl")), "key").fields == ()


@pytest.mark.parametrize("case", cases())
def test_fields_are_those_of_the_published_schemas(case: str) -> None:
    p = pipeline(case)
    assert shapes(p) == {ROW: row(p), MANIFEST: manifest(p)}
    for shape, file in ((row(p), "release"), (manifest(p), "manifest")):
        told: dict[str, Any] = json.loads((SCHEMAS / f"{file}.schema.json").read_text("utf-8"))
        mine = {name for name, _ in shape.fields}
        assert set(told["required"]) <= mine <= set(told["properties"])
        assert ("box" in mine or "space" in mine) == bool(p.traits.keys.geometry())
