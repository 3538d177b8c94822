"""A deployment of all mechanisms with views, and its load: visits, trips, reports of devices."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar

from _cluster import Local
from _load import BAD, HOUR, PARTITIONS, Load, home
from confluent_kafka import Consumer, Producer, TopicPartition
from hushstream.cli.planning.plan import describe
from hushstream.client import Budget, Client, ReportStore, Survey, published_threshold
from hushstream.client.survey import RANGE

HEAD = """
[deployment]
name = "six"
[secret]
signing_key_file = "hush-signing.key"
[engine]
units_partitions = 2
cells_partitions = 2
session_timeout = "3s"
transaction_timeout = "10s"

[[input]]
name = "visits"
topic = "visits"
unit = "user"
partitioner = "murmur2"
late = "topic"
time = { field = "t", format = "epoch_us" }

[[input]]
name = "members"
topic = "members"
unit = "user"
partitioner = "murmur2"
attributes_of = "visits"
time = { format = "record" }

[[input]]
name = "trips"
topic = "trips"
unit = "user"
late = "topic"
time = { field = "t", format = "epoch_us" }

[[input]]
name = "reports"
topic = "reports"
unit = "user"
late = "topic"
time = { field = "slot", format = "epoch_s" }
"""
COMMON = """
[[pipeline]]
name = "{name}"
input = "{input}"
unit_name = "user"
window = { length = "8h", origin = "2019-03-01T00:00:00Z" }
triggers = { every = "2h" }
schedule = "external"
budget = {budget}
"""
PAGES = """key = ["page"]
[pipeline.mechanism]
kind = "histogram"
"""
SPACE = """inputs = { x = "at.x", y = "at.y" }
[pipeline.mechanism]
kind = "{kind}"
{settings}
[pipeline.mechanism.domain]
depth = {depth}
split = "{split}"
axes = [{ name = "x", low = 0, high = 2 }, { name = "y", low = -1, high = 1 }]
"""
VALUES = """inputs = { value = "fare" }
aggregate = [{ kind = "sum", field = "fare", low = 0, high = 100 }]
[pipeline.mechanism]
kind = "{kind}"
slot = 3_600_000_000
slots_per_trigger = 2
origin = 1_551_398_400_000_000
expected = 400
"""
QUANTILES = """key = []
public_keys = "natural"
inputs = { value = "fare" }
[pipeline.mechanism]
kind = "quantile"
low = 0
high = 100
at = [0.1, 0.5, 0.9]
bands = 64
"""
DISTINCT = """key = ["page"]
aggregate = [{ kind = "distinct", field = "city" }]
"""
CONDITIONS = """key = []
public_keys = "natural"
[[pipeline.aggregate]]
kind = "count"
where = [{ field = "fare", below = 10 }]
[[pipeline.aggregate]]
kind = "sum"
field = "fare"
low = 0
high = 100
where = [{ field = "fare", at_least = 10 }]
"""
SPREADS = """key = []
public_keys = "natural"
[[pipeline.aggregate]]
kind = "variance"
field = "fare"
low = 0
high = 100
where = [{ field = "fare", below = 20 }]
[[pipeline.aggregate]]
kind = "stddev"
field = "fare"
low = 0
high = 100
sample = true
where = [{ field = "fare", at_least = 20 }]
"""
CHOICES = """key = []
public_keys = "natural"
derive.paid = { cases = [{ where = [{ field = "fare", below = 5 }], then = 2.5 },
  { where = [{ field = "at.x", above = 1 }], then = -1 }], field = "fare" }
[[pipeline.aggregate]]
kind = "count"
[[pipeline.aggregate]]
kind = "mean"
field = "paid"
low = -1
high = 50
grid = 0.5
"""
SESSIONS = """key = ["page"]
session = "1h"
lateness = "1h"
[[pipeline.aggregate]]
kind = "count"
[[pipeline.aggregate]]
kind = "mean"
field = "session_length"
low = 0
high = 7200
"""
MEMBERS = """key = ["tier", "page"]
derive = { tier = { attribute = "tier", otherwise = "none" } }
[[pipeline.aggregate]]
kind = "count"
[[pipeline.aggregate]]
kind = "count"
name = "near"
where = [{ field = "city", equals = "c1" }]
"""
HOPS = """key = ["page"]
[[pipeline.aggregate]]
kind = "count"
[[pipeline.aggregate]]
kind = "count"
name = "near"
where = [{ field = "city", equals = "c1" }]
"""
LOOKUP = """key = ["kind"]
public_keys = "natural"
aggregate = [{ kind = "count" }]
[pipeline.derive.kind]
field = "page"
lookup = "pages.csv"
take = "kind"
otherwise = "none"
"""
LEARNT = """
[[input]]
name = "arrivals"
topic = "arrivals"
unit = "user"
partitioner = "murmur2"
time = { format = "record" }

