"""Variances, and counts with conditions, beside OpenDP at the same ε and δ: errors and coverage.

    python benchmarks/aggregates.py [--quick] [--json]

One release of listed keys with 300 to 5,000 records each, one record of each unit; ε = 1, δ = 10⁻⁶
for all that a pipeline releases. Prices lie between 0 and 200: skewed, smooth and two-humped in
turn. Pipelines run as in `hush simulate`; OpenDP's noise is Gaussian, the least that its accountant
allows. Errors are root mean squares over keys and conditions; those of variances and standard
deviations are first multiplied by the key's number of records, by which noise is divided in them.

* `variance_over_opendp`: of released variances, over those of OpenDP's variance, which must know
  how many records a key has; `variance_over_sums`: over those of a count, a sum of values less 100
  and a sum of their squares, a third of the budget each, combined by hand.
* `stddev_over_sums`: the same of standard deviations.
* `conditions_over_opendp`: of counts with four conditions that exclude each other, over those of
  OpenDP's Gaussian counts of four categories; `overlapping_over_opendp`: with four conditions that
  do not, over four counts that share the budget.
* `coverage_variance`, `coverage_stddev`, `coverage_conditions`: share of 95 % intervals that hold
  the exact value.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import opendp.prelude as dp
from hushstream.offline.simulate import simulate
from hushstream.topics.config.load import loads
from hushstream.topics.releases import ROW
from rich.console import Console
from rich.table import Table

EPSILON, DELTA, SEED = 1.0, 1e-6, 31
LOW, HIGH, MIDDLE = 0, 200, 100
KINDS = "abcd"
ABOVE = (25, 50, 75, 100)
ORIGIN = 17956 * 24 * 3_600_000_000  # 2019-03-01

HEAD = """
[deployment]
name = "aggregates"
[[input]]
name = "sales"
topic = "sales"
unit = "user"
time = { field = "t", format = "epoch_us" }
"""
PIPELINE = """
[[pipeline]]
name = "{name}"
input = "sales"
key = ["shop"]
public_keys = {keys}
window = {{ length = "1h", origin = "2019-03-01T00:00:00Z" }}
triggers = {{ every = "1h" }}
budget = {{ epsilon = {epsilon}, delta = {delta} }}
aggregate = [{aggregates}]
mechanism = {{ kind = "histogram", budget = 1 }}
"""
SPREAD = ", ".join(
    f'{{ kind = "{kind}", field = "price", low = {LOW}, high = {HIGH}, name = "{kind}" }}'
    for kind in ("variance", "stddev")
)
EXCLUSIVE = [f'{{ field = "kind", one_of = ["{kind}"] }}' for kind in KINDS]
OVERLAPPING = [f'{{ field = "price", above = {end} }}' for end in ABOVE]


class World(NamedTuple):
    """Records by key."""

    price: list[np.ndarray]  # whole numbers
    kind: list[np.ndarray]  # places in `KINDS`


class Released(NamedTuple):
    """The releases of one value by a pipeline, by key."""

    value: np.ndarray
    low: np.ndarray
    high: np.ndarray


def world(keys: int, seed: int) -> World:
    """Keys of three kinds in turn."""
    draw = np.random.default_rng(seed)
    sizes = np.exp(draw.uniform(math.log(300), math.log(5_000), keys)).astype(int).tolist()
    laws: tuple[Callable[[int], np.ndarray], ...] = (
        lambda n: draw.lognormal(draw.uniform(2.8, 4), draw.uniform(0.4, 0.8), n),
        lambda n: draw.normal(draw.uniform(60, 140), draw.uniform(10, 30), n),
        lambda n: np.where(draw.random(n) < 0.4, draw.normal(50, 12, n), draw.normal(140, 18, n)),
    )
    price = [
        np.clip(np.rint(laws[key % 3](n)), LOW, HIGH).astype(int) for key, n in enumerate(sizes)
    ]
    return World(price, [draw.choice(4, n, p=(0.5, 0.3, 0.15, 0.05)) for n in sizes])


def counts(conditions: list[str]) -> str:
    """Aggregates that count the records that fulfil each condition."""
    made = (f'kind = "count", name = "c{n}", where = [{c}]' for n, c in enumerate(conditions))
    return ", ".join(f"{{ {one} }}" for one in made)


def released(truth: World, seed: int) -> dict[str, dict[str, Released]]:
    """Everything that three pipelines release, by pipeline and value."""
    keys = json.dumps([f"s{key}" for key in range(len(truth.price))])
    wanted = {"spread": SPREAD, "conditions": counts(EXCLUSIVE), "overlapping": counts(OVERLAPPING)}
    text = HEAD + "".join(
        PIPELINE.format(name=name, keys=keys, epsilon=EPSILON, delta=DELTA, aggregates=asked)
        for name, asked in wanted.items()
    )
    rows = [
        {"user": f"u{key}-{n}", "shop": f"s{key}", "price": p, "kind": KINDS[k], "t": ORIGIN + n}
        for key, both in enumerate(zip(truth.price, truth.kind, strict=True))
        for n, (p, k) in enumerate(zip(*(column.tolist() for column in both), strict=True))
    ]
    secret = np.random.default_rng(seed).bytes(32)
    _, engine = simulate(loads(text, environ={}), rows, "sales", secret)
    return {
        name: read([json.loads(out.value) for out in outs if out.headers[0][0] == ROW])
        for name in wanted
        for outs in [engine.outs[f"hush.{name}.releases.v1"]]
    }


def read(records: list[dict[str, Any]]) -> dict[str, Released]:
    """Values of released rows, in the order of keys."""
    order = {int(one["key"]["shop"][1:]): one["values"] for one in records}
    names = order[0]
    return {
        name: Released(*(
            np.array([order[key][name][part] for key in range(len(order))], float)
            for part in ("value", "low", "high")
        ))
        for name in names
    }  # fmt: skip


@cache
def scale() -> float:
    """Noise scale of OpenDP's Gaussian count of one record for the whole budget."""
    dp.enable_features("contrib", "honest-but-curious")

    def made(noise: float) -> Any:
        space = dp.atom_domain(T=int), dp.absolute_distance(T=float)
        return dp.c.make_zCDP_to_approxDP(dp.m.make_gaussian(*space, scale=noise))

    return float(
        dp.binary_search(lambda s: made(s).map(1.0).epsilon(DELTA) <= EPSILON, bounds=(0.1, 1000.0))
    )


