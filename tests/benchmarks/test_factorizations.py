"""The benchmark of long windows: its figures follow from the named matrices."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hushstream.mechanisms.factorization import build

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
try:
    import factorizations
finally:
    sys.path.pop(0)


@pytest.mark.parametrize("name", factorizations.NAMES)
def test_figures_are_those_of_the_factorisation(name: str) -> None:
    found, errors = factorizations.row(name, 60, 3), build(name, 60).errors()
    assert (found["name"], found["triggers"]) == (name, 60)
    assert found["last"] == errors[-1] and found["worst"] == errors.max()
    assert found["rms"] == pytest.approx(float((errors**2).mean()) ** 0.5)
    assert found["build_s"] > 0 and found["us_per_key"] > 0
