"""Ideas for finding more keys: histograms that `ideas.py` compares with the product's.

All have the product's guarantee: neighbours differ by all records of one unit; all releases of all
windows of an epoch together are (ε, δ)-close, by μ-GDP for the noise and δ for key selection.

*soft*: records are weighted instead of accepted or refused. A record of a hidden key counts as
f/grid of a record, for an integer f ≥ ``least``. With m the unit's earlier weight in that key, f is
the largest for which ``(m + f)² - m²`` costs at most the share ``rest`` of what the unit has left;
it is ``least`` if only that can be paid, even beyond this share. Sensitivity: weights depend only
on the unit's own past and on released keys. Lane S counts in 1/grid and prices are integers, so
Σ m_S² + w² Σ m_V² ≤ Q holds exactly on every path, as with whole records. By the triangle
inequality a unit shifts lane S of a key by at most m_S times the largest column norm of C, however
its weights are spread over time. Charge: the same μ² for the same Q. Selection: the statement of
`thresholds.key_selection` holds for every m that a unit can have in a key it has touched, here
``least``, ``least`` + 1, … parts. Thresholds are the maximum over these, so tiny weights are not
free.

*apart*: lane S, which finds keys, has one factorisation, and lane V, which has the records of
public keys, another. Sensitivity: the noises are independent, so the squared shifts in units of the
noise add up: c_S² Σ m_S² + c_V² w² Σ m_V² ≤ max(c_S², c_V²)·Q for column norms c. Charge: that
maximum.

*split*: two processes read lane S. One only finds keys; the other has another factorisation and is
only released, together with lane V. Sensitivity: each as above. Charge: both; the first has the
share ``split`` of μ², the second the rest.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from _table1_designs import DELTA, EPSILON
from _workload import Kept, cached
from hushstream.mechanisms.accounting.calibration import Fitted, Need, fit
from hushstream.mechanisms.columns import F64, I64, Batch, Part, Units, compact
from hushstream.mechanisms.contract import Noise, Setting
from hushstream.mechanisms.factorization.prefix_noise import STEPS, Process, factor_of
from hushstream.mechanisms.histogram.calibration.bound import bound_of, sensitivity2
from hushstream.mechanisms.histogram.calibration.processes import DEBIAS_SHARE
from hushstream.mechanisms.histogram.debias import Debias, Raw, put_raw, take_raw
from hushstream.mechanisms.histogram.mechanism import Histogram, S
from hushstream.mechanisms.histogram.quantities import Quantity
from hushstream.mechanisms.histogram.settings import HistogramParameters
from hushstream.mechanisms.keys import Keys
from hushstream.mechanisms.parts.bounds.bounding import Bound, hashes, ranks
from hushstream.mechanisms.parts.thresholds import key_selection as selection
from hushstream.mechanisms.validate import rational
from numpy.typing import NDArray


class _Slots(NamedTuple):
    """All pairs of the loaded units and the slice, in (unit, hash) order."""

    code: NDArray[np.uint64]  # (s,) unit · 2^32 + hash, distinct
    used: NDArray[np.uint16]  # (s, lanes) a fresh copy
    slot: NDArray[np.intp]  # (n,) pair of each record


def _pair_slots(units: Units, batch: Batch) -> _Slots:
    shift = np.uint64(32)
    owner = np.repeat(np.arange(len(units.left), dtype=np.uint64), np.diff(units.start))
    old = (owner << shift) | units.pair
    new = (batch.unit.astype(np.uint64) << shift) | hashes(batch)[batch.key]
    fresh, slot = np.unique(new, return_inverse=True)
    code, mine, theirs = _union(old, fresh)
    used = np.zeros((len(code), units.used.shape[1]), np.uint16)
    used[mine] = units.used
    return _Slots(code, used, theirs[slot])


def _union(
    old: NDArray[np.uint64], fresh: NDArray[np.uint64]
) -> tuple[NDArray[np.uint64], NDArray[np.intp], NDArray[np.intp]]:
    """Distinct values of both in order, and the place of each; ``fresh`` is sorted and distinct.

    ``old`` is sorted too if `_pack` made it; then sorting only merges.
    """
    both = np.concatenate([old, fresh])
    order = np.argsort(both, kind="stable")
    ordered = both[order]
    new = np.ones(len(both), np.bool_)
    new[1:] = ordered[1:] != ordered[:-1]
    place = np.empty(len(both), np.intp)
    place[order] = new.cumsum() - 1
    return ordered[new], place[: len(old)], place[len(old) :]


def _pack(units: Units, slots: _Slots, left: I64) -> Units:
    used = slots.used  # a pair without any accepted record is dropped
    live = used[:, 0] > 0 if used.shape[1] == 1 else used.any(axis=1)
    owner = (slots.code[live] >> np.uint64(32)).astype(np.int64)
    start = np.zeros(len(left) + 1, np.int64)
    np.cumsum(np.bincount(owner, minlength=len(left)), out=start[1:])
    pair = (slots.code[live] & np.uint64(0xFFFFFFFF)).astype(np.uint32)
    return Units(left, start, pair, used[live])


class Idea(NamedTuple):
    """A design: settings of the product, and its differences from the product.

    Attributes:
        parameters: parameters of the histogram; their factorisation is that of values.
        finding: the factorisation of lane S; None for that of values.
        split: share of μ² for a process that only finds keys; None if one process does both.
        grid: parts of a record; 1 for whole records.
        least: least weight of a record, in 1/grid.
        rest: the largest share of a unit's remaining budget that one record may cost.
    """

    parameters: dict[str, Any]
    finding: str | None = None
    split: Fraction | None = None
    grid: int = 1
    least: int = 1
    rest: Fraction = Fraction(1)


DEFAULT: dict[str, Any] = {"budget": 12, "adaptive_weight": 0.3, "factorization": "terminal"}
DEBIASED: dict[str, Any] = {
    "budget": 4, "adaptive_weight": 0.25, "debias": True, "factorization": "terminal",
}  # fmt: skip
HALF = Fraction(1, 2)
IDEAS: dict[str, Idea] = {
    "default": Idea(DEFAULT),
    "default, soft": Idea(DEFAULT, grid=4, least=2),
    "default, apart": Idea(DEFAULT, finding="final"),
    "debiased": Idea(DEBIASED),
    "debiased, soft": Idea(DEBIASED, grid=4, least=2),
    "debiased, sparing": Idea(DEBIASED, grid=4, least=2, rest=Fraction(1, 3)),
    "debiased, apart": Idea(DEBIASED, finding="final"),
    "debiased, split": Idea(DEBIASED, finding="final", split=HALF),
    "debiased, final": Idea(DEBIASED | {"factorization": "final"}),
}
BASE = {name: name.split(",", maxsplit=1)[0] for name in IDEAS}
"""The design that an idea started from."""


@dataclass(frozen=True)
class SoftBound(Bound):
    """A quadratic bound in which a record of lane 0 counts between ``least``/grid and 1.

    ``left`` and ``weights`` are grid² times those of whole records, except ``weights[0]``, because
    lane 0 counts in 1/grid.
    """

    grid: int = 1
    least: int = 1
    rest: Fraction = Fraction(1)

    def amounts(self, units: Units, batch: Batch, lane: NDArray[np.intp]) -> tuple[Units, I64]:
        """New units, and (n,) weights of records in 1/grid; records are taken in order."""
        slots = _pair_slots(units, batch)
        used, left = slots.used, units.left.copy()
        lanes, amount = lane[batch.key], np.zeros(len(batch.key), np.int64)
        turn = ranks(batch.unit, len(left))
        order = np.argsort(turn, kind="stable")
        ends = np.cumsum(np.bincount(turn)) if len(turn) else []
        for begin, end in zip([0, *ends[:-1]], ends, strict=True):
            rows = order[begin:end]  # one record of each unit
            unit, slot, lane_of = batch.unit[rows], slots.slot[rows], lanes[rows]
            before = used[slot, lane_of].astype(np.int64)
            step, price = self._one(before, lane_of, left[unit])
            left[unit] -= price
            used[slot, lane_of] += step.astype(np.uint16)
            amount[rows] = np.where(lane_of == S, step, step * self.grid)
        return _pack(units, slots, left), amount

    def _one(self, m: I64, lane: NDArray[np.intp], left: I64) -> tuple[I64, I64]:
        """(n,) increases of the pairs' counts and their prices, for one record of each unit."""
        step, price = np.zeros_like(m), np.zeros_like(m)
        for f in range(self.least, self.grid + 1):
            cost = self.weights[S] * f * (2 * m + f)
            modest = cost * self.rest.denominator <= left * self.rest.numerator
            takes = (lane == S) & (cost <= left) & (modest | (f == self.least))
            step[takes], price[takes] = f, cost[takes]
        if len(self.weights) > 1:
            cost = self.weights[1] * (2 * m + 1)
            takes = (lane == 1) & (cost <= left)
            step[takes], price[takes] = 1, cost[takes]
        return step, price


