"""A file becomes a topic, with event times and keys, each line once.

Covers: offline/loading.py, offline/timestamps.py
"""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pandas as pd
import pytest
from hushstream import produce
from hushstream.agents.deployment.cluster.topic_specs import TopicSpec
from hushstream.agents.kafka.cluster import Cluster
from hushstream.deploy.broker import Broker
from hushstream.errors import ConfigError, EngineError, ParameterError, RightError
from hushstream.topics.config.access.secret import write_new_key
from hushstream.topics.config.model import Kafka

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
    assert body == {"topic": topic, "created": False, "records": 3, "unusable": 1, "before": 0}
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


def _dated(*days: float) -> None:
    """Write a file whose rows lie these days after now."""
    times = [datetime.now(UTC) + timedelta(days=one) for one in days]
    rows = "".join(f"u{n},Ost,{one.isoformat()}\n" for n, one in enumerate(times))
    Path("dated.csv").write_text(f"trip,zone,t\n{rows}")


def test_rows_whose_time_kafka_refuses_are_not_written(place: tuple[Cluster, str]) -> None:
    cluster, topic = place
    _dated(0, -9, 0.01, 3, 5)
    code, _, err = typed("produce", "dated.csv", topic)
    said = " ".join(err.split())
    assert code == 2 and "dated.csv: row 4 has the time " in said, err
    assert "1:00:00 after its own (message.timestamp.after.max.ms = 3600000)" in said
    assert "use --append with a topic that has a larger limit" in said
    assert not cluster.partitions(topic)
    limits = {"message.timestamp.after.max.ms": "345600000",
              "message.timestamp.before.max.ms": "86400000"}  # fmt: skip
    cluster.create([TopicSpec(topic, 1, limits, False, "raw records")], 1)
    said = " ".join(typed("produce", "dated.csv", topic, "--append")[2].split())
    assert "row 2 has" in said and "1 day, 0:00:00 before its own" in said
    assert "or give the topic a larger limit" in said
    _dated(0, 3, 5)
    assert "row 3 has" in " ".join(typed("produce", "dated.csv", topic, "--append")[2].split())
    assert not list(cluster.read(topic, 0))
    _dated(0, 3)
    code, out, err = typed("produce", "dated.csv", topic, "--append")
    assert code == 0 and "2 records written" in out, err


def test_a_topic_that_takes_the_brokers_time_has_no_limit(place: tuple[Cluster, str]) -> None:
    cluster, topic = place
    _dated(0, 3)
    kind = {"message.timestamp.type": "LogAppendTime"}
    cluster.create([TopicSpec(topic, 1, kind, False, "raw records")], 1)
    code, out, err = typed("produce", "dated.csv", topic, "--append")
    assert code == 0 and "2 records written" in out, err


def test_a_limit_that_the_broker_does_not_tell_is_named_when_it_refuses(
    place: tuple[Cluster, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refusing(*_: object) -> None:
        raise RightError([("DESCRIBE_CONFIGS", "cluster", "kafka-cluster")], "user 'w'")

    _, topic = place
    monkeypatch.setattr(Cluster, "own_settings", refusing)
    monkeypatch.setattr(Cluster, "settings", refusing)
    times = pd.to_datetime([datetime.now(UTC) + timedelta(days=n) for n in (0, 3)])
    frame = pd.DataFrame({"trip": ["a", "b"], "zone": ["x", "y"], "t": times})
    with pytest.raises(EngineError, match=r"larger message\.timestamp\.after\.max\.ms"):
        produce(frame, topic)


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


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("trips.tsv", ROWS.replace(",", "\t"), []),
        ("trips.csv", ROWS.replace(",", ";"), ["--delimiter", ";"]),
        ("trips.csv.gz", ROWS, []),
        ("bare.tsv", ROWS.replace(",", "\t").split("\n", 1)[1],
         ["--no-header", "--columns", "trip,zone,t"]),
    ],
)  # fmt: skip
def test_files_of_other_layouts_give_the_same_records(
    place: tuple[Cluster, str], name: str, text: str, words: list[str]
) -> None:
    cluster, topic = place
    packed = gzip.compress(text.encode()) if name.endswith(".gz") else text.encode()
    Path(name).write_bytes(packed)
    code, out, err = typed("produce", name, topic, *words)
    assert code == 0 and "3 records written" in out, err
    found = [json.loads(m.value()) for m in cluster.read(topic, 0)]
    times = ["2019-03-01T00:00:01", "2019-03-02T12:00:00", None]
    assert [(r["trip"], r["t"]) for r in found] == list(zip("abc", times, strict=True))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--append", "--resume"], "not both"),
        (["--delimiter", "::"], "one sign"),
        (["--no-header"], "go together"),
        (["--columns", "a,b"], "go together"),
        (["--no-header", "--columns", "a,,b"], "empty name"),
        (["--resume"], "does not exist: leave out --resume"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    place: tuple[Cluster, str], words: list[str], said: str
) -> None:
    cluster, topic = place
    code, _, err = typed("produce", "trips.csv", topic, *words)
    assert code == 2 and said in " ".join(err.split()) and not cluster.partitions(topic)


