"""The way of one event, counted in the code: it has no more modules than allowed.

A module counts if the stages call a function of it while JSON records of a histogram go through a
units topic. Compiled loops count. The engine in memory and its tables do not, since they stand for
the worker.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import CodeType, FrameType

import hushstream
import pytest
from hushstream.agents.deployment.compile import compile_config
from hushstream.formats.events.columns import LEAST
from hushstream.formats.events.raw import RawRecord
from hushstream.offline.engine import OfflineEngine
from hushstream.topics.config.load import loads
from hushstream.topics.records import Beat, ClockRecord

from .judge.worlds import HORIZONS, INPUT, PIPELINE
from .support import DAY, NAMES, ORIGIN, SECRET, start, trigger
from .tree import PACKAGES

ROOT = Path(hushstream.__file__).parent
TEXT = INPUT.format(units=1, cells=1, partitioner="none", unit='"user"') + PIPELINE.format(
    name="p", key='["page"]', window=HORIZONS[1], more='public_keys = ["home"]', epsilon=8,
    delta=1e-4, mechanism="",
)  # fmt: skip
AROUND = {"offline/engine.py", "agents/state/memory.py", "agents/state/units/in_memory.py"}
RAW = [
    RawRecord(n, ORIGIN // 1000, None, b'{"user": "u%d", "page": "home", "t": %d}' % (n, ORIGIN))
    for n in range(LEAST)
]


def engine(released: bool) -> OfflineEngine:
    """All stages over the records, with the trigger of their window or before it."""
    made = compile_config(loads(TEXT, environ={}), {"events": 1})
    (pipeline,) = made.pipelines
    clock: list[ClockRecord] = [start(pipeline), Beat(ORIGIN + 1, {"events": [LEAST]})]
    if released:
        due = {"index": 1, "time": ORIGIN + DAY, "charge": "0" * 64}
        clock.append(trigger(pipeline, 1, [LEAST], 0, **due))
        clock.append(Beat(ORIGIN + DAY + 1, {"events": [LEAST]}))
    return OfflineEngine(made, NAMES, SECRET, {("events", 0): RAW}, list(enumerate(clock)))


def passed(run: OfflineEngine) -> set[str]:
    """Paths of the product's modules in which a function is called."""
    codes: set[CodeType] = set()

    def noted(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            codes.add(frame.f_code)

    before = sys.getprofile()
    sys.setprofile(noted)
    try:
        run.run()
    finally:
        sys.setprofile(before)
    paths = [Path(code.co_filename) for code in codes if code.co_name != "<module>"]
    found = {p.relative_to(ROOT).as_posix() for p in paths if p.is_relative_to(ROOT)}
    return {path for path in found if path.split("/")[0] in (*PACKAGES, "compiled.py")} - AROUND


@pytest.mark.parametrize(("released", "most"), [(False, 40), (True, 62)])
def test_an_event_passes_no_more_modules_than_it_did(released: bool, most: int) -> None:
    engine(released).run()  # so that caches and loops are ready
    run = engine(released)
    modules = passed(run)
    schemas = [json.loads(o.value or b"{}")["schema"] for o in run.outs["hush.p.releases.v1"]]
    assert ("hush.release/2" in schemas) == released
    assert len(modules) <= most, sorted(modules)
    assert {"formats/events/columns.py", "mechanisms/parts/bounds/bounding.py"} < modules
