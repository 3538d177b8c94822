"""Public parameters of the histogram, their calibration, and the accuracy to expect.

Nothing here looks at data: thresholds, noise and chances to appear follow from the configuration.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import NamedTuple

from ...errors import ParameterError
from ..accounting.calibration import Fitted, Need, fit
from ..contract import Cost, Setting, Spending
from ..factorization import Factorization
from ..factorization.prefix_noise import ENDLESS, STEPS, Process, factor_of
from ..parts import key_selection as selection
from ..parts.bounding import MOST, Bound
from ..parts.squares import Square, square_of
from ..ranges import RECORDS
from ..validate import at_least, between, one_of, positive, rational
from .debias import Debias
from .distinct import displaced, factor2, refuse
from .endless_keys import Thresholds
from .mechanism import Histogram
from .quantities import Column, Quantity
from .rounds import Rounds
from .shared import SharedNoise
from .spending import spending

DEBIAS_SHARE = Fraction(1, 200)
"""Share of the Gaussian budget for each pair of debiasing counters, in all shards together."""

_WIDEST = (1 << 62) // RECORDS
_TOO_WIDE = (
    f"low and high must lie within ±2^{_WIDEST.bit_length() - 1} grid steps, so that the sum of "
    f"2^{RECORDS.bit_length() - 1} records fits into 63 bits: choose a coarser grid or a "
    "narrower interval"
)
NO_DELTA = (
    "cannot hide a key that only one unit has: set budget.delta above 0, usually below "
    "1 / (number of units), or list the keys in public_keys and set it for the noise alone"
)
_NO_GAUSS = (
    "does not pay for Gaussian noise: set budget.delta above 0, usually below 1 / (number of units)"
)
NOT_HOPPING = "windows that hop are not forecast: try them with hush simulate"
NOT_ENDLESS = "windows without a stated end are not forecast: try them with hush simulate"
_BOUNDS = ("quadratic", "records", "per-key")


@dataclass(frozen=True)
class HistogramParameters:
    """Settings of ``mechanism = "histogram"``.

    Attributes:
        bound: "quadratic": a unit's m records in one key cost it m², and all its keys together at
            most ``budget``; "records": at most ``budget`` records; "per-key": besides at most
            ``per_key`` of them in one key.
        budget: by default 12 for unknown keys and 4 for a public list. 1 where a unit is one
            record.
        per_key: for bound = "per-key"; refused with another bound, which would ignore it.
        adaptive_weight: weight w of records of keys that are public already (0 < w ≤ 1); 0 turns
            adaptive weights off. Default: 0.3 for unknown keys and a quadratic budget of 3 or
            more, else off.
        factorization: "terminal" (little error at the last trigger, good at all), "final" (least
            error at the last trigger, more at others), "toeplitz", "blt", "normalized" (less error
            than blt, least at the last trigger), "tree", "honaker"; "auto" takes terminal up to
            1024 triggers and blt beyond.
        selection: "threshold": a key is found once and released at every later trigger;
            "rounds": the mechanism of the DP-SQLP paper with a sound threshold.
        min_users: a key with fewer distinct units is not released. No privacy guarantee rests on
            it; each unit then counts once until the key is public.
        aggregate: "values", or "keys" to release which keys there are and nothing else.
        debias: estimate and undo what the contribution bound cuts off; assumes that it cuts off
            the same share of every key's records.
        debias_cap: most records of a unit that the estimate counts.
        delay: d; records see the keys released up to d triggers before the last one. 0 makes
            ingestion wait at each trigger.
        threshold_delta_share: share of δ that pays for key selection.
        last_share: share of that which goes to the last trigger's threshold.
        count_share: share of the Gaussian budget for the count where there are value columns.

    >>> HistogramParameters().factorization
    'auto'
    """

    bound: str = "quadratic"
    budget: float | None = None
    per_key: int | None = None
    adaptive_weight: float | None = None
    factorization: str = "auto"
    selection: str = "threshold"
    min_users: int = 1
    aggregate: str = "values"
    debias: bool = False
    debias_cap: int = 100
    delay: int = 1
    threshold_delta_share: float = 0.5
    last_share: float = 0.5
    count_share: float = 0.5

    def __post_init__(self) -> None:
        if self.per_key is not None and self.bound != "per-key":
            raise ParameterError("per_key", self.per_key, 'needs bound = "per-key"')
        if self.per_key is None and self.bound == "per-key":
            raise ParameterError("bound", self.bound, "needs per_key, the most records in one key")

    @property
    def of_units(self) -> bool:
        """Whether counts are of distinct units."""
        return self.per_key == 1 or self.min_users > 1


def build(parameters: HistogramParameters, setting: Setting) -> Histogram | Rounds:
    """A calibrated histogram.

    Raises:
        ParameterError: a parameter is out of range, or parameters contradict each other.
    """
    check(parameters, setting)
    if setting.hops > 1:
        raise ParameterError("hops", setting.hops, NOT_HOPPING)
    if setting.endless:
        raise ParameterError("endless", True, NOT_ENDLESS)
    if parameters.selection == "rounds":
        return _rounds(parameters, setting)
    columns, bound = columns_of(parameters, setting), bound_of(parameters, setting)
    squares = squares_of(setting, columns)
    unknown = setting.keys is None
    share = rational("threshold_delta_share", parameters.threshold_delta_share)
    selecting = setting.delta * share if unknown else Fraction(0)
    made = processes(parameters, setting, bound, (columns, squares), selecting)
    mechanism = Histogram(
        horizon=setting.horizon,
        bound=bound,
        quantities=made.quantities,
        loss=made.loss,
        summed=columns,
        grids=setting.grids,
        public=None if setting.keys is None else frozenset(setting.keys),
        min_units=parameters.min_users,
        show="keys" if parameters.aggregate == "keys" else "values",
        count=setting.count,
        delay=parameters.delay,
        debias=made.debias,
        spending=made.spending,
        squares=squares,
        pairs=setting.distinct,
    )
    if not unknown:
        return mechanism
    return replace(mechanism, threshold=threshold_of(mechanism, selecting, parameters))


def check(parameters: HistogramParameters, setting: Setting) -> None:
    one_of("bound", parameters.bound, _BOUNDS)
    one_of("selection", parameters.selection, ("threshold", "rounds"))
    one_of("aggregate", parameters.aggregate, ("values", "keys"))
    at_least("min_users", parameters.min_users, 1)
    at_least("delay", parameters.delay, 0)
    at_least("horizon", setting.horizon, 1)
    positive("epsilon", setting.epsilon)
    between("delta", setting.delta, 0, 1)
    if setting.delta == 0:
        raise ParameterError("delta", 0, NO_DELTA if setting.keys is None else _NO_GAUSS)
    between("threshold_delta_share", parameters.threshold_delta_share, 0.001, 0.999)
    between("last_share", parameters.last_share, 0.001, 0.999)
    between("count_share", parameters.count_share, 0.001, 0.999)
    if setting.keys is not None and parameters.min_users > 1:
        rule = "has no effect with public_keys, whose keys are all released: leave one of them out"
        raise ParameterError("min_users", parameters.min_users, rule)
    if setting.keys is not None and parameters.aggregate == "keys":
        raise ParameterError("keys", "a public list", "leaves nothing to select")
    if parameters.debias and (setting.keys is not None or parameters.aggregate == "keys"):
        raise ParameterError("debias", True, "needs unknown keys and released values")
    between("debias_cap", at_least("debias_cap", parameters.debias_cap, 1), 1, MOST)
    if setting.distinct:
        refuse(setting, parameters)
    if not (setting.count or setting.columns) and parameters.aggregate == "values":
        raise ParameterError("count", False, "leaves nothing to release")


def columns_of(parameters: HistogramParameters, setting: Setting) -> tuple[Column, ...]:
    if parameters.aggregate == "keys":
        return ()
    centred = setting.keys is None or setting.count  # the count is there to shift sums back
    partial, counts = {place for group in setting.apart for place in group}, dict(setting.within)
    made = []
    for at, (name, low, high) in enumerate(setting.columns):
        if low > high:
            raise ParameterError(name, (low, high), "must be an interval, low before high")
        if max(abs(low), abs(high)) >= _WIDEST:
            raise ParameterError(name, (low, high), _TOO_WIDE)
        around = at in counts or (centred and at not in partial)
        made.append(Column(name, low, high, (low + high) // 2 * around, counts.get(at)))
    return tuple(made)


def squares_of(setting: Setting, columns: tuple[Column, ...]) -> tuple[Square, ...]:
    made = tuple(
        square_of(column.name, place, column.reach())
        for place, column in enumerate(columns)
        if column.name in setting.squares
    )
    if not setting.count and any(columns[one.column].counter is None for one in made):
        raise ParameterError("count", False, "a variance needs it")
    return made


def bound_of(parameters: HistogramParameters, setting: Setting) -> Bound:
    """The contribution bound in integers: weights wd² and wn² for w = wn/wd."""
    unknown, values = setting.keys is None, parameters.aggregate == "values"
    default = 12.0 if unknown else 4.0
    budget = rational("budget", default if parameters.budget is None else parameters.budget)
    if parameters.bound != "quadratic":
        return _record_bound(parameters, budget)
    weight = _weight(parameters, budget) if unknown and values else Fraction(1)
    weights: tuple[int, ...] = (weight.denominator**2,)
    caps: tuple[int, ...] = (MOST,)
    if unknown and values and (weight < 1 or parameters.min_users > 1):
        weights, caps = (weight.denominator**2, weight.numerator**2), (MOST, MOST)
    if parameters.min_users > 1:
        caps = (1, *caps[1:])  # until a key is public its count is the number of units
    left = budget * weights[0]
    if left < max(weights):
        raise ParameterError("budget", float(budget), "must be at least 1")
    return Bound("quadratic", int(left), weights, caps=caps)


def _record_bound(parameters: HistogramParameters, budget: Fraction) -> Bound:
    if budget.denominator != 1:
        raise ParameterError("budget", float(budget), "must be a whole number of records")
    if parameters.adaptive_weight:
        raise ParameterError("adaptive_weight", parameters.adaptive_weight, "needs bound quadratic")
    per_key = MOST
    if parameters.bound == "per-key":
        per_key = at_least("per_key", parameters.per_key or 0, 1)
    if parameters.min_users > 1 and min(per_key, int(budget)) > 1:
        raise ParameterError("min_users", parameters.min_users, "needs bound quadratic")
    return Bound("records", int(budget), (1,), per_key)


def _weight(parameters: HistogramParameters, budget: Fraction) -> Fraction:
    chosen = parameters.adaptive_weight
    if chosen is None:
        return Fraction(3, 10) if budget >= 3 else Fraction(1)
    if chosen == 0:
        return Fraction(1)
    weight = rational("adaptive_weight", chosen)
    between("adaptive_weight", weight, 0, 1)
    return weight


def sensitivity2(bound: Bound) -> Fraction:
    """Bound of ``Σ m²`` per unit, weighted relative to lane 0."""
    return Fraction(bound.sensitivity2(), bound.weights[0])


class Processes(NamedTuple):
    """Calibrated noise of a histogram, and what it costs a unit."""

    quantities: tuple[Quantity, ...]
    debias: Debias | None
    loss: Cost
    spending: Spending


def processes(
    parameters: HistogramParameters,
    setting: Setting,
    bound: Bound,
    summed: tuple[tuple[Column, ...], tuple[Square, ...]],
    selecting: Fraction,
    factor: Factorization | None = None,
) -> Processes:
    """Every quantity with the noise that its share of the budget buys, and what it costs.

    ``factor`` is that of the noise; None: the one that parameters and horizon say.
    """
    factor = factor or factor_of(parameters.factorization, setting.horizon)
    triggers = setting.horizon if factor.name == ENDLESS else factor.horizon
    counted = setting.keys is None or setting.count
    columns, squares = summed
    names = ["count"] * counted + [f"sum:{column.name}" for column in columns]
    names += [f"square:{one.name}" for one in squares]
    sizes2 = [column.reach() ** 2 for column in columns]
    for one in squares:
        sizes2[one.column] = one.sizes2[0]
    shared = SharedNoise.of(setting.apart, sizes2)
    unit = sensitivity2(bound) * factor.sensitivity2 * 4**factor.bits
    unit *= factor2(bound, displaced(factor)) if setting.distinct else 1
    left = 1 - 2 * DEBIAS_SHARE if parameters.debias else Fraction(1)
    parts = [left * part for part in _split(parameters, len(shared.sizes2), counted)]
    sizes = [Fraction(1)] * counted + [*shared.sizes2]
    needs = [Need(unit * size2, part) for size2, part in zip(sizes, parts, strict=True)]
    own = [counted + shared.need[one.column] for one in squares]
    needs += [
        Need(unit * one.sizes2[1], parts[place], True)
        for one, place in zip(squares, own, strict=True)
    ]
    most = max(1, bound.left // min(bound.weights)) * (1 + setting.distinct)
    touched = most * triggers
    if parameters.debias:
        ends = (parameters.debias_cap, min(most, parameters.debias_cap))
        looks = at_least("shards", setting.shards, 1)  # each with a noise of its own
        once = factor.sensitivity2 * 4**factor.bits
        needs += [Need(looks * once * end**2, DEBIAS_SHARE) for end in ends]
        touched += 2 * looks * parameters.debias_cap * setting.horizon
    fitted = fit(setting, needs, touched, selecting)
    quantities = []
    bought = fitted.variance[: len(sizes) + len(squares)]
    every = (*bought[:counted], *shared.variances(bought[counted : len(sizes)]))
    every += tuple(
        _of_square(one, variance, columns[one.column], every[counted + one.column])
        for one, variance in zip(squares, bought[len(sizes) :], strict=True)
    )
    for place, (name, variance) in enumerate(zip(names, every, strict=True)):
        lanes = tuple(
            Process(f"{name}/{lane}", factor.name, triggers, variance * first / weight)
            for lane, weight in zip("SV", bound.weights, strict=False)
            for first in bound.weights[:1]
        )
        quantities.append(Quantity(place + (not counted), lanes))
    debias = _debias(parameters, factor, fitted, setting.shards)
    beside = 2 if parameters.debias else 0
    paid = spending(bound, needs, fitted, touched, selecting, beside)
    return Processes(tuple(quantities), debias, fitted.loss, paid)


def _of_square(one: Square, bought: Fraction, of: Column, variance: Fraction) -> Fraction:
    """Variance of a square: at least as the lemma of `parts.squares` asks of that of its column."""
    if of.counter is None:  # as it was before there were conditions
        return bought
    first, second = one.sizes2
    return max(bought, variance * second / first)


def _debias(
    parameters: HistogramParameters, factor: Factorization, fitted: Fitted, looks: int
) -> Debias | None:
    if not parameters.debias:
        return None
    named = zip(("arrived", "accepted"), fitted.variance[-2:], strict=True)
    counters = tuple(
        Process(f"debias/{name}/{lane}", factor.name, factor.horizon, variance)
        for name, variance in named
        for lane in "SV"
    )
    return Debias(parameters.debias_cap, counters, looks)


def _split(parameters: HistogramParameters, columns: int, counted: bool) -> list[Fraction]:
    if not counted:
        return [Fraction(1, columns)] * columns
    if not columns:
        return [Fraction(1)]
    share = rational("count_share", parameters.count_share)
    return [share, *[(1 - share) / columns] * columns]


def threshold_of(
    mechanism: Histogram, delta: Fraction, parameters: HistogramParameters
) -> Sequence[int]:
    """Least counts per trigger, in 1/STEPS records, for which unit-only keys appear with ≤ δ."""
    process = mechanism.quantities[0].lanes[0]
    return least_counts(parameters, delta, mechanism.bound, process)


def least_counts(
    parameters: HistogramParameters, delta: Fraction, bound: Bound, process: Process
) -> Sequence[int]:
    """The same for any bound and any noise of the count."""
    exposure = selection.Exposure(sensitivity2(bound), bound.most_per_key())
    if process.name == ENDLESS:
        return Thresholds(process, exposure, delta, parameters.min_users)
    return _least(parameters, delta, exposure, process)


def _least(
    parameters: HistogramParameters,
    delta: Fraction,
    exposure: selection.Exposure,
    process: Process,
) -> tuple[int, ...]:
    last = rational("last_share", parameters.last_share)
    beta = selection.shares(process.horizon, delta, last)
    least = selection.thresholds(beta, exposure, process.quantile, parameters.min_users, STEPS)
    return tuple(least.tolist())


def _rounds(parameters: HistogramParameters, setting: Setting) -> Rounds:
    """The paper's mechanism: half of the Gaussian budget selects, the other half releases."""
    columns = columns_of(parameters, setting)
    records = rational("budget", 32 if parameters.budget is None else parameters.budget)
    _check_rounds(parameters, setting, records)
    bound = Bound("records", int(records))
    name = "honaker" if parameters.factorization == "auto" else parameters.factorization
    factor = factor_of(name, setting.horizon)
    unit = factor.sensitivity2 * 4**factor.bits
    sizes = [1, *(column.reach() for column in columns)]
    needs = [Need(records * unit, Fraction(1, 2))]
    needs += [Need((records * size) ** 2 * unit, Fraction(1, 2 * len(sizes))) for size in sizes]
    share = rational("threshold_delta_share", parameters.threshold_delta_share)
    selecting = setting.delta * share
    touched = bound.left * setting.horizon
    fitted = fit(setting, needs, touched, selecting)
    names = ["select", "count/S", *(f"sum:{column.name}/S" for column in columns)]
    selector, *values = (
        Process(purpose, factor.name, setting.horizon, variance)
        for purpose, variance in zip(names, fitted.variance, strict=True)
    )
    return Rounds(
        horizon=setting.horizon,
        bound=bound,
        selector=selector,
        quantities=tuple(Quantity(place, (process,)) for place, process in enumerate(values)),
        threshold=_least(parameters, selecting, selection.Exposure(records, 1), selector),
        loss=fitted.loss,
        summed=columns,
        grids=setting.grids,
        min_units=parameters.min_users,
        delay=parameters.delay,
        spending=spending(bound, needs, fitted, touched, selecting, ratio=Fraction(1)),
    )


