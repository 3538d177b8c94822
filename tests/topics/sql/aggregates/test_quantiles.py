"""Quantiles in a query: every spelling becomes the same mechanism, and refusals say what to do."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hushstream.mechanisms.catalogue import find
from hushstream.topics.config.load import loads
from hushstream.topics.sql.columns import QuerySource
from hushstream.topics.sql.query import read_query
from hushstream.topics.sql.refusal import QueryError

ORDERS = QuerySource("orders", "shop-orders", ("user",), "created")
PRICE = "CLIP(price, 0, 100)"


def read(columns: str, **clip: dict[str, Any]) -> Any:
    return read_query(f"SELECT shop, {columns} FROM orders GROUP BY shop", [ORDERS], clip)


@pytest.mark.parametrize(
    ("columns", "at"),
    [
        (f"MEDIAN({PRICE})", "0.5"),
        (f"percentile_cont({PRICE}, 0.9)", "0.9"),
        (f"PERCENTILE_CONT(0.9) WITHIN GROUP (ORDER BY {PRICE})", "0.9"),
        (f"PERCENTILE_DISC(0.9) WITHIN GROUP (ORDER BY {PRICE} DESC)", "0.1"),
        (f"APPROX_PERCENTILE(0.25) WITHIN GROUP (ORDER BY {PRICE} ASC)", "0.25"),
        (f"APPROX_QUANTILES({PRICE}, 4)[OFFSET(1)]", "0.25"),
        (f"APPROX_QUANTILES({PRICE}, 4)[ORDINAL(2)]", "0.25"),
        (f"APPROX_QUANTILES({PRICE}, 4)[SAFE_ORDINAL(4)]", "0.75"),
        (f"APPROX_QUANTILES({PRICE}, 4)[SAFE_OFFSET(3)]", "0.75"),
        (f"APPROX_QUANTILES({PRICE}, 3)[1]", "0.333333"),
        (f"APPROX_QUANTILES({PRICE}, 4)", "0.25 0.5 0.75"),
        (f"APPROX_PERCENTILE({PRICE}, ARRAY[0.9, 0.5])", "0.5 0.9"),
        (f"APPROX_QUANTILE({PRICE}, 0.999)", "0.999"),
        (f"QUANTILE({PRICE}, 0.50)", "0.5"),
        (f"QUANTILE_CONT(0.1, {PRICE})", "0.1"),
        (f"PERCENTILE({PRICE}, 0.1), PERCENTILE_APPROX({PRICE}, 0.1)", "0.1"),
        ("ANON_PERCENTILE_CONT(price, 0.5 CLAMPED BETWEEN 0 AND 100)", "0.5"),
        ("ANON_QUANTILES(price, 2 CLAMPED BETWEEN 0 AND 100)", "0.5"),
        ("PERCENTILE_CONT(price, 0.5, contribution_bounds_per_row => (0, 100))", "0.5"),
        (f"COUNT(*), MEDIAN({PRICE})", "0.5"),
    ],
)
def test_every_spelling_becomes_the_mechanism(columns: str, at: str) -> None:
    assert read(columns).settings == {
        "input": "orders",
        "key": ["shop"],
        "inputs": {"value": "price"},
        "mechanism": {
            "kind": "quantile", "low": 0, "high": 100, "at": [Decimal(q) for q in at.split()],
        },
    }  # fmt: skip


def test_bounds_beside_the_query_are_the_range() -> None:
    found = read("MEDIAN(price)", price={"low": -5, "high": 9})
    assert found.settings["mechanism"]["low"] == -5 and found.settings["mechanism"]["high"] == 9


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        (
            "MEDIAN(price)",
            r"write MEDIAN\(CLIP\(price, 0, 100\)\) with your own bounds, or set clip",
        ),
        (
            "PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY price)",
            r"write PERCENTILE_CONT\(0.5\) WITHIN GROUP \(ORDER BY CLIP\(price, 0, 100\)\)",
        ),
        ("MEDIAN(LEAST(price, 9))", "needs the public range"),
        (f"QUANTILE({PRICE}, 95)", r"lies between 0 and 1: write 0\.95"),
        (f"QUANTILE({PRICE}, 500)", r"lies between 0 and 1: write 0\.5"),
        (f"QUANTILE({PRICE}, 1)", "rest on one record: take shares between them"),
        (f"APPROX_QUANTILES({PRICE}, 4)[OFFSET(4)]", "rest on one record: take shares"),
        (f"APPROX_QUANTILES({PRICE}, 4)[OFFSET(age)]", r"needs a place in the list: \[OFFSET"),
        (f"APPROX_QUANTILES({PRICE}, age)", "needs a number of parts"),
        (f"QUANTILE({PRICE}, age)", "age must be a number between 0 and 1"),
        ("QUANTILE(price)", "needs a field and a share"),
        ("MEDIAN()", r"must be MEDIAN\(CLIP"),
        (f"QUANTILE(0.5) WITHIN GROUP (ORDER BY {PRICE}, age)", r"must be QUANTILE\(0.5\) WITHIN"),
        ("MEDIAN(DISTINCT price)", "every record counts"),
        ("MEDIAN(ROUND(price, 1))", "leave out ROUND"),
        ("MEDIAN(price * 2)", r"write CLIP\(field, low, high\) in it"),
        (
            f"PERCENTILE_CONT({PRICE}, 0.5, contribution_bounds_per_row => (0, 9))",
            "is bounded twice: leave out CLIP",
        ),
        (f"MEDIAN({PRICE}), MEDIAN(CLIP(age, 0, 9))", "a pipeline for each field"),
        (f"MEDIAN({PRICE}), QUANTILE(CLIP(price, 0, 9), 0.9)", "write the same bounds"),
        (f"MEDIAN({PRICE}), SUM(CLIP(age, 0, 9))", r"beside COUNT\(\*\) alone: write a pipeline"),
        (f"MEDIAN({PRICE}), COUNT(DISTINCT user)", r"beside COUNT\(\*\) alone: write a pipeline"),
        (f"MEDIAN({PRICE}) - 3", "stands in SELECT by itself"),
        (f"MEDIAN({PRICE}) OVER ()", "OVER compares single records"),
        ("MEDAIN(price)", "did you mean MEDIAN?"),
    ],
)
def test_a_refusal_says_the_next_step(columns: str, said: str) -> None:
    with pytest.raises(QueryError, match=said):
        read(columns)


def test_the_bound_of_the_options_holds_and_a_threshold_of_users_is_refused() -> None:
    text = (
        "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS({}) shop, COUNT(*, contribution_bounds_per_group "
        "=> (0, 2)), PERCENTILE_CONT(price, 0.5, contribution_bounds_per_row => (0, 9)) "
        "FROM orders GROUP BY shop"
    )
    made = read_query(text.format("max_groups_contributed=3"), [ORDERS]).settings["mechanism"]
    bound = {"bound": "per-key", "per_key": 2, "budget": 6}
    assert made == {"kind": "quantile", "low": 0, "high": 9, "at": [Decimal("0.5")], **bound}
    with pytest.raises(QueryError, match="min_privacy_units_per_group is not possible beside"):
        read_query(text.format("min_privacy_units_per_group=3"), [ORDERS])


def test_names_that_are_not_kept_are_told() -> None:
    found = read(f"APPROX_QUANTILES({PRICE}, 4) AS q, COUNT(*) AS n, QUANTILE({PRICE}, 0.5)")
    assert [note.split(":")[0] for note in found.notes] == [
        "AS q", f"APPROX_QUANTILES({PRICE}, 4)", "AS n", "price",
    ]  # fmt: skip


def test_a_query_in_a_configuration_is_a_pipeline_of_quantiles() -> None:
    """With and without a key; settings that the query lacks are written beside it."""
    for columns, group in (("shop, ", " GROUP BY shop"), ("", "")):
        text = f"""
[deployment]
name = "d"
[[input]]
name = "orders"
topic = "orders"
unit = "user"
time = {{ field = "created", format = "epoch_ms" }}
[[pipeline]]
name = "p"
query = "SELECT {columns}MEDIAN(price), QUANTILE(price, 0.9) FROM orders{group}"
clip = {{ price = {{ low = 0, high = 50.5 }} }}
window = {{ length = "1d" }}
triggers = {{ every = "1d" }}
budget = {{ epsilon = 1, delta = 1e-6 }}
mechanism = {{ bands = 64 }}
"""
        (made,) = loads(text, environ={}).pipeline
        want = find("quantile").parameters(low=0.0, high=50.5, at=(0.5, 0.9), bands=64)
        assert made.mechanism.parameters == want and made.inputs == {"value": "price"}
        assert (made.public_keys is None) == bool(group)
