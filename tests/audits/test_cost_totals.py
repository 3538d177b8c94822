"""The private number of records of a map: its loss rebuilt from draws and from a unit's records.

The map's counts are held to the part of ε that is left, as in `test_cost_spatial`, with the factor
by which released numbers are multiplied put to 1: a product of released numbers loses nothing.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hushstream.mechanisms.catalogue import find
from hushstream.mechanisms.contract import Setting
from hushstream.mechanisms.parts.bounds.record_total import Corrected, PrivateTotal
from hushstream.mechanisms.phdstream import settings as phdstream_settings
from hushstream.mechanisms.privhp import settings as privhp_settings
from hushstream.mechanisms.spatial.domain import Domain

from .cost_spatial import UNIT, events, phdstream, privhp
from .mutants import broken
from .recorder import Label, Recorder, seen

EPSILON, HORIZON, RELATIVE = Fraction(1), 3, 1e-3
GIVEN: dict[str, dict[str, Any]] = {
    "phdstream": {"floor": 2, "smoothing": 0, "start": "as later"},
    "privhp": {"k": 2, "width": 4, "exact": 2},
}
SETTINGS: dict[str, Any] = {"phdstream": phdstream_settings, "privhp": privhp_settings}
TIMES = ((1,) * 9, (3,) * 9, (1, 1, 1, 2, 2, 2, 3, 3, 3))
"""Triggers of the nine records of a unit, more than count."""


def made(kind: str) -> Any:
    given = {"bound": 2, "debias": True, "debias_cap": 5, "debias_share": Fraction(1, 4)}
    parameters = find(kind).parameters(domain=Domain.unit(1, 2), **given, **GIVEN[kind])
    return SETTINGS[kind].build(parameters, Setting(EPSILON, Fraction(0), HORIZON))


def numbers(mechanism: Any, times: tuple[int, ...], noise: Recorder) -> np.ndarray:
    """The released numbers of all triggers."""
    view = seen(mechanism, events(mechanism, [(t, UNIT, 1, 1) for t in times]), noise)
    return np.array([view[t, "records", 0] for t in range(1, HORIZON + 1)])


def loss_of_number(mechanism: Any) -> float:
    """ε of the dearest unit: shifts of the draws that explain it, each over its scale."""
    quiet = Recorder()
    base = numbers(mechanism, (), quiet)
    labels = [one for one in quiet.asked if one.purpose == "records"]
    response = []
    for label in labels:
        planted: dict[Label, int] = {label: 1000}
        response.append((numbers(mechanism, (), Recorder(planted)) - base) / 1000)
    found = []
    for times in TIMES:
        moved = numbers(mechanism, times, Recorder()) - base
        shift = np.linalg.solve(np.array(response).T, moved)
        scales = np.array([float(one.parameter) for one in labels])
        found.append(float((np.abs(shift) / scales).sum()))
    return max(found)


def ratio(kind: str, monkeypatch: pytest.MonkeyPatch) -> float:
    """Measured loss of number and map, over ε."""
    mechanism = made(kind)
    number = loss_of_number(mechanism)

    def as_counted(self: PrivateTotal, value: Any, variance: Any, *rest: Any) -> Corrected:
        return Corrected(value, variance, {})

    monkeypatch.setattr(PrivateTotal, "corrected", as_counted)
    counted = phdstream(mechanism) if kind == "phdstream" else privhp(mechanism)
    return (number + counted) / float(EPSILON)


@pytest.mark.parametrize("kind", GIVEN)
def test_map_and_number_lose_what_they_declare(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert made(kind).cost().epsilon <= EPSILON
    assert 0.99 < ratio(kind, monkeypatch) <= 1 + RELATIVE


MISTAKES = {
    "noise for one record": (PrivateTotal, "scale", "self.cap / self.epsilon", "1 / self.epsilon"),
    "noise for the map's bound": (
        PrivateTotal, "scale", "self.cap / self.epsilon", "self.bound / self.epsilon"
    ),
    "no cap": (PrivateTotal, "absorb", "< rest[unit]", "< 1 << 40"),
    "the map keeps all of epsilon": (
        phdstream_settings, "build", "Fraction(0) if total is None else total.epsilon", "0"
    ),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_caught(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, function, old, new = MISTAKES[mistake]
    broken(monkeypatch, owner, function, old, new)
    assert ratio("phdstream", monkeypatch) > 1.1
