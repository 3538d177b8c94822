"""Rows of units in memory: the newest of each, in order, and none of a deleted epoch."""

from __future__ import annotations

from random import Random

import pytest
from hushstream.agents.state.layout import after, sortable, units_of
from hushstream.agents.state.rows.columns import RowColumns
from hushstream.agents.state.units import in_memory as memory_units
from hushstream.agents.state.units.in_memory import MemoryUnits
from hushstream.mechanisms.keys import Keys

EPOCHS = [units_of(number) + sortable(epoch) for number in (1, 2) for epoch in (-1, 0, 7)]
UNITS = [head + bytes([0xFF * (n % 2)] * 14) + n.to_bytes(2, "big")
         for head in EPOCHS for n in range(150)]  # fmt: skip


def columns(rows: dict[bytes, bytes]) -> RowColumns:
    return RowColumns(Keys.of(rows), Keys.of(rows.values()))


@pytest.fixture
def kind(monkeypatch):
    monkeypatch.setattr(memory_units, "_SCANNED", 7)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.usefixtures("kind")
def test_rows_of_several_epochs_are_found_and_scanned_as_in_a_dictionary(seed):
    random = Random(seed)
    units, truth = MemoryUnits(), dict[bytes, bytes]()
    for _ in range(40):
        epoch = random.choice(EPOCHS)
        some = [key for key in UNITS if key.startswith(epoch)]
        chosen = random.sample(random.choice((some, UNITS)), random.choice((1, 40, 150)))
        sizes = random.choice(((0,), (0, 3, 60), (4,)))
        rows = {key: random.randbytes(random.choice(sizes)) for key in chosen}
        units.put(columns(rows))
        truth = {key: row for key, row in (truth | rows).items() if row}
        asked = random.sample(UNITS, 100) if random.random() < 0.5 else some
        assert units.look(Keys.of(asked)).tolist() == [truth.get(key, b"") for key in asked]
        low, high = sorted(random.sample(UNITS, 2))
        for start, end in ((low, high), (b"u", b"v"), (EPOCHS[1], EPOCHS[2])):
            inside = sorted((k, v) for k, v in truth.items() if start <= k < end)
            assert list(units.scan(start, end)) == inside


@pytest.mark.usefixtures("kind")
def test_an_epoch_whose_rows_were_all_deleted_takes_no_memory():
    units = MemoryUnits()
    units.put(columns(dict.fromkeys(UNITS, b"row")))
    assert len(units._epochs) == len(EPOCHS)
    first = [key for key, _ in units.scan(EPOCHS[0], after(EPOCHS[0]))]
    assert len(first) == 150
    for begun in range(0, 150, 30):
        units.put(columns(dict.fromkeys(first[begun : begun + 30], b"")))
        left = first[begun + 30 :]
        assert [key for key, _ in units.scan(EPOCHS[0], after(EPOCHS[0]))] == left
        listed = units._epochs[EPOCHS[0]]._sorted if left else []
        assert listed is not None and len(listed) <= 2 * len(left)
    assert EPOCHS[0] not in units._epochs and len(units._epochs) == len(EPOCHS) - 1
    units.put(columns({first[3]: b""}))
    assert EPOCHS[0] not in units._epochs  # deleting what does not exist creates nothing
    units.put(columns({first[3]: b"again"}))
    assert list(units.scan(b"u", EPOCHS[1])) == [(first[3], b"again")]


def test_no_keys_find_nothing():
    units = MemoryUnits()
    assert units.look(Keys.of([])).tolist() == [] and list(units.scan(b"u", b"v")) == []
    assert units.look(Keys.of(UNITS[:2])).tolist() == [b"", b""]