[[pipeline]]
name = "learnt"
input = "arrivals"
key = ["page"]
unit_name = "user"
window = { length = "10s" }
triggers = { every = "5s" }
budget = { epsilon = 4.0, delta = 1e-6 }
learn = { budget = 3, at = AT }
"""
LEARNS = 60  # seconds after the start from which the learnt bound holds
EIGHT_HOURS = 'length = "8h", origin = "2019-03-01T00:00:00Z"'
BERLIN = 'origin = "2019-02-28T23:00:00Z"'
TABLE = "page,kind\np1,front\np2,news\np3,news\np5,sport\n"
VIEWS = """
[[view]]
name = "tiers"
source = "members"
key = ["tier"]
values = [{ of = "count" }, { kind = "ratio", of = "near", over = "count" }]

[[view]]
name = "trend"
source = "lookup"
values = [{ of = "count" }, { kind = "change", of = "count" }, { kind = "running", of = "count" }]

[[view]]
name = "often"
source = "hops"
having = [{ field = "count", above = 20 }]
order = [{ by = "near", descending = true }]
limit = 3
"""
SURVEY = """aggregate = [{ kind = "mean", field = "minutes", low = 0, high = 240, grid = 0.001 }]
[pipeline.mechanism]
kind = "topl"
salt = "six"
reports = 2
period = 172_800
warmup = 3
share = "1/4"
buckets = 64
levels = 64
"""
CENTRAL = "{ epsilon = 4.0, delta = 1e-6 }"
CAPPED = CENTRAL[:-2] + ', per_unit = { epsilon = 6, delta = 1e-5, period = "1d" } }'
LOCAL = "{ epsilon = 8.0 }"
PIPELINES = {
    "rounds": ("visits", CENTRAL, PAGES + 'selection = "rounds"\n'),
    "users": ("visits", CAPPED, PAGES + "min_users = 3\n"),
    "debiased": ("visits", CAPPED, PAGES + 'factorization = "tree"\ndebias = true\n'),
    "phdstream": ("trips", CENTRAL, SPACE.replace("{depth}", "3").replace("{split}", "all")
                  .replace("{settings}", "bound = 2\nfloor = 2")),
    "privhp": ("trips", CENTRAL, SPACE.replace("{depth}", "8").replace("{split}", "binary")
               .replace("{settings}", "k = 16")),
    "pak": ("trips", CENTRAL, VALUES),
    "tops": ("trips", CENTRAL, VALUES),
    "topl": ("reports", LOCAL, SURVEY),
    "quantiles": ("trips", CAPPED, QUANTILES),
    "distinct": ("visits", CENTRAL, DISTINCT),
    "conditions": ("trips", CENTRAL, CONDITIONS),
    "hops": ("visits", CENTRAL, HOPS),
    "lookup": ("visits", CENTRAL, LOOKUP),
    "spreads": ("trips", CENTRAL, SPREADS),
    "choices": ("trips", CENTRAL, CHOICES),
    "sessions": ("visits", CENTRAL, SESSIONS),
    "members": ("visits", CENTRAL, MEMBERS),
}  # fmt: skip


def toml(folder: Path) -> str:
    """The configuration for a folder; its lookup table is written there."""
    (folder / "pages.csv").write_text(TABLE)
    parts = [HEAD]
    for name, (source, budget, more) in PIPELINES.items():
        text = COMMON.replace("{input}", source).replace("{budget}", budget) + more
        if name in ("hops", "members"):
            text = text.replace('length = "8h"', 'length = "8h", hop = "2h"')
        if name == "choices":  # of the calendar
            text = text.replace(EIGHT_HOURS, 'length = "1 day", zone = "Europe/Berlin", ' + BERLIN)
        if name == "topl":  # a device waits for its window's range and threshold
            text = text.replace('length = "8h"', 'length = "2d"')
        parts.append(text.replace("{name}", name).replace("{kind}", name))
    return "".join([*parts, LEARNT.replace("AT", boundary()), VIEWS])


def boundary() -> str:
    """Start of the learnt bound: at the end of a window, since learning begins with none."""
    at = (int(time.time()) + LEARNS) // 10 * 10
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Six(Load):
    """Visits and attributes of users, trips of users who travel once, devices' reports."""

    TOPICS: ClassVar = dict.fromkeys(
        ("visits", "members", "trips", "reports", "arrivals"), PARTITIONS
    )

    def __init__(self, local: Local, *pace: Any) -> None:
        super().__init__(local, *pace)
        self._devices = Devices(local)

    def _some(self, producer: Producer, number: int) -> None:
        for _ in range(number):
            self._visit(producer)
            self._trip(producer)
            if self._random.random() < 0.1:
                self._member(producer)
            if self._random.random() < 0.2:
                self._arrival(producer)
        if self._random.random() < number / 20:
            self._report(producer)
        producer.poll(0)

    def _value(self, body: dict[str, Any]) -> bytes:
        return json.dumps(body).encode() if self._random.random() > 0.003 else BAD

    def _time(self) -> int:
        return self.now - int(self._random.expovariate(1) * HOUR / 2)

    def _visit(self, producer: Producer) -> None:
        user = self._random.choice(self._users)
        page = f"p{min(int(self._random.paretovariate(0.8)), 40)}"
        city = f"c{min(int(self._random.paretovariate(0.5)), 200)}"
        body = {"user": user, "page": page, "city": city, "t": self._time()}
        producer.produce("visits", self._value(body), user, partition=home(user))
        self.sent += 1

    def _arrival(self, producer: Producer) -> None:
        """A visit timed by its record, since the learnt bound's boundary follows the clock."""
        user = self._random.choice(self._users)
        body = {"user": user, "page": f"p{min(int(self._random.paretovariate(0.8)), 40)}"}
        producer.produce("arrivals", self._value(body), user, partition=home(user))
        self.sent += 1

    def _member(self, producer: Producer) -> None:
        user = self._random.choice(self._users)
        told = {"user": user, "tier": self._random.choice(("basic", "plus", None))}
        value = None if self._random.random() < 0.1 else self._value(told)  # None removes it
        producer.produce("members", value, user, partition=home(user))

    def _trip(self, producer: Producer) -> None:
        choose = self._random
        place = {"x": 2 * choose.betavariate(1, 6), "y": 2 * choose.betavariate(1, 6) - 1}
        fare = round(choose.expovariate(1 / 12), 2)
        body = {"user": f"t{self._seed}.{self.sent}", "t": self._time(), "at": place, "fare": fare}
        home_ = choose.randrange(PARTITIONS - 1)
        producer.produce("trips", self._value(body), partition=home_)
        self.sent += 1

    def _report(self, producer: Producer) -> None:
        device, minutes = f"d{self._seed}.{self.sent}", self._random.gammavariate(3, 12)
        made = self._devices.report(device, self._time(), minutes)
        if made is not None:
            value = made if self._random.random() > 0.01 else BAD
            for _ in range(1 + (self._random.random() < 0.1)):  # some are sent twice
                producer.produce("reports", value, partition=self._random.randrange(2))
                self.sent += 1