def test_a_frame_is_loaded_once_and_goes_on(place: tuple[Cluster, str]) -> None:
    cluster, topic = place
    times = pd.to_datetime(["2019-03-01 00:00:01.5", "2019-03-02 12:00:00.0", None])
    frame = pd.DataFrame({"trip": ["a", "b", "c"], "zone": ["x", None, "z"], "t": times})
    frame["zone"] = frame["zone"].astype("category")
    done = produce(frame, topic)
    assert (done.created, done.records, done.unusable, done.before) == (True, 3, 1, 0)
    again = produce(frame, topic, resume=True)
    assert (again.created, again.records, again.before) == (False, 0, 3)
    found = list(cluster.read(topic, 0))
    assert [json.loads(m.value())["zone"] for m in found] == ["x", None, "z"]
    assert [m.timestamp()[1] for m in found][:2] == [1_551_398_401_500, 1_551_528_000_000]
    with pytest.raises(ConfigError, match="as it is now, was never begun"):
        produce(frame[::-1], topic, resume=True)
    with pytest.raises(ParameterError, match="frame of pandas, Polars or Arrow"):
        produce(7, topic)


LINES = 30_000


def _started(topic: str, *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "hushstream", "produce", "long.jsonl", topic, *words]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ
    )


def _ended_after(
    cluster: Cluster, topic: str, running: subprocess.Popen[str], more: int, how: signal.Signals
) -> str:
    """End a run once the topic holds some more records; return its output."""
    until = time.monotonic() + 120
    begin = cluster.offsets.written(topic, 0) if cluster.partitions(topic) else 0
    while not cluster.partitions(topic) or cluster.offsets.written(topic, 0) < begin + more:
        assert time.monotonic() < until and running.poll() is None
    running.send_signal(how)
    _, said = running.communicate(timeout=120)
    assert running.returncode in (-how, 130), said
    return said


def test_what_was_interrupted_and_killed_goes_on_with_each_line_once(
    place: tuple[Cluster, str],
) -> None:
    cluster, topic = place
    rows = [{"trip": f"u{n}", "zone": "Ost", "t": "2019-03-01T00:00:01"} for n in range(LINES)]
    path = Path("long.jsonl")
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    said = _ended_after(cluster, topic, _started(topic), 6_000, signal.SIGINT)
    done = len(list(cluster.read(topic, 0)))
    assert 0 < done < LINES
    assert f"{done:,} of {LINES:,} records are written" in said and "--resume" in said
    code, _, err = typed("produce", "long.jsonl", topic, "--append")
    assert code == 2 and f"{done:,} of the {LINES:,} rows" in err and "--resume" in err
    _ended_after(cluster, topic, _started(topic, "--resume"), 3_000, signal.SIGKILL)
    whole = path.read_text()
    path.write_text(whole.replace("Ost", "Alt"))
    code, _, err = typed("produce", "long.jsonl", topic, "--resume")
    assert code == 2 and "it has changed since" in err
    path.write_text(whole)
    code, out, err = typed("produce", "long.jsonl", topic, "--resume", "--json")
    assert code == 0, err
    told = json.loads(out)
    assert done <= told["before"] and 0 < told["records"] == LINES - told["before"]
    assert [json.loads(m.value()) for m in cluster.read(topic, 0)] == rows
    assert typed("produce", "long.jsonl", topic, "--resume")[1].endswith("were written before\n")
    assert cluster.offsets.ends(topic, 1) >= [LINES]


def test_rows_of_a_topic_that_was_deleted_do_not_count(place: tuple[Cluster, str]) -> None:
    cluster, topic = place
    assert typed("produce", "trips.csv", topic)[0] == 0
    cluster.delete([topic])
    while cluster.partitions(topic):
        time.sleep(0.1)
    cluster.create([TopicSpec(topic, 1, {}, False, "of a test")], 1)
    code, _, err = typed("produce", "trips.csv", topic, "--resume")
    assert code == 2 and "the topic is a new one" in " ".join(err.split())
    assert typed("produce", "trips.csv", topic, "--append")[0] == 0
    assert len(list(cluster.read(topic, 0))) == 3
