"""Kafka Connect writes the latest topic into PostgreSQL, with the properties of the example.

This runs the properties of the examples and the query of their page.

Covers: agents/deployment/published/connect_sink.py
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hushstream.agents.deployment.published.connect_sink import sink_properties
from hushstream.deploy.broker import Broker
from hushstream.reading.client import read_releases

from ..servers.connect import Connect, Postgres, wait_for
from .local import local
from .test_outage import DAY, ORIGIN, TOML, publish

EXAMPLE = Path(__file__).parents[2] / "examples" / "connect"
pytestmark = [
    pytest.mark.broker,
    pytest.mark.slow,
    pytest.mark.skipif(bool(Postgres.missing()), reason=Postgres.missing() or "it is installed"),
]
README = (EXAMPLE / "README.md").read_text("utf-8")
FILE = """name={name}
connector.class=org.apache.kafka.connect.file.FileStreamSinkConnector
tasks.max=1
file={file}
"""
PUBLIC = 'key = ["page"]\npublic_keys = [["a"], ["b"], ["c"]]\n'


@pytest.mark.thorough
def test_the_table_is_the_latest_topic_and_tombstones_delete(
    empty_broker: Broker, tmp_path: Path
) -> None:
    text = TOML.replace('key = ["page"]\n', PUBLIC)
    worker = (EXAMPLE / "worker.properties").read_text()
    with (
        local(tmp_path / "hush", empty_broker.bootstrap, text, {"events": 1}) as run,
        Postgres() as database,
    ):
        (p,) = run.deployment.pipelines
        sink = sink_properties(p, database.url, "pages")
        worker = worker.replace("localhost:9092", empty_broker.bootstrap)
        publish(run, 0)
        run.start("w")
        run.wait_ready(["w"])
        run.trigger(ORIGIN + DAY // 2)
        run.wait_released(run.wait_triggers(1))
        with Connect(tmp_path / "connect", worker, sink) as connect:
            run.trigger(ORIGIN + DAY)
            run.wait_released(run.wait_triggers(2))
            columns = "key_page, values_count_value, values_count_low, trigger, final, window_start"
            query = f"select {columns} from pages order by key_page"

            def table() -> list[list[str]]:
                found = database.ask("select count(*) from pg_tables where tablename = 'pages'")
                return database.ask(query) if found == [["1"]] else []

            wait_for(lambda: [r[3] for r in table()] == ["2"] * 3, "the table", connect.tail)
            latest = read_releases(empty_broker.bootstrap, "p", which="latest").sort_by("page")
            expected = latest.to_pylist()
            for row, one in zip(table(), expected, strict=True):
                assert row[0] == one["page"] and row[4] == ("t" if one["final"] else "f")
                assert float(row[1]) == one["count"] and float(row[2]) == one["count_low"]
                assert row[5] == f"{one['window_start']:%Y-%m-%d %H:%M:%S}"
            (statement,) = re.findall(r"^ +(select .*?;)", README, re.M | re.S)
            shown = database.ask(statement.replace("product", "page").replace("purchases", "pages"))
            assert [row[1] for row in shown] == ["a", "b", "c"]
            assert [float(row[2]) for row in shown] == [one["count"] for one in expected]
            producer = run.producer()
            (identity,) = database.ask("select id from pages where key_page = 'b'")
            producer.produce(p.latest_topic, None, key=identity[0].encode(), partition=0)
            producer.flush(120)
            wait_for(lambda: [r[0] for r in table()] == ["a", "c"], "the deletion", connect.tail)
        assert run.stop("w") == 0


@pytest.mark.thorough
def test_the_other_examples_read_both_topics(empty_broker: Broker, tmp_path: Path) -> None:
    plain, rows = ((EXAMPLE / f"{name}.properties").read_text() for name in ("plain", "rows"))
    plain = plain.replace("hush.purchases.", "hush.p.")
    worker = (EXAMPLE / "worker.properties").read_text()
    with local(tmp_path / "hush", empty_broker.bootstrap, TOML, {"events": 1}) as run:
        worker = worker.replace("localhost:9092", empty_broker.bootstrap)
        publish(run, 0)
        run.start("w")
        run.trigger(ORIGIN + DAY)
        run.wait_released(run.wait_triggers(2))
        assert run.stop("w") == 0
        bodies = run.releases("p")
        number = sum(body["schema"] == "hush.release/2" for body in bodies)
        assert 0 < number < len(bodies)
        both = plain.replace("hush.p.latest.v1", "hush.p.releases.v1")
        for name, sink, wanted in (
            ("latest", plain, number),  # nothing is compacted yet
            ("all", both, len(bodies)),
            ("rows", both + rows, number),
        ):
            file = tmp_path / f"{name}.txt"
            sink += FILE.format(name=name, file=file)  # each name is its own group
            with Connect(tmp_path / name, worker, sink) as connect:

                def lines(file: Path = file) -> list[str]:
                    return file.read_text().splitlines() if file.exists() else []

                wait_for(lambda: len(lines()) >= wanted, name, connect.tail)  # noqa: B023
                assert len(lines()) == wanted
                assert any("nonce=" in line for line in lines()) == (name == "all")
