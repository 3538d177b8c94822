"""A file that Hushstream has never seen: names, unit of time and values are drawn at random."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

DAYS, PEOPLE = 3, 3_000
UNITS = {"epoch_s": 1, "epoch_ms": 10**3, "epoch_us": 10**6}
SYLLABLES = (
    "ba",
    "du",
    "ki",
    "lo",
    "mer",
    "na",
    "pos",
    "qua",
    "ri",
    "sten",
    "tu",
    "vo",
    "xy",
    "zem",
)
PLACES = (("lon", "lat"), ("lng", "lat"), ("longitude", "latitude"))


@dataclass(frozen=True)
class Unseen:
    """A schema, and the numbers that a person would look for.

    Attributes:
        key, unit, value, time, place: names of fields.
        format: format of the times, as in a configuration.
        begin: first day, at midnight, UTC.
        counts: records of the first day, by key.
        records: total number of records.
    """

    key: str
    unit: str
    value: str
    time: str
    place: tuple[str, str]
    format: str
    begin: datetime
    counts: dict[str, int]
    records: int

    def day(self, number: int) -> str:
        """Midnight of a day, as ISO text."""
        return f"{self.begin + timedelta(days=number):%Y-%m-%dT%H:%M:%SZ}"


def unseen(path: Path, seed: int) -> Unseen:
    """Draw a schema, write a CSV file of it, and return what it is."""
    draw = np.random.default_rng(seed)
    names: list[str] = []
    while len(names) < 4:
        name = "".join(draw.choice(SYLLABLES, 3))
        if name not in names:
            names.append(name)
    place = PLACES[int(draw.integers(len(PLACES)))]
    prefix = "".join(draw.choice(SYLLABLES, 2))
    place = (f"{prefix}_{place[0]}", f"{prefix}_{place[1]}")
    format_ = str(draw.choice([*UNITS, "iso"]))
    begin = datetime(2019, 1, 1, tzinfo=UTC) + timedelta(days=int(draw.integers(1_000)))
    keys = ["".join(draw.choice(SYLLABLES, 4)).title() for _ in range(6)]
    rows, counts = [], dict.fromkeys(keys, 0)
    for day in range(DAYS):
        for person in range(PEOPLE):
            key = keys[min(int(draw.geometric(0.4)) - 1, len(keys) - 1)]
            counts[key] += day == 0
            at = begin + timedelta(days=day, seconds=int(draw.integers(86_400)))
            told = f"{at:%Y-%m-%dT%H:%M:%SZ}"
            if format_ in UNITS:
                told = str(int(at.timestamp()) * UNITS[format_])
            x = round(float(np.clip(draw.normal(10, 0.2), 9, 11)), 5)
            y = round(float(np.clip(draw.normal(50, 0.1), 49, 51)), 5)
            value = round(float(draw.gamma(3, 10)), 2)
            rows.append([f"{person:05}", key, value, told, x, y])
    fields = [names[0], names[1], names[2], names[3], *place]
    order = draw.permutation(len(fields)).tolist()
    with path.open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file)
        out.writerow([fields[n] for n in order])
        out.writerows([[row[n] for n in order] for row in rows])
    unit, key, amount, time = names
    return Unseen(key, unit, amount, time, place, format_, begin, counts, len(rows))
