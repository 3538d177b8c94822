"""A histogram of a window without a stated end, and the settings that it refuses.

The window's noise is that of `factorization.endless`: C does not depend on the number T of
triggers, and its squared column norms are at most `sensitivity2`. So one charge covers every T up
to 2^24. Neighbours differ by all records of one unit, whenever they come; squared shifts of all
triggers together are at most Q times `sensitivity2`, as for any window (`histogram.mechanism`).
Key selection fails with probability at most δ over all triggers together (`thresholds`).

A hidden key is tested at every trigger. The tests of the next triggers are made ahead, with the
noise that those triggers will use, and the key's row is loaded again after the last of them.
"""

from __future__ import annotations

from dataclasses import replace

from ....errors import ParameterError
from ...contract import Setting
from ...factorization.prefix_noise import ENDLESS
from ..settings import HistogramParameters, refuse_given

_REFUSED = {
    "selection": "rounds end, and their trees have a stated number of triggers",
    "adaptive_weight": "both lanes of a key would need the draws of all triggers",
    "debias": "its counters are made for a stated number of triggers",
    "last_share": "there is no last trigger whose threshold could have a share of its own",
}


def resolved(parameters: HistogramParameters, setting: Setting) -> HistogramParameters:
    """The settings of a window without a stated end.

    Raises:
        ParameterError: a setting needs a last trigger.
    """
    refuse_given(parameters, "endless", _REFUSED)
    if parameters.factorization not in ("auto", ENDLESS):
        rule = "not with window.endless, which has one of its own"
        raise ParameterError("factorization", parameters.factorization, rule)
    if setting.distinct:
        rule = "not with window.endless: pairs of key and value would be kept for ever"
        raise ParameterError("distinct", True, rule)
    return replace(parameters, factorization=ENDLESS, adaptive_weight=0.0)
