"""Declared costs of PAK and ToPS against losses rebuilt from what releases add.

As in `test_cost`; a unit's records are divided between the warm-up and what follows in the dearest
way.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hushstream.mechanisms.catalogue import find
from hushstream.mechanisms.contract import Setting
from hushstream.mechanisms.pak import settings as pak_settings
from hushstream.mechanisms.pak.counter import MatrixPrefix, TreePrefix
from hushstream.mechanisms.pak.mechanism import RankQuantile
from hushstream.mechanisms.parts.trees.hierarchy import Chunks, InfiniteTree
from hushstream.mechanisms.slots.relearning import Exceedance
from hushstream.mechanisms.slots.stream import SlotStream
from hushstream.mechanisms.tops import settings as tops_settings
from hushstream.mechanisms.tops.mechanism import Tops

from .cost_values import over_budget
from .mutants import broken

EPSILON = Fraction(2)
RELATIVE = 1e-3

PAK: dict[str, dict[str, Any]] = {
    "tree": {"counter": "tree", "tail": 0.5, "safety": 1.0, "expected": 10},
    "hierarchy": {
        "counter": "hierarchy",
        "bound": 2,
        "publish_warmup": False,
        "tail": 0.5,
        "safety": 1.0,
        "expected": 10,
    },
    "matrix": {"counter": "matrix", "bound": 2},
    "matrix, ranks": {"counter": "matrix", "bound": 2, "threshold": "noisy-max"},
    "matrix, watched": {"counter": "matrix", "bound": 2, "watch": 0.25},
    "no threshold": {"threshold": "top", "counter": "tree"},
    "learnt anew": {
        "counter": "tree",
        "tail": 0.5,
        "safety": 1.0,
        "expected": 10,
        "relearn": 2,
        "relearn_share": 0.25,
        "bound": 2,
    },
    "matrix, learnt anew": {
        "counter": "matrix",
        "tail": 0.5,
        "safety": 1.0,
        "expected": 10,
        "relearn": 2,
        "relearn_share": 0.25,
    },
    "watched": {
        "counter": "tree",
        "tail": 0.5,
        "safety": 1.0,
        "expected": 10,
        "watch": 0.25,
    },
}
TOPS: dict[str, dict[str, Any]] = {
    "chunks": {"fanout": 2, "height": 2, "skip": 0},
    "warm-up": {"fanout": 2, "height": 2, "skip": 1, "publish_warmup": True, "bound": 2},
    "infinite": {"fanout": 2, "height": 2, "stream": "infinite", "skip": 0},
    "watched": {"fanout": 2, "height": 2, "skip": 0, "watch": 0.25, "bound": 2},
    "learnt anew": {
        "fanout": 2,
        "height": 2,
        "skip": 1,
        "relearn": 2,
        "relearn_share": 0.25,
        "watch": 0.25,
    },
}


def ratio(kind: str, given: dict[str, Any]) -> float:
    module = pak_settings if kind == "pak" else tops_settings
    columns = (("v", 0, 1 << 10),)
    delta = Fraction(1, 10**6 if given.get("counter") == "matrix" else 10**9)
    setting = Setting(EPSILON, delta, 5, columns=columns, grids=(Fraction(1),))
    mechanism = module.build(find(kind).parameters(resolution=1, **given), setting)
    return over_budget(mechanism) * float(mechanism.cost().epsilon) / float(EPSILON)


@pytest.mark.spread(3)
@pytest.mark.parametrize("name", PAK)
def test_pak_loses_what_it_declares(name: str) -> None:
    assert 0.9 < ratio("pak", PAK[name]) <= 1 + RELATIVE


@pytest.mark.spread(6)
@pytest.mark.parametrize("name", TOPS)
def test_tops_loses_what_it_declares(name: str) -> None:
    assert 0.9 < ratio("tops", TOPS[name]) <= 1 + RELATIVE


MISTAKES = {
    "log2 T levels": (
        "pak", "no threshold", TreePrefix, "scale", "tree_levels(self.horizon)",
        "max(1, (self.horizon - 1).bit_length())",
    ),
    "ranks as if they were monotone": (
        "pak", "tree", RankQuantile, "scale", "2 / self.epsilon", "1 / self.epsilon"
    ),
    "threshold and warm-up sum for the price of one": (
        "pak", "tree", pak_settings, "build", "epsilon * (1 - split) if", "epsilon if"
    ),
    "one record of a unit in the warm-up": (
        "pak", "hierarchy", pak_settings, "build",
        "epsilon = setting.epsilon / slots.bound", "epsilon = setting.epsilon"
    ),
    "a matrix for the root of a threshold": (
        "pak", "matrix", MatrixPrefix, "process", "theta**2", "theta"
    ),
    "a level of a hierarchy for all": (
        "tops", "chunks", Chunks, "scale", "theta * self.levels", "theta"
    ),
    "shares of levels that do not add up": (
        "tops", "infinite", InfiniteTree, "scale", "level * (level + 1)", "level"
    ),
    "one record of a unit": (
        "tops", "warm-up", tops_settings, "build",
        "epsilon = setting.epsilon / slots.bound", "epsilon = setting.epsilon"
    ),
    "warm-up and threshold for the price of one": (
        "tops", "warm-up", tops_settings, "_warmup", "epsilon * (1 - share)", "epsilon"
    ),
    "a watch for nothing": (
        "tops", "watched", tops_settings, "build", "epsilon - watch - anew", "epsilon - anew"
    ),
    "half the noise of a watch": (
        "tops", "watched", SlotStream, "_watched", "1 / share", "1 / (2 * share)"
    ),
    "a watch of running totals for nothing": (
        "pak", "watched", pak_settings, "counter_of", "(1 - watch_of(parameters))", "1"
    ),
    "a watch beside a matrix for nothing": (
        "pak", "matrix, watched", pak_settings, "counter_of", "(1 - watch_of(parameters))", "1"
    ),
    "a threshold learnt anew for nothing": (
        "tops", "learnt anew", tops_settings, "build", "epsilon - watch - anew", "epsilon - watch"
    ),
    "a threshold of running totals learnt anew for nothing": (
        "pak", "learnt anew", pak_settings, "counter_of", "relearn_of(parameters, slots)", "0"
    ),
    "a threshold learnt anew beside a matrix for nothing": (
        "pak", "matrix, learnt anew", pak_settings, "counter_of", "relearn_of(parameters, slots)",
        "0",
    ),
    "half the noise of a threshold learnt anew": (
        "tops", "learnt anew", Exceedance, "scale", "1 / self.epsilon", "1 / (2 * self.epsilon)"
    ),
    "half the noise of a watch beside a matrix": (
        "pak", "matrix, watched", SlotStream, "_watched", "1 / share", "1 / (2 * share)"
    ),
    "noise of a warm-up's sum for values of one step": (
        "tops", "chunks", SlotStream, "_warm_sum", "theta / epsilon", "1 / epsilon"
    ),
    "half the noise of a noisy maximum": (
        "tops", "chunks", Tops, "_open", "1 / self.threshold_epsilon",
        "1 / (2 * self.threshold_epsilon)",
    ),
}  # fmt: skip


@pytest.mark.spread(10)
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_caught(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, name, owner, function, old, new = MISTAKES[mistake]
    broken(monkeypatch, owner, function, old, new)
    assert ratio(kind, (PAK if kind == "pak" else TOPS)[name]) > 1.1
