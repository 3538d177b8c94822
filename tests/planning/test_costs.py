"""Each measured cost names the benchmark that measures it, and its figure there."""

from __future__ import annotations

from pathlib import Path

from hushstream.planning.costs import COSTS, MEASURED_BY

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_every_cost_names_a_figure_of_a_benchmark_that_is_there():
    assert list(MEASURED_BY) == list(COSTS._fields)
    for name, words in MEASURED_BY.items():
        file, figure = words.split(": ")
        assert figure in (BENCHMARKS / file).read_text("utf-8"), name
