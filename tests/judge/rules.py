"""Rules of a histogram, from its public configuration: bound, noise, thresholds."""

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any

from .endless import Bars
from .matrices import matrix
from .numbers import hopping, sampling, spent, thresholds, variances
from .purses import Costs, Purses, fits, together
from .records import Event, columns, counted, key_bytes
from .windows import Windows

MOST = 2**16 - 1  # records of one unit with one key and lane
S, V = 0, 1  # lanes: records of a key before and after it is public
COUNTING = {"count", "mean", "variance", "stddev", "distinct"}
COUNTERS = ("arrived/S", "arrived/V", "accepted/S", "accepted/V")


class Rules(Windows):
    """What follows from the canonical configuration of a pipeline, as the ledger has it.

    Args:
        config: canonical configuration.
        listed: the public keys.
        shards: number of shards that publish.
        beside: rules of the pipelines that share a budget with this one.
    """

    def __init__(
        self,
        config: dict[str, Any],
        listed: Iterable[Sequence[Any]] | None,
        shards: int = 1,
        beside: Iterable["Rules"] = (),
    ) -> None:
        self.shards, self.beside = shards, tuple(beside)
        self.parameters = config["mechanism"]["parameters"]
        self.listed = None if listed is None else {key_bytes(key) for key in listed}
        super().__init__(config)
        self.delay, self.least = config["feedback_delay"], self.parameters["min_users"]
        kinds = {a["kind"] for a in config["aggregate"]}
        self.keys_only = not kinds
        self.shows_count = any(
            a["kind"] in COUNTING and "where" not in a for a in config["aggregate"]
        )
        self.counted = listed is None or self.shows_count  # a count is also needed to find keys
        self.columns = columns(config)
        spreads = [a for a in config["aggregate"] if a["kind"] in ("variance", "stddev")]
        spread = {a.get("column") or a["field"] for a in spreads}
        self.squared = [n for n, c in enumerate(self.columns) if c.path in spread]
        # If another column counts a column's records: the place of that column.
        known = {c.path: n for n, c in enumerate(self.columns)}
        self.count = {known[a["column"]]: known[counted(a)] for a in spreads if "where" in a}
        self.limits = [
            (low, high) if c.where is None or n in self.count else (min(low, 0), max(high, 0))
            for n, c in enumerate(self.columns)
            for low, high in [(round(c.low / c.grid), round(c.high / c.grid))]
        ]
        self.middle = [
            (low + high) // 2 * (n in self.count or (self.counted and c.where is None))
            for n, ((low, high), c) in enumerate(zip(self.limits, self.columns, strict=True))
        ]
        self.distinct, self.rounds = "distinct" in kinds, self.parameters["selection"] == "rounds"
        self._bound()
        self._noise()

    def _bound(self) -> None:
        """The bound and its prices: raising a unit's count in a key from m costs weight·(2m+1)."""
        p, unknown = self.parameters, self.listed is None
        default = 32 if self.rounds else 12 if unknown else 4
        budget = written(default if p["budget"] is None else p["budget"])
        self.quadratic = p["bound"] == "quadratic" and not self.rounds
        weight = written(p["adaptive_weight"] or 1)
        if p["adaptive_weight"] is None and budget >= 3 and self.hops == 1 and not self.endless:
            weight = Fraction(3, 10)
        two = unknown and self.quadratic and not self.keys_only and (weight < 1 or self.least > 1)
        self.weights = [weight.denominator**2, weight.numerator**2] if two else [1]
        self.caps = [1 if self.least > 1 and self.quadratic else MOST, MOST]
        self.per_key = p["per_key"] or MOST
        self.budget = int(budget * self.weights[S])
        self.most = min(self.per_key, self.budget)  # of one unit with one key
        self.adaptive = unknown and (two or self.keys_only or self.rounds)

    def _noise(self) -> None:
        """The variance of every noise process, by purpose, in squared steps; and the thresholds."""
        p, config = self.parameters, self.config
        name = "honaker" if self.rounds and p["factorization"] == "auto" else p["factorization"]
        self.matrix = self.endless or matrix(name, self.horizon)
        if self.hops > 1:
            self.matrix = matrix("hopping", self.per_epoch, self.hops)
        moved = self._moved()
        names = ["count"] * self.counted + [f"sum:{c.path}" for c in self.columns]
        reach = [max(high - middle, middle - low, 1)
                 for (low, high), middle in zip(self.limits, self.middle, strict=True)]  # fmt: skip
        share = written(p["count_share"]) if self.columns else Fraction(1)
        # A square and its column move together: the more a record moves one, the less the other.
        self.names = ["count", *(f"sum:{c.path}" for c in self.columns)]
        self.names += [f"square:{self.columns[n].path}" for n in self.squared]
        self.squares = {n: self._square(reach[n]) for n in self.squared}
        sizes2 = [1] * self.counted + [
            step * top
            for step, top in (self.squares.get(n, (r * r, 1)) for n, r in enumerate(reach))
        ]
        # A record is in one column of a group at most, so a group costs as much as reach 1.
        group = {name: names for names in config.get("apart", ()) for name in names}
        heads = list(dict.fromkeys(tuple(group.get(c.path, [c.path])) for c in self.columns))
        each = (1 - share * self.counted) / max(1, len(heads))
        shares = [share] * self.counted + [each] * len(self.columns)
        unit = self.matrix.sensitivity2 * 4**self.matrix.bits
        kept = Fraction(100 - p["debias"], 100)
        unit *= self._replaced() if self.distinct else 1
        if self.rounds:  # half of the budget selects; there, a record moves a unit's count by one
            names, sizes2 = ["select", *names], [0, *sizes2]
            shares = [Fraction(1, 2), *[Fraction(1, 2 * len(reach) + 2)] * (1 + len(reach))]
        needs: list[tuple[Fraction, ...]] = [
            ((moved * size2 or self.budget) * unit, kept * part)
            for size2, part in zip(sizes2, shares, strict=True)
        ]
        firsts = {head[0]: head for head in heads}
        own = [n for n, c in enumerate(self.columns) if c.path in firsts]
        needs = needs[: len(needs) - len(self.columns)] + [
            needs[len(needs) - len(self.columns) + n] if len(firsts[self.columns[n].path]) == 1
            else (moved * unit, kept * each)
            for n in own
        ]  # fmt: skip
        for n, (_, top) in self.squares.items():
            names.append(f"square:{self.columns[n].path}")
            needs.append((moved * top**2 * unit, kept * each, Fraction(1)))
        records = max(1, self.budget // min(self.weights))
        touched = records * self.matrix.horizon * (1 + self.distinct)
        if p["debias"]:
            cap = p["debias_cap"]
            # Each shard publishes these counters, with its own noise.
            needs += [(self.shards * unit * end**2, Fraction(1, 200))
                      for end in (cap, min(records, cap))]  # fmt: skip
            touched += 2 * cap * self.horizon * self.shards
        epsilon, delta = (Fraction(config["budget"][name]) for name in ("epsilon", "delta"))
        selecting = delta * written(p["threshold_delta_share"]) * (self.listed is None)
        found = variances((epsilon, delta), tuple(needs), touched, selecting)
        self._purse(needs, found, touched, selecting)
        before = len(names) - len(self.columns) - len(self.squares)
        bought = dict(zip(firsts.values(), found[before:], strict=False))
        columns = [
            bought[head] * (sizes2[n - len(self.columns)] if len(head) > 1 else 1)
            for n, c in enumerate(self.columns)
            for head in [tuple(group.get(c.path, [c.path]))]
        ]
        found = [*found[:before], *columns, *found[before + len(heads) :]]
        for place, (n, (step, top)) in enumerate(self.squares.items(), before + len(columns)):
            if n in self.count:  # at least in proportion to the column's noise
                found[place] = max(found[place], columns[n] * top / step)
        self.variance = {
            f"{name}/{lane}": variance * self.weights[S] / weight
            for name, variance in zip(names, found, strict=False)
            for lane, weight in zip("SV", self.weights, strict=False)
        }
        if self.rounds:
            self.variance["select"] = self.variance.pop("select/S")
        for place, name in enumerate(COUNTERS if p["debias"] else ()):
            self.variance[f"debias/{name}"] = found[place // 2 - 2]
        self.thresholds: list[int] | Bars = []
        if self.listed is None:
            self._select("select" if self.rounds else "count/S", selecting)

    def _moved(self) -> Fraction:
        """The largest Σ m² of one unit."""
        full, rest = divmod(self.budget, self.most)
        if self.rounds:
            return Fraction(self.budget**2)
        if self.quadratic:
            return Fraction(self.budget, self.weights[S])
        return Fraction(full * self.most**2 + rest**2)

    def _select(self, name: str, selecting: Fraction) -> None:
        """The thresholds of a noisy count; ``selecting`` is the δ that they use."""
        if self.hops > 1:
            alone = math.isqrt(self.budget) if self.quadratic else self.most
            self.thresholds = hopping(
                self.matrix, self.hops, self.variance[name], selecting, (self._moved(), alone)
            )
            return
        alone = math.isqrt(self.budget // self.weights[S]) if self.quadratic else self.most
        if self.endless:
            exposure = (self._moved(), min(alone, self.caps[S]), self.least)
            self.thresholds = Bars(self.endless, (self.variance[name], selecting), exposure)
            return
        last, T = written(self.parameters["last_share"]), self.horizon
        beta = [selecting * (1 - last) / (T - 1)] * (T - 1) if T > 1 else []
        beta.append(selecting * last if T > 1 else selecting)
        exposure = (self._moved(), min(alone, self.caps[S]))
        if self.rounds:
            exposure = (Fraction(self.budget), 1)
        self.thresholds = thresholds(self.matrix, self.variance[name], beta, exposure, self.least)

    def kept(self, event: Event) -> bool:
        """Whether a public rule of the mechanism keeps a record."""
        return self.listed is None or event.key in self.listed

    def moved(self, values: Sequence[int]) -> list[int]:
        """What a record adds to its sums and sums of squares, all measured from the middle."""
        limited = (
            min(max(v, low), high) for v, (low, high) in zip(values, self.limits, strict=True)
        )
        inside = [values[self.count.get(n, n)] if n in self.count else 1
                  for n in range(len(self.columns))]  # fmt: skip
        each = zip(limited, self.middle, inside, strict=True)
        centred = [(v - middle) * one for v, middle, one in each]
        squares = ((math.ceil(Fraction(centred[n] ** 2, step)) - top) * inside[n]
                   for n, (step, top) in self.squares.items())  # fmt: skip
        return [*centred, *squares]

    def counter(self, column: int) -> str:
        """The released count of a column's records."""
        return f"sum:{self.columns[self.count[column]].path}" if column in self.count else "count"

    def back(self) -> list[tuple[str, int, str]]:
        """Sums measured from a middle: name, middle, and the count that moves the sum back."""
        middles = enumerate(zip(self.columns, self.middle, strict=True))
        return [(f"sum:{c.path}", middle, self.counter(n)) for n, (c, middle) in middles if middle]

    def _replaced(self) -> Fraction:
        """How much further a unit moves first sightings than records.

        Another unit's later sighting replaces this unit's, in the same lane or in the next one.
        """
        further = self.matrix.further
        if len(self.weights) == 1:
            return further
        w2 = Fraction(self.weights[V], self.weights[S])
        one, two = float(1 + w2), float(further)
        root = math.sqrt((one - two) ** 2 + 4 * float(w2) * two)
        tau = Fraction(max(1, round((root + two - one) / 2 * 4096)), 4096)
        return max(1 + w2 + tau, further + w2 * further / tau)

    @staticmethod
    def _square(reach: int) -> tuple[int, int]:
        """Squared grid steps in one step of the square, and the largest square in such steps."""
        step = math.ceil(Fraction(reach**2, 2**24))
        return step, math.ceil(Fraction(reach**2, step))

    def _purse(
        self,
        needs: list[tuple[Fraction, ...]],
        found: list[Fraction],
        touched: int,
        selecting: Fraction,
    ) -> None:
        """The cost of a unit's whole bound in an epoch, for caps of units and shared budgets."""
        budget, kept = self.config["budget"], 2 * self.parameters["debias"]
        rest = sampling(Fraction(budget["epsilon"]), touched, len(needs))
        rest += len(needs) * Fraction(touched, 2**129)
        ratio = Fraction(1)
        if not self.rounds and not self.quadratic:
            full, left = divmod(self.budget, self.most)
            ratio = Fraction(self.budget * self.most, full * self.most**2 + left**2)
        each = [spent(need, s2, touched) for need, s2 in zip(needs, found, strict=True)]
        first = each[: len(each) - kept]
        costs = [Costs(
            ratio * sum(a for a, _ in first), 2 * ratio * sum(b for _, b in first),
            ratio * selecting + 2 * rest,
        )]  # fmt: skip
        if kept:
            costs.append(Costs(sum(a for a, _ in each[-2:]), sum(b for _, b in each[-2:]), rest))  # type: ignore[arg-type]
        self.costs = costs
        self.cap = budget.get("shared", budget).get("per_unit")
        self.epoch = together([Costs(*one, Fraction(0)) for one in each])
        self.epoch = self.epoch._replace(delta=selecting + rest)

    def affordable(self) -> bool:
        """Whether all pipelines that share a budget cost at most that budget."""
        if (shared := self.config["budget"].get("shared")) is None:
            return True
        each = [one.epoch for one in (self, *self.beside)]
        squares = sum((one.pure**2 for one in each), Fraction(0))
        return fits(together(each), Fraction(shared["epsilon"]), Fraction(shared["delta"]), squares)

    def purses(self) -> Purses:
        """Full purses. Pipelines that share a cap have purses of their own, for the same part f."""
        shared, every = self.config["budget"].get("shared", {}), [self, *self.beside]
        joint = self.costs[0]
        if shared.get("per_unit"):
            if {one.config["name"] for one in every} != set(shared["members"]):
                raise ValueError("a shared cap needs the rules of every pipeline that shares it")
            joint = together(one.costs[0] for one in every)
        return Purses(self.cap, self.per_epoch * self.length, self.budget, self.costs, joint)

    def span(self, window: int) -> int:
        """The span of a window: the windows in which a unit's records spend one thing, in order."""
        epoch = window // self.per_epoch
        if self.cap is None:
            return epoch
        period = self.cap["period"] and self.cap["period"] // (self.per_epoch * self.length)
        return epoch // period if period else 0


def written(number: float) -> Fraction:
    """The exact number that a person wrote: 0.3 is three tenths."""
    return Fraction(str(number))
