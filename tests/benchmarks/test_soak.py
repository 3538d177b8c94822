"""The soak's judgement: growing figures are named, fluctuating ones are not."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]

sys.path.insert(0, str(ROOT / "benchmarks"))
try:
    import soak
finally:
    sys.path.pop(0)


def found(**slopes: float) -> dict[str, Any]:
    """Figures of an hour with a sample each ten seconds; ``slopes`` are growths per hour."""
    samples = []
    for n in range(361):
        values = {name: 100.0 + (n % 7) + slopes.get(name, 0.0) * n / 360 for name in soak.MOST}
        samples.append(soak.Sample(at=10.0 * n, behind=1.0 + slopes.get("behind", 0.0), **values))
    return soak.judged(samples) | {"alive": True}


def test_what_goes_up_and_down_is_flat():
    figures = found()
    assert soak.flat(figures, tuple(soak.MOST))
    assert figures["rss"]["ratio"] == pytest.approx(1, abs=0.01)
    assert abs(figures["rss"]["slope"]) < 0.5


@pytest.mark.parametrize("name", list(soak.MOST))
def test_what_grows_is_not(name):
    figures = found(**{name: 100.0})
    assert figures[name]["slope"] == pytest.approx(100, rel=0.01)
    assert not soak.flat(figures, tuple(soak.MOST))
    others = tuple(set(soak.MOST) - {name})
    assert soak.flat(figures, others)


def test_a_load_that_is_not_held_or_a_worker_that_ended_is_no_success():
    assert not soak.flat(found(behind=60.0), tuple(soak.MOST))
    assert not soak.flat(found() | {"alive": False}, tuple(soak.MOST))