class Devices:
    """Clients that learn thresholds from the release topic, as devices do."""

    def __init__(self, local: Local) -> None:
        pipeline = next(p for p in local.deployment.pipelines if p.name == "topl")
        self._survey = Survey.from_json(json.dumps(describe(pipeline)["survey"]))
        self._told: list[bytes] = []
        self._releases = Consumer(
            {"bootstrap.servers": local.bootstrap, "group.id": "devices", "log_level": 0,
             "enable.auto.commit": False}
        )  # fmt: skip
        self._releases.assign([TopicPartition(pipeline.release_topic, 0, 0)])

    def report(self, user: str, time: int, minutes: float) -> bytes | None:
        """A report for an hour; None if no threshold was published for its group yet."""
        slot = time // HOUR * 3600
        theta, group = None, self._survey.group(user)
        if group != RANGE and (theta := self._theta(slot, group)) is None:
            return None
        with ReportStore(":memory:", Budget(Fraction(100))) as store:
            return Client(self._survey, store).report(user, slot, minutes, theta)

    def _theta(self, slot: int, group: int) -> int | None:
        while (message := self._releases.poll(0)) is not None:
            if message.error() is None and b"hush.manifest/" in message.value():
                self._told = [*self._told[-20:], message.value()]
        told = reversed(self._told)
        found = (published_threshold(body, self._survey, slot, group) for body in told)
        return next((theta for theta in found if theta), None)
