"""A pipeline keeps what its BigQuery query promises: budget, unit and bound."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hushstream.mechanisms.contract import Setting
from hushstream.mechanisms.histogram.calibration.bound import bound_of, sensitivity2
from hushstream.mechanisms.histogram.settings import HistogramParameters
from hushstream.topics.sql.columns import QuerySource
from hushstream.topics.sql.query import compile_query
from hushstream.topics.sql.refusal import QueryError

ORDERS = QuerySource("orders", "orders", ("user",), "created")
SETTING = Setting(epsilon=1, delta=Decimal("1e-6"), horizon=1)


def meant(options: str, count: str = "COUNT(*)") -> dict[str, Any]:
    return compile_query(
        f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS({options}) product, {count} FROM orders "
        "GROUP BY product",
        [ORDERS],
    )


def test_the_budget_of_a_query_is_the_pipelines() -> None:
    found = meant("epsilon=0.5, delta=1e-9, privacy_unit_column=user")
    assert found["budget"] == {"epsilon": Decimal("0.5"), "delta": Decimal("1e-9")}
    assert meant("epsilon=NULL, delta=1e-9")["budget"] == {"delta": Decimal("1e-9")}


@pytest.mark.parametrize("unit", ["device", "orders.device", "'users'", "`user_id`"])
def test_another_unit_than_the_inputs_is_refused(unit: str) -> None:
    with pytest.raises(QueryError, match="the privacy unit of input orders is user"):
        meant(f"epsilon=1, privacy_unit_column={unit}")
    for right in ("user", "orders.user", "`user`"):
        meant(f"epsilon=1, privacy_unit_column={right}")


@pytest.mark.parametrize("groups", [1, 3, 10])
@pytest.mark.parametrize("records", [1, 2, 7])
def test_the_bound_of_a_query_has_the_sensitivity_that_it_states(groups: int, records: int) -> None:
    """√groups·records: a unit with the most records in the most groups."""
    bounds = f"COUNT(*, contribution_bounds_per_group => (0, {records}))"
    given = meant(f"max_groups_contributed={groups}", bounds)["mechanism"]
    assert given.pop("kind") == "histogram"
    bound = bound_of(HistogramParameters(**given), SETTING)
    assert sensitivity2(bound) == groups * records**2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("max_groups_contributed=0", "must be a whole number of at least 1"),
        ("max_groups_contributed=1.5", "must be a whole number of at least 1"),
        ("epsilon='much'", "must be a number"),
        ("epsilon=inf", "epsilon = inf must be a finite number"),
        ("epsilon=1, delta=nan", "delta = nan must be a finite number"),
        ("epsilon=1, EPSILON=5", "epsilon is said twice"),
        ("group_selection_strategy=best", "group_selection_strategy = best is not known"),
        ("epsilo=1", "did you mean epsilon?"),
        ("max_rows_contributed=3, max_groups_contributed=2", "leave out max_groups_contributed"),
        ("epsilon", "epsilon needs a value: write epsilon = ..."),
    ],
)
def test_options_that_say_nothing_are_refused(options: str, message: str) -> None:
    with pytest.raises(QueryError) as caught:
        meant(options)
    assert message in str(caught.value)
