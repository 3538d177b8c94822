"""Windows of 24 hours that hop by one, compared with 24 released hours that a reader adds up.

    python benchmarks/hopping.py [--quick] [--json]

Both have the same records, ε, δ and epoch of a day, and the defaults for a count of found keys. The
recipe is one pipeline of tumbling hours: a key's last 24 hours are the sum of the hours in which it
was released. Records have a law of keys, a daily rhythm, and users of whom some return to one key,
which costs hopping windows more. The windows of the third day, all of them full, are judged.

- ``keys``: released on average, by windows that hop and by the recipe, where a key counts that was
  released in any hour; ``keys_over_recipe``: their ratio.
- ``deviation_over_recipe``: of the noise of a window over that of 24 released hours, root mean
  squares over the windows of a day; ``least``: the least that any factorisation reaches with these
  epochs; ``longer_epochs``: the same ratio where both have epochs of more days.
- ``error_over_recipe``: root mean squares of errors against what was accepted, over all keys that
  either releases; a hidden key and a hidden hour are 0.
- ``accepted``: share of records that the bound lets through, of both.
- ``coverage``: share of intervals of 95 % that hold the exact count of accepted records, of listed
  keys; ``found_coverage``: of keys that are released because their noisy count is large;
  ``recipe_coverage``: of the recipe's sums, with the variances of the released hours added up.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from _workload import draw, law
from hushstream.mechanisms import catalogue
from hushstream.mechanisms.columns import FIRST, Hop, Releases
from hushstream.mechanisms.contract import Setting
from hushstream.mechanisms.histogram.hopping.mechanism import Hopping
from hushstream.mechanisms.histogram.keyed_sums import KeyedSums
from hushstream.mechanisms.histogram.settings import HistogramParameters
from hushstream.mechanisms.in_memory import Memory, feed, seed
from hushstream.mechanisms.keys import Keys
from hushstream.mechanisms.noise import STEADY, KeyedNoise
from hushstream.mechanisms.tables import UnitTable
from hushstream.mechanisms.workload import Workload
from numpy.typing import NDArray
from rich.console import Console

EPSILON, DELTA = Fraction(1), Fraction(1, 10**6)
HOURS, DAYS = 24, 3
LISTED = 2_000  # keys
REPEATED = 0.3  # share of records with their user's first key of the day
CERTAIN = 1.959964  # half width of a 95 % interval in standard deviations
Counts = NDArray[np.int64]


class Sample(NamedTuple):
    """Records of some days, hour by hour."""

    work: Workload
    ends: tuple[int, ...]  # records up to the end of each hour


class Side(NamedTuple):
    """Released and accepted counts of one method, for each hour and key."""

    shown: NDArray[np.bool_]
    value: Counts
    variance: NDArray[np.float64]
    accepted: Counts


def sample(users: int, number: int) -> Sample:
    """Visits of ``users`` users a day, half of them with more than one; a tenth as many keys."""
    rng = np.random.default_rng(number)
    keys = users // 10
    popular, rhythm = law(keys, 20, 1.3), 1 + 0.8 * np.sin(np.arange(HOURS) / HOURS * 2 * np.pi)
    units, pages, hours = [], [], []
    for day in range(DAYS):
        each = np.minimum(rng.geometric(0.5, users), 12)
        unit = np.repeat(np.arange(users, dtype=np.int32), each)
        page = draw(rng, popular, len(unit))
        first = np.repeat(np.cumsum(each) - each, each)
        page = np.where(rng.random(len(unit)) < REPEATED, page[first], page)
        hour = draw(rng, rhythm / rhythm.sum(), len(unit))
        order = np.argsort(hour + rng.random(len(unit)), kind="stable")
        units.append(unit[order])
        pages.append(page[order])
        hours.append(hour[order] + day * HOURS)
    hour = np.concatenate(hours)
    ends = np.searchsorted(hour, np.arange(HOURS * DAYS), side="right")
    work = Workload(np.concatenate(units), np.concatenate(pages), users, keys)
    return Sample(work, tuple(ends.tolist()))


def made(hops: int, days: int = 1) -> KeyedSums:
    """The mechanism for windows of ``hops`` hourly hops and epochs of ``days`` days."""
    setting = Setting(EPSILON, DELTA, 1, windows=HOURS * days, hops=hops)
    built = catalogue.build("histogram", HistogramParameters(), setting)
    assert isinstance(built, KeyedSums)
    return built


def noise(hour: int) -> KeyedNoise:
    return KeyedNoise(
        b"h" * 32, charge=bytes(32), mechanism="m", config=b"", pipeline="p",
        window=str(hour), nonces=STEADY,
    )  # fmt: skip


def releases(mechanism: KeyedSums, given: Sample) -> Iterator[tuple[Releases, Counts]]:
    """Release each hour; also give the accepted count of each key."""
    work, before, begin = given.work, None, 0
    units = UnitTable(mechanism.traits, work.users)
    for hour, end in enumerate(given.ends):
        place = hour % HOURS
        if not place:
            units = UnitTable(mechanism.traits, work.users)
        hop = Hop(place + 1, hour + 1) if mechanism.traits.carries else FIRST
        memory = Memory(
            mechanism, noise(hour), window=place, hop=hop, before=before, unit_tables=[units]
        )
        accepted = np.zeros(work.keys, np.int64)
        for part in feed(memory, work, slice(begin, end)):
            np.add.at(accepted, part.key.codes().astype(np.int64), part.sums[:, 0])
        yield memory.trigger(), accepted
        begin, before = end, memory if mechanism.traits.carries else None


def side(mechanism: KeyedSums, given: Sample) -> Side:
    """All hours of one method."""
    shape = (len(given.ends), given.work.keys)
    out = Side(
        np.zeros(shape, np.bool_), np.zeros(shape, np.int64), np.zeros(shape),
        np.zeros(shape, np.int64),
    )  # fmt: skip
    for hour, (found, accepted) in enumerate(releases(mechanism, given)):
        keys = found.key.codes().astype(np.int64)
        shown = np.flatnonzero(found.status > 0)
        out.shown[hour, keys[shown]] = True
        out.value[hour, keys[shown]] = found.value[shown, 0]
        out.variance[hour, keys[shown]] = found.variance[shown, 0]
        out.accepted[hour] = accepted
    return out


def last_day(hourly: NDArray[Any]) -> NDArray[Any]:
    """Sums of 24 hours, for each window that ends on the last day."""
    total = np.cumsum(hourly, axis=0)
    return np.asarray(total[-HOURS:] - total[-2 * HOURS : -HOURS])


def deviations(days: int) -> float:
    """Noise of hopping windows over that of 24 hours, for epochs of ``days`` days."""
    hops, recipe = made(HOURS, days), made(1, days)
    assert isinstance(hops, Hopping)
    own = float(np.sqrt((hops.deviations()[:, 0] ** 2).mean()))
    return own / float(recipe.error(1)[0]) / HOURS**0.5


def least(hops: int = HOURS, rounds: int = 2_000) -> float:
    """Lower bound on the deviation of windows over that of their hops added up.

    Epochs are as long as windows. For each j, an epoch answers the sum of its first j hops and the
    sum of all others: the rows of W. Let W = BC, where no column of C is longer than 1, and let q
    be a distribution over hops. Then the nuclear norm of W diag(√q) is at most |B| |C diag(√q)| <=
    |B| in Frobenius norms, and |B|² is the sum of the variances of n windows, each of which takes
    its end from one epoch and its beginning from the previous one. The recipe's variances add up to
    n². The bound holds for any B and C, even those that would need the future.

    Args:
        hops: n, the number of hops of a window.
        rounds: number of steps towards the best q; any q gives a bound.
    """
    first = np.tril(np.ones((hops, hops)))
    workload = np.vstack([first, 1 - first])
    q, bound = np.full(hops, 1 / hops), 0.0
    for _ in range(rounds):
        _, sizes, right = np.linalg.svd(workload * np.sqrt(q), full_matrices=False)
        bound = max(bound, float(sizes.sum()))
        q = np.sqrt(q * (right**2 * sizes[:, None]).sum(axis=0))
        q /= q.sum()
    return bound / hops


def listed(keys: int) -> float:
    """Coverage of windows of ``keys`` listed keys without records, over all places in an epoch."""
    names = Keys.of([b"%d" % number for number in range(keys)])
    setting = Setting(EPSILON, DELTA, 1, windows=HOURS, hops=HOURS, keys=tuple(names))
    mechanism = catalogue.build("histogram", HistogramParameters(), setting)
    before, inside = None, []
    for hour in range(2 * HOURS):
        memory = Memory(mechanism, noise(hour), hop=Hop(hour % HOURS + 1, hour + 1), before=before)
        if before is None:
            seed(memory, names)
        found, before = memory.trigger(), memory
        if hour >= HOURS:
            inside.append(covered(found.value[:, 0], found.variance[:, 0]))
    return float(np.mean(inside))


def rms(errors: NDArray[Any]) -> float:
    """Root of the mean square."""
    return float(np.sqrt((errors.astype(np.float64) ** 2).mean()))


def covered(gap: Counts, variance: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Whether the 95 % interval around a value with error ``gap`` holds the exact value."""
    return np.asarray(abs(gap) <= CERTAIN * np.sqrt(variance))


