"""Distinct values per key: noise beside that of counts and of a rival, and bytes of a pair on disk.

    python benchmarks/distinct.py [--pairs 10000000] [--quick] [--json]

Configurations have one ε and δ, and keys that are listed or found; each is planned once for counts
of records and once for distinct values, with the same bound on a unit. The figure is the largest
ratio of their deviations at the last trigger. Pairs belong to a thousand keys; they are looked up
and stored in a RocksDB table as an aggregate shard does, one micro-batch after another.

- ``deviation_over_count``: of distinct values over that of counts, the largest over all cases;
  ``cases``: each of them.
- ``bytes_per_pair``: of the table on disk after RocksDB's compaction;
  ``pairs``, ``seconds_per_million``: their number, and seconds of CPU for a million.
- ``memory_mib``: growth of this process's peak memory meanwhile.
- ``rival``: the ratio of deviations to those of one count by the Gaussian mechanism of OpenDP where
  it is installed (`pip install opendp`), at the same ε and δ, for one release with m = 1 a unit;
  None where it is not.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from hushstream.agents.stages.aggregate.first_sightings import sighted
from hushstream.agents.state.rocks import RocksStore
from hushstream.mechanisms.columns import Part, merge
from hushstream.mechanisms.contract import Setting
from hushstream.mechanisms.histogram.settings import HistogramParameters
from hushstream.mechanisms.histogram.tumbling import build
from hushstream.mechanisms.keys import Keys
from hushstream.mechanisms.pairs import PAIR, split
from rich.console import Console

EPSILON, DELTA = Fraction(1), Fraction(1, 10**6)
KEYS, SEED = 1_000, 7
BATCH = 50_000  # pairs per step
CASES = [
    (triggers, public, budget)
    for triggers in (1, 24, 100)
    for public in (False, True)
    for budget in (1, 4, 12)
]


def deviation(triggers: int, public: bool, budget: int, distinct: bool) -> float:
    """Standard deviation at the last trigger, in records or values."""
    keys = (b'["k"]',) if public else None
    setting = Setting(EPSILON, DELTA, triggers, keys=keys, distinct=distinct)
    made = build(HistogramParameters(budget=float(budget)), setting)
    return float(made.error(triggers)[0])


def ratios() -> dict[str, float]:
    """Deviation of distinct values over that of counts, by case."""
    return {
        f"{triggers} triggers, {'listed' if public else 'found'}, budget {budget}": deviation(
            triggers, public, budget, True
        )
        / deviation(triggers, public, budget, False)
        for triggers, public, budget in CASES
    }


def batch(number: int, size: int) -> Part:
    """Merged pairs of one micro-batch, all of them new."""
    random = np.random.default_rng((SEED, number))
    key = random.integers(0, KEYS, size)
    texts = [b'["key-%d","v-%d"]' % (k, number * BATCH + n) for n, k in enumerate(key.tolist())]
    names = split(Keys.of(texts)).names
    lane = np.full(size, PAIR, np.uint8)
    return merge([Part(names, lane, np.ones((size, 1), np.int64), np.zeros(0, np.int64))])


def table(pairs: int) -> dict[str, Any]:
    """Fill a table with ``pairs`` pairs; its size after it was closed."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table"
        store = RocksStore(path, None, 8 << 20)
        spent = counted = 0.0
        for number in range(-(-pairs // BATCH)):
            part = batch(number, min(BATCH, pairs - number * BATCH))
            begun = time.process_time()
            found = sighted(store, 0, part)
            store.write(found.rows)
            spent += time.process_time() - begun
            counted += int(found.part.sums.sum())
        assert counted == pairs
        store.compact()
        store.close()
        size = sum(one.stat().st_size for one in path.rglob("*") if one.is_file())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "pairs": pairs,
        "memory_mib": round((peak - before) / 1024),
        "bytes_per_pair": round(size / pairs, 2),
        "seconds_per_million": round(spent / pairs * 10**6, 1),
    }


def rival() -> float | None:
    """Deviation of OpenDP's Gaussian count over ours of distinct values, for one release."""
    try:
        import opendp.prelude as dp
    except ImportError:
        return None
    dp.enable_features("contrib")
    space = dp.atom_domain(T=int), dp.absolute_distance(T=float)

    def made(scale: float) -> Any:
        return dp.c.make_zCDP_to_approxDP(dp.m.make_gaussian(*space, scale=scale))

    scale = dp.binary_search(
        lambda s: made(s).map(1.0).epsilon(float(DELTA)) <= float(EPSILON), bounds=(0.1, 100.0)
    )
    return float(scale) / deviation(1, True, 1, True)


def measure(pairs: int) -> dict[str, Any]:
    """All figures in the module's docstring."""
    cases = ratios()
    return {
        "deviation_over_count": round(max(cases.values()), 3),
        "cases": {name: round(one, 3) for name, one in cases.items()},
        "rival": rival(),
        **table(pairs),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=10_000_000)
    parser.add_argument("--quick", action="store_true", help="with 300,000 pairs")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    found = measure(300_000 if given.quick else given.pairs)
    if given.json:
        print(json.dumps(found))
    else:
        Console().print(found)


if __name__ == "__main__":
    main()
