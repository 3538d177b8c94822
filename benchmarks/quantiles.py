"""Quantiles per key against the recipe of counts in bands, and against one-shot quantiles.

    python benchmarks/quantiles.py [--quick] [--json] [--broker]

1,000 keys of skewed, smooth and two-humped values, 400 to 20,000 records each; every unit has one
record in each of 12 keys. ε = 1, δ = 10⁻⁶ per unit for everything that a window releases; the five
quantiles `AT`; 24 triggers, of which the last one is judged. Errors are errors of rank: the number
of records by which a released quantile is off, as a share of the key's records, averaged over keys
and quantiles.

* `over_recipe`: error of the recipe over ours. The recipe is a histogram with the key (key, band),
  at its best number of bands, whose counts are added up; keys unknown, for ours too. Where it shows
  no band of a key its answer is the middle of the range.
* `over_one_shot`: our error over that of OpenDP's quantiles, which are released once and know all
  1,000 keys, as ours do here. OpenDP's noisy maximum over quantile scores gets what (ε, δ) allows
  for 12 keys and five quantiles by pure composition (`over_one_shot`), and by zero-concentrated
  composition, its best (`over_best_one_shot`). Without `opendp`, NumPy draws from the same law.
* `coverage`: share of 95 % intervals that hold the exact quantile.
* `bytes_per_key`, `bytes_per_key_few`: of the row that an aggregate shard stores of a released key,
  for the first data set at its end, and for keys of 1,000 records with three different values;
  `row_microseconds`, `row_cpu_over_fixed`: CPU to write and to read a row of the first data set,
  and that over the CPU for rows of a fixed layout, which have 2,056 bytes.
* `over_one_shot_on_broker`, `coverage_on_broker`: the same of listed keys of the first data set,
  with `--broker`: published to a real broker, released by a worker and read from its topic.

Constants were chosen on other data (`tests/mechanisms/quantile/test_inversion.py`).
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterator
from fractions import Fraction
from typing import Any, NamedTuple

import _quantile_rows
import _quantiles_broker
import numpy as np
from hushstream.mechanisms.contract import Setting
from hushstream.mechanisms.histogram.settings import HistogramParameters
from hushstream.mechanisms.histogram.tumbling import build as histogram
from hushstream.mechanisms.in_memory import releases
from hushstream.mechanisms.keys import Keys
from hushstream.mechanisms.noise.trial import noise_of
from hushstream.mechanisms.quantile.bands import bands
from hushstream.mechanisms.quantile.mechanism import Quantiles
from hushstream.mechanisms.quantile.settings import QuantileParameters, build
from hushstream.mechanisms.workload import Workload
from rich.console import Console
from rich.table import Table

try:
    import opendp.prelude as dp
except ImportError:
    dp = None

KEYS, T, VISITS, SEED = 1000, 24, 12, 100
AT = (0.1, 0.25, 0.5, 0.75, 0.9)
EPSILON, DELTA = Fraction(1), Fraction(1, 10**6)
LOW, HIGH, BANDS = 0.0, 100.0, 256  # the default of bands
CANDIDATES = np.linspace(LOW, HIGH, 1001)
LAST = "final"  # the factorisation whose last trigger has the least noise
console = Console(stderr=True)


class World(NamedTuple):
    """Records of one window.

    Attributes:
        work: units, keys and values.
        sorted: the values of each key, in order.
    """

    work: Workload
    sorted: list[np.ndarray]


def world(keys: int, seed: int) -> World:
    """Keys of three kinds in turn; the n-th record of all keys together is of unit n mod users."""
    draw = np.random.default_rng(seed)
    sizes = np.exp(draw.uniform(math.log(400), math.log(20_000), keys)).astype(int)
    kinds = (
        lambda n: draw.lognormal(draw.uniform(2.2, 3.2), draw.uniform(0.4, 0.8), n),
        lambda n: draw.normal(draw.uniform(30, 70), draw.uniform(8, 16), n),
        lambda n: np.where(draw.random(n) < 0.4, draw.normal(25, 6, n), draw.normal(70, 9, n)),
    )
    values = [np.clip(kinds[key % 3](n), LOW, HIGH) for key, n in enumerate(sizes.tolist())]
    users = max(-(-int(sizes.sum()) // VISITS), int(sizes.max()))
    key, value = np.repeat(np.arange(keys), sizes), np.concatenate(values)
    unit, order = np.arange(len(key)) % users, draw.permutation(len(key))
    work = Workload(
        unit[order].astype(np.int32), key[order].astype(np.int32), users, keys,
        columns={"value": value[order]},
    )  # fmt: skip
    return World(work, [np.sort(one) for one in values])


def rank_errors(truth: World, found: np.ndarray) -> np.ndarray:
    """(keys, quantiles) number of records by which each answer is off, as a share of the key's."""
    out = np.empty(found.shape)
    for key, values in enumerate(truth.sorted):
        wanted = np.array(AT) * len(values)
        low = np.searchsorted(values, found[key], "left")
        high = np.searchsorted(values, found[key], "right")
        out[key] = np.maximum(np.maximum(low - wanted, wanted - high), 0) / len(values)
    return out


