"""A bench with a store of snapshots."""

from __future__ import annotations

from pathlib import Path

import pytest
from hushstream.agents.snapshots import copies, sealed

from ..bench import Bench
from .stored import Store


@pytest.fixture
def stored(bench: Bench, tmp_path: Path, monkeypatch) -> Bench:
    bench.store = Store(tmp_path / "store")
    for module in (copies, sealed):
        monkeypatch.setattr(module, "PART", 300)  # several parts
    return bench
