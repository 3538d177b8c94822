"""Noise that the audits hold in their hands: every draw is known by its label, and may be set.

Shares nothing with the mechanisms' accounting: it only sees what a release really asks for.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from itertools import islice
from typing import NamedTuple

import numpy as np
from hushstream.mechanisms.contract import Mechanism
from hushstream.mechanisms.in_memory import Memory, Trace, run, seed
from hushstream.mechanisms.keys import Keys

View = dict[tuple[object, ...], float]
"""Releases of one window as an observer sees them, by trigger, key and column."""


class Label(NamedTuple):
    """One draw, by everything that its value depends on but the nonce."""

    kind: str  # gauss or laplace
    purpose: str
    parameter: Fraction  # variance or scale
    key: bytes
    index: int


class Recorder:
    """Draws are zero but where they are planted; what was asked for is kept, with its `first`."""

    guarantee = "none"

    def __init__(self, planted: Callable[[Label], int] | dict[Label, int] | None = None) -> None:
        self.asked: dict[Label, int] = {}
        self._planted = planted.get if isinstance(planted, dict) else planted

    def gauss(
        self, purpose: str, key: Keys, index: np.ndarray, variance: Fraction, first: np.ndarray
    ) -> np.ndarray:
        return self._draw("gauss", purpose, Fraction(variance), key, index, first)

    def laplace(
        self, purpose: str, key: Keys, index: np.ndarray, scale: Fraction, first: np.ndarray
    ) -> np.ndarray:
        return self._draw("laplace", purpose, Fraction(scale), key, index, first)

    def bits(
        self, purpose: str, key: Keys, index: np.ndarray, first: np.ndarray
    ) -> np.ndarray:  # pragma: no cover
        raise AssertionError("a sampler of its own cannot be audited here")

    def _draw(
        self,
        kind: str,
        purpose: str,
        parameter: Fraction,
        key: Keys,
        index: np.ndarray,
        first: np.ndarray,
    ) -> np.ndarray:
        shape = len(key), len(index)
        begun = np.broadcast_to(first, shape).tolist()
        out = np.zeros(shape, np.int64)
        for row, name in enumerate(key.tolist()):
            for column, place in enumerate(index.tolist()):
                label = Label(kind, purpose, parameter, name, place)
                # One draw belongs to one nonce: it must always name the same trigger.
                assert self.asked.setdefault(label, begun[row][column]) == begun[row][column]
                if self._planted is not None:
                    out[row, column] = self._planted(label) or 0
        return out


def seen(
    mechanism: Mechanism,
    trace: Trace,
    noise: object,
    public: Keys | None = None,
    until: int | None = None,
) -> View:
    """All that a run of one window releases (up to trigger ``until``), as numbers."""
    memory = Memory(mechanism, noise, delay=getattr(mechanism, "delay", 1))  # type: ignore[arg-type]
    if public is not None:
        seed(memory, public)
    view: View = {}
    for t, release in enumerate(islice(run(memory, trace), until), 1):
        for key, row in zip(release.key.tolist(), release.value.tolist(), strict=True):
            view[t, key, "status"] = 1.0
            view.update({(t, key, column): float(value) for column, value in enumerate(row)})
        for name, values in release.public.items():
            view.update({(t, name, place): float(v) for place, v in enumerate(values.tolist())})
    return view
