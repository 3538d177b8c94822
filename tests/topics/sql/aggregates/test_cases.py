"""A CASE of several numbers: one derived column with one clipping interval, or the next step."""

from __future__ import annotations

import pytest
from hushstream.topics.sql.columns import QuerySource
from hushstream.topics.sql.query import compile_query
from hushstream.topics.sql.refusal import QueryError

ORDERS = QuerySource("orders", "shop-orders", ("user",), "created")
A, B = ({"where": [{"field": "a", "equals": n}]} for n in (1, 2))
ENDS = {"low": 0, "high": 9}
RUNS = {
    "SUM(CASE WHEN a = 1 THEN 2 WHEN a = 2 THEN 5 END)": (
        {"cases": [A | {"then": 2}, B | {"then": 5}], "otherwise": 0},
        {"kind": "sum", "low": 0, "high": 5},
    ),
    "SUM(CASE a WHEN 1 THEN -1 ELSE 1 END)": (
        {"cases": [A | {"then": -1}], "otherwise": 1}, {"kind": "sum", "low": -1, "high": 1},
    ),
    "SUM(CASE WHEN a = 1 THEN CLIP(x, 0, 9) WHEN a = 2 THEN 3 ELSE CLIP(y, 0, 9) END)": (
        {"cases": [A | {"field": "x"}, B | {"then": 3}], "field": "y"}, {"kind": "sum"} | ENDS,
    ),
    "AVG(CLIP(CASE WHEN a = 1 THEN x ELSE y END, 0, 9))": (
        {"cases": [A | {"field": "x"}], "field": "y"}, {"kind": "mean"} | ENDS,
    ),
    "VAR_POP(LEAST(GREATEST(IF(a = 1, x, 4), 0), 9))": (
        {"cases": [A | {"field": "x"}], "otherwise": 4}, {"kind": "variance"} | ENDS,
    ),
    "SUM(COALESCE(CLIP(x, 0, 9), 0))": (
        {"cases": [{"where": [{"field": "x", "present": False}], "then": 0}], "field": "x"},
        {"kind": "sum"} | ENDS,
    ),
}  # fmt: skip
REFUSED = {
    "SUM(CASE WHEN a = 1 THEN x WHEN a = 2 THEN CLIP(y, 0, 3) END)": "bound it as a whole",
    "SUM(CASE WHEN a = 1 THEN CLIP(x, 0, 3) ELSE 9 END)": "9 lies beyond the bounds",
    "SUM(CLIP(CASE WHEN a = 1 THEN CLIP(x, 0, 3) ELSE 9 END, 0, 9))": "bounded twice",
    "AVG(CASE WHEN a = 1 THEN 3 WHEN b = 1 THEN 4 END)": "write ELSE 0",
    "SUM(CASE WHEN a = 1 THEN 3 ELSE 3 END)": "is no choice",
    "SUM(CASE WHEN a = 1 THEN 'x' ELSE 3 END)": "must be a number",
    "SUM(COALESCE(x, y))": "is one field, or a number",
}


@pytest.mark.parametrize("asked", RUNS)
def test_a_case_of_numbers_is_one_derived_column(asked: str):
    column, aggregate = RUNS[asked]
    found = compile_query(f"SELECT {asked} FROM orders", [ORDERS])
    assert found["derive"] == {"chosen_1": column}
    assert found["aggregate"] == [aggregate | {"field": "chosen_1"}]


@pytest.mark.parametrize("asked", REFUSED)
def test_what_has_no_clear_interval_is_refused_with_the_next_step(asked: str):
    with pytest.raises(QueryError, match=REFUSED[asked]):
        compile_query(f"SELECT {asked} FROM orders", [ORDERS])


def test_the_grid_has_the_decimals_of_the_numbers():
    found = compile_query("SELECT SUM(IF(a = 1, 0.5, 0.25)) FROM orders", [ORDERS])
    assert str(found["aggregate"][0]["grid"]) == "0.01"


def test_one_case_is_one_column_and_no_field_of_the_query_has_its_name():
    case = "CLIP(CASE WHEN chosen_1 = 1 THEN x ELSE y END, 0, 9)"
    found = compile_query(f"SELECT SUM({case}), AVG({case}), SUM(IF(b, 7, 8)) FROM orders",
                          [ORDERS])  # fmt: skip
    assert [one["field"] for one in found["aggregate"]] == ["chosen_2", "chosen_2", "chosen_3"]
    assert [*found["derive"]] == ["chosen_2", "chosen_3"]
