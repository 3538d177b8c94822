"""Traces of simulated schedules, and whether the model accepts them: see `Traces.tla`."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from ..tree import ROOT
from .checker import run_tlc

SPEC = Path(__file__).with_name("Traces.tla")
Action = tuple[str, str, str, int, int, int, int]  # what, worker, shard, numbers
Trace = Sequence[Action]
BATCH = 100  # schedules in one run of TLC, which starts slowly
_ACCEPTED = re.compile(r'<<"accepted", (\d+)>>')
_SETTINGS = """SPECIFICATION Followed
INVARIANTS Told Paid Once Exact OneNoise Bounded
CONSTANTS
    Workers = {"a", "b", "c"}
    Parts = {"bound"}
    Bounds = {"bound"}
    Persons = {"u"}
    Raw = 1000
    Floor = 1
    Triggers = 60
    Each = 2
    Bound = 3
    Crashes = 1000
    Faults = {"rewind", "close", "half"}
    Mistake = ""
    Met <- Every
"""


def observed(seeds: Iterable[int], bug: str = "") -> list[list[Action]]:
    """The workers' actions in the schedules of some seeds, from a process of its own."""
    environ = dict(os.environ, PYTHONHASHSEED="0", OMP_NUM_THREADS="1")
    done = subprocess.run(
        [sys.executable, "-m", "tests.model.observe", *map(str, seeds), "--bug", bug],
        cwd=ROOT, env=environ, stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    return [json.loads(line) for line in done.stdout.splitlines()]


def accepted(traces: Sequence[Trace]) -> set[int]:
    """The indices of the traces that the model accepts."""
    runs = ",\n".join(
        f"<<{', '.join('<<' + json.dumps(one)[1:-1] + '>>' for one in trace)}>>" for trace in traces
    )
    module = f"---- MODULE Observed ----\nRuns == <<\n{runs}\n>>\n====\n"
    told = run_tlc(SPEC, _SETTINGS, {"Observed.tla": module}, short=True).stdout
    if "No error has been found" not in told:
        raise RuntimeError(told[-3000:])
    return {int(number) - 1 for number in _ACCEPTED.findall(told)}


def refused(
    schedules: int, told: Callable[[int], None] = lambda done: None
) -> tuple[list[int], int]:
    """Seeds whose traces the model refuses, and the number of actions of all seeds.

    Args:
        schedules: the number of seeds, from 0 on.
        told: called with the number of schedules checked since the last call.
    """
    found, actions = list[int](), 0
    for first in range(0, schedules, BATCH):
        seeds = range(first, min(first + BATCH, schedules))
        traces = observed(seeds)
        actions += sum(map(len, traces))
        good = accepted(traces)
        found += [seed for n, seed in enumerate(seeds) if n not in good]
        told(len(seeds))
    return found, actions
