"""A window closed at once gives the same as a run from trigger to trigger."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hushstream.errors import ContractError
from hushstream.mechanisms.catalogue import build, find
from hushstream.mechanisms.contract import Setting
from hushstream.mechanisms.in_memory import replays
from hushstream.mechanisms.noise.trial import noise_of
from hushstream.mechanisms.pak.mechanism import Pak
from hushstream.mechanisms.slots.slots import Slots
from hushstream.mechanisms.slots.whole import arrived, closed
from hushstream.mechanisms.workload import Workload

N, TOP, TRIGGERS = 600, 60, 12


def workload(seed: int = 1) -> Workload:
    """Units with several records, late and early records, deletions, and values that are NaN."""
    draw = np.random.default_rng(seed)
    time = np.clip(np.sort(draw.integers(0, 36, N)) + draw.integers(-6, 7, N), 0, 35)
    value = np.where(draw.random(N) < 0.02, np.nan, draw.gamma(2, 6, N))
    sign = np.where(draw.random(N) < 0.1, -1, 1).astype(np.int8)
    ends = (*np.sort(draw.integers(0, N - 4, TRIGGERS - 1)).tolist(), N - 5)
    unit = draw.integers(0, N // 2, N).astype(np.int32)
    columns = {"time": time, "value": value}
    return Workload(unit, np.zeros(N, np.int32), N // 2, 1, None, sign, ends, columns=columns)


def made(kind: str = "pak", **given: Any) -> Any:
    setting = Setting(
        Fraction(2), Fraction(1, 10**6), TRIGGERS, columns=(("value", 0, TOP),),
        grids=(Fraction(1),),
    )  # fmt: skip
    parameters = find(kind).parameters(slots_per_trigger=3, bound=2, **given)
    return build(kind, parameters, setting)


def released(mechanism: Pak, work: Workload, plays: int) -> list[tuple[int, list[int]]]:
    """Threshold, and the running total after each slot from the end of the warm-up on."""
    noises = [noise_of("p", play, 0) for play in range(plays)]
    found = []
    for outs in replays(mechanism, work, noises):
        total = np.zeros(mechanism.slots.slots + 1, np.int64)
        for out in outs:
            total[out.key.codes().astype(np.int64) + 1] = out.value[:, 1]
        (tau,) = (int(out.public["threshold"][0]) for out in outs if "threshold" in out.public)
        found.append((tau, total[mechanism.slots.warmup_slots :].tolist()))
    return found


@pytest.mark.parametrize("given", [
    {"counter": "tree"},
    {"counter": "tree", "warmup": 4, "publish_warmup": False, "watch": 0.1, "sliding": 2},
    {"counter": "hierarchy", "warmup": 2, "tail": 0.1},
    {"counter": "matrix", "threshold": "top"},
    {"counter": "matrix", "threshold": "smooth", "warmup": 3},
])  # fmt: skip
def test_running_totals_are_those_of_a_run_of_all_triggers(given: dict[str, Any]) -> None:
    mechanism, work = made(**given), workload()
    slots = mechanism.slots
    ends = np.arange(slots.warmup_slots, slots.slots + 1)
    some = ends[[0, 2, 5, len(ends) - 1]]
    for play, (tau, total) in enumerate(released(mechanism, work, 3)):
        noise = noise_of("p", play, 0)
        for at in (ends, some):
            entries = closed(slots, arrived(slots, work), at)
            found = mechanism.prefixes(entries, at, noise)
            assert found[0] == tau
            assert found[1].tolist() == [total[end - slots.warmup_slots] for end in at.tolist()]


def test_thresholds_that_follow_from_one_another_need_a_run() -> None:
    for mechanism in (made("pak", relearn=4), made("tops")):
        slots = mechanism.slots
        entries = closed(slots, arrived(slots, workload()), np.array([slots.slots]))
        assert mechanism.prefixes(entries, np.array([slots.slots]), noise_of("p", 0)) is None


def test_records_are_read_once_for_all_warmups() -> None:
    work = workload()
    one = arrived(made(warmup=1).slots, work)
    assert arrived(made(warmup=5).slots, work) is one
    assert arrived(made(warmup=1).slots, workload()) is not one  # equal, but another object
    assert arrived(made(warmup=1, resolution=8).slots, work) is not one


def test_a_late_record_counts_in_the_first_open_slot() -> None:
    slots = Slots(thresholds=(5,), horizon=4, warmup=2, per_trigger=2)
    time, value = np.array([0, 1, 7, 2, 4]), np.array([1, 2, 3, 4, 5])
    work = Workload(
        np.arange(5, dtype=np.int32), np.zeros(5, np.int32), 5, 1, ends=(1, 2, 3, 5),
        columns={"time": time, "value": value},
    )  # fmt: skip
    entries = closed(slots, arrived(slots, work), np.arange(1, 9))
    # Both other records come in the fourth micro-batch, after triggers 2 and 3 closed their slots.
    assert entries.slot.tolist() == [0, 1, 6, 7] and entries.sum.tolist() == [1, 2, 9, 3]


def test_a_workload_without_columns_is_refused() -> None:
    bare = workload()._replace(columns=None)
    with pytest.raises(ContractError):
        arrived(made().slots, bare)
