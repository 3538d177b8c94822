"""From settings to the mechanism: budgets that add up and errors that name the culprit.

Covers: mechanisms/spatial/settings.py
"""

from __future__ import annotations

from fractions import Fraction

import pytest
from hushstream.errors import ParameterError
from hushstream.mechanisms.contract import Setting
from hushstream.mechanisms.phdstream.entry import ENTRY
from hushstream.mechanisms.phdstream.mechanism import PHDStream, ReleasedSelection
from hushstream.mechanisms.phdstream.settings import PHDStreamParameters as Parameters
from hushstream.mechanisms.phdstream.settings import budget, build
from hushstream.mechanisms.spatial.domain import Domain
from hushstream.mechanisms.spatial.privtree import Selection

SETTING = Setting(Fraction(1), Fraction(1, 10**6), 20)


def test_defaults_build() -> None:
    mechanism = ENTRY.build(ENTRY.parameters(), SETTING)
    assert isinstance(mechanism, PHDStream)
    assert mechanism.cost().epsilon == 1 and mechanism.smoothing == 10
    assert isinstance(mechanism.selection, ReleasedSelection)


def test_domain_may_be_given_as_plain_json() -> None:
    domain = Domain.unit(3, 4)
    made = build(Parameters(domain=domain.to_json()), SETTING)
    assert made.domain == domain and made.traits.inputs == ("x1", "x2", "x3")


def test_private_selection_gets_its_share() -> None:
    made = build(Parameters(selection="private", share=0.25, bound=2), SETTING)
    assert isinstance(made.selection, Selection)
    assert made.selection.epsilon == Fraction(1, 8)
    assert made.counter.cost(1).epsilon == Fraction(3, 8)


@pytest.mark.parametrize(
    ("counter", "forget"), [("simple", True), ("block", True), ("tree", False), ("matrix", False)]
)
def test_nodes_are_forgotten_where_noise_is_labelled_by_trigger(counter: str, forget: bool) -> None:
    made = build(Parameters(counter=counter), SETTING)  # type: ignore[arg-type]
    assert made.forget is forget


@pytest.mark.parametrize("bound", [1, 2, 5])
@pytest.mark.parametrize("share", [Fraction(1, 4), Fraction(1, 2)])
def test_all_events_of_a_unit_cost_epsilon(bound: int, share: Fraction) -> None:
    epsilon = Fraction(7, 3)
    split, count = budget(Parameters(selection="private", share=share, bound=bound), epsilon)
    assert bound * (split + count) == epsilon
    if bound > 1:
        lasting = Parameters(selection="private", share=share, bound=bound, lifetime=3)
        split, count = budget(lasting, epsilon)
        assert bound // 2 * (split + 2 * count) == epsilon


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("selection", {"selection": "magic"}),
        ("share", {"selection": "private", "share": 2}),
        ("share", {"selection": "private", "share": 0}),
        ("share", {"selection": "private", "share": 1}),
        ("counter", {"counter": "exact"}),
        ("block size", {"counter": "block", "block": 0}),
        ("factorization", {"counter": "matrix", "factorization": "magic"}),
        ("forget", {"counter": "tree", "forget": True}),
        ("forget", {"counter": "matrix", "forget": True}),
        ("floor", {"floor": 9}),
        ("theta", {"theta": -1}),
        ("resolution", {"resolution": -1}),
        ("smoothing", {"smoothing": -1}),
        ("first", {"first": 21}),
        ("first", {"first": 0}),
        ("bound", {"bound": 0}),
        ("bound", {"bound": 2**16}),
        ("bound", {"lifetime": 3}),
        ("lifetime", {"lifetime": -1}),
        ("deletions", {"lifetime": 3, "bound": 2, "deletions": True}),
    ],
)
def test_bad_parameters_are_named(name: str, parameters: dict[str, object]) -> None:
    with pytest.raises(ParameterError) as error:
        build(Parameters(**parameters), SETTING)  # type: ignore[arg-type]
    assert error.value.name == name


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("columns", {"columns": (("v", 0, 1),)}),
        ("keys", {"keys": (b"a",)}),
        ("count", {"count": False}),
        ("epsilon", {"epsilon": Fraction(0)}),
        ("delta", {"delta": Fraction(0)}),
    ],
)
def test_settings_that_clash_are_named(name: str, change: dict[str, object]) -> None:
    setting = Setting(**{"epsilon": Fraction(1), "delta": Fraction(1, 9), "horizon": 9, **change})  # type: ignore[arg-type]
    with pytest.raises(ParameterError) as error:
        build(Parameters(counter="matrix"), setting)
    assert error.value.name == name
