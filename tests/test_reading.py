"""The page on reading releases, from a topic to a data frame and a map: run from top to bottom.

The test runs every command and every Python block in the order of the page, on a broker with the
releases of the page's two pipelines.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hushstream.deploy.broker import Broker
from hushstream.offline.simulate import simulate
from hushstream.topics.config.load import loads
from pyarrow import parquet

from .cli.bench import interrupted, typed
from .reading.test_client import Topic

PAGE = Path(__file__).parents[1] / "docs" / "reading.md"
BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)
DAY = 86_400
START = 1_772_323_200  # 2026-03-01, the date on the page

CONFIG = """
[kafka]
bootstrap = "{bootstrap}"
[[input]]
name = "shop"
topic = "shop"
unit = "customer"
time = {{ field = "t", format = "epoch_s" }}
[[input]]
name = "rides"
topic = "rides"
unit = "rider"
time = {{ field = "t", format = "epoch_s" }}
[[pipeline]]
name = "purchases"
input = "shop"
key = ["product"]
window = {{ length = "1d" }}
triggers = {{ every = "12h" }}
budget = {{ epsilon = 2.0, delta = 1e-6 }}
[[pipeline]]
name = "pickups"
input = "rides"
window = {{ length = "1d" }}
triggers = {{ every = "12h" }}
budget = {{ epsilon = 2.0 }}
[pipeline.mechanism]
kind = "phdstream"
[pipeline.mechanism.domain]
depth = 6
split = "all"
axes = [{{ name = "lon", low = -74.3, high = -73.7 }}, {{ name = "lat", low = 40.5, high = 41 }}]
"""


def shop() -> list[dict[str, Any]]:
    draw = np.random.default_rng(1)
    product = np.minimum(draw.zipf(1.6, 4000), 30)
    return [
        {"customer": f"c{i}", "product": f"p{p}" if p > 1 else "tea", "t": START + 40 * i}
        for i, p in enumerate(product.tolist())
    ]


def rides() -> list[dict[str, Any]]:
    place = np.random.default_rng(2).normal((-73.98, 40.75), 0.03, (4000, 2))
    return [
        {"rider": f"r{i}", "lon": lon, "lat": lat, "t": START + 40 * i}
        for i, (lon, lat) in enumerate(place.tolist())
    ]


@pytest.fixture(scope="module")
def folder(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the configuration; the releases are in the topics that readers use."""
    made = tmp_path_factory.mktemp("reading")
    text = CONFIG.format(bootstrap=broker.bootstrap)
    (made / "hush.toml").write_text(text)
    config = loads(text, environ={})
    for source, name, rows in (("shop", "purchases", shop()), ("rides", "pickups", rides())):
        _, engine = simulate(config, rows, source, bytes(range(32)))
        topic = f"hush.{name}.releases.v1"
        Topic(broker, topic).send(engine.outs[topic])
    return made


def blocks() -> Iterator[tuple[str, str]]:
    """Language and text of every executable block, in the order of the page."""
    yield from BLOCK.findall(PAGE.read_text("utf-8"))


def first_line(words: list[str], folder: Path) -> str:
    """The first line of a command that runs until it is interrupted."""
    command = [sys.executable, "-m", "hushstream", *words]
    with subprocess.Popen(
        command, cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    ) as process:  # fmt: skip
        assert process.stdout is not None
        line = process.stdout.readline()
        interrupted(process)
    return line


def run(line: str, folder: Path) -> str:
    """The output of one line in a shell block."""
    words = shlex.split(line, comments=True)
    assert words[0] == "hush", f"{line!r} is no command of ours: the test cannot run it"
    if words[1] == "live":
        return first_line([*words[1:], "--port", "0"], folder)  # the page's port may be in use
    if "--follow" in words:
        return first_line(words[1:], folder)
    code, out, err = typed(*words[1:])
    if words[1] == "watch":  # it shows the budget, so it needs a ledger, and there is none
        assert code == 4 and "no deployment 'hush'" in err
        return err
    assert code == 0, f"{line}: {err}"
    return out


def test_the_page_runs_from_top_to_bottom(
    folder: Path, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    names: dict[str, Any] = {"__name__": "__main__"}
    printed: dict[str, str] = {}
    for language, text in blocks():
        body = text.replace("broker:9092", broker.bootstrap)
        if language == "python":
            exec(compile(body, str(PAGE), "exec"), names)  # noqa: S102
            continue
        for line in filter(None, body.splitlines()):
            printed[line] = run(line, folder)
            assert printed[line] or "--out" in line or "--parquet" in line, line
    assert len(printed) >= 12 and (folder / "tea.svg").stat().st_size > 1000

    frame = names["frame"]
    assert len(frame) > 10 and {"window_start", "product", "count", "count_low"} <= set(frame)
    assert (frame["count_low"] >= 0).all()
    assert len(names["points"]) > 1000 and names["points"].columns.tolist() == ["lon", "lat"]
    assert names["hexagons"]["count"].sum() == pytest.approx(cells(names["cells"]))

    assert parquet.read_table(folder / "f.parquet").num_rows > 10
    shown = json.loads((folder / "pickups.geojson").read_text())
    assert shown == json.loads(json.dumps(names["cells"])) and cells(shown) > 1000
    hexagons = json.loads((folder / "hexagons.geojson").read_text())
    assert cells(hexagons) == pytest.approx(cells(shown)) and len(hexagons["features"]) > 20
    points = json.loads((folder / "points.geojson").read_text())
    assert len(points["features"]) == len(names["points"])


def cells(body: Any) -> float:
    """The number of records on a map."""
    assert body["type"] == "FeatureCollection"
    return sum(float(feature["properties"]["count"]) for feature in body["features"])


def test_a_line_that_fails_is_noticed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    for line in ("hush map purchases", "hush map pickups --h3 99", "hush releases nobody", "ls"):
        with pytest.raises(AssertionError):
            run(line, folder)
