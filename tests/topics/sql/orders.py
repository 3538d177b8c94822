"""Queries over one input of orders."""

from __future__ import annotations

from typing import Any

from hushstream.topics.sql.columns import QuerySource
from hushstream.topics.sql.query import compile_query

ORDERS = QuerySource("orders", "shop-orders", ("user",), "created")


INPUT = """\
[[input]]
name = "orders"
topic = "shop-orders"
unit = "user"
time = { field = "created", format = "epoch_ms" }
"""


DAY = "TUMBLE(created, INTERVAL '1' DAY)"


def compiled(query: str, **more: Any) -> dict[str, Any]:
    return compile_query(query, [ORDERS], **more)


def configured(pipeline: str) -> str:
    return (
        f'{INPUT}[[pipeline]]\nname = "p"\n{pipeline}\nbudget = {{ epsilon = 1, delta = 1e-6 }}\n'
    )
