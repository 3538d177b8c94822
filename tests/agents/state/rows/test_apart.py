"""Arrays outside the heap: they work like others, and their memory is freed with them."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hushstream.agents.state.rows import apart as module
from hushstream.agents.state.rows.apart import HUGE, LEAST, apart, zeros

ENDED = """
import numpy as np
from hushstream.agents.state.rows.apart import apart, zeros
from hushstream.agents.worker.resident import resident
before = resident()
held = [zeros(1 << 16, np.uint64) for _ in range(100)]
unwritten = resident() - before
between = []
for one in held:
    one[:] = 7
    between.append(bytes(5_000))  # blocks of the heap that stay
held += [apart(1 << 16, np.uint64) for _ in range(100)]
written = resident() - before
part = held[0][10:20]
del held, one
print(unwritten < 8 << 20, written > 96 << 20, resident() - before < 16 << 20, int(part.sum()))
"""


@pytest.mark.parametrize("make", [apart, zeros])
@pytest.mark.parametrize("kind", [np.uint64, np.uint32, np.uint8])
@pytest.mark.parametrize("size", [0, 8, LEAST - 8, LEAST, HUGE])
def test_an_array_is_one_that_can_be_written_and_that_loops_take(make, kind, size):
    number = size // np.dtype(kind).itemsize
    made = make(number, kind)
    assert made.shape == (number,) and made.dtype == kind
    assert made.flags.writeable and made.flags.aligned and made.flags.c_contiguous
    if make is zeros or size >= LEAST:
        assert not made.any()
    made[:] = 3
    assert (made == 3).all()


def test_one_that_ends_gives_its_memory_back_at_once_and_its_parts_keep_it():
    done = subprocess.run([sys.executable, "-c", ENDED], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True", "True", "70"]


def test_where_the_system_gives_no_more_mappings_the_heap_serves(monkeypatch):
    def refused(size: int, flags: int) -> object:
        raise OSError(12, "no more mappings")

    monkeypatch.setattr(module, "_pages", refused)
    for make in (apart, zeros):
        made = make(LEAST, np.uint8)
        assert len(made) == LEAST and not made.any()
