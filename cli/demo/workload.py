"""The two streams of the demo: real taxi trips and synthetic clicks."""

from __future__ import annotations

import csv
import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...mechanisms.columns import F64, I64
from ...mechanisms.stated_shape import draw

DATA = Path(__file__).with_name("data")
MONTH = datetime(2019, 3, 1, tzinfo=UTC)
START = int(MONTH.timestamp() * 1e6)
HOUR, DAY, WEEK = 3_600_000_000, 86_400_000_000, 604_800_000_000  # microseconds
PAGES = 2_000


class Event(NamedTuple):
    """A raw record."""

    key: bytes | None
    value: bytes


Truth = dict[int, dict[str, float]]  # window -> key -> exact value


@dataclass(frozen=True)
class Replay:
    """One stream, cut at its pipelines' trigger times."""

    topic: str  # the raw topic
    pipelines: tuple[str, ...]  # the pipelines that read it
    step: int  # microseconds between triggers
    parts: tuple[list[Event], ...]  # records before each trigger, in event-time order
    truth: dict[str, Truth]  # per pipeline and window, exact number of records per key

    @property
    def size(self) -> int:
        """Number of records."""
        return sum(map(len, self.parts))


def trips() -> Replay:
    """All trips of the file, first the one from the month before, cut into 31 days."""
    with (DATA / "taxis.csv").open(newline="", encoding="utf-8") as file:
        rows = sorted(csv.DictReader(file), key=lambda row: row["pickup"])
    parts: list[list[Event]] = [[] for _ in range(31)]
    zones: Counter[str] = Counter()
    boroughs: dict[int, Counter[str]] = {week: Counter() for week in range(5)}
    for row in rows:
        since = _micros(row["pickup"]) - START
        parts[max(since // DAY, 0)].append(Event(None, _trip(row)))
        if since >= 0 and row["pickup_zone"]:
            zones[row["pickup_zone"]] += 1
        if since >= 0 and row["pickup_borough"]:
            boroughs[since // WEEK][row["pickup_borough"]] += 1
    truth: dict[str, Truth] = {
        "zones": {0: dict(zones)},
        "boroughs": {week: dict(counts) for week, counts in boroughs.items()},
    }
    return Replay("trips", ("zones", "boroughs"), DAY, tuple(parts), truth)


def _micros(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1e6)


def _trip(row: dict[str, str]) -> bytes:
    """A trip as JSON; empty fields of the file are left out."""
    given: dict[str, object] = {name: value for name, value in row.items() if value}
    return json.dumps(given | {"fare": float(row["fare"])}).encode()


def clicks(users: int) -> Replay:
    """Clicks of one day by ``users`` users on 2,000 pages, cut into 24 hours.

    The rule: a user clicks n ≥ 1 times with probability proportional to (n - 1 + 26)^-6.738, n ≤
    100,000, the activity law of Zhang et al., "Differentially Private Stream Processing at Scale"
    (2023); the page of rank r is chosen with probability proportional to 1/r; times are uniform
    over the day. Everything derives from one expanded hash, so every run replays the same clicks.
    """
    activity: F64 = np.asarray((np.arange(100_000) + 26.0) ** -6.738, np.float64)
    each = 1 + draw(activity, _uniform(b"activity", users))
    user = np.repeat(np.arange(users), each)
    page = draw(1 / np.arange(1.0, PAGES + 1), _uniform(b"pages", len(user)))
    time = np.sort((_uniform(b"times", len(user)) * (DAY // 1000)).astype(np.int64))
    user = user[np.argsort(_uniform(b"order", len(user)))]
    counts = np.bincount(page, minlength=PAGES).tolist()
    truth = {f"page-{rank:04d}": float(n) for rank, n in enumerate(counts, 1) if n}
    edges = np.searchsorted(time, np.arange(25) * (HOUR // 1000))
    parts = tuple(
        list(_clicks(user[a:b], page[a:b], time[a:b])) for a, b in pairwise(edges.tolist())
    )
    return Replay("clicks", ("clicks",), HOUR, parts, {"clicks": {0: truth}})


def _clicks(user: I64, page: I64, time: I64) -> Iterator[Event]:
    millis = (time + START // 1000).tolist()
    for who, rank, when in zip(user.tolist(), page.tolist(), millis, strict=True):
        name = f"u{who}"
        yield Event(
            name.encode(),
            f'{{"user":"{name}","page":"page-{rank + 1:04d}","time":{when}}}'.encode(),
        )


def _uniform(label: bytes, size: int) -> F64:
    """(size,) public numbers in [0, 1) from a hash, the same on every machine."""
    words = hashlib.shake_256(b"hush demo|" + label).digest(8 * size)
    return np.frombuffer(words, "<u8") / 2.0**64 * (1 - 2.0**-53)
