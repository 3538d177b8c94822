"""Streaming histograms of (user, key) pairs, and the number of users that a key needs.

The second experiment of Zhang et al., "Differentially Private Stream Processing at Scale" (2023,
Table 2), counts users per key, where a user has a key once. Its data are not available, so the
pairs are generated.

*Numbers of the paper:* 1,473 keys and an l1 error of 989,249 for its streaming design at T = 100.
*Ours:* everything else. 285,000 users; distinct keys of a user by up to 600 draws, Zipf–Mandelbrot
(q = 78, s = 8), from 60,000 keys, Zipf–Mandelbrot (q = 40, s = 1.5), repetitions removed, pairs
shuffled over the day; user-level (ε = 6, δ = 1e-9), C = 32, as in Table 1. We chose these laws so
that `paper` has about the two published figures. So its row confirms nothing; the other rows show
the other designs on data for which the published design has the published figures.

*Page rate:* the least users of a key, spread evenly over a day of 150 triggers with one record
each, for which the key is released by the end of the day with probability 59, 75 and 99.9 %, for
each deployment of `table1.py --thresholds`: ours, and the paper's mechanism with a threshold that
holds at all triggers (`sound`). Quantiles over keys with the product's own noise.

    python benchmarks/table2.py [--triggers T] [--designs a,b,…] [--seeds N] [--rates]
                                [--quick] [--json]

Designs are those of `table1.py`: `one_shot` releases once at the end, `repeated` computes a
histogram anew at every trigger, the others stream. ``--quick`` takes a twentieth of the users and
ten triggers, and its figures are those of the small data. ``--rates`` plays no histogram.

The last line under ``--json``: the fields of `table1.py` for each design, ``published_keys`` and
``published_l1``, ``pairs`` and ``largest_key`` of the data, ``private``, and ``rates``: one object
per deployment with ``published`` (threshold, where there is one) and lists ``ours`` and ``sound``
in the order of ``probabilities``.
"""

from __future__ import annotations

import argparse
import json
from typing import Any, NamedTuple

import numpy as np
from _table1_baselines import keyed
from _table1_designs import DEPLOYMENTS, PARAMETERS, Deployment
from _table1_report import Result, fields, mean
from _workload import draw, law
from hushstream.mechanisms.factorization.prefix_noise import STEPS, Process
from hushstream.mechanisms.histogram.planning.play import Workload
from hushstream.mechanisms.keys import Keys
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from table1 import measured

USERS, KEYS = 285_000, 60_000
PUBLISHED = {"keys": 1473, "l1": 989_249}
DESIGNS = ("paper", "sound_paper", "repeated", "incremental", "terminal", "adaptive", "one_shot")
PROBABILITIES = (0.59, 0.75, 0.999)


def pairs(users: int, keys: int, seed: int) -> Workload:
    """Distinct pairs of user and key in the order in which they arrive."""
    rng = np.random.default_rng(seed)
    draws = 1 + draw(rng, law(600, 78, 8.0), users)
    unit = np.repeat(np.arange(users, dtype=np.int64), draws)
    code = np.unique(unit * keys + draw(rng, law(keys, 40, 1.5), len(unit)))
    rng.shuffle(code)
    unit, key = (part.astype(np.int32) for part in np.divmod(code, keys))
    return Workload(unit, key, users, keys)


