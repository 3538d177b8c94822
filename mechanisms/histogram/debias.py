"""Estimate the share of records that the contribution bound cuts off, and scale values back.

Four counters run over all keys: records that arrived and records that were accepted, each split by
whether their key was public already (V) or not (S). They are released through the same
factorisation as everything else, with a small share of the budget. A key's count is then scaled by
arrived/accepted over its own S and V interval.

The estimate assumes that the bound cuts off the same share of every key's records: where heavy
users prefer certain keys, those are scaled too little and others too much. It removes bias on
average, not truncation of a particular key, and makes noise larger by the same factor.

Every aggregate shard needs all four counters for its own keys and draws their noise under its own
nonces. So each shard releases them once, an independent look at the same counts, and each look is
paid for. A row uses the counters only as a factor; but since the looks are paid for in full, sums
of the counters over S and V are published as well (`Debias.told`), from the same draws: they give
the share of records that the bound cut.

Sensitivity: at most ``cap`` records of one unit are counted as arrived, S and V together, and of
these at most ``most`` can be accepted; both are sums over triggers, so the two pairs of counters
have squared sensitivities cap² and most² per squared column norm of C, in every look.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..columns import F64, I64, Counted, Units
from ..contract import Noise, Stated
from ..factorization.prefix_noise import STEPS, Process
from ..keys import Keys
from ..parts.bounds.bounding import RESERVED, ranks

SHARED = Keys.of([b""])
"""The row that holds the exact totals; no record may have this key."""

COUNTERS = 4  # arrived S, arrived V, accepted S, accepted V
_LARGEST = 64.0  # a larger estimate would be noise


class Raw(NamedTuple):
    """Unit state split into pairs and the number of counted records of each unit."""

    units: Units
    counted: I64  # (u,)


@dataclass(frozen=True)
class Debias:
    """The counters of one histogram.

    Attributes:
        cap: most records of one unit that are counted as arrived, per epoch.
        processes: noise of the counters, in the order of `COUNTERS`.
        looks: number of shards, each of which releases them with its own noise.
    """

    cap: int
    processes: tuple[Process, ...]
    looks: int = 1

    def count(self, raw: I64, unit: NDArray[np.intp]) -> tuple[I64, NDArray[np.bool_]]:
        """New (u,) counts and (n,) whether each record counts, wherever slices are cut."""
        counted = raw[unit] + ranks(unit, len(raw)) < self.cap
        return raw + np.bincount(unit[counted], minlength=len(raw)), counted

    def noisy(self, totals: I64, t: int, noise: Noise) -> I64:
        """(4,) released counters at trigger t; ``totals`` (4,) is exact."""
        zero = np.zeros(1, np.int64)
        steps = [int(one.at(noise, SHARED, t, zero)[0]) for one in self.processes]
        return totals + (np.array(steps, np.int64) + (STEPS + 1) // 2) // STEPS

    def told(self, rates: I64, t: int) -> Counted:
        """The counters over all keys from ``rates`` (4,), released at t; no further draws."""
        zero = np.zeros(1, np.int64)
        variance = [float(one.variance_at(t, zero)[0]) for one in self.processes]
        arrived, accepted = (int(rates[lane : lane + 2].sum()) for lane in (0, 2))
        return Counted(arrived, accepted, sum(variance[:2]), sum(variance[2:]), self.cap)

    def stated(self, unit: str) -> Stated:
        """State that releases contain the counters."""
        words = (
            "each release also states, with noise, how many records arrived and how many of them "
            f"the bound let through, of each {unit} at most {self.cap} in an epoch; ε and δ "
            "include both"
        )
        return Stated({}, words, counted=True)

    def factors(self, first: I64, now: I64, t: int) -> F64:
        """(r, 2) arrived/accepted of the lanes S and V, at least 1.

        Args:
            first: (r, 4) released counters at the end of the key's S interval.
            now: (4,) released counters at this trigger.
        """
        scale = np.zeros((len(first), 2))
        scale[:, 0] = self._ratio(first[:, 0], first[:, 2], t)
        scale[:, 1] = self._ratio(now[1] - first[:, 1], now[3] - first[:, 3], t)
        return scale

    def _ratio(self, arrived: I64, accepted: I64, t: int) -> F64:
        zero = np.zeros(1, np.int64)
        noise = float(self.processes[2].variance_at(t, zero)[0]) ** 0.5
        clear = accepted > 8 * noise  # below, the estimate would be mostly noise
        ratio = np.ones(len(accepted))
        ratio[clear] = arrived[clear] / accepted[clear]
        return np.clip(ratio, 1.0, _LARGEST)


def take_raw(units: Units) -> Raw:
    """Split off the counters, which are stored as the last pair of each unit."""
    kept = units.pair != RESERVED
    owner = np.repeat(np.arange(len(units.left)), np.diff(units.start))
    counted = np.zeros(len(units.left), np.int64)
    counted[owner[~kept]] = units.used[~kept, 0]
    start = np.concatenate([np.zeros(1, np.int64), np.cumsum(kept)])[units.start]
    return Raw(Units(units.left, start, units.pair[kept], units.used[kept]), counted)


def put_raw(raw: Raw) -> Units:
    """The inverse of `take_raw`."""
    units, some = raw.units, raw.counted > 0
    places = units.start[1:][some]
    used = np.zeros((len(places), units.used.shape[1]), np.uint16)
    used[:, 0] = raw.counted[some]
    start = units.start + np.concatenate([np.zeros(1, np.int64), np.cumsum(some)])
    pair = np.insert(units.pair, places, RESERVED)
    return Units(units.left, start, pair, np.insert(units.used, places, used, axis=0))