def measure(users: int, number: int = 11) -> dict[str, Any]:
    """All figures in the module's docstring."""
    given = sample(users, number)
    hops, hours = side(made(HOURS), given), side(made(1), given)
    day = slice(-HOURS, None)
    shown, released = hops.shown[day], last_day(hours.shown)
    away = hops.value[day] - last_day(hops.accepted)
    apart = last_day(hours.value) - last_day(hours.accepted)
    lost = np.where(shown, away, last_day(hops.accepted))
    either = shown | (released > 0)
    keys = [float(one.sum() / HOURS) for one in (shown, released > 0)]
    held = covered(away, hops.variance[day])
    summed = covered(apart, last_day(hours.variance))
    return {
        "keys_over_recipe": round(keys[0] / keys[1], 2),
        "deviation_over_recipe": round(deviations(1), 3),
        "least": round(least(), 3),
        "longer_epochs": {f"{days} days": round(deviations(days), 3) for days in (2, 7)},
        "error_over_recipe": round(rms(lost[either]) / rms(apart[either]), 3),
        "coverage": round(listed(LISTED), 4),
        "found_coverage": round(float(held[shown].mean()), 4),
        "recipe_coverage": round(float(summed[released > 0].mean()), 4),
        "keys": [round(one, 1) for one in keys],
        "accepted": [
            round(float(one.accepted.sum()) / len(given.work.unit), 3) for one in (hops, hours)
        ],
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="with 100,000 users")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    found = measure(100_000 if given.quick else 1_000_000)
    if given.json:
        print(json.dumps(found))
    else:
        Console().print(found)


if __name__ == "__main__":
    main()
