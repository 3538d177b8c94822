"""The page on SQL is right: its query becomes the settings shown below it."""

from __future__ import annotations

import re
import tomllib
from decimal import Decimal
from pathlib import Path

from hushstream.topics.config.load import loads
from hushstream.topics.sql.columns import QuerySource
from hushstream.topics.sql.query import compile_query

PAGE = (Path(__file__).parents[1] / "docs" / "sql.md").read_text("utf-8")
FENCE = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def test_the_query_of_the_page_becomes_its_settings() -> None:
    (_, first), (_, query), (_, becomes) = FENCE.findall(PAGE)
    (source,) = loads(first, environ={}).input
    found = compile_query(
        query, [QuerySource(source.name, source.topic, source.unit, source.time.field)]
    )
    assert found == tomllib.loads(becomes, parse_float=Decimal)


def test_every_derived_column_of_the_page_is_read() -> None:
    rows = re.findall(r"^\| `(\{ (?:time|field|cases).*?\})` \|", PAGE, re.MULTILINE)
    assert len(rows) == 6
    first = FENCE.findall(PAGE)[0][1]
    for row in rows:
        text = f"""{first}
[[pipeline]]
name = "p"
input = "orders"
key = ["d"]
derive = {{ d = {row} }}
window = {{ length = "1d" }}
triggers = {{ every = "1d" }}
budget = {{ epsilon = 1, delta = 1e-6 }}
"""
        assert loads(text, environ={}).pipeline[0].derive["d"].meant()
