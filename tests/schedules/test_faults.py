"""The product still raises the errors that a schedule warrants."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest

from . import ends, faults
from .forks import ROOT
from .log import Log, Transaction
from .rewind import lacks, restore, snapshot
from .world import World, enter

TEXTS = [*ends.OLDER, ends.FORGOTTEN, ends.GONE, *ends.LATE, *ends.AWAY, ends.UNASSIGNED,
         ends.CLOCKS, ends.REGISTRY, ends.UNSTOPPED]  # fmt: skip
SEAM = re.compile(r'"\s+f?"')  # between two parts of one string


@pytest.fixture(scope="module")
def product() -> str:
    folders = (ROOT / name for name in ("agents", "topics"))
    text = "".join(p.read_text("utf-8") for folder in folders for p in folder.glob("**/*.py"))
    return SEAM.sub("", text)


@pytest.mark.parametrize("text", TEXTS)
def test_the_product_still_says_what_a_schedule_warrants(product: str, text: str) -> None:
    assert text in product


@pytest.mark.parametrize(
    ("kind", "size", "end", "warranted"),
    [
        ("outage", 0.8, 70.0, "ab"),  # 29 s, from 35 to 64 s
        ("outage", 0.8, 50.0, ""),  # 15 of the 40 s before
        ("outage", 0.5, 70.0, ""),  # 11 s; the rest is enough to stop
        ("pause", 0.9, 70.0, "a"),  # 32 s, on one machine
        ("pause", 0.9, 90.0, ""),  # it ended early enough
    ],
)
def test_a_worker_may_fail_to_stop_in_an_outage_or_a_pause_of_its_own_alone(
    kind: str, size: float, end: float, warranted: str
) -> None:
    world = enter(World(1))
    machines: Any = [SimpleNamespace(name=name, pause=None, process=None) for name in "ab"]
    made = faults.Faults(world, machines, [], "changelog")
    made._at = lambda *_: None  # type: ignore[method-assign]
    getattr(made, kind)(machines[0], 35.0, size)
    world.loop.now = end
    text = f"TimeoutError: {ends.UNSTOPPED}"
    assert "".join(name for name in "ab" if made.warrants(text, name)) == warranted


@pytest.mark.parametrize("committed", [True, False])
def test_a_cluster_comes_back_as_it_was_when_it_lacked_least_of_what_a_copy_has(
    committed: bool,
) -> None:
    """A transaction that was open then ends with a marker, which has an offset as well."""
    world = enter(World(1))
    broker, place, transaction = world.broker, ("log", 0), Transaction()
    log = broker.logs[place] = Log(False)
    copy = {place: 2}
    kept = [snapshot(broker)]
    log.append(transaction, 0.0, (b"k", b"v", None, ()))
    transaction.ending, transaction.commit = committed, committed
    kept.append(snapshot(broker))
    log.mark(transaction, committed)
    assert [lacks(one, copy) for one in kept] == [True, False]
    assert lacks(kept[1], {place: 3}) and not lacks(kept[1], {})
    for one, end in zip(kept[::-1], (2, 0), strict=True):
        restore(broker, one)
        assert log.end == end and not log.open


def test_a_cluster_is_not_reset_to_a_state_of_a_history_that_it_has_left() -> None:
    """Its open transaction is in no log any more, and its offsets are those of other records."""
    world = enter(World(1))
    broker, transaction = world.broker, Transaction()
    log = broker.logs["log", 0] = Log(False)
    made = faults.Faults(world, [], [], "changelog").resets
    made._keep()
    before = made._kept
    log.append(transaction, 0.0, (b"k", b"v", None, ()))
    made._keep()
    later = made._kept
    made._kept = before
    made._go_back(0)
    assert log.end == 0
    log.append(Transaction(), 1.0, (b"k", b"w", None, ()))
    made._kept, made._kept_of = later, 0  # noted before the reset
    made._go_back(0)
    assert log.end == 2 and not log.open  # nothing is lost but the open transaction
