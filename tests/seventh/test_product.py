"""Every part of the product accepts the package, only through its entry point."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hushstream.agents.clock.genesis import read_ledger
from hushstream.cli.group import hush
from hushstream.deploy.broker import Broker
from hushstream.deploy.process import Child
from hushstream.errors import ConfigError
from hushstream.mechanisms import catalogue
from hushstream.reading.live.board import Board
from hushstream.reading.live.views import Wish
from hushstream.topics.config.load import loads
from hushstream.topics.config.model import Kafka

from ..integration.local import Local, local
from ..reading.live.test_tail import until

HERE = Path(__file__).parent
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
public_keys = [["north"], ["south"]]
inputs = {{ value = "price" }}
window = {{ length = "8h", origin = "2019-03-01T00:00:00Z" }}
triggers = {{ every = "2h" }}
schedule = "external"
budget = {{ epsilon = 2.0, delta = 1e-6 }}
mechanism = {{ kind = "binned", edges = [0, 10, 20, 40], bound = 2 }}
"""
SHOPS = ("north", "south", "west")  # the last is not listed


@pytest.fixture(autouse=True)
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Install the package's metadata as an installer would from its pyproject.toml."""
    project = tomllib.loads((HERE / "pyproject.toml").read_text("utf-8"))["project"]
    info = tmp_path / "site" / "binned-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: binned\nVersion: 1.0\n")
    points = project["entry-points"][catalogue.GROUP].items()
    lines = [f"[{catalogue.GROUP}]", *(f"{name} = {target}" for name, target in points)]
    (info / "entry_points.txt").write_text("\n".join(lines))
    for folder in (HERE, info.parent):
        monkeypatch.syspath_prepend(folder)
    # Workers are separate processes, which find the package like any installed one.
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(info.parent), str(HERE)]))
    catalogue.entries.cache_clear()
    yield
    catalogue.entries.cache_clear()


def sales(first: int, last: int, n: int) -> list[dict[str, Any]]:
    """``n`` sales, evenly over the hours first … last, with cycling prices and shops."""
    step = (last - first) * HOUR // n
    return [
        {"user": f"{first}-{i}", "t": ORIGIN + first * HOUR + i * step, "price": (i * 7) % 50,
         "shop": SHOPS[i % 3]}
        for i in range(n)
    ]  # fmt: skip


def counts(rows: list[dict[str, Any]]) -> dict[str, list[int]]:
    """Exact counts by listed shop and bin."""
    ends = ((0, 10), (10, 20), (20, 40))
    return {
        shop: [
            sum(1 for row in rows if row["shop"] == shop and a <= row["price"] < b) for a, b in ends
        ]
        for shop in SHOPS[:2]
    }


def run(*words: str) -> str:
    result = CliRunner().invoke(hush, words)
    assert result.exit_code == 0, result.output
    return result.output


def test_without_the_package_the_configuration_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(catalogue, "_installed", list)
    catalogue.entries.cache_clear()
    with pytest.raises(ConfigError, match='"binned": unknown mechanism'):
        loads(TOML.format(name="x"), environ={})


def test_it_is_planned_documented_and_simulated(tmp_path: Path) -> None:
    config, data = tmp_path / "hush.toml", tmp_path / "sales.jsonl"
    config.write_text(TOML.format(name="x"))
    rows = sales(0, 8, 3000)
    data.write_text("\n".join(map(json.dumps, rows)))
    (planned,) = json.loads(run("plan", "-c", str(config), "--json"))["pipelines"]
    assert (planned["mechanism"], planned["edges"]) == ("binned", [0, 10, 20, 40])
    assert set(planned["noise"]) == {"bin_0", "bin_1", "bin_2"} and planned["mu2"] > 0
    assert "10 ≤ value < 20" in run("plan", "-c", str(config))
    assert "binned" in run("mechanisms")
    (edges, bound) = json.loads(run("mechanisms", "binned", "--json"))
    assert edges["meaning"].startswith("ends of the bins") and bound["default"] == "`1`"
    said = run("simulate", "-c", str(config), str(data), "--seed", "s", "--json")
    (window,) = json.loads(said)["x-prices"]["windows"]
    assert (window["keys"], window["released"], window["hidden"]) == (2, 2, 0)
    for place in range(3):  # errors are those of noise, so truths were computed
        figure = window["figures"][f"bin_{place}"]
        assert figure["rows"] == 2 and 0 < figure["error"] < 5 * planned["noise"]["bin_0"]
    exact = counts(rows)
    assert window["records"] == sum(map(sum, exact.values()))