def ours(truth: World, listed: bool, play: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """(keys, quantiles) answers of the last trigger, and whether each interval holds the truth."""
    keys = truth.work.keys
    made = mechanism(keys if listed else None)
    for out in releases(made, truth.work, noise_of("quantiles", play)):
        last = out
    place, grid = last.key.codes().astype(int), float(made.bands.grid)
    value = np.full((keys, len(AT)), (LOW + HIGH) / 2)
    value[place] = last.value[:, : len(AT)] * grid
    ends = np.full((keys, len(AT), 2), np.nan)
    ends[place] = last.value[:, len(AT) + 3 :].reshape(len(place), len(AT), 2) * grid
    return value, held(truth, ends)[place]


def mechanism(listed: int | None) -> Quantiles:
    """Our mechanism, for ``listed`` listed keys or, if None, for found keys."""
    names = Keys.of_codes(np.arange(listed or 0, dtype=np.uint64)).tolist()
    setting = Setting(EPSILON, DELTA, T, keys=tuple(names) if listed else None)
    parameters = QuantileParameters(LOW, HIGH, AT, budget=float(VISITS), factorization=LAST)
    return build(parameters, setting)


def rows_of(truth: World) -> dict[str, float]:
    """Figures of stored rows."""
    made = mechanism(None)
    counts = np.array(
        [
            np.bincount(made.bands.place(made.bands.steps(values)), minlength=BANDS)
            for values in truth.sorted
        ]
    )
    few, draw = np.zeros_like(counts), np.random.default_rng(SEED)
    for row in few:
        row[draw.choice(BANDS, 3, replace=False)] = (600, 300, 100)
    return {
        "bytes_per_key": _quantile_rows.size(made, counts),
        "bytes_per_key_few": _quantile_rows.size(made, few),
        **_quantile_rows.cpu(made, counts),
    }


def held(truth: World, ends: np.ndarray) -> np.ndarray:
    """(keys, quantiles) whether each interval holds the exact quantile; NaN holds nothing.

    Args:
        ends: (keys, quantiles, 2) of intervals.
    """
    out = np.zeros(ends.shape[:2], bool)
    grid = float(bands(LOW, HIGH, BANDS, "linear").grid)
    for key, values in enumerate(truth.sorted):
        exact = values[[math.ceil(q * len(values)) - 1 for q in AT]]
        exact = np.clip(np.rint(exact / grid) * grid, LOW, HIGH)
        out[key] = (ends[key, :, 0] <= exact + 1e-9) & (exact <= ends[key, :, 1] + 1e-9)
    return out


def on_broker(truth: World) -> tuple[np.ndarray, np.ndarray]:
    """`ours` with listed keys, of a pipeline on a real broker."""
    value, ends = _quantiles_broker.last_release(
        truth.work, AT, T, epsilon=float(EPSILON), delta=float(DELTA), low=LOW, high=HIGH,
        budget=VISITS, factorization=LAST,
    )  # fmt: skip
    return value, held(truth, ends)


def recipe(truth: World, number: int) -> np.ndarray:
    """(keys, quantiles) answers of the recipe with ``number`` bands."""
    made = bands(LOW, HIGH, number, "linear")
    work, edges = truth.work, np.array([float(edge * made.grid) for edge in made.edges])
    band = made.place(made.steps(np.asarray((work.columns or {})["value"])))
    both = (work.key.astype(np.int64) * number + band).astype(np.int32)
    parameters = HistogramParameters(budget=float(VISITS), adaptive_weight=0, factorization=LAST)
    counter = histogram(parameters, Setting(EPSILON, DELTA, T))
    counts = np.zeros(work.keys * number)
    many = replace_keys(work, both, work.keys * number)
    for out in releases(counter, many, noise_of("recipe", number)):
        last = out
    counts[last.key.codes().astype(int)] = np.maximum(last.value[:, 0], 0)
    table = counts.reshape(work.keys, number)
    answers = [added_up(one, edges) for one in table]
    return np.array(answers)


def replace_keys(work: Workload, key: np.ndarray, keys: int) -> Workload:
    return work._replace(key=key, keys=keys, columns=None)


def added_up(counts: np.ndarray, edges: np.ndarray) -> list[float]:
    """Quantiles by `docs/recipes.md`: the place within the band in which the sum passes."""
    below, total = np.cumsum(counts), counts.sum()
    if not total:
        return [(LOW + HIGH) / 2] * len(AT)
    ends = np.concatenate([[edges[0]], edges, [edges[-1]]])
    out = []
    for q in AT:
        band = int(np.argmax((below >= q * total) & (counts > 0)))
        part = (q * total - (below[band] - counts[band])) / counts[band]
        out.append(float(ends[band] + part * (ends[band + 1] - ends[band])))
    return out


def one_shot(truth: World, concentrated: bool) -> np.ndarray:
    """(keys, quantiles) OpenDP's answers; a unit's 12 keys and five quantiles share the budget."""
    draw = np.random.default_rng(11)
    parts = VISITS * len(AT)
    each = concentrated_budget() / parts if concentrated else float(EPSILON) / parts
    out = np.empty((truth.work.keys, len(AT)))
    for place, q in enumerate(AT):
        ask = asked(q, each, concentrated) if dp is not None else None
        for key, values in enumerate(truth.sorted):
            if ask is not None:
                out[key, place] = CANDIDATES[ask(values.tolist())]
            else:
                out[key, place] = drawn(values, q, each, concentrated, draw)
    return out


def asked(q: float, each: float, concentrated: bool) -> Any:
    """OpenDP's measurement of one quantile of one key, with ρ or ε ``each`` for one record."""
    dp.enable_features("contrib", "floating-point", "honest-but-curious")
    space = dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.symmetric_distance()
    measure = dp.zero_concentrated_divergence() if concentrated else dp.max_divergence()

    def made(scale: float) -> Any:
        scores = space >> dp.t.then_quantile_score_candidates(CANDIDATES.tolist(), q)
        return scores >> dp.m.then_noisy_max(measure, scale, negate=True)

    unit = made(1.0).map(1)
    return made(math.sqrt(unit / each) if concentrated else unit / each)


def drawn(
    values: np.ndarray, q: float, each: float, concentrated: bool, draw: np.random.Generator
) -> float:
    """The same law: a noisy maximum with Gumbel noise over the scores of candidates."""
    below = np.searchsorted(values, CANDIDATES, "left")
    above = len(values) - np.searchsorted(values, CANDIDATES, "right")
    score = -np.abs((1 - q) * below - q * above)
    epsilon = math.sqrt(8 * each) if concentrated else each
    scale = 2 * max(q, 1 - q) / epsilon
    return float(CANDIDATES[np.argmax(score + draw.gumbel(0, scale, len(score)))])


def concentrated_budget() -> float:
    """The largest ρ of zCDP that is (ε, δ): Canonne, Kamath & Steinke (2020), Corollary 13."""
    alpha = np.exp(np.linspace(math.log(0.01), math.log(1000), 4000)) + 1

    def delta(rho: float) -> float:
        power = (alpha - 1) * (alpha * rho - float(EPSILON)) + alpha * np.log1p(-1 / alpha)
        return float(np.exp(power.min()) / (alpha[np.argmin(power)] - 1))

    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if delta(middle) <= DELTA else (low, middle)
    return low


def measured(quick: bool) -> dict[str, Any]:
    """All figures of mechanisms in memory."""
    worlds = 1 if quick else 3
    totals: dict[str, list[float]] = {}
    covers = list[bool]()
    for number in range(worlds):
        truth = world(KEYS, SEED + number)
        known, _ = ours(truth, listed=True, play=number)
        found, covered = ours(truth, listed=False, play=number)
        covers += [*covered.ravel().tolist(), *ours(truth, True, 50 + number)[1].ravel().tolist()]
        results = {
            "ours, keys unknown": found,
            "ours, keys listed": known,
            "one-shot, pure": one_shot(truth, concentrated=False),
            "one-shot, concentrated": one_shot(truth, concentrated=True),
        }
        results |= {f"recipe, {n} bands": recipe(truth, n) for n in (16, 64, 256)}
        for name, answers in results.items():
            totals.setdefault(name, []).append(float(rank_errors(truth, answers).mean()))
        console.print(f"world {number + 1} of {worlds}")
    errors = {name: float(np.mean(values)) for name, values in totals.items()}
    recipes = [error for name, error in errors.items() if name.startswith("recipe")]
    return {
        "over_recipe": min(recipes) / errors["ours, keys unknown"],
        "over_one_shot": errors["ours, keys listed"] / errors["one-shot, pure"],
        "over_best_one_shot": errors["ours, keys listed"] / errors["one-shot, concentrated"],
        "coverage": float(np.mean(covers)),
        **rows_of(world(KEYS, SEED)),
        "rival": "opendp" if dp is not None else "the same law in NumPy",
        "errors": errors,
    }


def released() -> dict[str, float]:
    """Figures of a pipeline on a real broker."""
    truth = world(KEYS, SEED)
    value, covers = on_broker(truth)
    rival = rank_errors(truth, one_shot(truth, concentrated=False)).mean()
    return {
        "over_one_shot_on_broker": float(rank_errors(truth, value).mean() / rival),
        "coverage_on_broker": float(covers.mean()),
    }


def rows(found: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for name, error in found["errors"].items():
        yield f"error of ranks: {name}", f"{100 * error:.2f} %"
    for name, value in found.items():
        if isinstance(value, float):
            yield name, f"{value:.3f}"
    yield "one-shot", found["rival"]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="one data set instead of three")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    parser.add_argument("--broker", action="store_true", help="through a real broker too")
    options = parser.parse_args()
    found = measured(options.quick) | (released() if options.broker else {})
    table = Table("figure", "value")
    for row in rows(found):
        table.add_row(*row)
    (console if options.json else Console()).print(table)
    if options.json:
        print(json.dumps(found), file=sys.stdout)


if __name__ == "__main__":
    main()
