"""WHERE on a joined column: the pipeline releases every value of it, and a view keeps some."""

from __future__ import annotations

import pytest
from hushstream.topics.sql.columns import QuerySource
from hushstream.topics.sql.query import Query, read_query
from hushstream.topics.sql.refusal import QueryError

SOURCES = [
    QuerySource("orders", "orders", ("user",), "created"),
    QuerySource("users", "users", ("id",), None, "orders"),
]
FROM = "FROM orders o LEFT JOIN users u ON o.user = u.id"


def read(select: str, more: str) -> Query:
    return read_query(f"SELECT {select} {FROM} {more}", SOURCES)


def test_the_attribute_is_a_column_of_the_key_and_the_view_keeps_its_rows():
    found = read("product, COUNT(*) AS n", "WHERE u.country = 'DE' AND price > 3 GROUP BY product")
    assert found.settings["key"] == ["product", "country"]
    assert found.settings["where"] == [{"field": "price", "above": 3}]
    assert found.over == {"where": [{"field": "country", "equals": "DE"}]}
    assert any("the view keeps" in note for note in found.notes)


def test_a_total_is_released_for_each_value_of_the_attribute():
    found = read("AVG(CLIP(price, 0, 9)) AS m", "WHERE u.age > 30")
    assert found.settings["key"] == ["age"] and "public_keys" not in found.settings
    assert found.over == {"where": [{"field": "age", "above": 30}]}


def test_a_unit_without_the_attribute_has_no_other_value():
    found = read("COUNT(*) AS n", "WHERE u.country NOT IN ('DE') ORDER BY n DESC LIMIT 3")
    assert found.over is not None and found.over["limit"] == 3
    assert found.over["where"][1] == {"field": "country", "none_of": ["unmatched"]}


@pytest.mark.parametrize(
    ("select", "more", "words"),
    [
        ("COUNT(*)", "WHERE u.age > price", "compared alone"),
        ("COUNT(*)", "WHERE u.country = 'DE' OR price > 3", "compared alone"),
        ("COUNT(*)", "WHERE u.country IS NULL", "compare it with that"),
        ("COUNT(*) FILTER (WHERE u.country = 'DE')", "", "or compare it in WHERE"),
        # read as a field that the record lacks, it would make every record 'abroad'
        ("CASE WHEN u.country = 'DE' AND price > 3 THEN 'home' ELSE 'abroad' END AS c, COUNT(*)",
         "GROUP BY 1", "and add up the released rows"),
        ("country, COUNT(*)", "WHERE u.country = 'DE' GROUP BY country", "name that one with AS"),
    ],
)  # fmt: skip
def test_what_no_view_can_keep_is_refused(select: str, more: str, words: str):
    with pytest.raises(QueryError, match=words):
        read(select, more)
