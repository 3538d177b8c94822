from __future__ import annotations

from fractions import Fraction

import pytest
from hushstream.errors import ParameterError
from hushstream.mechanisms.catalogue import find
from hushstream.mechanisms.contract import Setting
from hushstream.mechanisms.privhp.noise import MatrixNoise, TreeNoise
from hushstream.mechanisms.privhp.settings import USUAL, PrivHPParameters, build, nodes_for
from hushstream.mechanisms.spatial.domain import Domain

SETTING = Setting(Fraction(1), Fraction(1, 10**6), 4)


def test_defaults_follow_k() -> None:
    mechanism = build(PrivHPParameters(k=100), SETTING)
    assert mechanism.shape.exact == 6 and mechanism.shape.keep == 100
    assert mechanism.shape.sketch.width == 200 and mechanism.shape.depth == 20
    assert build(PrivHPParameters(Domain.unit(1, 3), k=100), SETTING).shape.exact == 3
    assert isinstance(mechanism.counter, TreeNoise)


def test_k_follows_epsilon_and_the_expected_records() -> None:
    """The power of two nearest to 5·√(n·ε), with ε divided by the heights and the bound."""
    for epsilon, expected in ((Fraction(1, 10), 2_000), (Fraction(1), 10**6)):
        k, ideal = nodes_for(epsilon, expected, 1), 5 * float(expected * epsilon) ** 0.5
        assert k & (k - 1) == 0 and 2**-0.5 < k / ideal <= 2**0.5
    assert [nodes_for(Fraction(1), n, 1) for n in (1, 10**12)] == [16, 1 << 14]
    once = Setting(Fraction(1), Fraction(0), 1)
    assert build(PrivHPParameters(), once).shape.keep == nodes_for(Fraction(1), USUAL, 1) == 1024
    assert build(PrivHPParameters(expected=10**6), once).shape.keep == 4096
    assert build(PrivHPParameters(expected=10**6, bound=16), once).shape.keep == 1024
    four = build(PrivHPParameters(expected=10**6), SETTING)  # three heights
    assert four.shape.keep == nodes_for(Fraction(1), 10**6, 3) < 4096
    assert build(PrivHPParameters(expected=10**6, k=7), once).shape.keep == 7


def test_domain_may_come_as_plain_data() -> None:
    domain = Domain.unit(2, 9)
    plain = build(PrivHPParameters(domain.to_json()), SETTING)
    assert plain == build(PrivHPParameters(domain), SETTING)
    assert plain.traits.inputs == ("x1", "x2")


def test_gauss_builds_a_matrix_counter() -> None:
    mechanism = build(PrivHPParameters(k=4, noise="gauss", factorization="toeplitz"), SETTING)
    assert isinstance(mechanism.counter, MatrixNoise)
    assert mechanism.cost().mu2 > 0 and 0 < mechanism.cost().delta < SETTING.delta


def test_registered() -> None:
    assert find("privhp").build is build
    assert find("privhp").parameters is PrivHPParameters


@pytest.mark.parametrize(
    "given",
    [{"k": 0}, {"expected": -1}, {"width": 0}, {"rows": 2}, {"exact": 21}, {"sketch": "x"},
     {"seed": -1}, {"prune": "x"}, {"bar": 0.0}, {"decode": "x"}, {"noise": "x"}, {"bound": 0},
     {"domain": Domain.unit(2, 4, "all")}, {"noise": "gauss", "factorization": "x"}],
)  # fmt: skip
def test_bad_parameters_are_refused(given: dict[str, object]) -> None:
    with pytest.raises(ParameterError):
        build(PrivHPParameters(**given), SETTING)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "setting",
    [Setting(Fraction(0), Fraction(0), 1), Setting(Fraction(1), Fraction(0), 1, count=False),
     Setting(Fraction(1), Fraction(0), 1, keys=(b"a",)),
     Setting(Fraction(1), Fraction(0), 1, columns=(("x", 0, 1),)),
     Setting(Fraction(1), Fraction(0), 0)],
)  # fmt: skip
def test_clashing_settings_are_refused(setting: Setting) -> None:
    with pytest.raises(ParameterError):
        build(PrivHPParameters(), setting)
