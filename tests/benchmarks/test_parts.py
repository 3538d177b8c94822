"""The functions that the benchmark of parts times exist; a moved one would have no figures."""

from __future__ import annotations

import importlib
import sys
from functools import reduce
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
try:
    from parts import FETCH, PARTS
finally:
    sys.path.pop(0)


@pytest.mark.parametrize("place", [FETCH, *(place for part in PARTS.values() for place in part)])
def test_each_function_that_is_timed_is_where_the_benchmark_looks(place: str) -> None:
    module, path = place.split(":")
    found = reduce(getattr, path.split("."), importlib.import_module(f"hushstream.{module}"))
    assert callable(found)
