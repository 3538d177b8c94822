"""A worker claims the tables that it closed last, and no others."""

from __future__ import annotations

import os
from pathlib import Path

from hushstream.agents.stages.topology import Topology
from hushstream.agents.worker.claims import TOGETHER_SECONDS, tables_on_disk

from ...support import NAMES, deployment


def test_tables_that_were_in_use_at_the_end_are_claimed(tmp_path: Path) -> None:
    topology = Topology(deployment(cells=2), NAMES)
    raw, cells = topology.specs[0], topology.specs[-1]
    assert tables_on_disk(topology, tmp_path / "none") == []
    ages = ((raw, 0, 0.0), (cells, 1, TOGETHER_SECONDS / 2), (cells, 0, 2 * TOGETHER_SECONDS))
    for spec, number, age in ages:
        (table := tmp_path / spec.changelog / str(number)).mkdir(parents=True)
        for at, name in ((1e9 - age, "000004.log"), (1e8, "CURRENT")):
            (table / name).touch()
            os.utime(table / name, (at, at))
    (tmp_path / raw.changelog / "damaged-0").mkdir()
    found = tables_on_disk(topology, tmp_path)
    assert found == sorted([(raw.topic, 0), (cells.topic, 1)])  # the other table moved away before