def _check_rounds(parameters: HistogramParameters, setting: Setting, records: Fraction) -> None:
    threshold = 'leave out selection = "rounds"'
    wrong = {
        "keys": (setting.keys is not None, f"rounds find keys, and these are public: {threshold}"),
        "conditions": (
            bool(setting.apart),
            "noise of rounds is set for values of every record, and conditions of one value would "
            f"not share it: {threshold}, or write where of the pipeline",
        ),
        "count": (not setting.count, 'rounds release a count: add { kind = "count" }'),
        "aggregate": (parameters.aggregate == "keys", f"rounds release values: {threshold}"),
        "adaptive_weight": (bool(parameters.adaptive_weight), "leave it out with rounds"),
        "bound": (parameters.bound == "per-key", f"rounds count units over all keys: {threshold}"),
        "debias": (parameters.debias, f"rounds do not count what is cut: {threshold}"),
        "squares": (bool(setting.squares), f"rounds have no variance: {threshold}"),
    }
    for name, (fails, why) in wrong.items():
        if fails:
            raise ParameterError(name, getattr(parameters, name, None), why)
    if records.denominator != 1:
        raise ParameterError("budget", float(records), "must be a whole number of records")
    if parameters.delay > 100:
        raise ParameterError("delay", parameters.delay, "must be at most 100 with rounds")
