"""A survey under local privacy on the real broker: devices, retries, a worker that dies."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hushstream.agents.clock.genesis import read_ledger
from hushstream.cli.planning.plan import describe
from hushstream.client import Budget, Client, ReportStore, Survey, published_threshold
from hushstream.client.survey import RANGE, STEP, VALUE
from hushstream.mechanisms.topl.estimate import Buckets
from hushstream.mechanisms.topl.estimate import mean as topl_mean

from .local import Local, local
from .test_mechanisms import HOUR, ORIGIN, TRIGGERS, agrees, rows_of

pytestmark = pytest.mark.broker

SURVEY = """
[deployment]
name = "{name}"
[engine]
units_partitions = 2
session_timeout = "3s"
transaction_timeout = "10s"
[[input]]
name = "reports"
topic = "{name}-raw"
unit = "user"
time = {{ field = "slot", format = "epoch_s" }}
[[pipeline]]
name = "{name}-trips"
input = "reports"
unit_name = "user"
window = {{ length = "8h", origin = "2019-03-01T00:00:00Z" }}
triggers = {{ every = "2h" }}
schedule = "external"
budget = {{ epsilon = 8.0 }}
aggregate = [{{ kind = "mean", field = "minutes", low = 0, high = 240, grid = 0.001 }}]
[pipeline.mechanism]
kind = "topl"
salt = "{name}"
reports = 2
share = "1/4"
buckets = 64
levels = 64
rounds = 1
"""


class Devices:
    """Clients with one store, which learn the threshold from releases."""

    def __init__(self, run: Local, name: str = "") -> None:
        self.run = run
        (self.pipeline,) = [p for p in run.deployment.pipelines if name in ("", p.name)]
        described = describe(self.pipeline)  # `hush plan --json` publishes this for devices
        self.survey = Survey.from_json(json.dumps(described["survey"]))
        self.client = Client(self.survey, ReportStore(":memory:", Budget(Fraction(1_000_000))))
        self.minutes = np.random.default_rng(5).gamma(3, 12, 4000)
        self.made: list[dict[str, Any]] = []

    def theta(self) -> int | None:
        """The newest threshold of the release topic."""
        bodies = map(json.dumps, self.run.releases(self.pipeline.name))
        told = [published_threshold(body, self.survey) for body in bodies]
        return next((step for step in reversed(told) if step), None)

    def report(self, users: range, hour: int, group: int, theta: int | None = None) -> list[bytes]:
        """Reports about one hour, of those users that are in a group."""
        out = []
        for i in users:
            if self.survey.group(f"user {i}") == group:
                slot = ORIGIN // 1_000_000 + 3600 * hour
                out.append(self.client.report(f"user {i}", slot, float(self.minutes[i]), theta))
        self.made += map(json.loads, out)
        return out

    def expected(self, upto: int) -> Fraction:
        """The mean of so many distinct reports, in exact arithmetic."""
        fields = ("group", "theta", "code")
        columns = [np.array([r[name] for r in self.made[:upto]]) for name in fields]
        said, _ = topl_mean(self.survey, Buckets(*columns, np.ones(upto, np.int64)))
        assert said is not None
        return Fraction(round(said * 1000), 1000)


def test_client_made_reports_become_means_and_a_retry_counts_once(broker, unique, tmp_path):
    name = unique("l")
    raw = f"{name}-raw"
    text = SURVEY.format(name=name)
    with local(tmp_path / name, broker.bootstrap, text, {raw: 2}) as run:
        devices = Devices(run)
        run.start("one")
        early = devices.report(range(2000), 0, RANGE)
        run.publish(raw, early, 0)
        run.publish(raw, early[::3], 1)  # a retry: the same bytes again, in another partition
        run.trigger(ORIGIN + 2 * HOUR)
        run.wait_released(run.wait_triggers(1))
        first = len(devices.made)
        theta = devices.theta()
        assert theta is not None and 36 < devices.survey.threshold(theta) <= 240
        late = devices.report(range(2000), 3, VALUE, theta)
        run.publish(raw, [*late[:700], *late[:700], *foreign(devices)], 1)
        run.trigger(ORIGIN + 4 * HOUR)
        run.wait_triggers(2)
        run.kill("one")  # during the second trigger
        run.publish(raw, late[500:], 0)  # 200 of these are repeated
        run.trigger(ORIGIN + 8 * HOUR)
        run.start("two")
        run.wait_released(run.wait_triggers(TRIGGERS))
        assert run.stop("two") == 0
        check_survey(run, devices, first, theta)


def foreign(devices: Devices) -> list[Any]:
    """Reports that no client of this survey can have made: from another survey or group, with other
    outputs, with a threshold that was not published, or with a raw value."""
    base = devices.made[-1] | {"user": "nobody"}
    slot = base["slot"]
    valued = next(f"x{i}" for i in range(99) if devices.survey.group(f"x{i}") == VALUE)
    return [
        base | {"survey": base["survey"] ^ 1},
        base | {"theta": 65},
        base | {"user": valued, "theta": base["theta"] % 64 + 1},  # not published
        base | {"user": valued, "theta": base["theta"] % STEP},  # a wrong channel
        base | {"user": valued, "theta": base["theta"] % STEP + 3 * STEP},  # no such channel
        base | {"code": devices.survey.hybrid.outputs},
        base | {"user": valued, "group": RANGE, "theta": 0, "code": 0},
        {"user": "nobody", "slot": slot, "minutes": 1e6},
        b"{bad",
    ]


def check_survey(run: Local, devices: Devices, first: int, theta: int) -> None:
    """Every release is exactly the estimate from distinct reports, and is called local."""
    rows = sorted(rows_of(run, devices.pipeline.name), key=lambda row: row["trigger"])
    means = [row["values"]["mean"] for row in rows]
    both, every = first + 700, len(devices.made)
    told = [float(devices.expected(n)) for n in (first, both, every, every)]
    assert [mean["value"] for mean in means] == told
    assert 0.2 < means[-1]["stddev"] < 2.5
    assert abs(told[-1] - devices.minutes[:2000].mean()) < 8  # noise, and clipping at theta
    bodies = run.releases(devices.pipeline.name)
    manifests = [b for b in bodies if b["schema"] == "hush.manifest/2"]
    steps = [(b["public"]["theta"][0], b["public"]["channel"][0]) for b in manifests]
    assert {step + channel * STEP for step, channel in steps} == {theta}
    for body in manifests:
        privacy = body["privacy"]
        assert privacy["definition"] == "local" and privacy["neighbouring"] == "replace_value"
        assert (privacy["epsilon"], privacy["epsilon_report"], privacy["reports"]) == (8, 4, 2)
    (charge,) = read_ledger(run.cluster, run.config().deployment.name).charges.values()
    assert (charge.body["definition"], charge.body["epsilon_report"]) == ("local", "4")
    assert {report["definition"] for report in devices.made} == {"local"}
    agrees(run, 1)
