"""The accuracy benchmarks: their workload, and the promised figures of a small run."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hushstream.mechanisms import accounting
from hushstream.mechanisms.histogram.mechanism import Histogram
from hushstream.mechanisms.histogram.planning.play import Run, Workload

ROOT = Path(__file__).parents[2]


sys.path.insert(0, str(ROOT / "benchmarks"))
try:
    import _table1_baselines as baselines
    import _table1_designs as designs
    import _workload as workload
finally:
    sys.path.pop(0)


def run(name: str, *options: str) -> dict[str, Any]:
    """The last line of a benchmark under --json."""
    return lines(name, *options)[-1]


def lines(name: str, *options: str) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / name), "--json", *options],
        capture_output=True, text=True, check=True, cwd=ROOT,
    )  # fmt: skip
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.thorough
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


@pytest.mark.thorough
def test_one_trigger_reports_its_cost(tmp_path: Path) -> None:
    row = run("trigger.py", "--quick", "--out", str(tmp_path))
    assert row["seconds"] > 0 and 0 < row["growth"] < 10
    assert (tmp_path / "trigger.png").exists()


@pytest.mark.thorough
def test_figures_are_means_over_noise_keys_and_every_finished_run_is_printed(
    tmp_path: Path,
) -> None:
    *runs, row = lines(
        "table1.py", "--quick", "--triggers", "4", "--designs", "terminal,incremental",
        "--seeds", "2", "--shape", "bursts", "--out", str(tmp_path),
    )  # fmt: skip
    assert [(one["design"], one["noise_key"]) for one in runs] == [
        ("terminal", 0), ("terminal", 1), ("incremental", 0), ("incremental", 1),
    ]  # fmt: skip
    for field in (*workload.Errors._fields, "seconds"):
        a, b = (one[field] for one in runs[:2])
        assert a != b
        assert row[f"terminal_{field}"] == pytest.approx((a + b) / 2)
        assert row[f"terminal_{field}_sd"] == pytest.approx(abs(a - b) / 2**0.5)
    slowest = max(one["slowest_trigger"] for one in runs[:2])
    assert row["terminal_slowest_trigger"] == slowest > 0


@pytest.mark.thorough
def test_a_curve_has_its_points(tmp_path: Path) -> None:
    row = run(
        "table1.py", "--quick", "--triggers", "3", "--designs", "terminal,repeated",
        "--curve", "4,64", "--out", str(tmp_path),
    )  # fmt: skip
    for name in ("terminal", "repeated"):
        few, many = row[f"{name}_curve"]
        assert (few["bound"], many["bound"]) == (4, 64)
        assert few["keys"] > many["keys"]
        assert few["bias_large"] < many["bias_large"] < 0  # truncation shrinks
    assert row["private"] is True
    assert (tmp_path / "table1_curve.png").stat().st_size > 5_000


def small(users: int, records: int, keys: int) -> Workload:
    rng = np.random.default_rng(5)
    unit = np.repeat(np.arange(users, dtype=np.int32), records)
    rng.shuffle(unit)
    return Workload(unit, rng.integers(0, keys, len(unit), dtype=np.int32), users, keys)


@pytest.mark.parametrize("triggers", [1, 2, 100])
def test_repeated_releases_share_one_budget(triggers: int) -> None:
    alone = designs.design("repeated", 1, 0)
    one = designs.design("repeated", triggers, 0)
    assert isinstance(alone, Histogram) and isinstance(one, Histogram)
    assert accounting.total([one.cost()], designs.DELTA)[0] <= designs.EPSILON
    ratio = one.quantities[0].lanes[0].variance / alone.quantities[0].lanes[0].variance
    assert float(ratio) == pytest.approx(triggers, rel=1e-6)
    process = one.quantities[0].lanes[0]
    beta = designs.DELTA / 2 / triggers
    bar = 1 + process.quantile(1, beta / 32)  # a key with one record
    assert one.threshold[0] >= math.ceil(bar * 256) >= 1


def test_repeated_releases_are_of_everything_so_far_with_noise_of_their_own() -> None:
    work = small(4_000, 3, 4)
    run = baselines.Repeated(designs.design("repeated", 3, 0), work, seed=1)
    shown = []
    for part in work.micro_batches(3):
        run.step(part)
        shown.append(run.shown)
    exact = [np.bincount(work.key[: 4_000 * n], minlength=4) for n in (1, 2, 3)]
    spread = float(run.mechanism.quantities[0].lanes[0].variance_at(1, np.zeros(1, int))[0]) ** 0.5
    gap = np.array(shown) - np.array(exact)
    assert abs(gap).max() < 6 * spread
    assert len(np.unique(gap)) > 6  # noise exists and differs between triggers


def test_incremental_releases_add_up_and_share_one_bound() -> None:
    users = 4_000
    unit = np.tile(np.arange(users, dtype=np.int32), 10)
    work = Workload(unit, np.zeros(len(unit), np.int32), users, 1)
    mechanism = designs.design("incremental", 2, 0)
    assert isinstance(mechanism, Histogram)
    run = baselines.Incremental(mechanism, work, seed=1)
    first, second = work.micro_batches(2)
    run.step(first)
    before = run.shown.copy()
    assert (run.units.units.left == 32 - 25).all()  # each user has five records in one key
    run.step(second)
    assert (run.units.units.left == 32 - 25 - 4).all()  # a new window begins with the first record
    spread = float(mechanism.quantities[0].lanes[0].variance_at(1, np.zeros(1, int))[0]) ** 0.5
    assert abs(before[0] - 5 * users) < 6 * spread
    assert abs(run.shown[0] - before[0] - 2 * users) < 6 * spread
    assert run.shown[0] != 7 * users


def test_kept_noise_is_compared_with_the_release_of_a_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = designs.design("adaptive", 4, 0)
    assert isinstance(made, Histogram)
    work = small(3_000, 3, 5)
    run = Run(workload.cached(made, work.keys), work, baselines.keyed("adaptive", 1))
    errors, slowest = workload.play(run, 4, lambda: None)
    assert errors.keys == 5 and slowest > 0
    monkeypatch.setattr(workload.Cached, "at", lambda self, noise, keys, t, since: since * 0)
    run = Run(workload.cached(made, work.keys), work, baselines.keyed("adaptive", 1))
    with pytest.raises(AssertionError, match="another release"):
        workload.play(run, 4, lambda: None)


def test_fewer_users_are_needed_than_where_it_was_published() -> None:
    for one in designs.DEPLOYMENTS:
        bars = one.least()
        assert len(bars) == one.triggers
        assert bars[-1] == min(bars) > one.min_users
        if one.published is not None:
            assert max(bars) < one.published
            assert one.delta == Fraction(1, 10**9)  # the δ of the published thresholds
            assert bars[-1] < 0.5 * one.published
            assert max(one.least("toeplitz", 0.006)) < one.published


def test_documented_thresholds_are_those_of_the_product() -> None:
    page = (ROOT / "mechanisms" / "histogram" / "README.md").read_text()
    for one in designs.DEPLOYMENTS:
        bars, flat = one.least(), one.least("toeplitz", 1 / 100)
        figures = f"{bars[-1]:.1f} | {max(bars):.1f} | {max(flat):.1f}"
        delta = f"{float(one.delta):.0e}".replace("e-0", "e-")
        published = one.published or "–"
        assert f"| {one.epsilon} | {delta} | {one.min_users} | {published} | {figures} |" in page


def test_the_published_laws_have_the_published_moments() -> None:
    law = workload.law
    counts = law(100_000, 26, 6.738)
    per_user = float((counts * (1 + np.arange(100_000))).sum())
    assert per_user * 10_000_000 == pytest.approx(59.05e6, rel=1e-3)
    assert law(1_000_000, 1000, 1.4)[0] * per_user * 1e7 == pytest.approx(25_203, rel=1e-3)
    for shape in workload.SHAPES:
        work = workload.shaped(shape, 0.001, 3)
        assert work.truth().sum() == len(work.unit) == len(work.key)
        assert work.key.max() < work.keys and work.unit.max() < work.users
