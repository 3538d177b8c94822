"""Public parameters of quantiles, and their calibration. Nothing here looks at data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from statistics import NormalDist

from ...errors import ParameterError
from ..accounting.calibration import Need, fit
from ..contract import Setting
from ..entry import Frame, Objection
from ..factorization.prefix_noise import Process, factor_of
from ..histogram.calibration.bound import bound_of, sensitivity2
from ..histogram.calibration.spending import spending
from ..histogram.calibration.thresholds import least_counts
from ..histogram.settings import NO_DELTA, HistogramParameters
from ..validate import at_least, between, positive, rational
from .bands import HEIGHTS, Spacing, bands
from .mechanism import Quantiles

MOST = 20  # quantiles
_ALONE = (
    "is not released beside quantiles, which have count, below and above of their own: leave "
    "aggregate out, and put sums and means into a second pipeline of the same input; a [[budget]] "
    "with both as members charges them together"
)


@dataclass(frozen=True)
class QuantileParameters:
    """Settings of ``mechanism = { kind = "quantile" }``.

    Attributes:
        low, high: public range of the values. A quantile outside it is released as the nearer end;
            the number of records outside is released too.
        at: the quantiles, between 0 and 1; 0.5 is the median. Further quantiles cost nothing.
        bands: number of bands into which the range is divided, including one below and one above
            it: 16, 64 or 256. More bands are finer and have more noise.
        spacing: "linear", or "log" for bands whose width is proportional to the value, which
            tolerates a badly guessed range.
        bound, budget, per_key: contribution bound, as for `histogram`.
        factorization: as for `histogram`.
        threshold_delta_share, last_share: δ for key selection, as for `histogram`.
        count_share: share of the Gaussian budget for the count, which finds unknown keys.
            Default: 0.2 for unknown keys, 0.08 for a public list.
    """

    low: float | None = None
    high: float | None = None
    at: tuple[float, ...] = (0.5,)
    bands: int = 256
    spacing: Spacing = "linear"
    bound: str = "quadratic"
    budget: float | None = None
    per_key: int | None = None
    factorization: str = "auto"
    threshold_delta_share: float = 0.5
    last_share: float = 0.5
    count_share: float | None = None

    @property
    def histogram(self) -> HistogramParameters:
        """The settings shared with a histogram."""
        return HistogramParameters(
            bound=self.bound,
            budget=self.budget,
            per_key=self.per_key,
            adaptive_weight=0.0 if self.bound == "quadratic" else None,
            factorization=self.factorization,
            threshold_delta_share=self.threshold_delta_share,
            last_share=self.last_share,
        )


def build(parameters: QuantileParameters, setting: Setting) -> Quantiles:
    """Calibrated quantiles.

    Raises:
        ParameterError: a parameter is out of range, or parameters contradict each other.
    """
    _check(parameters, setting)
    made = bands(parameters.low, parameters.high, parameters.bands, parameters.spacing)
    at = _shares(parameters.at)
    unknown, shared = setting.keys is None, parameters.histogram
    bound, factor = bound_of(shared, setting), factor_of(shared.factorization, setting.horizon)
    unit = sensitivity2(bound) * factor.sensitivity2 * 4**factor.bits
    needs = [Need(unit, share) for share in _split(parameters, unknown)]
    delta = rational("threshold_delta_share", parameters.threshold_delta_share)
    selecting = setting.delta * delta if unknown else Fraction(0)
    touched = max(1, bound.left // min(bound.weights)) * setting.horizon
    fitted = fit(setting, needs, touched, selecting)
    names = [*(f"bands/{level}" for level in range(len(needs) - 1)), "count"]
    processes = tuple(
        Process(name, factor.name, factor.horizon, variance)
        for name, variance in zip(names, fitted.variance, strict=True)
    )
    return Quantiles(
        horizon=setting.horizon,
        bound=bound,
        bands=made,
        at=at,
        processes=processes,
        loss=fitted.loss,
        reach=NormalDist().inv_cdf((1 + float(setting.confidence)) / 2),
        threshold=tuple(least_counts(shared, selecting, bound, processes[-1])) if unknown else (),
        public=None if setting.keys is None else frozenset(setting.keys),
        spending=spending(bound, needs, fitted, touched, selecting),
    )


def _check(parameters: QuantileParameters, setting: Setting) -> None:
    at_least("horizon", setting.horizon, 1)
    positive("epsilon", setting.epsilon)
    between("delta", setting.delta, 0, 1)
    if setting.delta == 0:
        raise ParameterError("delta", 0, NO_DELTA)
    if setting.columns:
        raise ParameterError("aggregate", setting.columns[0][0], _ALONE)
    between("threshold_delta_share", parameters.threshold_delta_share, 0.001, 0.999)
    between("last_share", parameters.last_share, 0.001, 0.999)


def _shares(at: tuple[float, ...]) -> tuple[Fraction, ...]:
    """The quantiles in increasing order."""
    if not 1 <= len(at) <= MOST or len(set(at)) < len(at):
        raise ParameterError("at", list(at), f"must be 1 to {MOST} different numbers")
    for one in at:
        if not 0 < one < 1:
            raise ParameterError("at", one, "must lie between 0 and 1, such as 0.5 for the median")
    return tuple(sorted(rational("at", one) for one in at))


def _split(parameters: QuantileParameters, unknown: bool) -> list[Fraction]:
    """Shares of the squared loss by level, bands first, the count last."""
    given = parameters.count_share
    usual = Fraction(1, 5) if unknown else Fraction(2, 25)
    share = usual if given is None else rational("count_share", given)
    between("count_share", share, 0.001, 0.999)
    levels = HEIGHTS[parameters.bands]
    return [(1 - share) / levels] * levels + [share]


def objections(parameters: QuantileParameters, frame: Frame) -> Iterator[Objection]:
    """Unusable ranges and quantiles, and keys alone, which have no quantile."""
    given = parameters
    for check in (
        lambda: bands(given.low, given.high, given.bands, given.spacing),
        lambda: _shares(given.at),
    ):
        try:
            check()
        except ParameterError as error:
            yield error.name, f"{error.value}: {error.rule}"
    if frame.keys_only:
        yield "kind", 'has quantiles of each key; aggregate = "keys" releases none: leave it out'
