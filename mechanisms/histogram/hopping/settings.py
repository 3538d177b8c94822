"""Settings of a histogram whose windows hop, and those that hopping windows refuse."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from ....errors import ParameterError
from ...contract import Setting
from ...factorization.hopping import hopping
from ...validate import rational
from ..calibration.bound import bound_of, sensitivity2
from ..calibration.processes import processes
from ..quantities import columns_of, squares_of
from ..settings import HistogramParameters, check, refuse_given
from .mechanism import Hopping, thresholds
from .noise import HopNoise

_REFUSED = {
    "selection": "rounds release a key when enough new units came, and a window has to forget them",
    "aggregate": "keys alone are not released of windows that hop: release a count",
    "min_users": "distinct units of a window do not follow from those of its hops",
    "adaptive_weight": "a key that was shown may vanish, so no record can cost less for it",
    "debias": "what the bound cuts is counted by epoch, and not by window",
    "factorization": "windows that hop have one of their own",
}


def build(parameters: HistogramParameters, setting: Setting) -> Hopping:
    """A calibrated histogram of windows that overlap.

    Raises:
        ParameterError: a parameter is out of range, or parameters contradict each other.
    """
    check(parameters, setting)
    _refuse(parameters, setting)
    plain = replace(parameters, adaptive_weight=0.0)
    columns, bound = columns_of(plain, setting), bound_of(plain, setting)
    squares = squares_of(setting, columns)
    share = rational("threshold_delta_share", parameters.threshold_delta_share)
    selecting = setting.delta * share if setting.keys is None else Fraction(0)
    factor = hopping(setting.hops, setting.windows)
    made = processes(plain, setting, bound, (columns, squares), selecting, factor)
    noises = tuple(
        HopNoise(lane.purpose, setting.hops, setting.windows, lane.variance)
        for quantity in made.quantities
        for lane in quantity.lanes
    )
    bars: tuple[int, ...] = ()
    if setting.keys is None:
        squared, most = sensitivity2(bound), bound.most_per_key()
        bars = tuple(thresholds(noises[0], selecting, squared, most))
    return Hopping(
        horizon=setting.horizon,
        bound=bound,
        quantities=made.quantities,
        loss=made.loss,
        summed=columns,
        grids=setting.grids,
        threshold=bars,
        public=None if setting.keys is None else frozenset(setting.keys),
        count=setting.count,
        squares=squares,
        noises=noises,
        hops=setting.hops,
        per_epoch=setting.windows,
    )


def _refuse(parameters: HistogramParameters, setting: Setting) -> None:
    refuse_given(parameters, "hop", _REFUSED)
    if setting.distinct:
        raise ParameterError("distinct", True, f"not with window.hop: {_DISTINCT}")
    if parameters.bound == "per-key" and parameters.per_key == 1:
        raise ParameterError("per_key", 1, f"not with window.hop: {_UNITS}")
    if setting.horizon != 1:
        raise ParameterError("horizon", setting.horizon, "windows that hop are released once")


_DISTINCT = "a value counts in the hop that shows it first, and a window may begin after it"
_UNITS = (
    "it would count a unit in the first hop of an epoch that it is in, and a window may begin "
    "later: count records, or distinct units of windows that tumble"
)
