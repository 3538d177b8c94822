"""The comparison with other engines: ratios use the better of a peer's settings."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

sys.path.insert(0, str(ROOT / "benchmarks"))
try:
    import peers
finally:
    sys.path.pop(0)

FOUND = {
    "fetch": 200, "uniform": 100, "rekeyed": 60, "zipf": 90, "many": 30,
    "streams_uniform_one": 20, "streams_uniform_two": 25, "streams_rekeyed_one": 10,
    "flink_uniform_one": 50, "flink_uniform_two": 40, "flink_many_two": 10,
}  # fmt: skip


def test_ratios_are_to_the_better_of_a_peers_settings():
    made = peers.ratios(FOUND)
    assert made["fetch_share"] == 0.5
    assert made["ratio_uniform"] == 4.0 and made["ratio_rekeyed"] == 6.0
    assert made["ratio_flink"] == 2.0 and made["ratio_flink_many"] == 3.0
    assert made["ratio_flink_rekeyed"] == 1.2  # Flink always brings records to their users


def test_a_peer_that_is_left_out_has_no_ratio():
    made = peers.ratios({key: FOUND[key] for key in ("fetch", "uniform", "rekeyed", "zipf")})
    assert list(made) == ["fetch_share"]
