"""The default bound: what it depends on, and that deployments keep the one they began with."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from hushstream.agents.deployment.compile import compile_config
from hushstream.errors import ParameterError
from hushstream.mechanisms.contract import Setting
from hushstream.mechanisms.histogram.default_bound import NEWEST, default_bound
from hushstream.mechanisms.histogram.settings import HistogramParameters, bound_of
from hushstream.mechanisms.quantile.settings import QuantileParameters
from hushstream.topics.config.load import loads

SETTING = Setting(Fraction(1), Fraction(1, 10**6), 24)
HEAD = """
[[input]]
name = "events"
topic = "raw"
unit = "user"
time = { field = "t", format = "iso" }
[[pipeline]]
name = "pages"
input = "events"
key = ["page"]
window = { length = "1d" }
triggers = { every = "1d" }
budget = { epsilon = 6, delta = 1e-6 }
"""


@pytest.mark.parametrize(
    ("epsilon", "horizon", "delay", "found"),
    [
        ("1", 1_000_000, 1, 12), ("1", 24, 1, 13), ("1", 24, 0, 12), ("1", 1, 1, 24),
        ("1", 1, 0, 24), ("6", 24, 1, 31), ("6", 1, 1, 58), ("4", 2, 1, 48), ("4", 4, 1, 36),
        ("0.01", 1, 1, 12), ("100", 1, 1, 96),
    ],
)  # fmt: skip
def test_more_epsilon_and_fewer_triggers_give_a_larger_bound(
    epsilon: str, horizon: int, delay: int, found: int
) -> None:
    setting = replace(SETTING, epsilon=Fraction(epsilon), horizon=horizon)
    assert default_bound(2, setting, delay) == found
    assert default_bound(1, setting, delay) == 12


def test_listed_keys_and_windows_that_overlap_have_one_bound_in_all_versions() -> None:
    for version in range(1, NEWEST + 1):
        assert default_bound(version, replace(SETTING, keys=(b"a",)), 1) == 4
        assert default_bound(version, replace(SETTING, hops=3), 1) == 12


def test_bounds_of_another_kind_and_quantiles_keep_theirs() -> None:
    loud = replace(SETTING, epsilon=Fraction(6))
    assert bound_of(HistogramParameters(bound="records"), loud).left == 12
    of_quantiles = bound_of(QuantileParameters(0, 1).histogram, loud)
    assert of_quantiles.left == 12 * of_quantiles.weights[0]


@pytest.mark.parametrize("version", [0, NEWEST + 1])
def test_an_unknown_version_is_refused(version: int) -> None:
    with pytest.raises(ParameterError, match="defaults"):
        HistogramParameters(defaults=version)


def compiled(settings: str, more: str = "") -> tuple[str, int]:
    """The charged hash, and the bound, of a pipeline with these settings."""
    text = f'{HEAD}{more}\nmechanism = {{ kind = "histogram"{settings} }}\n'
    (p,) = compile_config(loads(text, environ={})).pipelines
    bound = p.mechanism.bound  # type: ignore[attr-defined]
    return p.config_hash, bound.left // bound.weights[0]


def test_another_default_is_another_charge_and_never_comes_unseen() -> None:
    new, old = compiled(""), compiled(", defaults = 1")
    assert (new[1], old[1]) == (58, 12)
    assert new[0] != old[0]


def test_the_version_is_charged_only_where_it_decides() -> None:
    assert compiled(", budget = 8") == compiled(", budget = 8, defaults = 1")
    listed = 'public_keys = [["a"]]'
    assert compiled("", listed) == compiled(", defaults = 1", listed)
    records = ', bound = "records"'
    assert compiled(records) == compiled(records + ", defaults = 1")


def test_what_was_charged_before_there_were_versions_is_charged_alike() -> None:
    names = set(HistogramParameters(defaults=1).pinned())
    assert "defaults" not in names
    assert names == set(HistogramParameters().pinned()) - {"defaults"}
