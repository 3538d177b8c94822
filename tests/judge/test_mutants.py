"""The judge has teeth: a product with one line changed is found out.

Every mutant below replays clean, since worker and replay run the same stages.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
import textwrap
from random import Random
from typing import Any, NamedTuple

import pytest
from hushstream.agents.deployment.compile import compile_config
from hushstream.topics.config.load import loads

from .test_histogram import COUNT, KEYS, MEAN, SUM
from .worlds import HORIZONS, INPUT, PIPELINE, verdict, world

STAGES = "hushstream.agents.stages"
HISTOGRAM = "hushstream.mechanisms.histogram"


class Mutant(NamedTuple):
    """One function with one piece of its text replaced."""

    what: str
    module: str
    function: str
    old: str
    new: str


MUTANTS = [
    Mutant("ingest ignores every 50th record", "hushstream.topics.events.decode", "Decoder._view",
           "rows = _good(len(events), bad, own)\n    if p",
           "rows = _good(len(events), bad, own); rows = rows[rows % 50 != 49]\n    if p"),
    Mutant("a record is counted twice", f"{HISTOGRAM}.mechanism", "Histogram._part",
           "used, key = compact(", "rows = np.append(rows, rows[:1])\n    used, key = compact("),
    Mutant("a bound has one more to spend", f"{HISTOGRAM}.mechanism", "Histogram.init_units",
           "self.bound.left", "self.bound.left + 1"),
    Mutant("a record is one too cheap", "hushstream.mechanisms.parts.bounding", "Bound.apply",
           "(2 * seen + 1)", "(2 * seen)"),
    Mutant("the cut is one offset late", f"{STAGES}.ingest.stage", "Ingest._allowed",
           "ends[self.partition]", "ends[self.partition] + 1"),
    Mutant("the cut is one offset early", f"{STAGES}.ingest.stage", "Ingest._allowed",
           "ends[self.partition]", "max(applied, ends[self.partition] - 1)"),
    Mutant("a late record is taken", f"{STAGES}.ingest.windowing", "placed",
           "schedule.windows(time), time",
           "np.maximum(schedule.windows(time), timeline.floor), time"),
    Mutant("a record of the far future is taken", f"{STAGES}.ingest.windowing", "placed",
           "time > beat + pipeline.max_future_skew", "time < 0"),
    Mutant("a key's sum goes into the next micro-batch", f"{STAGES}.bound.stage", "Bound._send",
           "encode_cells(self._origin, window, batch, mine)",
           "encode_cells(self._origin, window, batch + (partition == 0), mine)"),
    Mutant("statuses are read a trigger too early", f"{STAGES}.bound.stage", "Bound._status",
           "one.batch - 1 - self.pipeline.delay", "one.batch - 2 - self.pipeline.delay"),
    Mutant("the label lacks the charge", "hushstream.mechanisms.noise.keyed", "KeyedNoise._label",
           "window, self.charge,", "window,"),
    Mutant("the label lacks the window", "hushstream.mechanisms.noise.keyed", "KeyedNoise._label",
           "self.config, window,", "self.config,"),
    Mutant("the threshold is one lower", f"{HISTOGRAM}.settings", "_least",
           "least.tolist()", "(least - STEPS).tolist()"),
    Mutant("the threshold is 1/256 lower", f"{HISTOGRAM}.settings", "_least",
           "least.tolist()", "(least - 1).tolist()"),
    Mutant("δ of selection is spent at each trigger", "hushstream.mechanisms.parts.key_selection",
           "shares", "(1 - last) / (horizon - 1)", "(1 - last)"),
    Mutant("the noise of V is not scaled by w", f"{HISTOGRAM}.settings", "processes",
           "variance * first / weight", "variance"),
    Mutant("V is released before it has noise", f"{HISTOGRAM}.mechanism", "Histogram._noisy",
           'cell["first"] + self.delay', 'cell["first"] + self.delay + 1'),
    Mutant("values are rounded down", f"{HISTOGRAM}.mechanism", "Histogram._noisy",
           "(steps.sum(axis=0) + (STEPS + len(steps)) // 2)", "steps.sum(axis=0)"),
    Mutant("keys are found by their exact counts", f"{HISTOGRAM}.mechanism", "Histogram._select",
           "(count * STEPS, ahead, bar)", "(count * STEPS, ahead * 0, bar)"),
    Mutant("a sum may move by more than its noise is for", f"{HISTOGRAM}.mechanism",
           "Column.reach", "max(self.high - self.middle, self.middle - self.low, 1)", "1"),
    Mutant("deletions are added", f"{HISTOGRAM}.mechanism", "Histogram._part",
           "batch.sign[rows].astype(np.int64)", "abs(batch.sign[rows].astype(np.int64))"),
]  # fmt: skip

TEXT = INPUT.format(units=2, cells=2, partitioner="none", unit='"user"') + "".join(
    PIPELINE.format(
        name=name,
        window=HORIZONS[4],
        more=f"aggregate = [{', '.join(shown)}]\n{more}",
        epsilon=8,
        delta="0.01",
        mechanism=mechanism,
    )
    for name, shown, more, mechanism in (
        ("found", [COUNT, SUM], 'epoch = "2d"', ""),
        ("listed", [COUNT, MEAN], KEYS + '\nsign = "gone"', ", budget = 5"),
    )
)


def judged() -> list[str]:
    """What the judge says of the product as it is now, over one fixed world."""
    made = compile_config(loads(TEXT, environ={}), {"events": 2})
    one = world(made, Random(20190301), 1500, windows=4, users=300)
    found, rows = verdict(made, one.logs, one.clock)
    assert rows > 60
    return found


def test_the_product_as_it_is_has_nothing_to_object_to():
    assert judged() == []


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.what.replace(" ", "-"))
def test_a_mutant_is_found(mutant: Mutant, monkeypatch: pytest.MonkeyPatch):
    apply(mutant, monkeypatch)
    assert judged() != []


def apply(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile the function's text anew, with its one change, wherever it is known by name."""
    module: Any = importlib.import_module(mutant.module)
    *owners, name = mutant.function.split(".")
    owner = functools.reduce(getattr, owners, module)
    original = getattr(owner, name)
    text = textwrap.dedent(inspect.getsource(original))
    assert text.count(mutant.old) == 1, "the text of the product has changed: so must the mutant"
    space: dict[str, Any] = dict(vars(module))
    exec(compile(text.replace(mutant.old, mutant.new), mutant.module, "exec"), space)  # noqa: S102
    monkeypatch.setattr(owner, name, space[name])
    for other in list(sys.modules.values()):  # it may have been imported by name
        if vars(other).get(name) is original and other.__name__.startswith("hushstream"):
            monkeypatch.setattr(other, name, space[name])
