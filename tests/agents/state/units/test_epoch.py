"""Rows of one epoch, in memory or only in blocks: like a dictionary in every case.

Covers: agents/state/units/ranges.py
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random

import numpy as np
import pytest
from hushstream.agents.state.layout import sortable, units_of
from hushstream.agents.state.units import epoch as unit_epoch
from hushstream.agents.state.units import packed as packed_rows
from hushstream.agents.state.units.epoch import UnitEpoch, read_index
from hushstream.agents.state.units.packed import Digests
from hushstream.errors import DamagedError
from hushstream.mechanisms.keys import Keys

PREFIX = units_of(2) + sortable(-1)


class MemoryBlocks:
    """Blocks in a dictionary, and the number of blocks read."""

    def __init__(self) -> None:
        self.blocks: dict[int, bytes] = {}
        self.asked = self._free = 0

    def read(self, ids: Sequence[int]) -> list[bytes]:
        self.asked += len(ids)
        return [self.blocks[number] for number in ids]

    def write(self, blocks: Iterable[bytes]) -> list[int]:
        ids = []
        for block in blocks:
            self.blocks[self._free] = block
            ids.append(self._free)
            self._free += 1
        return ids


def asked_of(digests: Sequence[bytes]) -> Digests:
    return Digests.of(np.frombuffer(b"".join(digests), np.uint8).reshape(-1, 16))


def changes(random: Random, pool: Sequence[bytes], truth: dict[bytes, bytes]) -> dict[bytes, bytes]:
    """New rows of some units: deleted, of the same size, or of any size."""
    rows = {}
    for digest in random.sample(pool, random.choice((1, 20, 100))):
        same = len(truth.get(digest, b"abc"))
        size = random.choice((0, same, same, random.randrange(1, 30)))
        rows[digest] = random.randbytes(size)
    return rows


@pytest.mark.parametrize("room", [0, 4_000, 1 << 20])
@pytest.mark.parametrize("seed", range(4))
def test_rows_are_as_in_a_dictionary(monkeypatch: pytest.MonkeyPatch, room: int, seed: int):
    monkeypatch.setattr(unit_epoch, "CROWDED", 30)
    monkeypatch.setattr(packed_rows, "BLOCK", 8)
    random, blocks = Random(seed), MemoryBlocks()
    # Some digests share their first half, so one head may end a block and begin the next.
    heads = [random.randbytes(8) for _ in range(60)]
    pool = [random.choice(heads) + random.randbytes(8) for _ in range(300)]
    pool += [random.randbytes(16) for _ in range(300)]
    epoch, truth = UnitEpoch(PREFIX, blocks), dict[bytes, bytes]()
    for _ in range(120):
        asked = random.sample(pool, 40)
        wanted = [truth.get(digest, b"") for digest in asked]
        assert epoch.look(asked_of(asked), room, room // 8).tolist() == wanted
        rows = changes(random, pool, truth)
        epoch.put(asked_of(list(rows)), Keys.of(rows.values()))
        truth = {k: v for k, v in (truth | rows).items() if v}
        then = random.random()
        if then < 0.1:
            epoch.fold()
        elif then < 0.25:
            after = epoch.saved(room, room // 8)
            gone = epoch.left(after)
            named = {number for one in after.ranges for number in one.ids.tolist()}
            assert gone.isdisjoint(named) and gone | named == set(blocks.blocks)
            for number in gone:
                del blocks.blocks[number]
            epoch = after
            assert after.memory <= room and after.filters <= room // 8
            if then < 0.2 and (index := after.index()) is not None:
                epoch = read_index(PREFIX, index, blocks) or epoch
                assert epoch.index() == index
        elif then < 0.4:
            low, high = sorted(PREFIX + random.choice(pool)[: random.randrange(17)] for _ in "ab")
            inside = {PREFIX + k: v for k, v in truth.items() if low <= PREFIX + k < high}
            assert list(epoch.scan(low, high)) == sorted(inside.items())
    assert len(truth) > 200 and len(epoch.ranges) >= 8


def test_a_new_unit_is_not_looked_up_on_disk():
    random, blocks = Random(5), MemoryBlocks()
    digests = [random.randbytes(16) for _ in range(2_000)]
    epoch = UnitEpoch(PREFIX, blocks)
    epoch.put(asked_of(digests[:1_000]), Keys.of([b"x"] * 1_000))
    epoch = epoch.saved(0, 1 << 20)
    assert not any(one for one in epoch.look(asked_of(digests[1_000:]), 0, 0).tolist())
    assert blocks.asked <= 4
    assert epoch.look(asked_of(digests[:1_000]), 0, 0).tolist() == [b"x"] * 1_000


def test_only_what_has_changed_is_written_again(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(unit_epoch, "CROWDED", 50)
    random, blocks = Random(6), MemoryBlocks()
    digests = [random.randbytes(16) for _ in range(1_000)]
    epoch = UnitEpoch(PREFIX, blocks)
    epoch.put(asked_of(digests), Keys.of([b"x"] * 1_000))
    while len((after := epoch.saved(1 << 20, 0)).ranges) > len(epoch.ranges):
        epoch = after
    epoch = after
    assert not epoch.left(epoch.saved(1 << 20, 0))
    epoch.put(asked_of(digests[:1]), Keys.of([b"y"]))
    assert len(epoch.left(epoch.saved(1 << 20, 0))) == 1


@pytest.mark.parametrize("other", ["older", "of another epoch"])
def test_a_block_that_is_not_the_one_that_was_written_is_damage(other: str):
    """Both are whole blocks of the same units, but their rows are old or of another day."""
    blocks, digests = MemoryBlocks(), asked_of([bytes(16), b"\xff" * 16])
    epoch = UnitEpoch(PREFIX, blocks)
    epoch.put(digests, Keys.of([b"1", b"1"]))
    epoch = epoch.saved(0, 0)
    (older,) = epoch.ranges[0].ids.tolist()
    if other != "older":
        epoch = UnitEpoch(units_of(2) + sortable(0), blocks)
    epoch.put(digests, Keys.of([b"2", b"1" if other == "older" else b"2"]))
    epoch = epoch.saved(0, 0)
    assert epoch.look(digests, 0, 0).tolist()[0] == b"2"
    (newer,) = epoch.ranges[0].ids.tolist()
    blocks.blocks[newer] = blocks.blocks[older]
    with pytest.raises(DamagedError, match="not the one that was written"):
        epoch.look(digests, 0, 0)


@pytest.mark.parametrize(
    "harm",
    [
        lambda data: data[:-8],
        lambda data: data[:-3],
        lambda data: data + bytes(8),
        lambda data: b"",
        lambda data: b"\2" + data[1:],
        lambda data: data[:8] + b"\x11" + data[9:],
    ],
)
def test_an_index_that_was_changed_is_known(harm):
    blocks = MemoryBlocks()
    epoch = UnitEpoch(PREFIX, blocks)
    epoch.put(asked_of([bytes(16), b"\xff" * 16]), Keys.of([b"1", b"2"]))
    index = epoch.saved(0, 0).index()
    assert index is not None and read_index(PREFIX, index, blocks) is not None
    assert read_index(PREFIX, harm(index), blocks) is None
