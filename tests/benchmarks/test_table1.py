"""The accuracy benchmarks: their workload, and that a small run ends with what it promises."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]


def run(name: str, *options: str) -> dict[str, Any]:
    """The last line of a benchmark under --json."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / name), "--json", *options],
        capture_output=True, text=True, check=True, cwd=ROOT,
    )  # fmt: skip
    return dict(json.loads(done.stdout.splitlines()[-1]))


def test_a_small_table_orders_the_designs(tmp_path: Path) -> None:
    names = ["sound_paper", "terminal", "adaptive", "one_shot"]
    row = run(
        "table1.py", "--quick", "--triggers", "10", "--designs", ",".join(names),
        "--out", str(tmp_path),
    )  # fmt: skip
    assert row["private"] is True
    for name in names:
        for field in ("keys", "linf", "l1", "l2", "mean_l1"):
            assert row[f"{name}_{field}"] > 0
    assert row["sound_paper_keys"] < row["terminal_keys"] < row["adaptive_keys"]
    assert row["sound_paper_l1"] > row["terminal_l1"] > row["adaptive_l1"]
    assert row["records"] == pytest.approx(59.05e6, rel=0.01)
    assert row["p99_records_per_user"] == pytest.approx(32, abs=1)
    assert (tmp_path / "table1.png").stat().st_size > 5_000


def test_one_trigger_reports_its_cost(tmp_path: Path) -> None:
    row = run("trigger.py", "--quick", "--out", str(tmp_path))
    assert row["seconds"] > 0 and 0 < row["growth"] < 10
    assert (tmp_path / "trigger.png").exists()


def test_the_published_laws_have_the_published_moments() -> None:
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        from _workload import SHAPES, law, shaped
    finally:
        sys.path.pop(0)
    counts = law(100_000, 26, 6.738)
    per_user = float((counts * (1 + np.arange(100_000))).sum())
    assert per_user * 10_000_000 == pytest.approx(59.05e6, rel=1e-3)
    assert law(1_000_000, 1000, 1.4)[0] * per_user * 1e7 == pytest.approx(25_203, rel=1e-3)
    for shape in SHAPES:
        work = shaped(shape, 0.001, 3)
        assert work.truth().sum() == len(work.unit) == len(work.key)
        assert work.key.max() < work.keys and work.unit.max() < work.users
