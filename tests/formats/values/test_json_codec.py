"""JSON Schemas of single pipelines: they accept every record of the pipeline, and nothing else."""

from __future__ import annotations

import copy

import pytest
from hushstream.formats.values.json_codec import schema
from hushstream.topics.releases import MANIFEST, ROW
from jsonschema import Draft7Validator

from .records import bodies, described
from .test_avro_codec import PLACES


@pytest.mark.parametrize("header", [ROW, MANIFEST])
@pytest.mark.parametrize("case,change", PLACES)
def test_a_schema_holds_every_record_of_its_pipeline_and_no_other(
    case: str, change: str, header: str
) -> None:
    made = schema(described(case, change)[header], "hush.p.Row")
    Draft7Validator.check_schema(made)
    valid = Draft7Validator(made)
    mine = [body for kind, body in bodies(case, change) if kind == header][:40]
    for body in mine:
        assert [error.message for error in valid.iter_errors(body)] == []
    for name in mine[0]:
        less = copy.deepcopy(mine[0])
        del less[name]
        assert not valid.is_valid(less), name
    assert not valid.is_valid(mine[0] | {"count": 3})
