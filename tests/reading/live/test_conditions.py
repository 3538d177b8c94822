"""Conditions of every kind are written as people read them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hushstream.reading.live.conditions import in_words

from ...support import deployment


def declared(where: str, folder: Path | None = None) -> Mapping[str, Any]:
    """A condition as the ledger states it."""
    if folder is not None:
        where = where.replace("FILE", str(folder / "zones.csv"))
        (folder / "zones.csv").write_text("zone,fee\na,1\nb,5\n")
    (p,) = deployment(more=f"where = [{where}]").pipelines
    found: Mapping[str, Any] = json.loads(json.dumps(p.config))["where"]
    return found


@pytest.mark.parametrize(
    "where,words",
    [
        ("{ field = 'f', above = 1.5 }", "f > 1.5"),
        ("{ field = 'f', at_least = 2, below = 8 }", "f >= 2 and f < 8"),
        ("{ field = 'z', equals = 'a b' }", 'z = "a b"'),
        ("{ field = 'z', one_of = ['é', 'b'] }", 'z in ("b", "é")'),
        ("{ field = 'z', none_of = ['a', 'b'] }", 'z not in ("a", "b")'),
        ("{ field = 'n', none_of = [3] }", "n ≠ 3"),
        ("{ field = 'ok', equals = true }", "ok is true"),
        ("{ field = 'q', present = false }", "q is missing"),
        ("{ field = 'z', not_like = 'a%' }", 'z not like "a%"'),
        ("{ field = 'z', text = [{ case = 'lower' }], equals = 'a' }", 'lower(z) = "a"'),
        (
            "{ any = [{ field = 'q', present = true }, { all = [{ field = 'n', above = 1 }, "
            "{ field = 'ok', equals = false }] }] }",
            "(n > 1 and ok is false) or q is there",
        ),
    ],
)
def test_a_condition_is_written_in_words(where: str, words: str) -> None:
    assert in_words(declared(where)) == words


def test_a_condition_on_a_looked_up_row_names_the_table(tmp_path: Path) -> None:
    where = "{ field = 'zone', lookup = 'FILE', take = 'fee', above = 2 }"
    found = declared(where, tmp_path)
    digest = found["sha256"][:12]
    assert in_words(found) == f"zone has a row in table {digest} and its value > 2"
    assert in_words({**found, "denied": True}).endswith("its value > 2, or there is none")


def test_a_kind_that_is_unknown_here_is_written_as_it_is() -> None:
    assert in_words({"kind": "later", "field": "f"}) == '{"field": "f", "kind": "later"}'
