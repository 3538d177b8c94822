"""A window without a stated end on the real broker, past the part that is computed at once."""

from __future__ import annotations

import pytest
from hushstream.deploy.broker import Broker
from hushstream.offline.replay import replay
from hushstream.topics.config.toml.values import parse_instant

from ..judge.topics import deployment as judgement
from .local import local

HOUR = 3_600_000_000
ORIGIN = parse_instant("2019-03-01T00:00:00Z")
TOML = """
[deployment]
name = "for-ever"
[engine]
cells_partitions = 2
units_partitions = 2
session_timeout = "3s"
transaction_timeout = "10s"
[[input]]
name = "events"
topic = "events"
unit = "user"
partitioner = "none"
time = { field = "t", format = "epoch_us" }
[[pipeline]]
name = "pages"
input = "events"
key = ["page"]
window = { endless = true, origin = 2019-03-01T00:00:00Z }
triggers = { every = "1h" }
schedule = "external"
budget = { epsilon = 8.0, delta = 1e-4 }
mechanism = { kind = "histogram", budget = 4 }
"""
STOPS = (2, 66, 70)  # the second is past the part that is computed at first
USERS = 200

pytestmark = [pytest.mark.broker, pytest.mark.thorough]


def test_a_window_goes_on_beyond_what_was_foreseen_whatever_is_killed(
    empty_broker: Broker, tmp_path
):
    with local(tmp_path, empty_broker.bootstrap, TOML, {"events": 2}) as run:
        for number, stop in enumerate(STOPS):
            name, time = f"w{number}", ORIGIN + stop * HOUR - HOUR // 2
            events = [{"user": f"{number} {n}", "page": "abc"[n % (2 + number % 2)], "t": time}
                      for n in range(USERS)]  # fmt: skip
            run.publish("events", events)
            run.start(name)
            run.wait_ready([name])
            run.trigger(ORIGIN + stop * HOUR)
            run.wait_released(run.wait_triggers(stop), 300)
            run.kill(name)
        outcome = replay(run.config())
        assert outcome.agrees and outcome.compared, outcome.problems
        (judged,) = judgement(run.bootstrap, run.toml, run.secret).values()
        assert judged.triggers == STOPS[-1] and not judged.objections, judged
        rows = run.releases("pages")
        manifests = [row for row in rows if "key" not in row]
        assert {row["trigger"] for row in manifests} == set(range(1, STOPS[-1] + 1))
        assert not any(row["final"] for row in manifests)
        last = {row["key"]["page"]: row["values"]["count"]["value"] for row in rows
                if "key" in row and row["trigger"] == STOPS[-1]}  # fmt: skip
        assert set(last) == {"a", "b", "c"}
        assert abs(sum(last.values()) - len(STOPS) * USERS) < USERS / 2, last