class Soft(Histogram):
    """A histogram that counts in 1/grid of a record; its bound is a `SoftBound`."""

    def absorb(self, units: Units, batch: Batch) -> tuple[Units, Part]:
        assert isinstance(self.bound, SoftBound)
        known = batch.status > 0
        lane = (known & (self.traits.lanes > 1)).astype(np.intp)
        if self.debias is None:
            units, amount = self.bound.amounts(units, batch, lane)
            return units, self._weighted(batch, lane, amount, np.zeros(0, np.int64))
        units, before = take_raw(units)
        units, amount = self.bound.amounts(units, batch, lane)
        after, counted = self.debias.count(before, batch.unit)
        whole = np.full(len(amount), self.bound.grid)
        lanes = lane[batch.key[counted]]
        totals = np.zeros((2, 2), np.int64)
        for row, size in enumerate((whole, amount)):
            np.add.at(totals[row], lanes, size[counted])
        return put_raw(Raw(units, after)), self._weighted(batch, lane, amount, totals.ravel())

    def _weighted(self, batch: Batch, lane: NDArray[np.intp], amount: I64, totals: I64) -> Part:
        rows = np.flatnonzero(amount)
        used, key = compact(batch.key[rows], len(batch.keys))
        sums = np.zeros((len(used), 1), np.int64)
        np.add.at(sums[:, 0], key, amount[rows])
        return Part(batch.keys.take(used), lane[used].astype(np.uint8), sums, totals)

    def _values(
        self, cell: NDArray[Any], keys: Keys, t: int, noise: Noise, scale: F64 | None
    ) -> tuple[I64, F64]:
        assert isinstance(self.bound, SoftBound)
        value, variance = super()._values(cell, keys, t, noise, scale)
        grid = self.bound.grid
        return (2 * value + grid) // (2 * grid), variance / grid**2


