"""Raw records that were deleted before they were used: refused at once, and accepted by a person.

The commands are those of the runbook in docs/operations.md.

Covers: cli/loss.py
"""

from __future__ import annotations

import time
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from hushstream.agents.clock.genesis import read_ledger
from hushstream.agents.clock.ledger import LOST
from hushstream.deploy.broker import Broker

from ..cli.bench import typed
from .local import Local, local

DAY = 86_400_000_000
ORIGIN = 17956 * DAY  # 2019-03-01

TOML = """
[deployment]
name = "lost"
[engine]
units_partitions = 1
cells_partitions = 1
session_timeout = "6s"
transaction_timeout = "10s"
[[input]]
name = "events"
topic = "events"
unit = "user"
partitioner = "PARTITIONER"
time = { field = "t", format = "epoch_us" }
[[pipeline]]
name = "p"
input = "events"
key = ["page"]
public_keys = [["a"], ["b"]]
window = { length = "1d", origin = "2019-03-01T00:00:00Z" }
triggers = { every = "12h" }
schedule = "external"
budget = { epsilon = 8.0, delta = 1e-4 }
mechanism = { kind = "histogram", budget = 4 }
"""

pytestmark = pytest.mark.broker


def publish(run: Local, begin: int, day: int = 0) -> None:
    rows = [
        {"user": f"u{n}", "page": "a", "t": ORIGIN + day * DAY} for n in range(begin, begin + 50)
    ]
    run.publish("events", rows)


def hush(run: Local, *words: str) -> tuple[int, str]:
    """Run a command as an operator does."""
    state = f"engine.data_dir={run.folder / 'state'}"
    more = ("-c", str(run.toml), "--bootstrap", run.bootstrap, "--set", state)
    code, out, err = typed(*words, *more)
    return code, out + err


def cut(run: Local, offset: int) -> None:
    """Delete records, as retention does."""
    client = AdminClient({"bootstrap.servers": run.bootstrap, "log_level": 0})
    place = TopicPartition("events", 0, offset)
    client.delete_records([place])[place].result(30)


def ended(run: Local, member: str, mark: int) -> tuple[int | None, str]:
    child = run.workers.pop(member)
    assert child.wait(120), run.tail(member)
    return child.returncode, run.log(member).read_text()[mark:]


def charges(run: Local) -> int:
    return len(read_ledger(run.cluster, "lost").charges)


def released(run: Local) -> Any:
    return sorted((b["window"]["start"], b["trigger"]) for b in run.releases("p")
                  if b["schema"].startswith("hush.manifest"))  # fmt: skip


@pytest.mark.thorough
@pytest.mark.parametrize("partitioner", ["none", "murmur2"])
def test_lost_records_end_a_worker_before_it_owns_the_clock_until_they_are_accepted(
    empty_broker: Broker, tmp_path, partitioner: str
):
    text = TOML.replace("PARTITIONER", partitioner)
    with local(tmp_path, empty_broker.bootstrap, text, {"events": 1}) as run:
        run.start("w")
        run.wait_ready(["w"])
        publish(run, 0)
        run.trigger(ORIGIN + DAY // 2)
        run.wait_released(run.wait_triggers(1))
        code, said = hush(run, "accept-loss", "--yes")
        assert code == 4 and "nothing is lost" in said
        assert run.stop("w") == 0
        paid, genesis = charges(run), run.names

        # Retention deletes unused records, and a trigger waits.
        publish(run, 50)
        cut(run, 70)
        run.trigger(ORIGIN + 3 * DAY)
        mark = run.log("w").stat().st_size
        for _ in range(3):
            began = time.monotonic()
            run.start("w")
            code_of_worker, said = ended(run, "w", mark)
            assert code_of_worker == 4 and time.monotonic() - began < 60
            assert "events-0 were deleted before they were used" in said
            assert "hush accept-loss" in said and "70" not in said.split("hush: ")[-1]
            assert "ready:" not in said
        assert charges(run) == paid and len(run.triggers()) == 1

        # 1. The check reports it too. 2. Show what would be lost. 3. Accept it, once.
        code, said = hush(run, "check")
        assert code == 4 and "hush accept-loss" in said
        code, said = hush(run, "accept-loss")
        assert code == 0 and "nothing was written" in said and "epochs 0 to" in said
        assert hush(run, "check")[0] == 4
        code, said = hush(run, "accept-loss", "--yes")
        assert code == 0 and "accepted: the ledger says so" in said, said
        code, said = hush(run, "accept-loss", "--yes")
        assert code == 4 and "nothing is lost" in said
        code, said = hush(run, "check")
        assert code == 0, said

        # 4. The ledger has it, without an offset, and its chain is whole.
        ledger = read_ledger(run.cluster, "lost")
        (loss,) = ledger.losses
        assert ledger.format == LOST and loss["topic"] == "events"
        assert "70" not in str(sorted(loss["epochs"].items())) and len(loss["seal"]) == 64
        code, said = hush(run, "ledger", "show")
        assert code == 0 and "loss" in said
        assert hush(run, "ledger", "verify")[0] == 0

        # 5. Workers continue with the remaining records and new ones.
        run.start("w")
        run.wait_released(run.wait_triggers(6))
        assert len(released(run)) == 6
        publish(run, 100, day=3)
        run.trigger(ORIGIN + 4 * DAY)
        run.wait_released(run.wait_triggers(8))
        assert run.names == genesis
        assert run.stop("w") == 0
        assert charges(run) == 4
        # Another worker without a table finds the same.
        run.start("other")
        run.trigger(ORIGIN + 5 * DAY)
        run.wait_released(run.wait_triggers(10))
        assert run.stop("other") == 0
