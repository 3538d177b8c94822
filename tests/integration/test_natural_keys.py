"""Pipelines in SQL on the real broker: a total, and cases with a public list; one kill."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from typing import Any

import pytest
from hushstream.deploy.broker import Broker
from hushstream.offline.replay import replay
from hushstream.topics.natural import natural_keys
from hushstream.topics.sql.columns import QuerySource
from hushstream.topics.sql.query import compile_query
from hushstream.topics.sql.written import table

from ..judge.topics import deployment as judgement
from .local import local

HOUR = 3_600_000_000
ORIGIN = 17956 * 24 * HOUR  # 2019-03-01
HEAD = """
[deployment]
name = "natural"
[engine]
cells_partitions = 2
units_partitions = 2
session_timeout = "3s"
transaction_timeout = "10s"
[[input]]
name = "events"
topic = "events"
unit = "user"
partitioner = "none"
time = { field = "t", format = "epoch_us" }
"""
TOTAL = "SELECT COUNT(*) AS n, AVG(CLIP(price, 0, 100)) AS price FROM events GROUP BY {day}"
CASES = """
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=16, delta=1e-3, privacy_unit_column=user)
  CASE WHEN price >= 80 THEN 'large' WHEN price >= 20 THEN 'medium' ELSE 'small' END AS size,
  price > 50 AS dear, COUNT(*) AS n
FROM `events` GROUP BY size, dear, {day}
"""
DAY = "TUMBLE(t, INTERVAL '2' HOUR)"
USERS = 3000
LISTED = {(size, dear) for size in ("large", "medium", "small") for dear in (True, False)}

pytestmark = pytest.mark.broker


PIPELINES = (
    ("total", TOTAL, {"budget": {"epsilon": 16, "delta": Decimal("1e-3")}}),
    ("sizes", CASES, {}),
)
SOURCE = QuerySource("events", "events", ("user",), "t")
TIMES = {"triggers": {"every": "1h"}, "schedule": "external"}
ORIGINS = {"origin": "2019-03-01T00:00:00Z"}


def asked(name: str, query: str, more: dict[str, Any]) -> str:
    """A pipeline from its query."""
    settings = {"name": name, "query": query.format(day=DAY), "window": ORIGINS}
    return table(settings | TIMES | more)


def written(name: str, query: str, more: dict[str, Any]) -> str:
    """The same pipeline without SQL and with a list of keys, for the judge, which reads no SQL."""
    meant = compile_query(query.format(day=DAY), [SOURCE])
    meant["public_keys"], _ = natural_keys(meant.get("key", []), meant.get("derive", {}))
    meant["window"] = meant["window"] | ORIGINS
    return table({"name": name, "key": []} | meant | TIMES | more)


TOML = HEAD + "".join(asked(*one) for one in PIPELINES)


def size_of(price: int) -> tuple[str, bool]:
    return "large" if price >= 80 else "medium" if price >= 20 else "small", price > 50


@pytest.mark.thorough
def test_every_key_of_the_list_is_released_from_the_first_trigger(empty_broker: Broker, tmp_path):
    with local(tmp_path, empty_broker.bootstrap, TOML, {"events": 2}) as run:
        run.start("w")
        run.wait_ready(["w"])
        exact: Counter[tuple[str, bool]] = Counter()
        for hour in range(2):
            prices = [n % 70 for n in range(USERS)]  # no price is large
            records = [
                {"user": f"u{hour} {n}", "price": price, "t": ORIGIN + hour * HOUR}
                for n, price in enumerate(prices)
            ]
            for place in range(2):
                run.publish("events", records[place::2], place)
            exact.update(map(size_of, prices))
            run.trigger(ORIGIN + (hour + 1) * HOUR)
            if hour:
                run.kill("w")
                run.start("w")
                run.wait_ready(["w"])
            run.wait_released(run.wait_triggers(2 * (hour + 1)), 300)
            rows = [b for b in run.releases("sizes") if b.get("trigger") == hour + 1 and "key" in b]
            found = {(b["key"]["size"], b["key"]["dear"]): b["values"]["n"] for b in rows}
            assert set(found) == LISTED
            for key, one in found.items():  # also of keys without records
                assert abs(one["value"] - exact[key]) < 8 * one["stddev"]
            (total,) = [
                b for b in run.releases("total") if b.get("trigger") == hour + 1 and "key" in b
            ]
            assert total["key"] == {}
            number = total["values"]["n"]
            assert abs(number["value"] - exact.total()) < 8 * number["stddev"]
        assert run.stop("w") == 0
        outcome = replay(run.config())
        assert outcome.agrees and outcome.compared, outcome.problems
        plain = tmp_path / "plain.toml"
        plain.write_text(HEAD + "".join(written(*one) for one in PIPELINES), "utf-8")
        for judged in judgement(run.bootstrap, plain, run.secret).values():
            assert judged.triggers == 2 and not judged.objections, judged.objections[:2]
