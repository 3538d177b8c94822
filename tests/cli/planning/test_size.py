"""``hush size``: a table of 80 columns, JSON, and settings of a configuration."""

from __future__ import annotations

import io
import json

import pytest
from click.testing import CliRunner
from hushstream.cli.group import hush
from hushstream.cli.planning.size import bytes_of, table_of
from hushstream.planning.costs import COSTS, MEASURED_BY
from hushstream.planning.limits import Limit, limits
from hushstream.planning.size import Load, size
from rich.console import Console

LOAD = ("size", "--users", "1e7", "--keys", "1e6", "--rate", "1e5")
CONFIG = """
[deployment]
name = "d"
[engine]
unit_cache_mb = 32
input_mb = 64
step_records = 30000
replication_factor = 2
cells_partitions = 7
beat_interval = "1s"
keep_clock = "1d"
[[input]]
name = "a"
topic = "a"
unit = "user"
partitioner = "murmur2"
time = { format = "record" }
[[input]]
name = "b"
topic = "b"
unit = "user"
time = { format = "record" }
"""
PIPELINE = """
[[pipeline]]
name = "{name}"
input = "{input}"
key = ["page"]
unit_name = "user and day"
window = {{ length = "1d", origin = "2024-01-01T00:00:00Z" }}
triggers = {{ every = "{every}" }}
schedule = "external"
budget = {{ epsilon = 1.0, delta = 1e-9 }}
"""


def run(*words: str) -> str:
    done = CliRunner().invoke(hush, words, env={"COLUMNS": "80"}, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_json_is_what_the_model_says():
    body = json.loads(run(*LOAD, "--json", "--rekeyed", "--pairs", "5", "--replicas", "1"))
    load = Load(1e7, 1e6, 1e5, 5, direct=0, rekeyed=1, replicas=1)
    found = size(load, COSTS)
    assert body["load"] == load._asdict()
    assert body["size"] == {**found._asdict(), "topics": found.topics._asdict()}
    assert body["limits"][0]["words"] == limits(load, found, 3)[0].words
    assert {n: c["measured_by"] for n, c in body["costs"].items()} == dict(MEASURED_BY)


def test_the_table_fits_a_narrow_terminal_and_says_what_gives_way_first():
    text = run(*LOAD, "--unit-cache-mb", "10", "--processes", "2")
    assert max(map(len, text.splitlines())) <= 80
    assert "100,000 events/s" in text and "has given way" in text and "unit_cache_mb" in text


def test_pipelines_partitions_and_settings_come_from_a_configuration(tmp_path):
    path = tmp_path / "hush.toml"
    names = {"one": ("a", "6h"), "two": ("b", "1h"), "three": ("b", "6h")}
    pipelines = [PIPELINE.format(name=n, input=i, every=e) for n, (i, e) in names.items()]
    path.write_text(CONFIG + "".join(pipelines))
    body = json.loads(run(*LOAD, "--json", "--config", str(path)))
    load = Load(1e7, 1e6, 1e5, direct=1, rekeyed=2, replicas=2, every=3600, keep=86_400, beat=1,
                step=30_000, unit_cache=32 * 2**20, waiting=64 * 2**20, units=4,
                cells=7)  # fmt: skip
    assert body["load"] == load._asdict()
    assert body["size"]["known"] < 1


@pytest.mark.parametrize(
    "words",
    [("--rate", "-1"), ("--keys", "x"), ("--processes", "0"), ("--users", "nan"), ("--rate", "inf"),
     ("--every", "nan"), ("--beat", "inf"), ("--keys", "1e300")],
)  # fmt: skip
def test_a_load_that_cannot_be_is_refused(words):
    done = CliRunner().invoke(hush, [*LOAD, *words])
    assert done.exit_code == 2 and words[0] in done.output


def test_a_configuration_without_a_pipeline_is_named(tmp_path):
    empty = tmp_path / "empty.toml"
    empty.write_text("")
    done = CliRunner().invoke(hush, [*LOAD, "-c", str(empty)])
    assert "has no [[pipeline]]" in str(done.exception)


def laid_out(load: Load, parts: list[Limit]) -> str:
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(table_of(load, size(load, COSTS), parts))
    text = console.export_text()
    assert max(map(len, text.splitlines())) <= 80
    return " ".join(text.replace("│", " ").split())


def test_the_table_says_what_gives_way_first_and_when():
    text = laid_out(Load(1e7, 1e6, 1e5), [Limit(3.14, "a part"), Limit(9.0, "another")])
    assert "a part; when the load is 3.1 times this" in text and "another" not in text
    assert "100,000 events/s" in text and "100%" in text
    assert "a part; has given way" in laid_out(Load(1, 1, 1), [Limit(0.5, "a part")])


def test_bytes_have_three_digits():
    assert [bytes_of(n) for n in (0, 999, 1e3, 12_345, 9.9e8, 1.5e10, 2e12, 3e15)] == [
        "0 B", "999 B", "1 kB", "12.3 kB", "990 MB", "15 GB", "2 TB", "3e+03 TB"]  # fmt: skip
