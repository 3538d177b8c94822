"""Ideas for finding more keys of a histogram, beside the product's designs: see `_table1_ideas.py`.

All designs run over the same day under the same noise keys, at the same (ε = 6, δ = 1e-9) per user.
Figures compare pairs of runs: an idea's error over that of the design on which it is based, with
the standard deviation over noise keys.

    python research/ideas.py [--scale 0.1] [--triggers 100] [--seeds 3] [--set published|drawn]
                               [--ideas NAME;NAME;…] [--data-seed N] [--quick] [--json]

Sets: `published`, the workload of `table1.py`, on which settings were chosen; `drawn`, with other
laws of users and keys, on which none was chosen. Each run is printed when it is finished.

The last line under ``--json`` has, for each idea, the means over noise keys of l1, mean_l1, l2,
keys and ``hidden`` (records of keys that are not public at the end; a part of l1), scaled to the
full workload. ``over`` has the means of its l1 and mean_l1 over those of its base, less 1, each
with ``_sd``. ``private`` says whether every run fits into (ε, δ) and no unit spent more than its
bound.
"""

from __future__ import annotations

import argparse
import json

import _benchmarks  # noqa: F401
import numpy as np
from _table1_baselines import keyed
from _table1_designs import DELTA, EPSILON
from _table1_ideas import BASE, IDEAS, design, kept
from _workload import KEYS, USERS, draw, law, play, published
from hushstream.mechanisms import accounting
from hushstream.mechanisms.histogram.planning.play import Run, Workload
from rich.console import Console
from rich.table import Table

FIELDS = "l1", "mean_l1", "l2", "keys", "hidden"
Row = dict[str, float]


def drawn(scale: float, seed: int) -> Workload:
    """Log-normal activity, a flatter law of keys; a quarter of records have the user's own key."""
    rng = np.random.default_rng(seed + 1000)
    users, keys = round(USERS * scale), round(KEYS * scale)
    counts = np.minimum(np.ceil(rng.lognormal(1.1, 1.1, users)), 5000).astype(np.int64)
    unit = np.repeat(np.arange(users, dtype=np.int32), counts)
    rng.shuffle(unit)
    popular = law(keys, 300 * scale, 1.25)
    own, key = draw(rng, popular, users), draw(rng, popular, len(unit))
    return Workload(unit, np.where(rng.random(len(unit)) < 0.25, own[unit], key), users, keys)


SETS = {"published": published, "drawn": drawn}


def measured(name: str, work: Workload, options: argparse.Namespace, seed: int) -> Row:
    """Errors of one idea under one noise key, and whether the run was private."""
    mechanism = design(IDEAS[name], options.triggers)
    run = Run(kept(mechanism, work.keys), work, keyed("ideas", seed))
    found = play(run, options.triggers, lambda: None)[0].scaled(options.scale)
    hidden = float(work.truth()[run.status == 0].sum()) / options.scale
    assert run.units is not None
    private = accounting.total([mechanism.cost()], DELTA)[0] <= EPSILON
    private &= bool((run.units.units.left >= 0).all())
    return {**{n: getattr(found, n) for n in FIELDS[:-1]}, "hidden": hidden, "private": private}


def over(rows: list[Row], base: list[Row]) -> Row:
    """Relative differences of paired runs, and their standard deviation over noise keys."""
    out: Row = {}
    for field in ("l1", "mean_l1"):
        ratio = [a[field] / b[field] - 1 for a, b in zip(rows, base, strict=True)]
        out[field] = float(np.mean(ratio))
        out[f"{field}_sd"] = float(np.std(ratio, ddof=1)) if len(ratio) > 1 else 0.0
    return out


def summary(runs: dict[str, list[Row]]) -> dict[str, dict[str, Row | float]]:
    """Means of every idea, and its differences from the design on which it is based."""
    made: dict[str, dict[str, Row | float]] = {}
    for name, rows in runs.items():
        made[name] = {field: float(np.mean([row[field] for row in rows])) for field in FIELDS}
        if BASE[name] != name and BASE[name] in runs:
            made[name]["over"] = over(rows, runs[BASE[name]])
    return made


def shown(found: dict[str, dict[str, Row | float]]) -> Table:
    table = Table()
    columns = "keys", "l1", "hidden", "l2", "mean l1", "l1 over base", "mean l1 over base"
    for column in ("idea", *columns):
        table.add_column(column, justify="left" if column == "idea" else "right")
    for name, row in found.items():
        pair = row.get("over")
        said = ["", ""]
        if isinstance(pair, dict):
            said = [f"{pair[f]:+.2%} ± {pair[f'{f}_sd']:.2%}" for f in ("l1", "mean_l1")]
        figures = [row[f] for f in ("l1", "hidden", "l2", "mean_l1")]
        l1, hidden, l2, mean = (float(one) for one in figures if not isinstance(one, dict))
        table.add_row(
            name, f"{row['keys']:,.0f}", f"{l1 / 1e6:.3f} M", f"{hidden / 1e6:.3f} M",
            f"{l2:,.0f}", f"{mean / 1e6:.3f} M", *said,
        )  # fmt: skip
    return table


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--scale", type=float, default=0.1)
    parser.add_argument("--triggers", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=3, help="noise keys")
    parser.add_argument("--set", choices=SETS, default="published")
    parser.add_argument("--data-seed", type=int, default=1)
    parser.add_argument("--ideas", default=";".join(IDEAS), help="names, divided by semicolons")
    parser.add_argument("--quick", action="store_true", help="a small day, for a look")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.quick:
        options.scale, options.triggers, options.seeds = 0.003, 5, 2
    unknown = set(options.ideas.split(";")) - set(IDEAS)
    if unknown:
        parser.error(f"unknown ideas: {', '.join(sorted(unknown))}")
    if options.seeds < 1 or options.triggers < 1:
        parser.error("--seeds and --triggers must be at least 1")
    return options


def main() -> None:
    options = arguments()
    console = Console(stderr=options.json, width=120)
    work = SETS[options.set](options.scale, options.data_seed)
    runs: dict[str, list[Row]] = {}
    for name in options.ideas.split(";"):
        for seed in range(options.seeds):
            row = measured(name, work, options, seed)
            runs.setdefault(name, []).append(row)
            line = {"idea": name, "noise_key": seed, **row}
            print(json.dumps(line), flush=True) if options.json else console.print(line)
    found = summary(runs)
    console.print(shown(found))
    if options.json:
        private = all(row["private"] for rows in runs.values() for row in rows)
        print(json.dumps({"set": options.set, "ideas": found, "private": private}))


if __name__ == "__main__":
    main()
