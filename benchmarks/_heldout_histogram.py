"""Error of a histogram's bound over the best bound's, for the default and for `hush plan`.

Sets of records come in groups: defaults may be chosen on the first (`TUNED`); figures are for the
second (`HELD`), which has other records, laws and seeds; `SEALED` has more, for rules that were
final before a look at them. Units send several records each; the error is the l1 distance at a
window's last trigger, hidden keys included, as a share of all records.

* ``default``: no settings.
* ``planned``: the proposal of the search on another draw of the same law, or on the other half of
  the records.
* ``best``: the least error of all bounds and weights with the default's factorisation, chosen on
  the judged records, but under other noise so that it is not luck.
* ``planned_best``: the same with the factorisation and splits of the proposal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from _plan_sets import DATA, _codes, _taxis
from _workload import draw, law, published
from hushstream.mechanisms.contract import Setting
from hushstream.mechanisms.histogram.planning.play import Run, play
from hushstream.mechanisms.histogram.planning.tune import propose
from hushstream.mechanisms.histogram.settings import HistogramParameters
from hushstream.mechanisms.histogram.tumbling import build
from hushstream.mechanisms.noise.trial import noise_of
from hushstream.mechanisms.workload import Workload

PRIVACY = ((6.0, 1e-9), (1.0, 1e-6))
TRIGGERS = (1, 7, 24)
BUDGETS = (  # every second one, which a quick run takes, has the default
    1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256,
)  # fmt: skip
WEIGHTS = (0.0, 0.3)
RUNS = 2
Row = dict[str, Any]


class Case(NamedTuple):
    """One set under one budget."""

    name: str
    epsilon: float
    delta: float
    triggers: int

    def setting(self) -> Setting:
        return Setting(Fraction(str(self.epsilon)), Fraction(str(self.delta)), self.triggers)


def _work(unit: np.ndarray, key: np.ndarray, rng: np.random.Generator) -> Workload:
    """Records in random order; units and keys numbered anew."""
    (_, units), (_, keys) = (np.unique(one, return_inverse=True) for one in (unit, key))
    order = rng.permutation(len(units))
    return Workload(
        units[order].astype(np.int32), keys[order].astype(np.int32), int(units.max()) + 1,
        int(keys.max()) + 1,
    )  # fmt: skip


def _grouped(key: np.ndarray, each: int, seed: int) -> Workload:
    """Every second block of ``each`` records, each block from its own unit."""
    unit = np.arange(len(key)) // each
    kept = unit % 2 == seed % 2
    return _work(unit[kept], key[kept], np.random.default_rng([seed, 1]))


def _favourites(users: int, keys: int, own: int, mean: float, seed: int) -> Workload:
    """Units that return to ``own`` keys each, with lognormal numbers of records."""
    rng = np.random.default_rng([seed, own, users])
    records = np.maximum(np.rint(rng.lognormal(np.log(mean), 0.9, users)), 1).astype(int)
    mine = draw(rng, law(keys, 20, 1.3), users * own).reshape(users, own)
    unit = np.repeat(np.arange(users), records)
    weight = 0.6 ** np.arange(own)
    which = rng.choice(own, len(unit), p=weight / weight.sum())
    return _work(unit, mine[unit, which], rng)


@lru_cache
def _columns() -> dict[str, np.ndarray]:
    """Columns of flights, reordered."""
    table = pa.ipc.open_file(DATA / "flights-200k.arrow").read_all()
    order = np.random.default_rng(5).permutation(table.num_rows)[:60_000]
    return {name: table[name].to_numpy()[order] for name in ("distance", "delay", "time")}


def _flying(column: str, step: float, each: int) -> Callable[[int], Workload]:
    return lambda seed: _grouped(_columns()[column] // step, each, seed)


def _trips(seed: int) -> Workload:
    zones = [row["pickup_zone"] for row in _taxis() if row["pickup_zone"]]
    return _grouped(np.unique(zones, return_inverse=True)[1], 3, seed)


def _offices(seed: int) -> Workload:
    """Post offices by the first three digits of their code; a unit has neighbouring ones."""
    codes = np.array([int(row["zip_code"]) // 100 for row in _codes()])
    return _grouped(np.repeat(codes, 3), 9, seed)


def _ends(seed: int) -> Workload:
    zones = [row["dropoff_zone"] for row in _taxis() if row["dropoff_zone"]]
    return _grouped(np.unique(zones, return_inverse=True)[1], 4, seed)


def _strips(seed: int) -> Workload:
    """Post offices by degree of longitude, in random order."""
    strips = np.array([int(float(row["longitude"])) for row in _codes()])
    return _grouped(np.random.default_rng(11).permutation(strips), 6, seed)


def _zipf(users: int, mean: float, probability: np.ndarray, seed: int) -> Workload:
    """Units with geometric numbers of records, each on any key."""
    rng = np.random.default_rng([seed, 7])
    unit = np.repeat(np.arange(users), rng.geometric(1 / mean, users))
    return _work(unit, draw(rng, probability, len(unit)), rng)


TUNED: dict[str, Callable[[int], Workload]] = {
    "published": lambda seed: published(0.003, seed),
    "favourite keys": lambda seed: _favourites(30_000, 3_000, 4, 4, seed),
    "apps": lambda seed: _favourites(8_000, 400, 8, 12, seed),
    "weekly venues": lambda seed: _favourites(12_000, 1_500, 3, 7, seed),
    "words": lambda seed: _zipf(3_000, 30, law(20_000, 2, 1.1), seed),
    "trips by zone": _trips,
    "flights by delay": _flying("delay", 3, 5),
}
HELD: dict[str, Callable[[int], Workload]] = {
    "few records": lambda seed: _favourites(20_000, 300, 2, 1.5, seed),
    "music": lambda seed: _favourites(6_000, 2_000, 20, 20, seed),
    "visits": lambda seed: _favourites(15_000, 5_000, 6, 5, seed),
    "flights by distance": _flying("distance", 25, 8),
    "post offices": _offices,
}
SEALED: dict[str, Callable[[int], Workload]] = {
    "taxi ends": _ends,
    "flights by hour": _flying("time", 0.25, 12),
    "post offices by longitude": _strips,
    "songs": lambda seed: _favourites(9_000, 4_000, 12, 30, seed),
    "rides": lambda seed: _favourites(40_000, 800, 2, 2, seed),
    "pages": lambda seed: _zipf(10_000, 8, law(5_000, 5, 1.05), seed),
}
HALVES = {"tuned": TUNED, "held": HELD, "sealed": SEALED}
SEEN, JUDGED = 1, 2


def error(parameters: HistogramParameters, case: Case, work: Workload, plays: range) -> float:
    """Mean error at the last trigger."""
    made = build(parameters, case.setting())
    found = [play(Run(made, work, noise_of("held", one), made.delay)) for one in plays]
    return float(np.mean([one.last[0] / one.size[0] for one in found]))


def oracle(
    case: Case, work: Workload, quick: bool, like: HistogramParameters | None = None
) -> tuple[float, HistogramParameters]:
    """The best of all bounds and weights, chosen under one noise and judged under another.

    All other settings are those of ``like``, by default the default ones.
    """
    weights = WEIGHTS if case.triggers > 1 else WEIGHTS[:1]
    plain = HistogramParameters() if like is None else like
    made = [
        replace(plain, budget=float(budget), adaptive_weight=weight)
        for budget in BUDGETS[:: 2 if quick else 1] for weight in weights
        if not weight or budget * weight**2 >= 0.1
    ]  # fmt: skip
    best = min(made, key=lambda one: error(one, case, work, range(100, 100 + RUNS)))
    return error(best, case, work, range(RUNS)), best


def planned(case: Case, seen: Workload) -> HistogramParameters:
    """The proposal of the search."""
    found = propose(
        HistogramParameters(), case.setting(), ((seen,),), lambda n: noise_of("plan", n)
    )
    return found.parameters


def cases(half: str, quick: bool) -> Iterator[Case]:
    for name in HALVES[half]:
        for epsilon, delta in PRIVACY:
            for triggers in TRIGGERS[::2] if quick else TRIGGERS:
                yield Case(name, epsilon, delta, triggers)


def row_of(case: Case, half: str, quick: bool, plan: bool) -> Row:
    """Errors of one case."""
    work = HALVES[half][case.name](JUDGED)
    least, best = oracle(case, work, quick)
    row: Row = {**case._asdict(), "best": least, "best_budget": best.budget}
    row["best_weight"] = best.adaptive_weight
    row["default"] = error(HistogramParameters(), case, work, range(RUNS))
    if plan:
        proposal = planned(case, HALVES[half][case.name](SEEN))
        row["planned"] = error(proposal, case, work, range(RUNS))
        row["planned_best"] = oracle(case, work, quick, proposal)[0]
        row["planned_budget"] = proposal.budget
    return row


def measure(half: str, quick: bool, tell: Callable[[str], None], plan: bool = False) -> list[Row]:
    """All rows of a half; with ``plan`` also the proposal of a search on other records."""
    rows = []
    for case in cases(half, quick):
        tell(f"{case}")
        rows.append(row_of(case, half, quick, plan))
    return rows


def totals(rows: list[Row]) -> dict[str, float]:
    """The median and the worst ratio to the best error, over sets, ε and horizons."""
    out = {}
    for name, least in (("default", "best"), ("planned", "planned_best")):
        ratios = [row[name] / row[least] for row in rows if name in row]
        if ratios:
            figure = "histogram_over_oracle" + ("" if name == "default" else f"_{name}")
            out |= {figure: float(np.median(ratios)), f"{figure}_worst": float(max(ratios))}
    return out
