"""Calibrated histograms of tumbling windows with a stated end, with rounds or without."""

from __future__ import annotations

from fractions import Fraction

from ...errors import ParameterError
from ..contract import Setting
from ..validate import rational
from .calibration.bound import bound_of
from .calibration.processes import processes
from .calibration.thresholds import least_counts
from .mechanism import Histogram, S
from .quantities import columns_of, squares_of
from .rounds.mechanism import Rounds
from .rounds.settings import build as in_rounds
from .settings import HistogramParameters, check

_NOT_HOPPING = "windows that hop are not forecast: try them with hush simulate"
_NOT_ENDLESS = "windows without a stated end are not forecast: try them with hush simulate"


def build(parameters: HistogramParameters, setting: Setting) -> Histogram | Rounds:
    """A calibrated histogram of tumbling windows with a stated end.

    Raises:
        ParameterError: a parameter is out of range, or parameters contradict each other.
    """
    check(parameters, setting)
    if setting.hops > 1:
        raise ParameterError("hops", setting.hops, _NOT_HOPPING)
    if setting.endless:
        raise ParameterError("endless", True, _NOT_ENDLESS)
    if parameters.selection == "rounds":
        return in_rounds(parameters, setting)
    columns, bound = columns_of(parameters, setting), bound_of(parameters, setting)
    squares = squares_of(setting, columns)
    unknown = setting.keys is None
    share = rational("threshold_delta_share", parameters.threshold_delta_share)
    selecting = setting.delta * share if unknown else Fraction(0)
    made = processes(parameters, setting, bound, (columns, squares), selecting)
    process = made.quantities[0].lanes[S]
    return Histogram(
        horizon=setting.horizon,
        bound=bound,
        quantities=made.quantities,
        loss=made.loss,
        summed=columns,
        grids=setting.grids,
        threshold=least_counts(parameters, selecting, bound, process) if unknown else (),
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
