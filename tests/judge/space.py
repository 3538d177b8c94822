"""Records as cells of a public box, their bound, and the private number of all records.

A node is coded as a leading 1 and the bits of its path; bit l halves coordinate l mod d. A domain
with a region drops points outside it and knows that cells outside are empty.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from .histogram import Judge, Release
from .purses import Costs
from .records import Event
from .region import Region, region
from .rows import named, utc
from .rules import Rules
from .slots import number
from .stream import Clock, Placed

LEFT = {"min_users": 1, "selection": "threshold", "debias": False}
CLEAR = 4  # correct only by a number of records that exceeds so many deviations


class SpaceRules(Rules):
    """What follows from the configuration of a map, for any mechanism."""

    floored = True
    laplace = True  # the law of the noise of counts

    def __init__(self, config: dict[str, Any], *more: Any) -> None:
        mechanism = config["mechanism"]
        self.own = dict(mechanism["parameters"])  # parameters that the histogram does not have
        super().__init__(config | {"mechanism": mechanism | {"parameters": LEFT}}, *more)

    def _bound(self) -> None:
        self.adaptive, self.cap = False, None
        self.costs = [Costs(*[Fraction(0)] * 3)]
        self.budget = self.own["bound"]

    def _noise(self) -> None:
        p, domain = self.own, self.own["domain"]
        self.region: Region | None = None
        self.axes, self.depth = domain["axes"], domain["depth"]
        self.step = 1 if domain["split"] == "binary" else len(self.axes)
        self.bits = self.depth * self.step
        self.epsilon = Fraction(self.config["budget"]["epsilon"])
        self.delta = Fraction(self.config["budget"]["delta"])
        self.most = p.get("debias_cap", 100)
        self.total = Fraction(0)  # ε of the number of all records
        if p.get("debias"):
            self.total = Fraction(p.get("debias_share", Fraction(1, 10))) * self.epsilon

    def situate(self, manifests: Iterable[Mapping[str, Any]]) -> None:
        """Learn the region from manifests."""
        self.region, self.seen = region(self.own["domain"], manifests), {}

    def kept(self, event: Event) -> bool:
        """Whether a point is in the box and in the region."""
        cell = self.cell(event.numbers)
        if cell is None or self.region is None:
            return cell is not None
        return self.region.holds(event.numbers, cell)

    def possible(self, code: int) -> bool:
        """Whether a node can contain records."""
        if self.region is None:
            return True
        if code not in self.seen:
            self.seen[code] = self.region.reaches(code, [*self.box(code).values()][:2])
        return self.seen[code]

    def cell(self, point: Sequence[float]) -> int | None:
        """The finest cell of a point; None if the point is outside the box."""
        each, places = -(-self.bits // len(self.axes)), []
        for x, axis in zip(point, self.axes, strict=True):
            x = x % axis["high"] if axis["kind"] == "day" else x
            if axis["kind"] == "integer" and x != math.floor(x):
                return None
            if not axis["low"] <= x <= axis["high"]:
                return None
            share = (x - axis["low"]) / width(axis)
            places.append(min(int(share * float(1 << each)), (1 << each) - 1))
        code = 1
        for bit in range(self.bits):
            place = places[bit % len(self.axes)]
            code = code << 1 | place >> (each - 1 - bit // len(self.axes)) & 1
        return code

    def box(self, code: int) -> dict[str, list[float]]:
        """Ends of a node's box by coordinate, in units of the record."""
        ends = [[0.0, 1.0] for _ in self.axes]
        for bit, one in enumerate(bin(code)[3:]):
            low, high = ends[bit % len(ends)]
            ends[bit % len(ends)][one == "0"] = (low + high) / 2
        return {axis["name"]: [axis["low"] + end * width(axis) for end in pair]
                for axis, pair in zip(self.axes, ends, strict=True)}  # fmt: skip


def width(axis: dict[str, Any]) -> float:
    """Length of a coordinate's range."""
    return float(axis["high"] - axis["low"] + (axis["kind"] == "integer"))


Counted = dict[int, tuple[list[int], list[float]]]
"""Values of each cell and their squared errors."""


