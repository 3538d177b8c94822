"""A crash loop: retention has deleted unused records, and a worker is restarted repeatedly.

Nothing may be charged, and no worker may be ready. Once the loss is accepted, work resumes.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from _cluster import Local, local
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from hushstream.agents.clock.genesis import read_ledger
from hushstream.deploy.process import Child

TOML = """
[deployment]
name = "loop"
[engine]
units_partitions = 1
cells_partitions = 1
session_timeout = "6s"
transaction_timeout = "10s"
settle = "1s"
[[input]]
name = "loop"
topic = "loop-events"
unit = "user"
partitioner = "none"
time = { field = "t", format = "epoch_us" }
[[pipeline]]
name = "loop"
input = "loop"
key = ["page"]
public_keys = [["a"], ["b"]]
window = { length = "4s", origin = "2019-03-01T00:00:00Z" }
triggers = { every = "4s" }
budget = { epsilon = 8.0, delta = 1e-4 }
mechanism = { kind = "histogram", budget = 4 }
"""
PATIENCE = 180.0


def _charged(run: Local) -> int:
    return len(read_ledger(run.cluster, "loop").charges)


def _send(run: Local, number: int) -> None:
    now = int(time.time() * 1e6)
    run.publish("loop-events", [{"user": f"u{n}", "page": "a", "t": now} for n in range(number)])


def _accept(run: Local) -> int | None:
    command = [sys.executable, "-m", "hushstream", "accept-loss", "--yes", "-c", str(run.toml)]
    command += ["--bootstrap", run.bootstrap, "--set", f"engine.data_dir={run.folder / 'state'}"]
    child = Child(command, run.folder / "accept.log")
    child.wait(PATIENCE)
    return child.returncode


def loop(folder: Path, bootstrap: str, replicas: int = 1, starts: int = 4) -> dict[str, Any]:
    """Truncate the raw topic under a stopped worker, start it several times, accept the loss.

    Args:
        folder: folder of the deployment.
        bootstrap: address of the brokers.
        replicas: number of replicas of each topic.
        starts: number of starts of the worker.

    Returns:
        ``charged``: epochs charged by these starts; ``ready``: starts that became ready; ``codes``:
        exit codes; ``accepted``: exit code of the acceptance; ``released``: whether releases
        resumed.
    """
    with local(folder / "loop", bootstrap, TOML, {"loop-events": 1}, replicas) as run:
        run.loud = False
        run.start("w")
        run.wait_ready(["w"])
        _send(run, 20)
        run.wait_released(run.wait_triggers(2))
        run.stop("w")
        _send(run, 20)
        client = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        place = TopicPartition("loop-events", 0, 30)
        client.delete_records([place])[place].result(30)
        before, mark, codes = _charged(run), run.log("w").stat().st_size, list[int | None]()
        for _ in range(starts):
            child = run.start("w")
            child.wait(PATIENCE)
            codes.append(run.workers.pop("w").returncode)
        ready = run.log("w").read_bytes()[mark:].count(b"ready:")
        charged = _charged(run) - before
        accepted = _accept(run)
        fired = len(run.triggers())
        run.start("w")
        run.wait_released(run.wait_triggers(fired + 2))
        return {"charged": charged, "ready": ready, "codes": codes, "accepted": accepted,
                "released": True}  # fmt: skip
