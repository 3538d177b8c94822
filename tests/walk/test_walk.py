"""An unseen file walks through every command to a map and a page, in terminals of two widths.

Covers: cli/group.py
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import duckdb
import pyarrow.parquet as pq
import pytest
from hushstream.deploy.broker import Broker
from rich.cells import cell_len

from ..servers.connect import Postgres
from ..terminal import HUSH, Terminal, hush
from .unseen import Unseen, unseen

WRONG = re.compile(r"Traceback|unexpected error|Error:|\bnan\b|None\b")
TOML = """
[deployment]
name = "{name}"
[kafka]
bootstrap = "{bootstrap}"
[secret]
noise_key_file = "hush.key"
[engine]
units_partitions = 1
cells_partitions = 1
public_port = 0
operator_port = 0
[[input]]
name = "people"
topic = "{name}-raw"
unit = "{unit}"
time = {{ field = "{time}", format = "{format}" }}
[[pipeline]]
name = "{name}-map"
input = "people"
inputs = {{ {x} = "{x}", {y} = "{y}" }}
unit_name = "person"
window = {{ length = "1d", origin = "{origin}" }}
triggers = {{ every = "12h" }}
schedule = "external"
budget = {{ epsilon = 2.0 }}
[pipeline.mechanism]
kind = "phdstream"
bound = 1
[pipeline.mechanism.domain]
depth = 8
split = "all"
axes = [{{ name = "{x}", low = 9, high = 11 }}, {{ name = "{y}", low = 49, high = 51 }}]
"""
QUERY = (
    'CREATE MATERIALIZED VIEW "{name}-keys" AS SELECT {key}, COUNT(*) AS number, '
    "AVG(CLIP({value}, 0, 100)) AS typical FROM people GROUP BY {key}, "
    "TUMBLE({time}, INTERVAL '1' DAY)"
)


@dataclass
class Walk:
    """A person in a folder, with a terminal of some width and a file that is new to Hushstream."""

    folder: Path
    columns: int
    name: str
    file: Unseen

    @classmethod
    def begun(cls, folder: Path, columns: int, name: str, bootstrap: str, seed: int) -> Walk:
        """In a folder with a file and a configuration of it."""
        walk = cls(folder, columns, name, unseen(folder / "data.csv", seed))
        assert "hush plan" in walk.types("init")
        file = walk.file
        x, y = file.place
        text = TOML.format(name=name, bootstrap=bootstrap, unit=file.unit, time=file.time,
                           format=file.format, x=x, y=y, origin=file.day(0))  # fmt: skip
        (folder / "hush.toml").write_text(text)
        return walk

    def types(self, *words: str) -> str:
        """Type one command; its text, as read without regard to lines."""
        code, text = hush(words, self.columns, self.folder)
        assert code == 0, f"{words}: {code}\n{text}"
        looks_well(text, self.columns)
        return " ".join(text.split())

    def asks(self) -> str:
        """Ask in SQL for records and a mean by key and day; the pipeline is added to the file."""
        query = QUERY.format(
            name=self.name, key=self.file.key, value=self.file.value, time=self.file.time
        )
        told = self.types("sql", query)
        toml = self.folder / "hush.toml"  # the days of the file are over
        head, made, tail = toml.read_text().partition('window = { length = "1d" }\n')
        assert made
        origin = f'window = {{ length = "1d", origin = "{self.file.day(0)}" }}\n'
        toml.write_text(f'{head}{origin}schedule = "external"\n{tail}')
        return told

    @contextmanager
    def serving(self, *words: str, until: str) -> Iterator[Terminal]:
        """Have a command run, from the time on at which it says that it does; then Ctrl-C."""
        terminal = Terminal([*HUSH, *words], self.columns, self.folder)
        try:
            terminal.until(until)
            yield terminal
        finally:
            terminal.interrupt()
            code = terminal.end()
        assert code in (0, 130), terminal.text
        assert WRONG.search(terminal.text) is None, terminal.text


def looks_well(text: str, columns: int) -> None:
    """Nothing went wrong, no line is wider than the terminal, and no table was cut."""
    assert WRONG.search(text) is None, text
    for line in text.split("\n"):
        # A terminal wraps a sentence that is longer; a row of a table may not be. Bars of progress
        # are drawn again and again in their place.
        if "  " in line.strip() and "━" not in line:
            assert cell_len(line.rstrip()) <= columns, line


def counted(rows: list[dict[str, object]], file: Unseen) -> None:
    """Released numbers are those of the file, up to their errors; common keys are there."""
    shown = {str(row[file.key]): row for row in rows}
    common = {key: number for key, number in file.counts.items() if number > 400}
    assert common and common.keys() <= shown.keys() <= file.counts.keys()
    for key, number in common.items():
        low, high = (float(str(shown[key][f"number_{end}"])) for end in ("low", "high"))
        assert abs(float(str(shown[key]["number"])) - number) <= 2 * (high - low) < number


def test_a_person_plans_and_asks_for_an_unseen_file(tmp_path: Path) -> None:
    walk = Walk.begun(tmp_path, 80, "walk", "127.0.0.1:1", seed=0)
    told = walk.asks()
    assert ("walk-keys" in told and "appended" in told.lower()) or "written" in told.lower()
    assert "walk-keys" in walk.types("plan", "--pipeline", "walk-keys")


@pytest.mark.thorough
@pytest.mark.broker
@pytest.mark.parametrize(("columns", "seed"), [(80, 1), (200, 2)])
def test_an_unseen_file_walks_to_a_map_and_a_page(
    broker: Broker, unique: Callable[[str], str], tmp_path: Path, columns: int, seed: int
) -> None:
    name = unique("walk")
    walk = Walk.begun(tmp_path, columns, name, broker.bootstrap, seed)
    file, keys, places = walk.file, f"{name}-keys", f"{name}-map"
    walk.asks()
    assert keys in walk.types("plan")
    told = walk.types("plan", "--sample", "data.csv", "--pipeline", keys)
    assert "3 ways to go" in told and "about 6 of 6 keys in a window" in told
    assert f"assumed the stream is like data.csv: {file.records:,} records" in told
    told = walk.types("produce", "data.csv", f"{name}-raw")
    assert f"{file.records:,} records written, topic created" in told
    walk.types("topics")
    with walk.serving("worker", until="ready:") as worker:
        walk.types("trigger", "--at", file.day(1), "--wait")
        worker.until(f"pipeline {keys}: window {file.day(0)} to {file.day(1)} is released")
        worker.until(f"pipeline {places}: window {file.day(0)} to {file.day(1)} is released")
        told = walk.types("status")
        assert keys in told and "All is well." in told
        best = max(file.counts, key=lambda key: file.counts[key])
        assert best in walk.types("releases", keys, "--final")
        walk.types("releases", keys, "--final", "--parquet", "keys.parquet")
        counted(pq.read_table(tmp_path / "keys.parquet").to_pylist(), file)
        drained(walk, keys)
        walk.types("map", places, "--out", "map.geojson")
        cells = json.loads((tmp_path / "map.geojson").read_text())["features"]
        whole = sum(file.counts.values())
        assert abs(sum(one["properties"]["count"] for one in cells) - whole) < whole / 10
        assert best in walk.types("watch", keys, "--once")
        assert "Map of count" in walk.types("watch", places, "--once")
    with walk.serving("live", "--port", "0", until="Ctrl-C ends it") as live:
        address = live.text.split()[0]
        until = time.monotonic() + 60
        while not _released(address, keys):
            assert time.monotonic() < until, address
            time.sleep(0.5)
        seen = _answer(f"{address}view.json?name={keys}")
        assert seen["rows"][0]["key"] == best


def drained(walk: Walk, keys: str) -> None:
    """Drain releases into PostgreSQL where it is installed, and into DuckDB, and ask both."""
    key = walk.file.key
    names = [key, "number", "number_low", "number_high"]
    query = f'SELECT {", ".join(names)} FROM "{keys}_newest" WHERE final'
    walk.types("sink", "duckdb:sunk.db", "--once")
    with duckdb.connect(str(walk.folder / "sunk.db"), read_only=True) as client:
        counted(client.sql(query).to_arrow_table().to_pylist(), walk.file)
    if not Postgres.missing():
        with Postgres() as database:
            url = database.url.removeprefix("jdbc:").replace("://", "://hush@")
            walk.types("sink", url, "--once")
            counted([dict(zip(names, row, strict=True)) for row in database.ask(query)], walk.file)


def _answer(address: str) -> dict[str, Any]:
    with urlopen(address, timeout=60) as answer:
        return dict(json.load(answer))


def _released(address: str, name: str) -> bool:
    """Whether the page has a release of a pipeline."""
    told = _answer(f"{address}summary.json")["pipelines"]
    return any(one["name"] == name and one["windows"] for one in told)
