"""Defaults on unseen data: disjoint groups, and figures that mean what their names say."""

from __future__ import annotations

import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
try:
    import _heldout_histogram as histogram
    import _heldout_pak as pak
    import _heldout_streams as sets
    import _heldout_topl as topl
    import heldout
    import intervals
    from _values import Stream
finally:
    sys.path.pop(0)


def test_laws_of_the_groups_share_no_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sets, "LONG", 1 << 11)
    groups = [list(made()) for made in (sets._tuned, sets._held, sets._unseen)]
    groups.append(list(sets.sealed(1 << 11)))
    names = [name for group in groups for name, *_ in group]
    assert len(set(names)) == len(names) and min(map(len, groups)) >= 13
    values = [one for group in groups for _, one, _ in group]
    assert not any(np.array_equal(a, b) for i, a in enumerate(values) for b in values[:i])


def test_a_cell_of_pak_is_held_against_the_best_threshold() -> None:
    values = np.minimum(np.random.default_rng(3).exponential(20, 1024), 400)
    row = pak.row_of(Stream("short", np.rint(values).astype(np.int64), 400), Fraction(1), 3)
    assert row["best"] <= row["pak"] < 2 * row["best"] and 20 < row["pak_threshold"] < 400
    found = pak.totals([row, {**row, "pak": 3 * row["best"]}])
    assert found["pak_worst"] == 3 and found["pak_median"] < 3


def test_figures_have_the_names_that_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    same = {"set": "a", "best": 2.0, "whole": 4.0, "covered": 0.5}
    rows = [same | {"topl": one} for one in (2.0, 6.0, 20.0)]
    monkeypatch.setattr(topl, "measure", lambda *given, single: rows)
    _, found = heldout.topl_figures("unseen", True, str)
    within = found.pop("topl_within_3")
    assert within == pytest.approx(2 / 3) and found.pop("topl_beyond_covered") == 0.5
    assert found == {"topl_worst": 10, "topl_over_whole": 5}
    shares = [intervals.Snapshot(1.0, 1.0, 1, share) for share in (0.5, 1.0)]
    monkeypatch.setattr(intervals, "snapshots", lambda *given: shares)
    _, found = heldout.coverage_figures("unseen", True, str)
    assert found == {"phdstream_coverage_by_records": 0.75}


@pytest.mark.parametrize(
    ("half", "group"),
    [("unseen", "held"), ("held", "held"), ("tuned", "tuned"), ("sealed", "sealed")],
)
def test_a_histogram_is_judged_on_the_group_that_was_asked_for(
    half: str, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def measure(of: str, quick: bool, tell: heldout.Tell) -> list[heldout.Row]:
        asked.append(of)
        return [{"best": 2.0, "default": 3.0}]

    monkeypatch.setattr(histogram, "measure", measure)
    _, found = heldout.histogram_figures(half, True, str)
    assert asked == [group] and found == {"histogram_over_oracle": 1.5}
