"""Histograms of pairs: the pairs are distinct, and keys appear as often as the rates say."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hushstream.mechanisms.histogram.planning.play import Run, Workload

ROOT = Path(__file__).parents[2]

sys.path.insert(0, str(ROOT / "benchmarks"))
try:
    import _table1_baselines as baselines
    import _table1_designs as designs
    import table2
finally:
    sys.path.pop(0)


def test_a_user_has_a_key_once() -> None:
    work = table2.pairs(2_000, table2.KEYS, 3)
    pair = work.unit.astype(np.int64) * work.keys + work.key
    assert len(np.unique(pair)) == len(pair) > 4_000
    assert work.unit.max() < 2_000 and work.key.max() < table2.KEYS


@pytest.mark.parametrize("one", designs.DEPLOYMENTS)
def test_fewer_users_are_needed_than_published_and_with_rounds(one: designs.Deployment) -> None:
    ours, sound = (test.users(4_000) for test in table2.tests(one))
    assert ours == sorted(ours) and sound == sorted(sound)
    assert all(a < b for a, b in zip(ours, sound, strict=True))
    assert ours[0] > one.min_users
    if one.published is not None:
        assert ours[-1] < one.published


def test_keys_appear_as_often_as_stated() -> None:
    """The mechanism itself, on keys whose users come evenly over the day."""
    one = designs.DEPLOYMENTS[1]
    mechanism, keys = one.made(), 1_500
    found = table2.tests(one)[0].users(10_000)
    for n, share in zip(found[:2], table2.PROBABILITIES[:2], strict=True):
        arrival = -(-np.arange(1, n + 1) * one.triggers // n)  # the trigger of each user
        time = np.tile(arrival, keys)
        order = np.argsort(time, kind="stable")
        key = np.repeat(np.arange(keys, dtype=np.int32), n)[order]
        ends = tuple(np.searchsorted(time[order], np.arange(1, 151), side="right").tolist())
        unit = np.arange(len(key), dtype=np.int32)
        run = Run(
            mechanism, Workload(unit, key, len(key), keys, ends=ends), baselines.keyed("x", 1)
        )
        for part in run.work.micro_batches(one.triggers):
            run.step(part)
        # The least whole number of users that gives at least the stated share.
        assert share - 0.04 < (run.status > 0).mean() < share + 0.12


@pytest.mark.thorough
def test_a_small_table_ends_with_what_it_promises() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "table2.py"), "--quick", "--json",
         "--designs", "sound_paper,repeated,terminal,one_shot"],
        capture_output=True, text=True, check=True, cwd=ROOT,
    )  # fmt: skip
    row = json.loads(done.stdout.splitlines()[-1])
    assert row["private"] is True and row["published_keys"] == 1473
    assert row["one_shot_l1"] < row["terminal_l1"] < row["repeated_l1"]
    assert row["terminal_l1"] < row["sound_paper_l1"]
    assert [one["epsilon"] for one in row["rates"]] == [1, 3, 10, 2]
