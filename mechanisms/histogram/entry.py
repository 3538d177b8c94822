"""Registration of `histogram`: all that the rest of the product imports of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ...errors import ParameterError
from ..contract import Setting
from ..entry import Entry, Frame, Learner, Objection
from ..factorization.prefix_noise import ENDLESS, longest
from . import tumbling
from .endless.settings import resolved
from .hopping import settings as hopping
from .hopping.mechanism import Hopping
from .mechanism import Histogram
from .planning.learnt import default_budget, learn, refuse
from .planning.planner import HistogramPlanner
from .rounds.mechanism import Rounds
from .settings import HistogramParameters

DISTINCT = {"bound": "per-key", "per_key": 1}
"""Settings with which a count is of distinct units."""


def build(parameters: HistogramParameters, setting: Setting) -> Histogram | Rounds | Hopping:
    """A calibrated histogram for any kind of window.

    Raises:
        ParameterError: a parameter is out of range, or parameters contradict each other.
    """
    if setting.endless:
        return tumbling.build(resolved(parameters, setting), replace(setting, endless=False))
    if parameters.factorization == ENDLESS:
        raise ParameterError("factorization", ENDLESS, "is that of windows with window.endless")
    if setting.hops > 1:
        return hopping.build(parameters, setting)
    return tumbling.build(parameters, setting)


def framed(parameters: HistogramParameters, frame: Frame) -> HistogramParameters:
    """The parameters with the pipeline's delay, and with whether it releases keys alone."""
    aggregate = "keys" if frame.keys_only else parameters.aggregate
    return replace(parameters, delay=frame.delay, aggregate=aggregate)


def objections(parameters: HistogramParameters, frame: Frame) -> Iterator[Objection]:
    """An adaptive weight where no key becomes public, or keys have no released values."""
    if parameters.adaptive_weight and frame.public_keys:
        yield "adaptive_weight", "has no effect with a public list of keys"
    elif parameters.adaptive_weight and frame.keys_only:
        yield "adaptive_weight", 'has no effect with aggregate = "keys"'


def triggers(parameters: HistogramParameters) -> int:
    """Most triggers of the factorisation, whose default differs in rounds."""
    rounds, name = parameters.selection == "rounds", parameters.factorization
    return longest("honaker" if rounds and name == "auto" else name)


ENTRY = Entry(
    name="histogram",
    summary="counts and sums per key, keys known or not, one privacy unit spread over many keys",
    parameters=HistogramParameters,
    mechanisms=(Histogram, Rounds, Hopping),
    grouped=True,
    build=build,
    in_parts=True,
    framed=framed,
    objections=objections,
    triggers=triggers,
    planner=HistogramPlanner(),
    distinct=True,
    hops=True,
    endless=True,
    learner=Learner(learn, refuse, default_budget),
)
