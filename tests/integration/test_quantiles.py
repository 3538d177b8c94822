"""Quantiles through the product: planned, simulated, released on a broker, replayed, shown."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hushstream.agents.deployment.compile import compile_config
from hushstream.cli.group import hush
from hushstream.deploy.broker import Broker
from hushstream.errors import ConfigError
from hushstream.reading.live.board import Board
from hushstream.reading.live.views import Wish
from hushstream.topics.config.load import loads
from hushstream.topics.config.model import Kafka

from ..reading.live.test_tail import until
from .local import local

HOUR = 3_600_000_000
ORIGIN = 17956 * 24 * HOUR  # 2019-03-01

TOML = """
[deployment]
name = "{name}"
[engine]
units_partitions = 2
cells_partitions = 2
[[input]]
name = "sales"
topic = "{name}-raw"
unit = "user"
time = {{ field = "t", format = "epoch_us" }}
[[pipeline]]
name = "{name}-prices"
input = "sales"
unit_name = "customer"
key = ["shop"]
inputs = {{ value = "price" }}
sign = "sign"
window = {{ length = "8h", origin = "2019-03-01T00:00:00Z" }}
triggers = {{ every = "2h" }}
schedule = "external"
budget = {{ epsilon = 4.0, delta = 1e-6 }}
mechanism = {{ kind = "quantile", {more} }}
"""
MORE = "low = 0, high = 100, at = [0.5, 0.9], bands = 64, budget = 4"
SHOPS = {"north": 30.0, "south": 70.0}


def sales(first: int, last: int, n: int) -> list[dict[str, Any]]:
    """A number of sales in the hours first … last; a shop's prices vary around its own mean.

    One in a hundred is deleted; a shop with a single customer stays hidden.
    """
    draw = np.random.default_rng(first)
    step = (last - first) * HOUR // n
    out = []
    for i in range(n):
        shop = "north" if i % 2 else "south"
        price = round(float(draw.normal(SHOPS[shop], 12)), 2)
        one = {"user": f"{first}-{i}", "t": ORIGIN + first * HOUR + i * step, "shop": shop}
        out.append(one | {"price": price, "sign": 1})
        if i % 100 == 0:
            out.append(one | {"price": price, "sign": -1})
    return [*out, out[0] | {"user": "alone", "shop": "west"}]


def exact(rows: list[dict[str, Any]], shop: str) -> list[float]:
    """Sorted prices of a shop, without those that were deleted."""
    mine = [row for row in rows if row["shop"] == shop]
    gone = {row["user"] for row in mine if row["sign"] < 0}
    return sorted(row["price"] for row in mine if row["sign"] > 0 and row["user"] not in gone)


def run(*words: str) -> str:
    result = CliRunner().invoke(hush, words)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("low = 5, high = 5", "high: 5.0: must lie above low"),
        ("high = 5", "low: None: is missing"),
        ("low = 0, high = 1, at = [1.5]", "at: 1.5: must lie between 0 and 1, such as 0.5"),
        ("low = 0, high = 1, bands = 20", "bands: 20: must be 16, 64 or 256"),
        ("low = 0, high = 1, spacing = 'log'", "low: 0.0: must be positive"),
        ("low = 0, high = 1, lows = 3", "lows"),
    ],
)
def test_bad_settings_are_refused_with_their_line(more: str, said: str) -> None:
    text = TOML.format(name="x", more=more)
    line = text.splitlines().index(next(row for row in text.splitlines() if "quantile" in row)) + 1
    with pytest.raises(ConfigError) as caught:
        loads(text, environ={})
    assert said in str(caught.value) and f":{line}: " in str(caught.value)


def test_what_is_not_released_beside_quantiles_is_refused_with_the_next_step() -> None:
    summed = "aggregate = [{ kind = 'sum', field = 'tip', low = 0, high = 9 }]"
    text = TOML.format(name="x", more=MORE).replace("[[pipeline]]", f"[[pipeline]]\n{summed}")
    with pytest.raises(ConfigError, match="second pipeline"):
        compile_config(loads(text, environ={}))
    with pytest.raises(ConfigError, match='aggregate = "keys" releases none'):
        loads(text.replace(summed, 'aggregate = "keys"'), environ={})


def test_they_are_planned_and_simulated(tmp_path: Path) -> None:
    config, data = tmp_path / "hush.toml", tmp_path / "sales.jsonl"
    config.write_text(TOML.format(name="x", more=MORE))
    rows = sales(0, 8, 6000)
    data.write_text("\n".join(map(json.dumps, rows)))
    (planned,) = json.loads(run("plan", "-c", str(config), "--json"))["pipelines"]
    assert planned["mechanism"] == "quantile" and planned["quantile"]["at"] == [0.5, 0.9]
    assert "noise of a rank" in run("plan", "-c", str(config))
    said = run("simulate", "-c", str(config), str(data), "--seed", "s", "--json")
    (window,) = json.loads(said)["x-prices"]["windows"]
    assert (window["keys"], window["released"], window["hidden"]) == (3, 2, 1)
    for name in ("p50", "p90"):
        assert window["figures"][name]["rows"] == 2 and window["figures"][name]["error"] < 5
    assert window["figures"]["count"]["error"] < 200


@pytest.mark.broker
def test_they_are_released_replayed_shown_and_drawn(
    broker: Broker, unique: Callable[[str], str], tmp_path: Path
) -> None:
    name = unique("q")
    raw, rows, toml = f"{name}-raw", [sales(0, 4, 3000), sales(4, 8, 3000)], TOML
    text = toml.format(name=name, more=MORE)
    with local(tmp_path / name, broker.bootstrap, text, {raw: 2}) as deployed:
        deployed.start("one")
        deployed.publish(raw, rows[0], 0)
        deployed.trigger(ORIGIN + 4 * HOUR)
        deployed.wait_released(deployed.wait_triggers(2))
        deployed.kill("one")
        deployed.start("two")
        deployed.publish(raw, rows[1], 1)
        deployed.trigger(ORIGIN + 8 * HOUR)
        deployed.wait_released(deployed.wait_triggers(4))
        assert deployed.stop("two") == 0
        check(deployed.releases(f"{name}-prices"), rows[0] + rows[1])
        source = ["-c", str(deployed.toml), "--bootstrap", deployed.bootstrap]
        assert hush.main(["replay", *source], standalone_mode=False) is None
        shown(deployed.bootstrap, name)
        picture = tmp_path / "drawn.svg"
        run("plot", *source, f"{name}-prices", "--out", str(picture))
        assert "<svg" in picture.read_text()


def check(bodies: list[dict[str, Any]], rows: list[dict[str, Any]]) -> None:
    """The last quantiles are near the exact ones, in their intervals; the hidden shop is absent."""
    found = [body for body in bodies if body["schema"] == "hush.release/2"]
    assert {body["key"]["shop"] for body in found} == set(SHOPS)
    last = [body for body in found if body["final"]]
    assert len(last) == 2
    for body in last:
        prices, values = exact(rows, body["key"]["shop"]), body["values"]
        for label, q in (("p50", 0.5), ("p90", 0.9)):
            true, one = prices[int(q * len(prices))], values[label]
            assert 0 <= one["low"] <= one["value"] <= one["high"] <= 100
            assert abs(one["value"] - true) < max(3 * one["stddev"], 4)
        assert abs(values["count"]["value"] - len(prices)) < 6 * values["count"]["stddev"]
        assert values["count"]["low"] <= values["count"]["value"] <= values["count"]["high"]
    (manifest, *_) = [body for body in bodies if body["schema"] == "hush.manifest/2"]
    assert manifest["value_names"] == ["p50", "p90", "count", "below", "above"]


def shown(bootstrap: str, name: str) -> None:
    """The live page lists both shops with the ends of their intervals."""
    board = Board(Kafka(bootstrap=bootstrap), name)
    board.start()
    try:
        pipeline = f"{name}-prices"
        until(lambda: board.names == [pipeline])
        until(lambda: len((board.view(pipeline, Wish()) or {}).get("rows", [])) == 2)
        seen = board.view(pipeline, Wish(value="p90"))
        assert seen is not None and seen["form"] == "keys"
        assert {row["key"] for row in seen["rows"]} == set(SHOPS)
    finally:
        board.end()
