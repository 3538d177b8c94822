"""The way from settings to a PrivHP mechanism."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

from ...errors import ParameterError
from ..contract import Setting
from ..parts.sketch import Sketch, SketchKind
from ..spatial.domain import Domain
from ..validate import at_least, one_of, positive
from .layout import SumLayout
from .mechanism import PrivHP, SumNoise
from .noise import MatrixNoise, TreeNoise

_UNIT = Domain.unit(2, depth=20)


@dataclass(frozen=True)
class PrivHPParameters:
    """The settings of a user.

    Attributes:
        domain: public geometry (binary split), or its plain form (`Domain.to_json`).
        k: nodes refined per level below the exact ones; sets the size of a release.
        width: w, buckets of a sketch row (default 2k).
        rows: j, rows of a sketch.
        exact: last level with a counter per node (default ⌊log2 k⌋).
        sketch: "count" (unbiased) or "min".
        seed: public seed of the hash functions.
        prune: "top" or "threshold".
        bar: standard deviations of noise that a node must exceed to be refined ("threshold").
        decode: "joint" estimates all children of a level together, "single" each on its own.
        noise: "laplace" (pure ε, a tree over triggers) or "gauss" (needs δ, a matrix).
        factorization: the matrix ("gauss" only): auto, terminal, final, toeplitz, blt, tree,
            honaker.
        bound: most records of one unit in an epoch, deletions included.
        deletions: whether records of sign -1 count.
    """

    domain: Domain | Mapping[str, Any] = _UNIT
    k: int = 1024
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
    bound: int = 1
    deletions: bool = False


def build(parameters: PrivHPParameters, setting: Setting) -> PrivHP:
    """The mechanism.

    Raises:
        ParameterError: a parameter is out of range, or they clash with the setting.
    """
    _check(parameters, setting)
    given = parameters.domain
    domain = given if isinstance(given, Domain) else Domain.from_json(given)
    if domain.step != 1:
        raise ParameterError("domain.split", domain.split, "must be binary")
    counter = _counter(parameters, setting, _shape(parameters, domain))
    bar = Fraction(positive("bar", parameters.bar))
    return PrivHP(domain, counter, parameters.prune, bar, parameters.decode, parameters.deletions)


def _check(parameters: PrivHPParameters, setting: Setting) -> None:
    if setting.columns:
        raise ParameterError("columns", setting.columns, "privhp counts records, it sums nothing")
    if setting.keys is not None:
        raise ParameterError("keys", len(setting.keys), "cells of the domain are the keys")
    if not setting.count:
        raise ParameterError("count", setting.count, "counts are what privhp releases")
    one_of("prune", parameters.prune, ("top", "threshold"))
    one_of("decode", parameters.decode, ("joint", "single"))
    one_of("noise", parameters.noise, ("laplace", "gauss"))
    positive("epsilon", setting.epsilon)


def _shape(parameters: PrivHPParameters, domain: Domain) -> SumLayout:
    k = at_least("k", parameters.k, 1)
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
