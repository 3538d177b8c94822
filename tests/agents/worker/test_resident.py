"""Free memory goes back to the system, and memory in use stays unchanged."""

from __future__ import annotations

import subprocess
import sys
import threading

from hushstream.agents.worker import resident as module
from hushstream.agents.worker.resident import Resident, watch

HOLES = """
import ctypes
import numpy as np
from hushstream.agents.worker.resident import Resident, resident
watching = Resident(ctypes.CDLL(None), 32 << 20)
kept, freed = [], []
for _ in range(1_500):  # below the size from which the C library asks the system for each
    kept.append(np.ones(9_000, np.uint8))
    freed.append(np.ones(100_000, np.uint8))
most = resident()
freed.clear()
before = resident()
looked = watching.look()
print(int(looked), most - before < 16 << 20, before - resident() > 96 << 20)
print(int(watching.look()), all(bool((one == 1).all()) for one in kept))
"""


def test_holes_between_blocks_that_stay_are_given_back_once_the_process_has_grown():
    done = subprocess.run([sys.executable, "-c", HOLES], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "True", "True", "0", "True"]


class Library:
    def __init__(self) -> None:
        self.trims = 0

    def malloc_trim(self, _: int) -> None:
        self.trims += 1


def test_it_looks_again_only_after_growth_over_the_least(monkeypatch):
    size = [100]
    monkeypatch.setattr(module, "resident", lambda: size[0])
    library = Library()
    watching = Resident(library, 50)
    looked = []
    for size[0] in (149, 80, 129, 130, 179, 180):
        looked.append(watching.look())
    assert looked == [False, False, False, True, False, True] and library.trims == 2


def test_a_watch_ends_when_it_is_told_to():
    watch().set()
    ended = threading.Event()
    ended.set()
    Resident(Library()).run(ended)
