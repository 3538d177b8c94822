"""Noise of long windows, by factorisation: its deviation, the time to set up, and the time per key.

Deviations are those of a key's count with sensitivity 1, in units of the noise of a single release:
at the last trigger, at the worst one, and as root mean square over all. They follow exactly from
the matrices. The time per key is that of one release at the last trigger, with all draws.

    python benchmarks/factorizations.py [--quick] [--json]

The last line under ``--json``: ``last_2000`` and ``last_5000``, the deviations of ``normalized``
at the last trigger over those of ``blt``; ``worst_…`` the same at the worst one; and every row.
"""

from __future__ import annotations

import argparse
import json
import time
from fractions import Fraction
from typing import Any

import numpy as np
from hushstream.mechanisms.factorization import build
from hushstream.mechanisms.factorization.prefix_noise import Process
from hushstream.mechanisms.keys import Keys
from hushstream.mechanisms.noise import STEADY, KeyedNoise
from rich.console import Console
from rich.table import Table

NAMES = ("sqrt-toeplitz", "blt", "normalized")
SIGMA = 10  # records
FIGURES = ("last", "worst", "rms", "build_s", "us_per_key")


def row(name: str, horizon: int, keys: int) -> dict[str, Any]:
    """Figures of one factorisation."""
    build.cache_clear()
    begin = time.perf_counter()
    errors = build(name, horizon).errors()
    built = time.perf_counter() - begin
    process = Process("count", name, horizon, Fraction(SIGMA**2) * 4 ** build(name, horizon).bits)
    noise = KeyedNoise(
        bytes(32), charge=bytes(32), mechanism="benchmark", config=b"", pipeline="p", window="w",
        nonces=STEADY,
    )  # fmt: skip
    codes, since = Keys.of_codes(np.arange(keys, dtype=np.uint64)), np.zeros(keys, np.int64)
    process.at(noise, codes.take(np.arange(1)), horizon, since[:1])  # tables and loops
    begin = time.perf_counter()
    process.at(noise, codes, horizon, since)
    each = (time.perf_counter() - begin) / keys
    return {
        "name": name, "triggers": horizon, "last": float(errors[-1]), "worst": float(errors.max()),
        "rms": float(np.sqrt((errors * errors).mean())), "build_s": built, "us_per_key": each * 1e6,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer keys, no longest window")
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    given = parser.parse_args()
    horizons = (2000, 5000) if given.quick else (2000, 5000, 16384)
    rows = [row(name, t, 50 if given.quick else 2000) for t in horizons for name in NAMES]
    table = Table("triggers", "factorisation", *FIGURES)
    for one in rows:
        table.add_row(f"{one['triggers']:,}", one["name"], *(f"{one[x]:.3g}" for x in FIGURES))
    Console(stderr=True).print(table)
    if given.json:
        found = {(one["name"], one["triggers"]): one for one in rows}
        ratios = {
            f"{figure}_{t}": found["normalized", t][figure] / found["blt", t][figure]
            for figure in ("last", "worst")
            for t in (2000, 5000)
        }
        print(json.dumps({**ratios, "rows": rows}))


if __name__ == "__main__":
    main()
