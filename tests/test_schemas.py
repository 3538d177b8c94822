"""The published JSON Schemas describe every record that any pipeline releases, and no others."""

from __future__ import annotations

import copy
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hushstream.agents.stages.step import Out
from hushstream.topics.releases import GONE, MANIFEST, ROW
from jsonschema import Draft202012Validator

from .recorded.pipelines import SETTINGS, cases
from .recorded.pipelines import outs as made

SCHEMAS = Path(__file__).parents[1] / "docs" / "schemas"
KINDS = {ROW: "release", MANIFEST: "manifest"}
CHANGES = {
    "plain": "",
    "full": '[pipeline.release]\nformat = "full"\ndisplay = "non-negative"\n',
}


def validator(kind: str) -> Draft202012Validator:
    schema = json.loads((SCHEMAS / f"{kind}.schema.json").read_text("utf-8"))
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


outs = cache(made)
VALID = {header: validator(kind) for header, kind in KINDS.items()}


def checked(out: Out) -> dict[str, Any]:
    """The body of a record, after a check against the schema in its header."""
    ((kind, told),) = out.headers
    body: dict[str, Any] = json.loads(out.value or b"")
    assert body["schema"] == told.decode()
    errors = [f"{e.json_path}: {e.message}" for e in VALID[kind].iter_errors(body)]
    assert errors == []
    return body


@pytest.mark.spread(9)
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("case", cases())
def test_every_record_of_every_mechanism_is_as_its_schema_says(case: str, change: str) -> None:
    released, latest = outs(case, CHANGES[change])
    bodies = [checked(out) for out in released]
    rows = [body for body in bodies if "values" in body]
    manifests = [body for body in bodies if "values" not in body]
    assert rows and manifests
    for row in rows:
        (names,) = {(tuple(m["key_names"]), tuple(m["value_names"])) for m in manifests}
        assert (set(row["key"]), set(row["values"])) == tuple(map(set, names))
        assert ("box" in row) == ("space" in manifests[0]) == manifests[0]["replaces"]
    told = {(m["window"]["start"], m["trigger"]): 0 for m in manifests}
    for m in manifests:
        told[m["window"]["start"], m["trigger"]] += m["rows"]
    for row in rows:
        told[row["window"]["start"], row["trigger"]] -= 1
    assert set(told.values()) == {0}  # a reader knows when it has all rows
    assert all(out.value is None or checked(out) for out in latest)


@pytest.mark.spread(9)
@pytest.mark.parametrize("case", cases())
def test_the_latest_topic_ends_as_the_releases_do(case: str) -> None:
    """Compacted by hand: the newest row of each key; for a tree, the leaves of the last release."""
    released, latest = outs(case)
    rows = [out for out in released if out.headers[0][0] == ROW]
    replaces = json.loads(next(o.value or b"" for o in released if o.headers[0][0] == MANIFEST))[
        "replaces"
    ]
    wanted: dict[bytes, bytes] = {}
    last: dict[str, int] = {}
    for out in rows:
        body = json.loads(out.value or b"")
        last[body["window"]["start"]] = body["trigger"]
        wanted[out.key or b""] = out.value or b""
    if replaces:
        wanted = {
            key: value
            for key, value in wanted.items()
            if (b := json.loads(value))["trigger"] == last[b["window"]["start"]]
        }
    compacted = {out.key or b"": out.value for out in latest}
    assert {key: value for key, value in compacted.items() if value is not None} == wanted
    gone = [out for out in latest if out.value is None]
    assert bool(gone) == (case.startswith(("phdstream", "privhp")))
    assert all(out.headers[0][0] == GONE for out in gone)
    assert len({out.key for out in latest}) == len({out.key for out in rows})


@pytest.mark.parametrize("kind", [ROW, MANIFEST])
def test_a_field_more_or_less_or_of_another_type_is_refused(kind: str) -> None:
    released, _ = outs("phdstream")
    body = json.loads(next(o.value or b"" for o in released if o.headers[0][0] == kind))
    assert VALID[kind].is_valid(body)
    assert not VALID[kind].is_valid(body | {"count": 3})
    for name in sorted(set(body) - {"box", "space"}):
        less = copy.deepcopy(body)
        del less[name]
        assert not VALID[kind].is_valid(less), name
        assert not VALID[kind].is_valid(body | {name: [None]}), name


def test_every_mechanism_of_the_registry_is_among_the_cases() -> None:
    kinds = {text.split('kind = "')[-1].split('"')[0] for text in SETTINGS.values()}
    assert {"histogram", "phdstream", "privhp", "pak", "tops"} <= kinds and "topl" in cases()


@pytest.mark.parametrize("case", ["phdstream", "privhp"])
def test_a_manifest_states_the_region_and_no_other_field_changes(case: str) -> None:
    ring = [[0, -1], [2, -1], [2, 1], [0, -1]]
    shape = {"type": "MultiPolygon", "coordinates": [[ring]]}
    released, _ = outs(case, f"region = '''{json.dumps(shape)}'''\n")
    spaces = [body["space"] for out in released if "space" in (body := checked(out))]
    assert spaces and all(space.pop("region") == shape for space in spaces)
    plain, _ = outs(case)
    assert spaces[0] == next(b["space"] for out in plain if "space" in (b := checked(out)))
