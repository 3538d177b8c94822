"""Noise of a window without a stated end, over that of windows with a stated end.

Variances are those of a key's count with one record per unit, in units of the noise of a single
release. They follow from the matrices: up to 2^17 triggers from the product's tables, beyond that
from the same column by FFT in doubles.

    python benchmarks/endless.py [--quick] [--json]

*known*: over the largest variance of √-Toeplitz for just so many triggers; the best known is up to
9 % below it. *far*: over √-Toeplitz for 2^24 triggers, at the same trigger. The last line
under ``--json``: ``worst_known`` from 1,024 triggers on, ``worst_far`` over all, and every row.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import numpy as np
from hushstream.mechanisms.columns import F64
from hushstream.mechanisms.factorization import endless
from rich.console import Console
from rich.table import Table

EXACT = 1 << 17
FROM = 1024


def squares(horizon: int) -> F64:
    """(T,) running sums of the squares of the first column of B."""
    if horizon <= EXACT:
        column = endless.Shifted.made(horizon).column
    else:
        f = np.diff(endless.encoder(horizon), prepend=0) * 2.0**-endless.BITS
        column = inverse(f)
    found: F64 = np.cumsum(column * column)
    return found


def inverse(f: F64) -> F64:
    """1/f as a power series, by Newton's rule."""
    out = np.array([1 / f[0]])
    while len(out) < len(f):
        size = min(2 * len(out), len(f))
        far = 4 * len(out)
        spectrum = np.fft.rfft(out, far)
        rest = np.fft.irfft(np.fft.rfft(f[:size], far) * spectrum, far)[:size]
        rest = -rest
        rest[0] += 2
        out = np.fft.irfft(np.fft.rfft(rest, far) * spectrum, far)[:size]
    return out


def root_squares(horizon: int) -> F64:
    """(T,) the same for √-Toeplitz, where B = C before columns are normalised."""
    k = np.arange(1, horizon, dtype=np.float64)
    column = np.concatenate([np.ones(1), np.cumprod((2 * k - 1) / (2 * k))])
    found: F64 = np.cumsum(column * column)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="up to 2^20 triggers")
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    given = parser.parse_args()
    longest = 1 << 20 if given.quick else endless.LONGEST
    begin = time.perf_counter()
    mine = squares(longest) * float(endless.sensitivity2())
    root = root_squares(endless.LONGEST)
    known, far = mine / root[:longest] ** 2, mine / (root[:longest] * root[-1])
    table = Table("triggers", "variance", "known", "far")
    rows: list[dict[str, Any]] = []
    for t in [1 << n for n in range(0, longest.bit_length(), 2)]:
        rows.append({"triggers": t, "variance": float(mine[t - 1]), "known": float(known[t - 1]),
                     "far": float(far[t - 1])})  # fmt: skip
        table.add_row(f"{t:,}", *(f"{rows[-1][name]:.3g}" for name in ("variance", "known", "far")))
    console = Console(stderr=True)
    console.print(table)
    console.print(f"{time.perf_counter() - begin:.0f} s")
    if given.json:
        worst = {"worst_known": float(known[FROM - 1 :].max()), "worst_far": float(far.max())}
        print(json.dumps({**worst, "rows": rows}))


if __name__ == "__main__":
    main()
