"""Cases: a mechanism with the oracle and the bounds that the contract suite checks it against."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from hushstream.mechanisms.columns import Part, Releases
from hushstream.mechanisms.contract import Mechanism
from hushstream.mechanisms.in_memory import Trace
from hushstream.mechanisms.keys import Keys


class Case(NamedTuple):
    """One configured mechanism and how to exercise it.

    Attributes:
        name: name in test ids.
        mechanism: the mechanism under test.
        trace: random events of one window; same generator state, same events.
        exact: check of a run under zero noise, called with the trace and all releases.
        distance: squared L2 (or L1, depending on the mechanism's cost) distance of two lists of
            merged parts, one per micro-batch, in the norm of ``bound``.
        bound: the largest distance that `cost` pays for when one unit comes or goes.
        public: public key list to seed, or None.
        noise_check: ``(releases_per_trigger, exact_values...)``; not needed if the standard check
            of `error` applies: a run without data, whose released values are noise.
        noisy: whether releases add noise; False if reports were perturbed on the device.
    """

    name: str
    mechanism: Mechanism
    trace: Callable[[np.random.Generator], Trace]
    exact: Callable[[Trace, Sequence[Releases]], None]
    distance: Callable[[Sequence[Part], Sequence[Part]], float]
    bound: float
    public: Keys | None = None
    noisy: bool = True