class Events(NamedTuple):
    """Accepted insertions and deletions by finest cell, never offset, and all insertions."""

    inserts: Counter[int]
    deletes: Counter[int]
    all: list[int]  # a single number, in a list

    @classmethod
    def none(cls) -> "Events":
        return cls(Counter(), Counter(), [0])


class SpaceJudge(Judge):
    """Judge of a pipeline of points."""

    rules: Any

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.spent: dict[Any, int] = defaultdict(int)  # events of a unit in an epoch
        self.live: Counter[Any] = Counter()  # accepted insertions, by unit, window and cell
        self.met: dict[Any, int] = defaultdict(int)  # insertions in the number of all
        self.taken: dict[tuple[int, int], Events] = defaultdict(Events.none)
        self.number: dict[int, int] = defaultdict(int)  # number of all records, as last released
        self.renewed: dict[int, int] = {}  # by window: first trigger with its nonce

    def take(self, place: Any, one: Placed) -> None:
        """Accept what the unit's bound allows; a deletion needs an insertion that is still live."""
        rules, cell = self.rules, self.rules.cell(one.event.numbers)
        events, pair = self.taken[one.window, one.batch], (place, one.window, cell)
        if one.event.sign > 0 and rules.total and self.met[place] < rules.most:
            self.met[place] += 1
            events.all[0] += 1
        possible = one.event.sign > 0 or (rules.deletions and self.live[pair] > 0)
        if possible and self.spent[place] < rules.budget:
            self.spent[place] += 1
            self.live[pair] += one.event.sign
            (events.inserts if one.event.sign > 0 else events.deletes)[cell] += 1

    def begin(self, trigger: Clock) -> Events:
        """The records of the trigger's micro-batch; note whether its nonce is new."""
        window, t = trigger["window"], trigger["index"]
        self.windows[window].released = t
        if t == 1 or self.nonces.nonce(window, 0, t) != self.nonces.nonce(window, 0, t - 1):
            self.renewed[window] = t
        return self.taken.pop((window, t), Events.none())

    def all_records(self, trigger: Clock, more: int, key: bytes) -> int:
        """The released number of all records, including this trigger's."""
        scale, t = self.rules.most / self.rules.total, trigger["index"]
        drawn = self.noise.laplace("records", scale, trigger, t, key, t)
        self.number[trigger["window"]] += more + drawn
        return self.number[trigger["window"]]

    def corrected(
        self, leaves: Counted, grid: int, records: int, triggers: int
    ) -> tuple[Counted, dict[str, list[int]]]:
        """Counts of leaves, scaled so that they add up to the number of all records."""
        counted = sum(values[0] for values, _ in leaves.values())
        rules, public = self.rules, {"records": [records], "counted": [counted // grid]}
        spread = triggers * 2 * float(rules.most / rules.total) ** 2
        if counted <= 0 or records <= 0 or records**2 < CLEAR**2 * spread:
            return leaves, public
        factor = min(max(records * grid / counted, 1.0), rules.most / rules.own["bound"])
        made = {}
        for code, (values, squares) in leaves.items():
            scaled = [round(value * factor) for value in values]
            far = [float(n) ** 2 * (spread / records**2) for n in scaled]
            wide = [s * factor**2 + more for s, more in zip(squares, far, strict=True)]
            made[code] = scaled, wide
        return made, public

    def told(
        self, trigger: Clock, leaves: Counted,
        names: Sequence[str], grid: int, public: dict[str, list[int]],
    ) -> Release:  # fmt: skip
        """Rows of leaves: values and their squared errors, in 1/grid records."""
        rules, rows, release = self.rules, {}, self.rules.config["release"]
        for code, (values, squares) in leaves.items():
            key = code.to_bytes(8, "big")
            shown = {
                name: number(
                    Fraction(value, grid),
                    math.sqrt(square) / grid,
                    release,
                    True,
                    Fraction(1, grid),
                    rules.laplace,
                )
                for name, value, square in zip(names, values, squares, strict=True)
            }
            row = named(rules, trigger, key, {"cell": key.hex()}, shown)
            rows[key.hex().encode()] = row | {"box": rules.box(code)}
        return Release(trigger, utc(rules.opens(trigger["window"])), rows, {}, None, public=public)