class Test(NamedTuple):
    """The test by which a key appears: its users plus noise against a threshold."""

    noise: Process
    threshold: tuple[int, ...]  # (T,) in 1/STEPS users
    min_users: int

    def least(self, keys: int) -> NDArray[np.int64]:
        """(keys,) least users for which each key is released at some trigger.

        Of n users, ⌊nt/T⌋ have come by trigger t. N users release the key if N + noise reaches the
        threshold and N ≥ ``min_users``, so n = ⌈N·T/t⌉ users suffice.
        """
        codes = Keys.of_codes(np.arange(keys, dtype=np.uint64))
        noise = self.noise.ahead(keyed("rates", 0), codes, 1)
        bar, t = np.array(self.threshold), np.arange(1, len(self.threshold) + 1)
        needed = np.maximum(-((noise - bar) // STEPS), max(self.min_users, 1))
        return (-(-needed * len(t) // t)).min(axis=1)

    def users(self, keys: int) -> list[int]:
        """Least users for each of `PROBABILITIES`."""
        found = np.quantile(self.least(keys), PROBABILITIES, method="inverted_cdf")
        return [int(one) for one in found]


def tests(one: Deployment) -> tuple[Test, Test]:
    """The tests of ours, and of the paper's mechanism with a sound threshold in its first round."""
    made, rounds = one.made(), one.rounds()
    ours = Test(made.quantities[0].lanes[0], tuple(made.threshold), made.min_units)
    return ours, Test(rounds.selector, rounds.threshold, rounds.min_units)


def rates(keys: int) -> list[dict[str, Any]]:
    """Users per probability for every deployment, from the noise of ``keys`` keys."""
    rows = []
    for one in DEPLOYMENTS:
        ours, sound = (test.users(keys) for test in tests(one))
        named = {"epsilon": one.epsilon, "delta": float(one.delta), "min_users": one.min_users}
        rows.append({**named, "published": one.published, "ours": ours, "sound": sound})
    return rows


def played(
    options: argparse.Namespace, work: Workload, console: Console
) -> dict[str, list[Result]]:
    """Results of every design, one per noise key."""
    names = options.designs.split(",")
    steps = sum(1 if name == "one_shot" else options.triggers for name in names) * options.seeds
    results: dict[str, list[Result]] = {name: [] for name in names}
    with Progress(console=console, disable=not console.is_terminal) as progress:
        bar = progress.add_task("pairs", total=steps)
        for name in names:
            for seed in range(options.seeds):
                one = measured(name, work, options, {}, seed, lambda: progress.advance(bar))
                results[name].append(one)
                if options.json:
                    print(json.dumps({"design": name, "noise_key": seed, **one.row()}), flush=True)
    return results


def histograms(results: dict[str, list[Result]], options: argparse.Namespace) -> Table:
    """One line per design, with the paper's figures."""
    title = f"(user, key) pairs, T = {options.triggers}, ε = 6, δ = 1e-9"
    shown = Table("design", title=title + (" (small data)" if options.quick else ""))
    for column in ("keys", "l∞", "l1", "l2", "mean l1", "bias"):
        shown.add_column(column, justify="right")
    shown.add_row("the paper's figures", f"{PUBLISHED['keys']:,}", "", f"{PUBLISHED['l1']:,}")
    for name, runs in results.items():
        e = mean(runs)
        figures = (f"{one:,.0f}" for one in (e.keys, e.linf, e.l1, e.l2, e.mean_l1))
        shown.add_row(name, *figures, f"{e.bias:+.1%}")
    return shown


def rates_table(rows: list[dict[str, Any]]) -> Table:
    """One line per deployment."""
    shown = Table(title="users with whom a key is released by the end of the day, T = 150")
    likely = [f"{100 * p:g} %" for p in PROBABILITIES]
    columns = [f"{whose} {p}" for whose in ("ours", "sound") for p in likely]
    for column in ("ε", "δ", "least", "published", *columns):
        shown.add_column(column, justify="right")
    for row in rows:
        named = (str(row["epsilon"]), f"{row['delta']:.0e}", str(row["min_users"]))
        counts = [str(one) for one in (*row["ours"], *row["sound"])]
        shown.add_row(*named, str(row["published"] or "–"), *counts)
    return shown


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--triggers", type=int, default=100)
    parser.add_argument("--designs", default=",".join(DESIGNS))
    parser.add_argument("--seeds", type=int, default=1, help="noise keys to average over")
    parser.add_argument("--rates", action="store_true", help="users that keys need, and no more")
    parser.add_argument("--quick", action="store_true", help="a twentieth of the users")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    options = parser.parse_args()
    if options.quick:
        options.triggers = min(options.triggers, 10)
    unknown = set(options.designs.split(",")) - set(PARAMETERS)
    if unknown or options.triggers < 1 or options.seeds < 1:
        parser.error(f"unknown designs {sorted(unknown)}, or a number below 1")
    options.scale, options.delay = 1, 0
    return options


def main() -> None:
    options = arguments()
    console = Console(stderr=True)
    row: dict[str, Any] = {}
    if not options.rates:
        work = pairs(USERS // 20 if options.quick else USERS, KEYS, seed=1)
        results = played(options, work, console)
        row = {f"published_{name}": figure for name, figure in PUBLISHED.items()}
        row |= {"pairs": len(work.unit), "largest_key": int(work.truth().max())}
        for name, runs in results.items():
            row |= fields(name, runs)
        row["private"] = all(one.private for runs in results.values() for one in runs)
        if not options.json:
            Console().print(histograms(results, options), f"{row['pairs']:,} pairs")
    found = rates(2_000 if options.quick else 20_000)
    if options.json:
        print(json.dumps(row | {"probabilities": PROBABILITIES, "rates": found}))
    else:
        Console().print(rates_table(found))


if __name__ == "__main__":
    main()
