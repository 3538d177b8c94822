"""Settings of PrivHP, and its construction from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal

from ...errors import ParameterError
from ..accounting import tree_levels
from ..contract import Setting
from ..parts.sketch import Sketch, SketchKind
from ..spatial.domain import Domain
from ..spatial.settings import MapParameters, check_counts
from ..validate import at_least, one_of, positive
from .layout import SumLayout
from .mechanism import PrivHP
from .noise import MatrixNoise, SumNoise, TreeNoise

_UNIT = Domain.unit(2, depth=20)
USUAL = 50_000
"""Records of a window if no expected number is configured."""

_LEAST, _LARGEST = 16, 1 << 14


@dataclass(frozen=True)
class PrivHPParameters(MapParameters):
    """A user's settings in addition to those of `MapParameters`; the domain's split is binary.

    Attributes:
        k: nodes refined per level below the exact ones; sets the size of a release. None = chosen
            from ε and ``expected`` (`nodes_for`).
        expected: public guess of a window's records, never taken from the data; 0 = `USUAL`.
        width: w, buckets of a sketch row (default 2k).
        rows: j, rows of a sketch.
        exact: last level with a counter per node (default ⌊log2 k⌋).
        sketch: "count" (unbiased) or "min".
        seed: public seed of the hash functions.
        prune: "top" or "threshold".
        bar: standard deviations of noise that a node must exceed to be refined ("threshold").
        decode: "joint" estimates all children of a level together, "single" each separately.
        noise: "laplace" (pure ε, a tree over triggers) or "gauss" (needs δ, a matrix).
        factorization: the matrix ("gauss" only): auto, terminal, final, toeplitz, blt, normalized,
            tree, honaker.
    """

    domain: Domain | Mapping[str, Any] = _UNIT
    k: int | None = None
    expected: int = 0
    width: int | None = None
    rows: int = 1
    exact: int | None = None
    sketch: SketchKind = "count"
    seed: int = 0
    prune: Literal["top", "threshold"] = "top"
    bar: float = 2.0
    decode: Literal["joint", "single"] = "joint"
    noise: Literal["laplace", "gauss"] = "laplace"
    factorization: str = "auto"


def build(parameters: PrivHPParameters, setting: Setting) -> PrivHP:
    """The mechanism.

    Raises:
        ParameterError: a parameter is out of range, or they clash with the setting.
    """
    _check(parameters, setting)
    domain = parameters.geometry
    if domain.step != 1:
        raise ParameterError("domain.split", domain.split, "must be binary")
    total = parameters.total(setting.epsilon)
    if total is not None:
        setting = replace(setting, epsilon=setting.epsilon - total.epsilon)
    counter = _counter(parameters, setting, _shape(parameters, setting, domain))
    bar = Fraction(positive("bar", parameters.bar))
    given = (parameters.prune, bar, parameters.decode, parameters.deletions)
    return PrivHP(domain, counter, *given, total=total)


def _check(parameters: PrivHPParameters, setting: Setting) -> None:
    check_counts("privhp", setting)
    one_of("prune", parameters.prune, ("top", "threshold"))
    one_of("decode", parameters.decode, ("joint", "single"))
    one_of("noise", parameters.noise, ("laplace", "gauss"))
    if parameters.debias and parameters.deletions:
        raise ParameterError("debias", True, "needs deletions = false")


def nodes_for(epsilon: Fraction, expected: int, noises: int) -> int:
    """k: the power of two nearest to 5·√(records·ε), between 16 and 16,384.

    More nodes divide ε among more levels, and each holds fewer records; a node's noise grows as
    1/ε. The rule was found on data for which no figure is reported, with records·ε from 200 to
    300,000.

    Args:
        epsilon: ε of the window.
        expected: records of the window.
        noises: draws that one record pays for: bound times heights of the tree over triggers.

    >>> [nodes_for(Fraction(1, 10), n, 1) for n in (2_000, 20_000, 10**6)]
    [64, 256, 2048]
    """
    square, k = 25 * expected * epsilon / noises, _LEAST
    while k < _LARGEST and 2 * k**2 <= square:  # in whole numbers: the same on every machine
        k *= 2
    return k


def _nodes(parameters: PrivHPParameters, setting: Setting) -> int:
    expected = at_least("expected", parameters.expected, 0)
    if parameters.k is not None:
        return at_least("k", parameters.k, 1)
    bound = at_least("bound", parameters.bound, 1)
    heights = tree_levels(setting.horizon) if parameters.noise == "laplace" else 1
    return nodes_for(setting.epsilon, expected or USUAL, bound * heights)


def _shape(parameters: PrivHPParameters, setting: Setting, domain: Domain) -> SumLayout:
    k = _nodes(parameters, setting)
    width = 2 * k if parameters.width is None else parameters.width
    exact = parameters.exact
    if exact is None:
        exact = min(k.bit_length() - 1, domain.bits)
    sketch = Sketch(parameters.sketch, width, parameters.rows, parameters.seed)
    return SumLayout(domain.dimensions, domain.bits, exact, k, sketch)


def _counter(parameters: PrivHPParameters, setting: Setting, shape: SumLayout) -> SumNoise:
    horizon, bound = setting.horizon, at_least("bound", parameters.bound, 1)
    if parameters.noise == "laplace":
        return TreeNoise.calibrated(shape, horizon, bound, setting.epsilon)
    return MatrixNoise.calibrated(shape, setting, bound, parameters.factorization)
