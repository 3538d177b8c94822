"""The sweep of PHDStream's benchmark: one setting at a time, and errors that move as they must."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
try:
    import phdstream
    from rich.console import Console
finally:
    sys.path.pop(0)


def test_each_variant_changes_one_setting() -> None:
    for what, value, variant, each in phdstream.sweeps():
        given = variant.parameters
        changed = {
            "ε": variant.epsilon != phdstream.EPSILON, "first trigger": given.first != 1,
            "events of a unit": given.bound != 1, "events of a tick": each != phdstream.EACH,
            "depth": given.domain.depth != 8,
        }  # fmt: skip
        now = {
            "ε": float(variant.epsilon), "first trigger": given.first, "depth": given.domain.depth,
            "events of a unit": given.bound, "events of a tick": each,
        }[what]  # fmt: skip
        assert float(value) == now
        changed.pop(what)
        assert not any(changed.values()), (what, value)


def test_a_row_is_measured_with_its_own_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = [
        one for one in phdstream.sweeps()
        if one[:2] in (("ε", "0.1"), ("ε", "2"), ("events of a tick", "2500"))
    ]  # fmt: skip
    monkeypatch.setattr(phdstream, "sweeps", lambda: kept)
    monkeypatch.setattr(phdstream, "TICKS", 20)
    noisy, clear, rare = phdstream.sweep(True, Console(stderr=True))
    for size in ("small", "medium", "large", "large, deletions"):
        assert clear[size] < 0.8 * noisy[size]
    assert rare["varied"] == "events of a tick" and clear["leaves"] > 2 * noisy["leaves"]
