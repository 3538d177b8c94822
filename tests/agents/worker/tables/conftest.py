"""A bench with a store of snapshots, and fixtures for tables without a worker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hushstream.agents.snapshots import copies, sealed
from hushstream.agents.worker.metrics import OperatorMetrics
from hushstream.agents.worker.shared import Shared

from ..bench import Bench
from .stored import Store


@pytest.fixture
def stored(bench: Bench, tmp_path: Path, monkeypatch) -> Bench:
    bench.store = Store(tmp_path / "store")
    for module in (copies, sealed):
        monkeypatch.setattr(module, "PART", 300)  # several parts
    return bench


@pytest.fixture
def shared(tmp_path: Path) -> Shared:
    none: Any = None
    return Shared(none, "abcdef", tmp_path, none, 1 << 20, none, OperatorMetrics(), 0)
