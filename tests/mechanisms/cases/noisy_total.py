"""A seventh mechanism in one file: the noisy running total of one value, as a package would add it.

``tests/integration/test_installed_mechanism.py`` installs `ENTRY` through an entry point and runs
it through every part of the product. It is also the example of ``docs/architecture.md``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Literal

import numpy as np
from hushstream.errors import ParameterError
from hushstream.mechanisms.accounting import tree_levels
from hushstream.mechanisms.columns import (
    F64,
    I64,
    Batch,
    Closed,
    Encoded,
    Part,
    Releases,
    Rows,
    Units,
    empty_part,
    empty_units,
)
from hushstream.mechanisms.contract import NOTHING_MORE, Cost, Noise, Output, Place, Setting, Stated
from hushstream.mechanisms.entry import Entry, as_given, no_objection
from hushstream.mechanisms.keys import Keys
from hushstream.mechanisms.parts.hierarchy import laplace_variance
from hushstream.mechanisms.parts.point_bound import insertions
from hushstream.mechanisms.parts.stated_bound import stated_records
from hushstream.mechanisms.ranges import Draws, laplace
from hushstream.mechanisms.testing import Trace
from hushstream.mechanisms.validate import at_least, positive
from numpy.typing import NDArray

from ..case import Case

ALL = Keys.of([b""])


@dataclass(frozen=True)
class NoisyTotal:
    """The total of all values of a window so far, from a binary tree over its triggers.

    Guarantee (add or remove all records of one unit): each of its at most ``bound`` records moves
    at most H(T) = ⌊log2 T⌋ + 1 nodes by at most ``reach``, so discrete Laplace noise of scale
    bound·reach·H/ε makes all totals of an epoch ε-differentially private.

    Attributes:
        horizon: T, triggers of a window.
        low, high: values are clipped to this interval, in grid steps.
        grid: size of one step of a value.
        epsilon: per unit and epoch.
        bound: most records of one unit in an epoch.
    """

    routing: ClassVar[Literal["key", "single"]] = "single"
    load: ClassVar[Literal["due", "all"]] = "all"
    feedback: ClassVar[bool] = False
    row_dtype: ClassVar[np.dtype[Any]] = np.dtype([("total", np.int64)])
    columns: ClassVar[int] = 1
    totals: ClassVar[int] = 0
    lanes: ClassVar[int] = 1
    inputs: ClassVar[tuple[str, ...]] = ("value",)
    distribution: ClassVar[Literal["discrete_laplace"]] = "discrete_laplace"
    definition: ClassVar[Literal["pure"]] = "pure"
    neighbouring: ClassVar[Literal["add_remove"]] = "add_remove"
    key_form: ClassVar[Literal["code"]] = "code"
    key_fields: ClassVar[tuple[str, ...]] = ()
    replaces: ClassVar[bool] = False
    survey: ClassVar[None] = None

    horizon: int
    low: int
    high: int
    grid: Fraction
    epsilon: Fraction
    bound: int

    @property
    def outputs(self) -> tuple[Output, ...]:
        return (Output("total", self.grid),)

    @property
    def scale(self) -> Fraction:
        """Of the noise of one node, in grid steps."""
        reach = max(abs(self.low), abs(self.high), 1)
        return self.bound * reach * tree_levels(self.horizon) / self.epsilon

    def encode(self, columns: Mapping[str, NDArray[Any]]) -> Encoded:
        value = columns["value"] / float(self.grid)
        keep = np.isfinite(value)
        steps = np.rint(np.clip(np.where(keep, value, 0), self.low, self.high)).astype(np.int64)
        return Encoded(ALL, np.zeros(len(value), np.intp), steps[:, None], keep)

    def init_units(self, u: int) -> Units:
        return empty_units(u, self.lanes, self.bound)

    def absorb(self, units: Units, batch: Batch) -> tuple[Units, Part]:
        units, accepted = insertions(units, batch)
        if not accepted.any():
            return units, empty_part(self.columns)
        value = np.clip(batch.value[accepted, 0], self.low, self.high)
        sums = np.array([[accepted.sum(), value.sum()]])
        return units, Part(ALL, np.zeros(1, np.uint8), sums, np.zeros(0, np.int64))

    def init_rows(self, key: Keys) -> Rows:
        return Rows(key, np.zeros(len(key), self.row_dtype), np.zeros(len(key), np.int32))

    def release(self, closed: Closed, noise: Noise) -> tuple[Rows, Releases]:
        """The total with the noise of the nodes that the binary digits of t select."""
        rows = self.init_rows(ALL)
        rows.cell["total"] = closed.rows.cell["total"].sum() + closed.part.sums[:, 1].sum()
        t = closed.t
        digits = [i for i in range(t.bit_length()) if t >> i & 1]
        nodes = np.array([i << 32 | (t >> i) - 1 for i in digits], np.int64)
        ends = np.array([t >> i << i for i in digits], np.int64)  # a node's last trigger
        drawn = noise.laplace("total", ALL, nodes, self.scale, ends).sum()
        variance = np.array([[self.error(t)[0] ** 2]])
        value = rows.cell["total"][:, None] + drawn
        return rows, Releases(ALL, value, variance, np.ones(1, np.int32), {})

    def cost(self) -> Cost:
        return Cost(epsilon=self.epsilon)

    def draws(self) -> tuple[Draws, ...]:
        return (laplace("value", self.scale, tree_levels(self.horizon)),)

    def error(self, t: int) -> F64:
        return np.sqrt([t.bit_count() * laplace_variance(self.scale)])

    def stated(self, unit: str) -> Stated:
        return NOTHING_MORE

    def bounds(self, unit: str) -> dict[str, Any]:
        return stated_records(self.bound, unit)

    def key_threshold(self, t: int) -> Fraction | None:
        return None

    def places(self, keys: Keys) -> list[Place]:
        return [Place({}, {}) for _ in range(len(keys))]

    def geometry(self) -> dict[str, Any]:
        return {}

    def digests(self) -> tuple[str, ...]:
        return ()

    def plan(self) -> dict[str, Any]:
        return {"total": {"scale": float(self.scale)}}

    def plan_rows(self, unit: str) -> list[tuple[str, str]]:
        return [("noise of a node", f"discrete Laplace of scale {float(self.scale):g}")]


@dataclass(frozen=True)
class NoisyTotalParameters:
    """Settings of ``mechanism = "noisy-total"``.

    Attributes:
        bound: most records of one unit in an epoch.
    """

    bound: int = 1


def build(parameters: NoisyTotalParameters, setting: Setting) -> NoisyTotal:
    """The mechanism; raises `ParameterError` unless there is exactly one value column."""
    if setting.keys is not None or len(setting.columns) != 1:
        raise ParameterError("aggregate", setting.columns, "needs one value, and no public keys")
    ((_, low, high),) = setting.columns
    return NoisyTotal(
        at_least("horizon", setting.horizon, 1), low, high, setting.grids[0],
        positive("epsilon", setting.epsilon), at_least("bound", parameters.bound, 1),
    )  # fmt: skip


ENTRY = Entry(
    name="noisy-total",
    summary="the noisy running total of one value",
    parameters=NoisyTotalParameters,
    mechanisms=(NoisyTotal,),
    grouped=False,
    build=build,
    framed=as_given,
    objections=no_objection,
    advisor=None,
)


# For the contract suite


def trace(draw: np.random.Generator, n: int = 200) -> Trace:
    """Values of thirty units over seven triggers, some of them out of bounds."""
    trigger = np.sort(draw.integers(1, 8, n)).astype(np.intp)
    value = draw.integers(-30, 30, (n, 1))
    sign = np.where(draw.random(n) < 0.1, -1, 1).astype(np.int8)
    return Trace(trigger, draw.integers(0, 30, n), ALL, np.zeros(n, np.intp), value, sign)


def exact(mechanism: NoisyTotal, events: Trace, releases: Sequence[Releases]) -> None:
    """Each total is that of the first insertions of each unit so far, one by one."""
    left: dict[int, int] = {}
    total, said = 0, [release.value.tolist() for release in releases]
    for t in range(1, mechanism.horizon + 1):
        for row in np.flatnonzero(events.trigger == t).tolist():
            unit = int(events.unit[row])
            if events.sign[row] > 0 and left.setdefault(unit, mechanism.bound) > 0:
                left[unit] -= 1
                total += min(max(int(events.value[row, 0]), mechanism.low), mechanism.high)
        assert said[t - 1] == [[total]]


def distance(mechanism: NoisyTotal, first: Sequence[Part], second: Sequence[Part]) -> float:
    """Privacy loss of the changed micro-batches: each is in at most H nodes."""
    sums: list[I64] = [
        np.array([part.sums[:, 1].sum() for part in parts]) for parts in (first, second)
    ]
    moved = int(np.abs(sums[0] - sums[1]).sum())
    return float(moved * tree_levels(mechanism.horizon) / mechanism.scale)


def case(name: str, parameters: NoisyTotalParameters, epsilon: Fraction) -> Case:
    """One configuration of seven triggers and values in [-8, 20]."""
    setting = Setting(epsilon, Fraction(0), 7, columns=(("v", -8, 20),), grids=(Fraction(1, 2),))
    mechanism = build(parameters, setting)
    return Case(
        name, mechanism, trace,
        lambda events, releases: exact(mechanism, events, releases),
        lambda first, second: distance(mechanism, first, second),
        bound=float(epsilon),
    )  # fmt: skip


CASES = [
    case("noisy-total", NoisyTotalParameters(), Fraction(1)),
    case("noisy-total-many", NoisyTotalParameters(bound=4), Fraction(1, 2)),
]
