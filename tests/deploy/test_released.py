"""The dashboard of released values asks `hush live` only for what it serves.

Covers: deploy/released.py
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from hushstream.deploy.released import PLUGIN
from hushstream.reading.live.server import serve
from hushstream.reading.live.views import MOST_ROWS

from ..dashboards import infinity
from ..reading.live.test_server import filled
from ..tree import ROOT

BOARD = json.loads((ROOT / "deploy/grafana/dashboards/values.json").read_text("utf-8"))
PANELS = {panel["type"]: panel for panel in BOARD["panels"]}
VARIABLES = {one["name"]: one for one in BOARD["templating"]["list"]}
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))["services"]
SOURCES = ROOT / "deploy/grafana/provisioning/datasources"
TYPES = {"string": str, "number": (int, float), "timestamp_epoch": int}


@pytest.fixture(scope="module")
def base() -> Iterator[str]:
    """Address of a live page of recorded releases."""
    board = filled("histogram-sums", "phdstream")
    server = serve(board, "127.0.0.1", 0)
    yield server.url
    board.end()
    server.shutdown()
    server.server_close()


def queries() -> Iterator[dict[str, Any]]:
    yield from (VARIABLES[name]["query"]["infinityQuery"] for name in ("pipeline", "value", "key"))
    yield from (target for panel in BOARD["panels"] for target in panel["targets"])


def test_each_column_is_in_each_row_that_is_served(base: str) -> None:
    variables = infinity.chosen(base, BOARD)
    assert variables == {"pipeline": "histogram-sums", "value": "count", "key": '["z1"]'}
    for query in queries():
        found = infinity.rows(base, query, variables)
        assert found, query
        for column in query["columns"]:
            values = [infinity.at(column["selector"], row) for row in found]
            assert all(isinstance(one, TYPES[column["type"]]) for one in values), column


def test_panels_show_the_values_that_were_released(base: str) -> None:
    variables = infinity.chosen(base, BOARD)
    table = infinity.frame(base, PANELS["table"]["targets"][0], variables)
    told = {one["name"]: one["values"] for one in table["fields"]}
    assert told["Key"] == ["z1", "z2", "z3"] and told["Value"] == [135.0, 60.0, 31.0]
    assert all(
        low < value < high
        for low, value, high in zip(told["Low"], told["Value"], told["High"], strict=True)
    )
    assert told["Deviation"][0] == 16.8671 and told["Release"] == [4, 4, 4]
    (order,) = PANELS["table"]["transformations"]
    assert set(order["options"]["indexByName"]) == set(told)
    trend = infinity.frame(base, PANELS["timeseries"]["targets"][0], variables)
    moved = {one["name"]: one["values"] for one in trend["fields"]}
    assert moved["Value"][-1] == 135.0 and moved["Released"][-1] == 1_551_456_000_000
    (order,) = PANELS["timeseries"]["transformations"]
    assert order["options"]["sort"] == [{"field": "Released"}]


def test_of_cells_the_sum_is_shown(base: str) -> None:
    given = {"pipeline": "phdstream", "value": "count", "key": ""}
    assert infinity.rows(base, PANELS["table"]["targets"][0], given) == []
    assert infinity.rows(base, VARIABLES["key"]["query"]["infinityQuery"], given) == []
    trend = infinity.rows(base, PANELS["timeseries"]["targets"][0], given)
    assert trend[-1]["estimate"][0] == 233.0


def test_no_more_rows_are_asked_for_than_are_served() -> None:
    sizes = {
        int(one["value"])
        for query in queries()
        for one in query["url_options"]["params"]
        if one["key"] == "size"
    }
    assert sizes == {MOST_ROWS}


def test_the_data_source_reaches_the_live_page_and_nothing_else() -> None:
    """A viewer may send arbitrary queries, and a worker's operator port is in reach."""
    (source,) = yaml.safe_load((SOURCES / "live.yaml").read_text("utf-8"))["datasources"]
    live = COMPOSE["live"]
    port = live["command"][live["command"].index("--port") + 1]
    assert source["url"] == f"http://live:{port}"
    # The plugin compares prefixes: without the slash, "http://live:8437@worker" would pass.
    assert source["jsonData"] == {"allowedHosts": [f"http://live:{port}/"]}
    current = VARIABLES["DS_HUSH"]["current"]
    assert (source["uid"], source["type"]) == (current["value"], PLUGIN)
    assert all(query["url"].startswith("/") for query in queries())
    assert live["command"][:3] == ["live", "--bind", "0.0.0.0"]
    installed = COMPOSE["grafana"]["environment"]["GF_PLUGINS_PREINSTALL_SYNC"]
    assert installed.split("@")[0] == PLUGIN and installed.split("@")[1]
    assert "HUSH_NOISE_KEY_FILE" not in live.get("environment", {}) and "secrets" not in live
