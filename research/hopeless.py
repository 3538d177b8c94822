"""Would feedback about hidden keys help? What an oracle gains that knows hopeless keys beforehand.

Noisy counts of hidden keys are paid for, so they could tell early which keys will never be public;
units would then keep their budgets for other keys. The best that any such rule can do is bounded
by an oracle: it knows the exact counts of the whole window and leaves out all records of keys below
a share ``cut`` of the last threshold. Those keys stay hidden, so their records count as error.

    python research/hopeless.py [--triggers 24] [--json]

For each set and ε: l1 at the last trigger over that without the oracle, by ``cut``.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from fractions import Fraction

import _benchmarks  # noqa: F401
import _heldout_histogram as heldout
import numpy as np
from _workload import published
from hushstream.mechanisms.contract import Setting
from hushstream.mechanisms.factorization.prefix_noise import STEPS
from hushstream.mechanisms.histogram.mechanism import Histogram
from hushstream.mechanisms.histogram.planning.play import Run, play
from hushstream.mechanisms.histogram.settings import HistogramParameters
from hushstream.mechanisms.histogram.tumbling import build
from hushstream.mechanisms.noise.trial import noise_of
from hushstream.mechanisms.workload import Workload

CUTS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0)
RUNS = 2
SETS: dict[str, Callable[[], Workload]] = {
    "published": lambda: published(0.02, 1),
    "favourite keys": lambda: heldout.TUNED["favourite keys"](1),
    "words": lambda: heldout.TUNED["words"](1),
}


def histogram(epsilon: float, delta: float, triggers: int) -> Histogram:
    """The histogram at its defaults."""
    exact = Fraction(str(epsilon)), Fraction(str(delta))
    made = build(HistogramParameters(), Setting(*exact, triggers))
    assert isinstance(made, Histogram)
    return made


def error(made: Histogram, work: Workload, cut: float) -> float:
    """l1 of the last release as a share of all records, without the keys that the oracle drops."""
    truth = work.truth()
    kept = truth >= cut * made.threshold[-1] / STEPS
    held = kept[work.key]
    left = work._replace(unit=work.unit[held], key=work.key[held])
    runs = (Run(made, left, noise_of("hopeless", run), made.delay) for run in range(RUNS))
    seen = float(np.mean([play(run).last[0] for run in runs]))
    return (seen + float(truth[~kept].sum())) / len(work.unit)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--triggers", type=int, default=24)
    parser.add_argument("--json", action="store_true", help="one JSON list as the last line")
    args = parser.parse_args()
    rows = []
    for name, make in SETS.items():
        work = make()
        for epsilon, delta in heldout.PRIVACY:
            made = histogram(epsilon, delta, args.triggers)
            found = [error(made, work, cut) for cut in CUTS]
            rows.append({"set": name, "epsilon": epsilon, "l1": found[0],
                         "over": [one / found[0] for one in found]})  # fmt: skip
            pairs = zip(CUTS, found, strict=True)
            told = "  ".join(f"{cut}: {one / found[0]:.3f}" for cut, one in pairs)
            print(f"{name}, ε = {epsilon:g}, l1 {found[0]:.3f}; by cut  {told}", flush=True)
    if args.json:
        print(json.dumps(rows))


if __name__ == "__main__":
    main()
