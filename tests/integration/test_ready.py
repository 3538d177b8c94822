"""A worker reports within a stated time that no broker answers, and takes no harm from it."""

from __future__ import annotations

import signal
import time

import pytest
from hushstream.agents.worker.health.state import ANSWER_SECONDS
from hushstream.deploy.broker import Broker
from hushstream.deploy.settings import free_port

from .local import BROKER, local
from .test_leaderless import status, until
from .test_outage import TOML, publish

pytestmark = pytest.mark.broker

SLACK = 10.0  # for a busy machine
HOW = {"dead": signal.SIGKILL, "silent": signal.SIGSTOP}
LONG = [pytest.param(how, 30, 10, marks=pytest.mark.thorough) for how in HOW]


@pytest.mark.thorough
@pytest.mark.thorough
@pytest.mark.parametrize("how, away, after", [("dead", 8, 3), *LONG])
def test_no_worker_is_ready_for_long_without_a_broker(tmp_path, how, away, after):
    """A task that waits for a broker's answer gives up after half a minute."""
    port = free_port()
    with (
        Broker(quiet=True, overrides=BROKER) as broker,
        local(tmp_path, broker.bootstrap, TOML, {"events": 1}) as run,
    ):
        publish(run, 0)
        run.settings = {"engine.public_port": str(port)}
        run.start("w")
        run.wait_ready(["w"])
        time.sleep(3)  # it answers more than once
        assert status(port, "/ready") == 200
        assert broker._child is not None
        broker._child.send(HOW[how])
        gone = time.monotonic()
        until(lambda: status(port, "/ready") == 503, run, 120)
        took = time.monotonic() - gone
        print(f"not ready {took:.1f} s after the broker was gone")
        assert took < ANSWER_SECONDS + SLACK
        while time.monotonic() - gone < away:
            assert (status(port, "/live"), status(port, "/ready")) == (200, 503)
            time.sleep(1)
        if how == "silent":
            broker._child.send(signal.SIGCONT)
        else:
            broker.kill()  # it has ended, and may start again
            broker.start()
        until(lambda: status(port, "/ready") == 200, run, 120)
        ready = time.monotonic()
        while time.monotonic() - ready < after:  # it stays so
            assert status(port, "/ready") == 200
            time.sleep(0.5)
        assert run.stop("w") == 0