@pytest.mark.broker
def test_it_is_released_replayed_shown_and_drawn(
    broker: Broker,
    unique: Callable[[str], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Local, "process", Child)  # a fork would not know the package
    name = unique("b")
    raw, rows = f"{name}-raw", [sales(0, 4, 900), sales(4, 8, 900)]
    with local(tmp_path / name, broker.bootstrap, TOML.format(name=name), {raw: 2}) as deployed:
        deployed.start("one")
        deployed.publish(raw, rows[0], 0)
        deployed.trigger(ORIGIN + 4 * HOUR)
        deployed.wait_released(deployed.wait_triggers(2))
        deployed.kill("one")
        deployed.start("two")
        deployed.publish(raw, [*rows[1], {"user": "u", "t": ORIGIN + 5 * HOUR}], 1)
        deployed.trigger(ORIGIN + 8 * HOUR)
        deployed.wait_released(deployed.wait_triggers(4))
        assert deployed.stop("two") == 0
        check(deployed.releases(f"{name}-prices"), rows[0] + rows[1])
        source = ["-c", str(deployed.toml), "--bootstrap", deployed.bootstrap]
        assert hush.main(["replay", *source], standalone_mode=False) is None
        (charge,) = (one.body for one in read_ledger(deployed.cluster, name).charges.values())
        assert (charge["mechanism"], charge["definition"]) == ("binned", "approximate")
        shown(deployed.bootstrap, name)
        picture = tmp_path / "drawn.svg"
        run("plot", *source, f"{name}-prices", "--out", str(picture))
        assert "<svg" in picture.read_text()


def check(bodies: list[dict[str, Any]], rows: list[dict[str, Any]]) -> None:
    """Check final counts by shop within their noise, and manifests that state that noise."""
    found = [body for body in bodies if body["schema"] == "hush.release/2"]
    assert sorted({body["trigger"] for body in found}) == [1, 2, 3, 4] and len(found) == 8
    exact = counts(rows)
    for row in (body for body in found if body["final"]):
        for place, true in enumerate(exact[row["key"]["shop"]]):
            value = row["values"][f"bin_{place}"]
            assert abs(value["value"] - true) < 8 * value["stddev"] and value["low"] >= 0
    for manifest in (body for body in bodies if body["schema"] == "hush.manifest/2"):
        assert manifest["noise"] == {"distribution": "discrete_gaussian"}
        assert manifest["key_names"] == ["shop"] and manifest["replaces"] is False
        assert manifest["value_names"] == ["bin_0", "bin_1", "bin_2"]
        assert manifest["bounds"]["in_words"].startswith("at most 2 records of one customer")


def shown(bootstrap: str, name: str) -> None:
    """Check that the live page lists both shops."""
    board = Board(Kafka(bootstrap=bootstrap), name)
    board.start()
    try:
        pipeline = f"{name}-prices"
        until(lambda: board.names == [pipeline])
        until(lambda: len((board.view(pipeline, Wish()) or {}).get("rows", [])) == 2)
        seen = board.view(pipeline, Wish(value="bin_1"))
        assert seen is not None and (seen["form"], seen["final"]) == ("keys", True)
        assert {row["key"] for row in seen["rows"]} == {"north", "south"}
    finally:
        board.end()
