"""PAK's benchmark: the rival rule finds its quantile, and the sweep changes one number."""

from __future__ import annotations

import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
try:
    import threshold
    from _values import Warm, histogram_threshold, keyed, spikes
    from hushstream.mechanisms.pak.optimise import Choice
    from rich.console import Console
finally:
    sys.path.pop(0)


def test_a_histogram_with_little_noise_finds_the_quantile() -> None:
    warm = Warm((10, 20, 40, 80), np.array([900, 80, 15, 5]))
    half = Fraction(1, 2)
    found = []
    raised = ((21, Fraction(3, 2)), (21, 100))
    for rank, factor in ((1, 1), (6, 1), (20, 1), (21, 1), (101, 1), *raised):
        choice = Choice(1000, Fraction(rank - 1, 1000), Fraction(1), Fraction(factor), half, 0.0)
        assert choice.rank == rank
        found.append(histogram_threshold(warm, choice, Fraction(1000), keyed(0, "test")))
    assert found == [80, 40, 40, 20, 10, 40, 80]
    assert histogram_threshold(warm, None, Fraction(1), keyed(0, "test")) == 80


def test_its_noise_grows_as_its_share_of_epsilon_shrinks() -> None:
    warm = Warm((10, 20, 40, 80), np.array([900, 80, 15, 5]))
    choice = Choice(1000, Fraction(50, 1000), Fraction(1), Fraction(1), Fraction(1, 2), 0.0)

    def spread(epsilon: Fraction) -> int:
        thetas = {histogram_threshold(warm, choice, epsilon, keyed(i, "t")) for i in range(50)}
        return len(thetas)

    assert spread(Fraction(10)) == 1 < spread(Fraction(1, 50))


def test_spikes_are_rare_and_large() -> None:
    values = spikes().values
    large = values >= 2000
    assert 1 / 600 < large.mean() < 1 / 400
    assert np.quantile(values[~large], 0.99) < 150 and values.max() <= spikes().top


def test_the_sweep_changes_one_number_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(threshold, "prefix_errors", lambda stream, runs, **given: seen.append(
        (stream.name, len(stream.values), stream.top, given)
    ))  # fmt: skip
    threshold.sweep(True, Console(stderr=True))
    for name, n, top, given in seen:
        changed = {"ε": "epsilon" in given, "B": top != 3000, "m": "warmup" in given}
        changed["n"] = n != 150_000
        assert changed.pop(name[0]) or name == "ε = 1", name
        assert not any(changed.values()), name
    assert len({name for name, *_ in seen}) == len(seen) == 16
