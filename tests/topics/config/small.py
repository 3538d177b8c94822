"""A small configuration of a mechanism that exists only in these tests."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import pytest
from hushstream.errors import ConfigError, ParameterError
from hushstream.mechanisms import catalogue
from hushstream.mechanisms.catalogue import entries
from hushstream.mechanisms.entry import as_given, many, no_objection
from hushstream.topics.config.load import Config, loads
from hushstream.topics.config.pipelines import pipeline as config_pipeline

SMALL = """\
[[input]]
name = "trips"
topic = "trips"
unit = ["car.id", "number"]
time = { field = "pickup", format = "epoch_ms" }

[[pipeline]]
name = "zones"
input = "trips"
key = "zone"
window = { length = "1d" }
triggers = { every = "6h" }
budget = { epsilon = 0.1, delta = 1e-6 }
"""


@dataclass(frozen=True)
class Knobs:
    """Parameters of a mechanism that exists only in this module."""

    bound: int = 3
    weight: Fraction = Fraction(3, 10)
    style: str = "plain"

    def __post_init__(self) -> None:
        if self.bound < 1:
            raise ParameterError("bound", self.bound, "must be at least 1")


BUILT_IN = dict(entries())


@pytest.fixture(autouse=True)
def _mechanism(monkeypatch: pytest.MonkeyPatch) -> None:
    knobs = entries()["histogram"]._replace(name="knobs", parameters=Knobs, framed=as_given)
    knobs = knobs._replace(objections=no_objection, triggers=many)
    for module in (config_pipeline, catalogue):
        monkeypatch.setattr(module, "entries", lambda: {**BUILT_IN, "knobs": knobs})
    monkeypatch.setattr(config_pipeline, "DEFAULT", "knobs")


def small(text: str = SMALL, **environ: str) -> Config:
    return loads(text, environ=environ)


def refusal(text: str, **environ: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        loads(text, environ=environ)
    return str(caught.value).splitlines()


def changed(old: str, new: str) -> str:
    assert old in SMALL
    return SMALL.replace(old, new)
