"""A broker that is away longer than any request's time-out: workers wait, or end with an error."""

from __future__ import annotations

import signal
import sys
import time

import pytest
from hushstream.deploy.broker import Broker
from hushstream.deploy.process import Child

from .local import BROKER, Local, buffered, local

DAY = 86_400_000_000
ORIGIN = 17956 * DAY  # 2019-03-01
SHORT = ("2s", 5.0)  # time-out of requests, and seconds that the broker is away
LONG = ("30s", 60.0)

TOML = """
[deployment]
name = "away"
[engine]
units_partitions = 1
cells_partitions = 1
session_timeout = "6s"
transaction_timeout = "10s"
[[input]]
name = "events"
topic = "events"
unit = "user"
partitioner = "none"
time = { field = "t", format = "epoch_us" }
[[pipeline]]
name = "p"
input = "events"
key = ["page"]
window = { length = "1d", origin = "2019-03-01T00:00:00Z" }
triggers = { every = "12h" }
schedule = "external"
budget = { epsilon = 8.0, delta = 1e-4 }
mechanism = { kind = "histogram", budget = 4 }
"""

pytestmark = pytest.mark.broker


def publish(run: Local, begin: int) -> None:
    run.publish(
        "events", [{"user": f"u{n}", "page": "a", "t": ORIGIN} for n in range(begin, begin + 50)]
    )


def beats(run: Local) -> int:
    return run.cluster.offsets.ends(run.names.clock, 1)[0]


def told(log: str, away: float) -> None:
    """The log has one line for each change of state, and no line of a library."""
    lines = log.splitlines()
    assert len([line for line in lines if "a broker does not answer" in line]) == 1, log
    assert len(lines) < 20 and "connect" not in log.replace("KafkaConnectionError", ""), log
    (over,) = [line for line in lines if "is released" in line]
    assert "window 2019-03-01T00:00:00Z to 2019-03-02T00:00:00Z is released, the last of 2" in over
    if away > SHORT[1]:
        (again,) = [line for line in lines if "answer again" in line]
        assert 0.8 * away < float(again.rsplit(" ", 2)[1]) < away + 60