class SoftKept(Kept, Soft):
    """`Soft` with noise kept for the length of a run."""


def kept(mechanism: Histogram, keys: int) -> Kept:
    """The mechanism with its noise kept for the length of a run."""
    made = cached(mechanism, keys)
    if not isinstance(mechanism, Soft):
        return made
    return SoftKept(**{one.name: getattr(made, one.name) for one in fields(made)})


def design(idea: Idea, triggers: int, delay: int = 0) -> Histogram:
    """The calibrated histogram of an idea, for COUNT and unknown keys."""
    parameters = HistogramParameters(delay=delay, **idea.parameters)
    setting = Setting(EPSILON, DELTA, triggers)
    whole, grid = bound_of(parameters, setting), idea.grid
    bound = softened(whole, idea)
    selecting = setting.delta * rational("threshold_delta_share", parameters.threshold_delta_share)
    names = idea.finding or parameters.factorization, parameters.factorization
    fitted = _fitted(parameters, setting, bound, idea, selecting)
    finder = _process("count/S" if idea.split is None else "find/S", names[0], triggers, fitted, 0)
    values = [finder if idea.split is None else _process("count/S", names[1], triggers, fitted, 1)]
    if len(whole.weights) > 1:
        ratio = Fraction(whole.weights[0], whole.weights[1])
        louder = values[0].variance * ratio
        name = factor_of(names[1], triggers).name
        values.append(Process("count/V", name, triggers, louder))
    quantities = (Quantity(0, tuple(values)),)
    if idea.split is not None:
        quantities = (Quantity(0, (finder,)), *quantities)
    kind = Soft if grid > 1 else Histogram
    return kind(
        horizon=triggers, bound=bound, quantities=quantities, loss=fitted.loss, delay=delay,
        threshold=_thresholds(parameters, finder, bound, idea, selecting),
        debias=_debias(parameters, names[1], triggers, fitted),
    )  # fmt: skip


