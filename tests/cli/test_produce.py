"""A file becomes a topic: with event times, keys and no surprise."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hushstream.agents.kafka.cluster import Cluster
from hushstream.deploy.broker import Broker
from hushstream.topics.config.model import Kafka
from hushstream.topics.config.secret import write_new_key

from .bench import typed

CONFIG = """
[kafka]
bootstrap = "{bootstrap}"
[[input]]
name = "trips"
topic = "{topic}"
unit = "trip"
time = {{ field = "t", format = "iso" }}
partitioner = "{partitioner}"
[[pipeline]]
name = "zones"
input = "trips"
key = ["zone"]
window = {{ length = "1d" }}
triggers = {{ every = "1d" }}
budget = {{ epsilon = 1, delta = 1e-6 }}
[secret]
noise_key_file = "hush.key"
"""
ROWS = "trip,zone,t\na,Söder,2019-03-01T00:00:01\nb,Ost,2019-03-02T12:00:00\nc,Ost,\n"


@pytest.fixture
def place(
    broker: Broker, tmp_path: Path, unique: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> tuple[Cluster, str]:
    topic = unique("filled")
    text = CONFIG.format(bootstrap=broker.bootstrap, topic=topic, partitioner="crc32")
    (tmp_path / "hush.toml").write_text(text)
    (tmp_path / "trips.csv").write_text(ROWS)
    write_new_key(tmp_path / "hush.key")
    monkeypatch.chdir(tmp_path)
    return Cluster(Kafka(bootstrap=broker.bootstrap)), topic


def test_records_keep_their_event_times_and_units(place: tuple[Cluster, str]) -> None:
    cluster, topic = place
    code, out, err = typed("produce", "trips.csv", topic, "--partitions", "3")
    assert code == 0, err
    assert "3 records written, topic created" in out and "1 of them lack" in out
    assert "3/3" in err
    found = [m for n in range(3) for m in cluster.read(topic, n)]
    assert cluster.partitions(topic) == 3 and len(found) == 3
    by_unit = {json.loads(m.value())["trip"]: m for m in found}
    assert by_unit["a"].timestamp()[1] == 1_551_398_401_000
    assert by_unit["b"].timestamp()[1] == 1_551_528_000_000
    assert by_unit["b"].key() == b"b" and json.loads(by_unit["a"].value())["zone"] == "Söder"


def test_a_topic_is_not_filled_twice_by_mistake(place: tuple[Cluster, str]) -> None:
    cluster, topic = place
    assert typed("produce", "trips.csv", topic, "--json")[0] == 0
    code, _, err = typed("produce", "trips.csv", topic)
    assert code == 2 and "count twice" in err and len(list(cluster.read(topic, 0))) == 3
    body = json.loads(typed("produce", "trips.csv", topic, "--append", "--json")[1])
    assert body == {"topic": topic, "created": False, "records": 3, "unusable": 1}
    assert len(list(cluster.read(topic, 0))) == 6


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("topic = ", "topic = 'other'  # "), "no input reads topic"),
        (('field = "t", format = "iso"', 'format = "record"'), "a file has none"),
        (
            ("[[input]]", '[registry]\nurl = "http://localhost:1"\n[[input]]\nformat = "avro"'),
            "a file becomes JSON",
        ),
        (('key = ["zone"]', 'key = ["area"]'), "there is t, trip, zone"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_is_written(
    place: tuple[Cluster, str], tmp_path: Path, change: tuple[str, str], message: str
) -> None:
    cluster, topic = place
    path = tmp_path / "hush.toml"
    path.write_text(path.read_text().replace(*change))
    code, _, err = typed("produce", "trips.csv", topic)
    assert code == 2 and message in err and not cluster.partitions(topic)


def test_a_missing_and_an_empty_file_are_refused(place: tuple[Cluster, str]) -> None:
    cluster, topic = place
    assert "file not found" in typed("produce", "none.csv", topic)[2]
    Path("empty.csv").write_text("trip,zone,t\n")
    assert "holds no record" in typed("produce", "empty.csv", topic)[2]
    assert not cluster.partitions(topic)


def test_a_row_that_utf8_cannot_hold_does_not_end_the_work_half_way(
    place: tuple[Cluster, str],
) -> None:
    cluster, topic = place
    rows = [{"trip": f"u{n}", "zone": "Ost", "t": "2019-03-01T00:00:01"} for n in range(3)]
    rows[1]["zone"] = "half \ud800 of a pair"
    Path("odd.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    code, out, err = typed("produce", "odd.jsonl", topic, "--partitions", "1")
    assert code == 0, err
    assert "3 records written" in out
    assert [json.loads(m.value()) for m in cluster.read(topic, 0)] == rows


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (
            "trip,zone,t\na,Ost,1551398401000\n",
            "look like milliseconds: set time.format = 'epoch_ms'",
        ),
        (
            "trip,zone,t\na,Ost,soon\n",
            "row 1 is the first that cannot become an event of input 'trips'",
        ),
        ("trip,zone,t\na,Ost,2019-03-01T00:00:01,1\n", "line 2: 4 fields, and the header names 3"),
        ("trip,zone,t\na,Ost,2019-03-01T00:00:01\nb,Ost\n", "line 3: 2 fields"),
        ("trip,zone,t,zone\na,Ost,2019-03-01T00:00:01,West\n", "the header names 'zone' twice"),
        ("trip;zone;t\na;Ost;2019-03-01T00:00:01\n", "one column with ';' in it"),
    ],
)
def test_rows_that_cannot_become_events_are_not_written(
    place: tuple[Cluster, str], rows: str, said: str
) -> None:
    cluster, topic = place
    Path("wrong.csv").write_text(rows)
    code, _, err = typed("produce", "wrong.csv", topic)
    assert code == 2 and said in " ".join(err.split()) and not cluster.partitions(topic)


def test_force_writes_rows_that_do_not_fit(place: tuple[Cluster, str]) -> None:
    cluster, topic = place
    Path("wrong.csv").write_text("trip,zone,t\na,Ost,soon\nb,Ost\n")
    code, out, err = typed("produce", "wrong.csv", topic, "--force")
    assert code == 0 and "2 of them lack a unit or a time" in out, err
    assert len(list(cluster.read(topic, 0))) == 2
