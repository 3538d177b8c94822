"""The held-out benchmark of values: errors agree with the mechanism's, and the paper's rules."""

from __future__ import annotations

import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hushstream.mechanisms.in_memory import Memory, Trace, run
from hushstream.mechanisms.parts.trees.hierarchy import Chunks

ROOT = Path(__file__).parents[2]

sys.path[:0] = [str(ROOT / name) for name in ("research", "benchmarks")]
try:
    import _heldout_values as values
    from _heldout_streams import streams
    from _values import Stream, keyed
finally:
    del sys.path[:2]


def test_the_halves_share_no_stream() -> None:
    tuned, held = ({one.name: one for one in streams(half)} for half in ("tuned", "held"))
    assert len(tuned) >= 18 and len(held) >= 24 and not tuned.keys() & held.keys()
    for one in (*tuned.values(), *held.values()):
        assert one.values.min() >= 0 and one.values.max() <= one.top
        assert not any(
            np.array_equal(one.values, other.values)
            for other in (*tuned.values(), *held.values())
            if other is not one
        )


def test_the_published_choice_of_levels() -> None:
    assert [values.authors_skip(5, Fraction(1, n)) for n in (20, 10, 1)] == [2, 2, 1]
    method, height = values.authors(114_688, Fraction(1, 20))
    assert (method.shape.fanout, height, method.shape.levels) == (16, 5, 3)


def test_errors_are_those_of_the_mechanism() -> None:
    """Compared with drawn releases of the default configuration, with a fixed threshold."""
    draw = np.random.default_rng(3)
    stream = Stream("short", np.rint(draw.exponential(20, 480)).astype(np.int64), 400)
    epsilon, theta = Fraction(1, 2), 39
    made = values.defaults(stream, epsilon)
    assert theta in made.slots.thresholds and isinstance(made.tree, Chunks)
    made = replace(made, penalty=tuple(0 if x == theta else 10**6 for x in made.slots.thresholds))
    n = len(stream.values)
    coded = made.encode({"time": np.arange(n), "value": stream.values})
    trace = Trace(
        made.slots.closing(np.arange(n)), np.arange(n), coded.keys, coded.key, coded.value,
        np.ones(n, np.int8),
    )  # fmt: skip
    ranges = values.Ranges.of(stream)
    true = np.concatenate([[0], np.cumsum(ranges.rest)])
    squares = []
    for i in range(60):
        out = list(run(Memory(made, keyed(i, "drawn")), trace))
        shown = np.concatenate([[0], *(one.value[:, 1] for one in out)]) / made.steps
        gap = (shown - true)[ranges.end] - (shown - true)[ranges.first]
        squares.append(float(np.mean(gap**2)))
    method = values.method_of(made)
    expected = ranges.noise(method.shape, method.history) / float(epsilon) ** 2 * theta**2
    warm = stream.values[: n // values.WARMUP]
    guesses = [values.guessed(made, warm, theta, run) for run in range(60)]
    missed = [ranges.missed(theta, method._replace(guess=guess)) for guess in guesses]
    expected += float(np.mean(missed))
    assert np.mean(squares) == pytest.approx(expected, rel=0.15)


def test_a_cell_names_both_rules_and_the_best() -> None:
    draw = np.random.default_rng(8)
    stream = Stream("short", np.rint(draw.exponential(20, 2000)).astype(np.int64), 2000)
    row = values.row_of(stream, Fraction(1, 2), 4)
    assert row["best"] <= 1.02 * min(row["tops"], row["authors"])
    found = values.totals([row, {**row, "tops": 2 * row["authors"]}])
    assert found["tops_over_authors_worst"] == 2 and found["cells_worse_than_authors"] == 1
