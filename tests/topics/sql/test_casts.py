"""Casts of fields and constants: told where a field is read as it is, refused where that is wrong.

Covers: topics/sql/columns.py
"""

from __future__ import annotations

import pytest
from hushstream.topics.sql.columns import QuerySource
from hushstream.topics.sql.query import read_query
from hushstream.topics.sql.refusal import QueryError

ORDERS = QuerySource("orders", "shop-orders", ("user",), "created")


@pytest.mark.parametrize(
    ("query", "notes"),
    [
        ("SELECT product, COUNT(*) FROM orders WHERE CAST(price AS VARCHAR) = '5' GROUP BY 1",
         ["CAST(price AS VARCHAR): price is read as a text: a record with a number there is a "
          "dead letter"]),
        ("SELECT product, COUNT(*) FROM orders WHERE zone::double > 1 GROUP BY product",
         ["zone::double: zone is read as a number: a record with a text there is a dead letter"]),
        ("SELECT product, SUM(ROUND(CLIP(TRY_CAST(price AS DOUBLE), 0, 9), 1)) FROM orders "
         "GROUP BY product",
         ["TRY_CAST(price AS DOUBLE): price is read as a number: a record with a text there is a "
          "dead letter"]),
        ("SELECT CAST(product AS TEXT), COUNT(*) FROM orders GROUP BY 1",
         ["CAST(product AS TEXT): the key has product as it is in the record; cast it when it is "
          "read"]),
        ("SELECT product, COUNT(*) FROM orders JOIN 'z.csv' AS z ON CAST(zone AS TEXT) = z.id "
         "WHERE CAST(z.area AS DOUBLE) > 3 GROUP BY product", []),
        ("SELECT product, COUNT(*) FROM orders WHERE price = CAST(5 AS DOUBLE) AND name = "
         "CAST('x' AS TEXT) GROUP BY product", []),
        ("SELECT product, COUNT(*) FROM orders GROUP BY product, "
         "DATE_TRUNC('day', CAST(created AS TIMESTAMP))", []),
    ],
)  # fmt: skip
def test_a_cast_of_a_field_is_told(query: str, notes: list[str]) -> None:
    assert list(read_query(query, [ORDERS]).notes) == notes


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT CAST(price AS BOOLEAN), COUNT(*) FROM orders GROUP BY 1", "such as price <> 0"),
        ("SELECT p, COUNT(*) FROM orders WHERE CAST(a AS BOOLEAN) GROUP BY p", "such as a <> 0"),
        ("SELECT p, COUNT(*) FROM orders WHERE a = CAST('5' AS DOUBLE) GROUP BY p", "must be a"),
        ("SELECT p, COUNT(*) FROM orders WHERE a > CAST('5' AS DOUBLE) GROUP BY p",
         "without quotes: 5"),
        ("SELECT p, COUNT(*) FROM orders WHERE a IN (CAST(5 AS TEXT)) GROUP BY p", "must be a"),
        ("SELECT p, COUNT(*) FROM orders WHERE a = CAST('t' AS BOOLEAN) GROUP BY p", "must be a"),
    ],
)  # fmt: skip
def test_a_cast_that_changes_what_is_compared_is_refused(query: str, message: str) -> None:
    with pytest.raises(QueryError) as caught:
        read_query(query, [ORDERS])
    assert message in str(caught.value)
