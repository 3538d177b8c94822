"""Shapes that make no sense are refused by name."""

from __future__ import annotations

from typing import Any

import pytest
from hushstream.errors import ParameterError
from hushstream.mechanisms.stated_shape import Shape


@pytest.mark.parametrize(
    "name,value",
    [
        ("users", 0), ("users", 1.5), ("keys", 0), ("records", 9), ("records", 10**9),
        ("zipf", -1.0), ("zipf", float("nan")), ("repeat", 1.1), ("repeat", -0.1),
    ],
)  # fmt: skip
def test_numbers_out_of_range(name: str, value: Any) -> None:
    good: dict[str, Any] = {"users": 10, "records": 20, "keys": 5}
    assert Shape(**good).workload().keys == 5
    with pytest.raises(ParameterError, match=name):
        Shape(**(good | {name: value}))
