"""What a query's aggregates leave out together, where SQL would count it in some of them."""

from __future__ import annotations

import pytest
from hushstream.topics.sql.query import read_query

from ..orders import DAY, ORDERS

SUM = "SUM(ROUND(CLIP(price, 0, 9), 2))"
ALONE = "a record without it is a dead letter"


@pytest.mark.parametrize(
    ("columns", "more", "fields"),
    [
        (f"COUNT(*), {SUM}", "", ["price"]),
        (f"{SUM} / COUNT(*) AS r", "", ["price"]),
        (f"{SUM}, AVG(ROUND(CLIP(size, 0, 9), 2))", "", ["price", "size"]),
        ("COUNT(*), STDDEV(ROUND(CLIP(price, 0, 9), 2))", "", ["price"]),
        (f"{SUM} AS a, {SUM} FILTER (WHERE size > 3) AS b", "", ["price"]),
        ("COUNT(*), MEDIAN(CLIP(price, 0, 9))", "", ["price"]),
        ("MEDIAN(CLIP(price, 0, 9))", "", []),
        (SUM, "", []),
        (f"{SUM}, AVG(ROUND(CLIP(price, 0, 9), 2))", "", []),
        (f"COUNT(*), {SUM}", "WHERE price > 0", []),
        (f"COUNT(*), {SUM}", "WHERE price > 0 OR size > 3", ["price"]),
        (f"COUNT(*), {SUM} FILTER (WHERE price IS NOT NULL)", "", []),
        ("COUNT(*), AVG(CLIP(price, 0, 9)) FILTER (WHERE price IS NOT NULL) AS m", "", []),
        ("COUNT(*), SUM(COALESCE(CLIP(price, 0, 9), 0))", "", []),
    ],
)  # fmt: skip
def test_a_field_that_every_counted_record_needs_is_told(
    columns: str, more: str, fields: list[str]
) -> None:
    read = read_query(f"SELECT product, {columns} FROM orders {more} GROUP BY product", [ORDERS])
    told = [one for one in read.notes if ALONE in one]
    assert [one.partition(":")[0] for one in told] == fields
    assert all("COUNT(*) leaves" in one or "IS NOT NULL) after" in one for one in told)


def test_a_session_has_its_numbers() -> None:
    query = f"""SELECT product, COUNT(*), AVG(CLIP(session_length, 0, 3600)) FROM orders
    GROUP BY user, product, SESSION(created, INTERVAL '30' MINUTE), {DAY}"""
    assert not [one for one in read_query(query, [ORDERS]).notes if ALONE in one]