def noisy(values: Any, reach: float, shares: int) -> np.ndarray:
    """Integers with OpenDP's noise: one of ``shares`` equal queries, of sensitivity ``reach``."""
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.l2_distance(T=float)
    query = dp.m.make_gaussian(*space, scale=scale() * reach * math.sqrt(shares))
    return np.array(query([int(one) for one in values]), float)


def by_sums(truth: World) -> np.ndarray:
    """Variances from three noisy sums for each key."""
    centred = [one - MIDDLE for one in truth.price]
    number = noisy(map(len, centred), 1, 3)
    total = noisy((one.sum() for one in centred), MIDDLE, 3)
    square = noisy(((one * one).sum() for one in centred), MIDDLE**2, 3)
    return np.clip(square / number - (total / number) ** 2, 0, MIDDLE**2)


def by_opendp(truth: World) -> np.ndarray:
    """OpenDP's variances, for keys whose number of records is known."""
    found = []
    for prices in truth.price:
        space = dp.vector_domain(
            dp.atom_domain(bounds=(float(LOW), float(HIGH)), nan=False), size=len(prices)
        )
        exact = dp.t.make_variance(space, dp.symmetric_distance(), ddof=0)
        moved = exact.map(2)  # one record is replaced
        query = exact >> dp.m.then_gaussian(scale() * moved)
        found.append(query(prices.astype(float).tolist()))
    return np.clip(found, 0, MIDDLE**2)


def rms(found: np.ndarray, exact: np.ndarray, times: Any = 1) -> float:
    """Root mean square of errors, each multiplied first."""
    return float(np.sqrt(np.mean(((found - exact) * times) ** 2)))


def held(one: Released, exact: np.ndarray) -> list[bool]:
    """Whether each interval holds the exact value."""
    return ((one.low <= exact + 1e-9) & (exact <= one.high + 1e-9)).tolist()


def measured(keys: int, worlds: int) -> dict[str, Any]:
    """All figures in the module's docstring."""
    errors: dict[str, list[float]] = {}
    covers: dict[str, list[bool]] = {}

    def judge(
        name: str, mine: Released, exact: np.ndarray, **rivals: tuple[np.ndarray, Any]
    ) -> None:
        kind = "conditions" if name in ("conditions", "overlapping") else name
        covers.setdefault(kind, []).extend(held(mine, exact))
        for rival, (found, times) in rivals.items():
            both = rms(mine.value, exact, times), rms(found, exact, times)
            for side, one in zip(("ours", "theirs"), both, strict=True):
                errors.setdefault(f"{name}_over_{rival} {side}", []).append(one)

    for number in range(worlds):
        truth = world(keys, SEED + number)
        ours, sizes = released(truth, SEED + number), np.array([len(one) for one in truth.price])
        variance, sums = np.array([one.var() for one in truth.price]), by_sums(truth)
        spread, roots = ours["spread"], (np.sqrt(sums), sizes)
        judge("variance", spread["variance"], variance,
              opendp=(by_opendp(truth), sizes), sums=(sums, sizes))  # fmt: skip
        judge("stddev", spread["stddev"], np.sqrt(variance), sums=roots)
        for place, end in enumerate(ABOVE):
            kinds = np.array([(one == place).sum() for one in truth.kind])
            above = np.array([(one > end).sum() for one in truth.price])
            for name, exact, shares in (("conditions", kinds, 1), ("overlapping", above, 4)):
                judge(name, ours[name][f"c{place}"], exact, opendp=(noisy(exact, 1, shares), 1))
    every = {name: float(np.square(all_).mean()) for name, all_ in errors.items()}
    ratios = dict.fromkeys(name.split()[0] for name in every)
    return {
        **{name: math.sqrt(every[f"{name} ours"] / every[f"{name} theirs"]) for name in ratios},
        **{f"coverage_{name}": float(np.mean(all_)) for name, all_ in covers.items()},
        "keys": keys * worlds,
    }


def rows(found: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in found.items():
        yield name, f"{value:.3f}" if isinstance(value, float) else str(value)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a quarter of the keys")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    options = parser.parse_args()
    found = measured(150, 1) if options.quick else measured(150, 4)
    table = Table("figure", "value")
    for row in rows(found):
        table.add_row(*row)
    Console(stderr=options.json).print(table)
    if options.json:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