def softened(whole: Bound, idea: Idea) -> Bound:
    """The bound in 1/grid of a record, or the given bound if records are whole."""
    if idea.grid == 1:
        return whole
    return SoftBound(
        "quadratic", whole.left * idea.grid**2,
        (whole.weights[0], *(one * idea.grid**2 for one in whole.weights[1:])),
        grid=idea.grid, least=idea.least, rest=idea.rest,
    )  # fmt: skip


def _fitted(
    parameters: HistogramParameters, setting: Setting, bound: Bound, idea: Idea, selecting: Fraction
) -> Fitted:
    """Variances of the process that finds keys, then of any other of lane S, then of counters."""
    factors = [
        factor_of(name, setting.horizon)
        for name in (idea.finding or parameters.factorization, parameters.factorization)
    ]
    cheapest = min(bound.weights[0] * idea.least**2, *bound.weights[1:], bound.left)
    most = max(1, bound.left // cheapest)  # the most records, and so keys, that a unit can pay for
    left = 1 - 2 * DEBIAS_SHARE if parameters.debias else Fraction(1)
    column = [one.sensitivity2 * 4**one.bits for one in factors]
    exact = sensitivity2(bound)
    needs = [Need(exact * max(column), left)]
    touched = most * setting.horizon
    if idea.split is not None:
        shares = idea.split, 1 - idea.split
        needs = [Need(exact * c, left * part) for c, part in zip(column, shares, strict=True)]
        touched *= 2
    if parameters.debias:
        # At most `most` of a unit's counted records are accepted, each as at most a whole record.
        ends = parameters.debias_cap, min(most, parameters.debias_cap)
        needs += [Need(column[1] * (end * idea.grid) ** 2, DEBIAS_SHARE) for end in ends]
        touched += 2 * parameters.debias_cap * setting.horizon
    return fit(setting, needs, touched, selecting)


def _process(purpose: str, name: str, triggers: int, fitted: Fitted, place: int) -> Process:
    return Process(purpose, factor_of(name, triggers).name, triggers, fitted.variance[place])


def _debias(
    parameters: HistogramParameters, name: str, triggers: int, fitted: Fitted
) -> Debias | None:
    if not parameters.debias:
        return None
    named = zip(("arrived", "accepted"), (-2, -1), strict=True)
    counters = tuple(
        _process(f"debias/{kind}/{lane}", name, triggers, fitted, place)
        for kind, place in named
        for lane in "SV"
    )
    return Debias(parameters.debias_cap, counters)


def _thresholds(
    parameters: HistogramParameters, process: Process, bound: Bound, idea: Idea, delta: Fraction
) -> tuple[int, ...]:
    """K_t in steps of 1/(STEPS·grid): the maximum over all m that a unit can have in a key."""
    last = rational("last_share", parameters.last_share)
    exact, most = sensitivity2(bound), bound.most_per_key()
    bars = []
    for t, beta in enumerate(selection.shares(process.horizon, delta, last), 1):
        worst = max(
            m + process.quantile(t, beta * m * m / exact) for m in range(idea.least, most + 1)
        )
        bars.append(int(-(-worst * STEPS // 1)))
    return tuple(bars)