@pytest.mark.parametrize("patience, away", [SHORT, pytest.param(*LONG, marks=pytest.mark.thorough)])
def test_beats_and_triggers_come_again_after_an_outage_and_a_long_one_is_given_up(
    tmp_path, patience, away
):
    with (
        Broker(quiet=True, overrides=BROKER) as broker,
        local(tmp_path, broker.bootstrap, TOML, {"events": 1}) as run,
    ):
        publish(run, 0)
        run.settings = {"kafka.request_timeout": patience}
        run.loud = False  # the log as an operator reads it
        run.start("w")
        run.wait_ready(["w"])
        run.trigger(ORIGIN + DAY // 2)
        run.wait_released(run.wait_triggers(1))
        broker.kill()
        time.sleep(away)
        broker.start()
        before = beats(run)
        publish(run, 50)
        run.trigger(ORIGIN + DAY)
        run.wait_released(run.wait_triggers(2))
        assert beats(run) > before
        assert run.workers["w"].returncode is None
        if away > SHORT[1]:
            until = time.monotonic() + 60
            while "the brokers answer again" not in run.log("w").read_text():
                assert time.monotonic() < until, run.tail("w")
                time.sleep(0.5)
        assert run.stop("w") == 0
        told(run.log("w").read_text(), away)

        # With less patience, it ends and says why.
        run.settings["kafka.outage_timeout"] = f"{away / 3:.0f}s"
        mark = run.log("w").stat().st_size
        run.start("w")
        until = time.monotonic() + 150
        while "ready:" not in run.log("w").read_text()[mark:]:
            assert time.monotonic() < until, run.tail("w")
            time.sleep(0.2)
        broker.kill()
        child = run.workers["w"]
        assert child.wait(150), run.tail("w")
        assert child.returncode == 4
        assert (
            f"no broker for {away / 3:.0f} s (kafka.outage_timeout)"
            in run.log("w").read_text()[mark:]
        )


@pytest.mark.thorough
def test_what_producers_held_during_an_outage_is_in_time(tmp_path):
    """Windows follow the wall clock, and a producer on librdkafka keeps sending."""
    with Broker(quiet=True, overrides=BROKER) as broker:
        found = buffered(tmp_path, broker)
    assert found["ended"] == [] and found["sent"] >= found["records"] > 2000, found
    assert found["late"] == 0, found
    assert 40 < found["delay"] < 120, found  # cuts of the outage, and of the wait after it


@pytest.mark.thorough
def test_a_worker_that_slept_through_a_trim_goes_on(empty_broker: Broker, tmp_path):
    """Another worker has its partitions meanwhile, and some come back to it."""
    text = TOML.replace('session_timeout = "6s"', 'session_timeout = "3s"')
    text = text.replace("cells_partitions = 1", "cells_partitions = 4")
    with local(tmp_path, empty_broker.bootstrap, text, {"events": 1}) as run:
        for member in ("a", "b"):
            run.start(member)
        run.wait_ready(["a", "b"])
        for at in (1, 2, 3):
            publish(run, 50 * at)
            run.trigger(ORIGIN + at * DAY // 2)
            run.wait_released(run.wait_triggers(at))
            if at < 3:  # a sleeps through the second trigger and some trims
                asleep = run.workers["a"]
                asleep.send(signal.SIGSTOP if at == 1 else signal.SIGCONT)
                time.sleep(8 if at == 1 else 20)
        time.sleep(20)  # a deleted record is given up after 30 s
        until = time.monotonic() + 150
        while "took this worker for dead" not in run.log("a").read_text():
            assert time.monotonic() < until, run.tail("a")
            time.sleep(0.2)
        for member in ("a", "b"):
            assert run.workers[member].returncode is None, run.errors(member)
        assert run.stop("a") == 0 and run.stop("b") == 0


def test_a_signal_while_a_worker_starts_ends_it_in_order(tmp_path):
    (tmp_path / "hush.key").write_text("ab" * 32)
    (tmp_path / "hush.key").chmod(0o600)
    (tmp_path / "hush.toml").write_text(TOML)
    command = [sys.executable, "-m", "hushstream", "worker", "-c", str(tmp_path / "hush.toml")]
    child = Child([*command, "--bootstrap", "127.0.0.1:9"], tmp_path / "log")  # no broker answers
    until = time.monotonic() + 150
    while "waiting for Kafka" not in (tmp_path / "log").read_text():
        assert time.monotonic() < until and child.returncode is None, (tmp_path / "log").read_text()
        time.sleep(0.2)
    child.send(signal.SIGTERM)
    assert child.wait(150) and child.returncode == 0, (tmp_path / "log").read_text()


def test_a_second_worker_on_a_folder_stops_before_it_touches_the_first(empty_broker, tmp_path):
    with local(tmp_path, empty_broker.bootstrap, TOML, {"events": 1}) as run:
        run.start("w")
        run.wait_ready(["w"])
        first, mark = run.workers.pop("w"), run.log("w").stat().st_size
        second = run.start("w")
        assert second.wait(150) and second.returncode == 4
        assert "another worker uses the folder" in run.log("w").read_text()[mark:]
        run.workers["w"] = first
        publish(run, 0)
        run.trigger(ORIGIN + DAY // 2)
        run.wait_released(run.wait_triggers(1))
        assert "Fenced" not in run.log("w").read_text()
        assert run.stop("w") == 0
        said = [line.partition("[w] ")[2] for line in run.log("w").read_text().splitlines()]
        assert said[-2:] == ["stopping", "stopped"]
        assert not any(line.startswith("[^") for line in said)  # names of classes
