"""The schema of a sink follows the key, and has every field of a row that a table can hold."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hushstream.agents.deployment.published.connect_sink import (
    sink_properties,
    undeclared,
    value_schema,
)
from hushstream.errors import ConfigError

from ....support import deployment


def paths(schema: dict[str, Any], prefix: str = "") -> dict[str, str]:
    found = {}
    for one in schema["fields"]:
        name = f"{prefix}{one['field']}"
        found |= paths(one, f"{name}.") if one["type"] == "struct" else {name: one["type"]}
    return found


def test_the_schema_names_key_values_and_times() -> None:
    (p,) = deployment().pipelines
    assert paths(value_schema(p)) == {
        "window.start": "string", "window.end": "string", "trigger": "int32", "final": "boolean",
        "key.page": "string", "values.count.value": "double", "values.count.stddev": "double",
        "values.count.low": "double", "values.count.high": "double",
    }  # fmt: skip
    assert paths(value_schema(p, ["page"]))["key.page"] == "int64"


@pytest.mark.parametrize(("key", "kind"), [('"a"', "string"), ("7", "int64"), ("true", "boolean")])
def test_types_of_public_keys_are_known(key: str, kind: str) -> None:
    (p,) = deployment(more=f"public_keys = [[{key}]]").pipelines
    assert paths(value_schema(p))["key.page"] == kind


DERIVED = """
[pipeline.derive]
hour = { time = "hour" }
on = { time = "date" }
band = { field = "price", bucket = 10 }
small = { field = "price", bucket = 0.5 }
first = { field = "page", text = [{ case = "upper" }] }
cheap = { cases = [{ where = [{ field = "price", below = 5 }], then = true }], otherwise = false }
"""


def test_types_of_computed_columns_are_known() -> None:
    key = {'["page"]': '["hour", "on", "band", "small", "first", "cheap", "page"]'}
    (p,) = deployment(more=DERIVED, swap=key).pipelines
    kinds = [kind for path, kind in paths(value_schema(p)).items() if path.startswith("key.")]
    assert kinds == ["int64", "string", "int64", "string", "string", "boolean", "string"]
    assert undeclared(p) == ["page"]


@pytest.mark.parametrize(("offset", "told"), [("", True), (".5", False)])
def test_ends_of_windows_are_timestamps_where_they_are_whole_seconds(
    offset: str, told: bool
) -> None:
    swap = {"2019-03-01T00:00:00Z": f"2019-03-01T00:00:00{offset}Z"}
    (p,) = deployment(swap=swap).pipelines
    assert ("TimestampConverter" in sink_properties(p, "jdbc:x", "pages")) == told


def test_the_properties_hold_the_schema_on_one_line() -> None:
    (p,) = deployment().pipelines
    lines = sink_properties(p, "jdbc:x", "pages").splitlines()
    found = dict(line.split("=", 1) for line in lines)
    assert json.loads(found["value.converter.schema.content"]) == value_schema(p)
    assert (found["topics"], found["connection.url"]) == ("hush.p.latest.v1", "jdbc:x")
    assert found["collection.name.format"] == "pages"


def test_what_cannot_be_is_refused_with_what_there_is() -> None:
    (p,) = deployment().pipelines
    with pytest.raises(ConfigError, match="no key column 'zone'; there is page"):
        value_schema(p, ["zone"])
    (p,) = deployment(more="release = { latest = false }").pipelines
    with pytest.raises(ConfigError, match="has no latest topic"):
        sink_properties(p, "jdbc:x", "pages")
