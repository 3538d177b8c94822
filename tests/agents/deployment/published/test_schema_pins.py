"""A worker starts only if it writes by the schemas that the ledger pins."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hushstream.agents.deployment.compile import compile_config
from hushstream.agents.deployment.model import Deployment
from hushstream.agents.deployment.published.schema_pins import (
    codec_of,
    pins,
    subjects,
    verify_pinned,
    with_pinned_codecs,
)
from hushstream.errors import EngineError
from hushstream.formats.values.codec import JSON
from hushstream.topics.config.load import loads
from hushstream.topics.releases import MANIFEST, ROW

from ....recorded.pipelines import text_of

NUMBERS = {ROW: 7, MANIFEST: 8}


def made(encoding: str = "avro", more: str = "") -> Deployment:
    text = f'[registry]\nurl = "http://x"\n{text_of("histogram-plain")}'
    text += f'[pipeline.release]\nencoding = "{encoding}"\n{more}'
    return compile_config(loads(text, environ={}))


def declared(deployment: Deployment) -> dict[str, Any]:
    numbered = deployment.each(lambda p: replace(p, codec=codec_of(p, NUMBERS)))
    return {p.name: pins(p) for p in numbered.pipelines}


def test_a_form_follows_from_the_pins_alone() -> None:
    ledger = declared(made())
    (p,) = with_pinned_codecs(made(), ledger).pipelines
    assert {header: one.number for header, one in p.codec.records.items()} == NUMBERS
    assert pins(p) == ledger[p.name]
    assert list(ledger[p.name]) == ["schemas"]


def test_json_pins_nothing_and_needs_nothing() -> None:
    deployment = made("json")
    assert declared(deployment) == {"histogram-plain": {}}
    assert with_pinned_codecs(deployment, {}) == deployment
    (p,) = deployment.pipelines
    assert p.codec is JSON and subjects(p) == []


@pytest.mark.parametrize("pinned", [None, {}, {ROW: {"id": 7}}, {ROW: {"id": -1}, MANIFEST: {}}])
def test_a_declaration_without_usable_pins_is_refused(pinned: Any) -> None:
    with pytest.raises(EngineError, match=r"which schemas its releases have|other schemas"):
        with_pinned_codecs(made(), {"histogram-plain": {"schemas": pinned}})


def test_another_text_of_a_schema_is_refused() -> None:
    ledger = declared(made())
    other = made("avro", 'display = "non-negative"\n')
    with pytest.raises(EngineError, match=r"by other schemas than the ledger pinned"):
        with_pinned_codecs(other, ledger)
    with pytest.raises(EngineError, match=r"by other schemas than the ledger pinned"):
        with_pinned_codecs(made("protobuf"), ledger)


def test_a_registry_with_other_numbers_is_refused() -> None:
    pinned = with_pinned_codecs(made(), declared(made()))
    other = made().each(lambda p: replace(p, codec=codec_of(p, {ROW: 7, MANIFEST: 9})))
    with pytest.raises(EngineError, match=r"as 9, the ledger pinned 8"):
        verify_pinned(other, pinned)
    verify_pinned(pinned, pinned)


def test_subjects_are_named_after_topic_and_record() -> None:
    (p,) = made().pipelines
    names = [(one.name, one.header) for one in subjects(p)]
    assert names == [
        ("hush.histogram-plain.releases.v1-hush.histogram_plain.Row", ROW),
        ("hush.histogram-plain.latest.v1-value", ROW),
        ("hush.histogram-plain.releases.v1-hush.histogram_plain.Manifest", MANIFEST),
    ]
    (p,) = made("avro", "latest = false\n").pipelines
    assert len(subjects(p)) == 2


def test_nothing_is_pinned_before_it_is_registered() -> None:
    with pytest.raises(EngineError, match="without the ids of its schemas"):
        pins(made().pipelines[0])
