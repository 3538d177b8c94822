"""The last fault of a run, which no deployment survives: one of its topics is deleted."""

from __future__ import annotations

import random
import signal
import time
from typing import Any

from _cluster import Local
from confluent_kafka.admin import AdminClient

PATIENCE = 120.0  # seconds, for all workers to end
MOST = 60  # lines of errors that a worker may log; with `-v` there is no limit


def gone(run: Local, choose: random.Random) -> dict[str, Any]:
    """Delete a topic of the workers; each worker must stop, and one line must name the topic.

    Returns the topic's kind, the seconds until the last worker had ended, and complaints.
    """
    members = ["gone-1", "gone-2"]
    run.loud = False  # as an operator runs them: one line a minute for each cause
    for member in members:
        run.start(member)
    run.wait_ready(members, 600)
    sizes = {member: run.log(member).stat().st_size for member in members}
    client = AdminClient({"bootstrap.servers": run.bootstrap, "log_level": 0})
    base = run.names.base
    mine = sorted(t for t in client.list_topics(timeout=20).topics if t.startswith(f"{base}."))
    topic = choose.choice(mine)
    client.delete_topics([topic])[topic].result(30)
    began = time.monotonic()
    wrong: list[str] = []
    for member in members:
        child = run.workers.pop(member)
        ended = child.wait(max(1.0, began + PATIENCE - time.monotonic()))
        said = run.log(member).read_bytes()[sizes[member] :].decode(errors="replace")
        if not ended:
            wrong.append(f"{member} did not stop after {topic} was deleted")
            child.send(signal.SIGKILL)
        elif child.returncode not in (3, 4):
            wrong.append(f"{member} ended with {child.returncode} after {topic} was deleted")
        elif not any(
            topic in line for line in said.splitlines() if "hush:" in line or " ERROR " in line
        ):
            wrong.append(f"{member} does not say that {topic} is gone: {said[-300:]}")
        elif len(errors := [x for x in said.splitlines() if " ERROR " in x]) > MOST:
            wrong.append(f"{member} needs {len(errors)} lines of errors")
    return {"topic": topic.removeprefix(base), "seconds": round(time.monotonic() - began, 1),
            "wrong": wrong}  # fmt: skip
