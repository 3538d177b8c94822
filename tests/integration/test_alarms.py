"""Mass loss is reported in words, but only where everyone who reads them may see raw data."""

from __future__ import annotations

import json
import time

import pytest
from hushstream.deploy.broker import Broker

from .local import local
from .test_outage import ORIGIN, TOML

pytestmark = pytest.mark.broker


@pytest.mark.thorough
def test_a_producer_with_another_partitioner_raises_an_alarm(empty_broker: Broker, tmp_path):
    """The producer is librdkafka with its defaults, but the input declares `murmur2`."""
    text = TOML.replace('partitioner = "none"', 'partitioner = "murmur2"')
    with local(tmp_path, empty_broker.bootstrap, text, {"events": 4}) as run:
        run.start("w")
        run.wait_ready(["w"])
        producer = run.producer()
        for n in range(1_000):
            user = f"user-{n}"
            value = json.dumps({"user": user, "page": "a", "t": ORIGIN}).encode()
            producer.produce("events", value, key=user.encode())
            producer.poll(0)
        assert producer.flush(150) == 0
        until = time.monotonic() + 150
        while not (found := list(tmp_path.rglob("alarms.log"))):
            assert time.monotonic() < until, run.tail("w")
            time.sleep(0.5)
        (line,) = found[0].read_text().splitlines()
        assert found[0].parent == run.data("w")
        assert "pipeline p: more than 0.1 of its records" in line
        assert 'librdkafka use "crc32"' in line
        assert "crc32" not in run.log("w").read_text()
        assert run.stop("w") == 0
