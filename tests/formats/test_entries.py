"""Formats: one entry for each that a configuration may name, with all its parts."""

from __future__ import annotations

import ast
from typing import get_args

import pytest
from hushstream.formats.entries import FORMATS
from hushstream.formats.events.fields import InputFields, PipelineFields
from hushstream.formats.events.raw import RawRecord
from hushstream.formats.values.codec import Encoding

from ..tree import sources


def test_releases_may_have_each_format_and_no_other() -> None:
    assert set(FORMATS) == set(get_args(Encoding))


@pytest.mark.parametrize("name", FORMATS)
def test_each_scans_and_reads(name: str) -> None:
    fields = InputFields("t", "epoch_ms", "UTC", ("user",), 100, name)
    made, pipelines = FORMATS[name], [PipelineFields(("page",)), PipelineFields(())]
    found = made.reader(fields, pipelines).read([None, b"{"], [0, 1], {})
    assert len(found) == 3 and found[0][1][0] == "null" and found[0][1][1] == "malformed"
    assert bool(made.registered) == fields.framed == (made.written is not None)
    scanned = made.scanner(fields, pipelines).scan([RawRecord(0, 0, None, b"[]")], {})
    assert scanned.known.tolist() == [False]


def test_no_module_asks_for_a_format_by_its_name() -> None:
    wrong = [
        path
        for path, text in sources().items()
        if path.startswith("formats/")
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Compare)
        for one in [node.left, *node.comparators]
        if isinstance(one, ast.Constant) and one.value in {"avro", "protobuf", "json_schema"}
    ]
    assert wrong == []
