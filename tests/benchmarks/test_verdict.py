"""The verdict on a run through faults: whatever is wrong makes it fail."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
if str(BENCHMARKS) not in sys.path:
    sys.path.append(str(BENCHMARKS))

from _verdict import failed  # noqa: E402

NAMES = ("unwell", "lost", "doubled", "differing", "stuck", "wrong_charges", "objected",
         "unconserved")  # fmt: skip
ENDS = [("gone", "wrong"), ("outage", "late"), ("outage", "ended"), ("loop", "charged"),
        ("loop", "ready"), ("loop", "accepted"), ("floods", "killed"),
        ("floods", "stuck")]  # fmt: skip


def figures() -> dict[str, Any]:
    """Figures of a run without any fault of the product."""
    found: dict[str, Any] = dict.fromkeys(NAMES, 0) | {"died": [], "unproved": "", "left_out": []}
    for part, name in ENDS:
        found.setdefault(part, {})[name] = 0
    return found


def test_a_run_without_any_is_a_success():
    assert not failed(figures(), pause=False, harsh=True)
    assert not failed({"died": [], "unwell": 0}, pause=True, harsh=True)


@pytest.mark.parametrize(
    ("name", "value"),
    [*((name, 1) for name in NAMES), ("died", ["w1"]), ("unproved", "p"), ("left_out", ["p"])],
)
def test_each_wrong_figure_makes_it_fail(name, value):
    assert failed(figures() | {name: value}, pause=False, harsh=False)


@pytest.mark.parametrize(("part", "name"), ENDS)
def test_so_does_each_harsh_end(part, name):
    found = figures()
    found[part][name] = 1
    assert failed(found, pause=False, harsh=True)
    assert not failed(found, pause=False, harsh=False)


@pytest.mark.parametrize("wrong", [{"died": ["w1"]}, {"unwell": 1}])
def test_before_a_pause_only_workers_can_have_failed(wrong):
    assert failed({"died": [], "unwell": 0} | wrong, pause=True, harsh=True)
