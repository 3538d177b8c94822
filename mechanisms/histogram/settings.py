"""Public parameters of the histogram, and which of them contradict each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...errors import ParameterError
from ..contract import Setting
from ..parts.bounds.bounding import MOST
from ..validate import at_least, between, one_of, positive
from .distinct import refuse

NO_DELTA = (
    "cannot hide a key that only one unit has: set budget.delta above 0, usually below "
    "1 / (number of units), or list the keys in public_keys and set it for the noise alone"
)
_NO_GAUSS = (
    "does not pay for Gaussian noise: set budget.delta above 0, usually below 1 / (number of units)"
)
_BOUNDS = ("quadratic", "records", "per-key")


@dataclass(frozen=True)
class HistogramParameters:
    """Settings of ``mechanism = "histogram"``.

    Attributes:
        bound: "quadratic": a unit's m records in one key cost it m², and all its keys together at
            most ``budget``; "records": at most ``budget`` records; "per-key": the same, and at most
            ``per_key`` of them in one key.
        budget: limit of ``bound``; by default 12 for unknown keys and 4 for a public list. 1 where
            a unit is one record.
        per_key: most records of a unit in one key, for bound = "per-key"; refused with another
            bound, which would ignore it.
        adaptive_weight: weight w of records of keys that are public already (0 < w ≤ 1); 0 turns
            adaptive weights off. Default: 0.3 for unknown keys and a quadratic budget of 3 or
            more, else off.
        factorization: "terminal" (little error at the last trigger, good at all), "final" (least
            error at the last trigger, more at others), "toeplitz", "blt", "normalized" (less error
            than blt, least at the last trigger), "tree", "honaker"; "auto" means terminal up to
            1024 triggers and blt beyond.
        selection: "threshold": a key is found once and released at every later trigger;
            "rounds": the mechanism of the DP-SQLP paper with a sound threshold.
        min_users: a key with fewer distinct units is not released. No privacy guarantee rests on
            it; each unit then counts once until the key is public.
        aggregate: "values", or "keys" to release the keys alone.
        debias: estimate and undo what the contribution bound cuts off; assumes that it cuts off
            the same share of every key's records.
        debias_cap: most records of a unit that the estimate counts.
        delay: d; records see the keys released up to d triggers before the last one. With 0,
            ingestion waits at each trigger.
        threshold_delta_share: share of δ for key selection.
        last_share: part of that share for the last trigger's threshold.
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


def refuse_given(parameters: HistogramParameters, window: str, refused: Mapping[str, str]) -> None:
    """Refuse non-default settings that a kind of window cannot have.

    Args:
        window: name of the kind.
        refused: the reason, by setting.
    """
    plain = HistogramParameters()
    for name, why in refused.items():
        given = getattr(parameters, name)
        if given not in (getattr(plain, name), 0):
            raise ParameterError(name, given, f"not with window.{window}: {why}")


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
