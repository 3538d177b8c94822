"""Settings of rounds: half of the Gaussian budget selects, the other half releases."""

from __future__ import annotations

from fractions import Fraction

from ....errors import ParameterError
from ...accounting.calibration import Need, fit
from ...contract import Setting
from ...factorization.prefix_noise import Process, factor_of
from ...parts.bounds.bounding import Bound
from ...parts.thresholds.key_selection import Exposure
from ...validate import rational
from ..calibration.spending import spending
from ..calibration.thresholds import least_by_trigger
from ..quantities import Quantity, columns_of
from ..settings import HistogramParameters
from .mechanism import Rounds


def build(parameters: HistogramParameters, setting: Setting) -> Rounds:
    """The paper's mechanism, calibrated.

    Raises:
        ParameterError: a parameter is out of range, or does not apply to rounds.
    """
    columns = columns_of(parameters, setting)
    records = rational("budget", 32 if parameters.budget is None else parameters.budget)
    _check(parameters, setting, records)
    bound = Bound("records", int(records)).storable()
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
        threshold=least_by_trigger(parameters, selecting, Exposure(records, 1), selector),
        loss=fitted.loss,
        summed=columns,
        grids=setting.grids,
        min_units=parameters.min_users,
        delay=parameters.delay,
        spending=spending(bound, needs, fitted, touched, selecting, ratio=Fraction(1)),
    )


def _check(parameters: HistogramParameters, setting: Setting, records: Fraction) -> None:
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
