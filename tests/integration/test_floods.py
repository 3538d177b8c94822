"""Hostile floods against a worker with little memory: it survives, and releases continue.

`benchmarks/floods.py` does the same in full. This drills "A worker that runs out of memory" in
docs/operations.md: the worker has the settings named there.
"""

from __future__ import annotations

import re

import pytest
from hushstream.deploy.broker import Broker

from ..test_docs import ROOT
from .local import BROKER, cage, floods

LIMIT = 704 << 20
KEYS = 60_000
RUNBOOK = re.compile(
    r"^## A worker that runs out of memory$.*?```toml\n(.*?)```", re.DOTALL | re.MULTILINE
)


@pytest.mark.broker
@pytest.mark.thorough
def test_a_worker_in_a_small_container_lives_through_floods(tmp_path):
    with Broker(quiet=True, overrides=BROKER) as broker, cage.cage(LIMIT) as inside:
        found = floods.floods(tmp_path, broker.bootstrap, KEYS, ["keys", "restore"], inside)
    assert found["killed"] == 0 and found["stuck"] == 0, found
    assert found["peak_mb"] < found["budget_mb"], found


def test_it_runs_with_the_settings_of_the_runbook():
    told = RUNBOOK.search((ROOT / "docs/operations.md").read_text())
    assert told is not None
    lines = [line.split(" = ") for line in told.group(1).splitlines() if " = " in line]
    assert {f"engine.{name}": value for name, value in lines} == floods.SETTINGS
    assert floods.budget() < floods.LIMIT_MB
