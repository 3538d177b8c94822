"""PAK's warm-up by a tree: its errors agree with drawn noise, and it can win or lose."""

from __future__ import annotations

import json
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

sys.path[:0] = [str(Path(__file__).parents[2] / name) for name in ("research", "benchmarks")]
try:
    import _heldout_warmup as warmup
    from _values import Stream, keyed
finally:
    del sys.path[:2]

ONE = Fraction(1)


def stream(values: np.ndarray, top: int = 1000) -> Stream:
    return Stream("short", values.astype(np.int64), top)


def test_errors_are_those_of_drawn_noise() -> None:
    draw = np.random.default_rng(2)
    values = np.rint(draw.exponential(20, 1600))
    tau, epsilon, slots = 60, Fraction(1, 2), 200
    found = warmup.of_threshold(stream(values), tau, epsilon, 0.0)
    true, cut = np.cumsum(values[:slots]), np.cumsum(np.minimum(values[:slots], tau))
    ends = -(-slots * np.arange(1, 65) // 64)
    counter, after, line = warmup.hierarchy(slots, epsilon), [], []
    for run in range(200):
        noise = np.array(counter.noise(keyed(run, "warm"), tau, ends)) / counter.steps
        after.append(np.mean((cut[ends - 1] + noise - true[ends - 1]) ** 2))
        own = cut[-1] + draw.laplace(0, tau / float(epsilon))
        line.append(np.mean((own * ends / slots - true[ends - 1]) ** 2))
    assert found["after"] == pytest.approx(np.mean(after), rel=0.2)
    assert found["line"] == pytest.approx(np.mean(line), rel=0.2)


def test_a_line_misses_what_comes_all_at_once() -> None:
    """The total determines running totals of steady values, but not of a burst at the end."""
    steady, burst = np.full(8000, 50.0), np.where(np.arange(8000) % 1000 < 500, 0.0, 500.0)
    calm = warmup.of_threshold(stream(steady), 50, ONE, 0.0)
    loud = warmup.of_threshold(stream(burst), 500, ONE, 0.0)
    assert calm["line"] < calm["after"] / 20 and loud["after"] < loud["line"] / 20


def test_what_nobody_clips_is_noise_alone() -> None:
    """B instead of τ scales the noise; half of ε2 has four times the variance."""
    found = warmup.of_threshold(stream(np.full(800, 30.0)), 100, ONE, 7.0)
    assert found["live"] == pytest.approx(100 * found["after"], rel=1e-6)
    assert found["both"] == pytest.approx(4 * found["after"], rel=1e-3)
    base = found["later_line"] - 7e4
    assert base == pytest.approx(2e4, rel=1e-3)
    assert found["later_both"] - 7e4 == pytest.approx(4 * base, rel=1e-3)
    assert found["later_after"] - 7e4 > 10 * base


def test_the_program_prints_medians(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    values = np.rint(np.random.default_rng(5).exponential(20, 4000))
    monkeypatch.setattr(warmup, "streams", lambda half: [stream(values), stream(values)])
    monkeypatch.setattr(sys, "argv", ["_heldout_warmup.py", "--quick", "--json"])
    warmup.main()
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["cases"] == len(found["rows"]) == 2
    assert found["later_after_over_line"] > found["later_both_over_line"] > 1
    assert found["live_over_line"] > found["after_over_line"]
