"""The judge has teeth: it detects a change of one line in the product.

A replay detects none of these mutants, because worker and replay run the same stages.
"""

from __future__ import annotations

import inspect
import sys
import textwrap
from collections.abc import Iterator
from fractions import Fraction
from random import Random
from typing import Any, NamedTuple

import hushstream.mechanisms.parts.bounds.scan  # noqa: F401 - else only the first batch imports it
import pytest
from hushstream.agents.deployment.compile import compile_config
from hushstream.topics.config.load import loads

from .outcomes import public, verdict
from .rules import Rules
from .test_histogram import COUNT, KEYS, MEAN, SUM
from .worlds import HORIZONS, INPUT, PIPELINE, SHARED, sharing, world


class Mutant(NamedTuple):
    """A function anywhere in the product, with one piece of its text replaced."""

    what: str
    function: str
    old: str
    new: str


MUTANTS = [
    Mutant("ingest ignores every 50th record", "keyed", "if p.allowed is not None:",
           "key, rows = key[rows % 50 != 9], rows[rows % 50 != 9]\n    if p.allowed is not None:"),
    Mutant("a record is counted twice", "_part",
           "used, key = compact(", "rows = np.append(rows, rows[:1])\n    used, key = compact("),
    Mutant("a bound has one more to spend", "__init__",
           "bound, self._lanes = traits.bound", "bound, self._lanes = traits.bound + 1"),
    Mutant("a record is one too cheap", "decide", "(2 * seen + 1)", "(2 * seen)"),
    Mutant("a pair may have one record more", "decide", "seen < caps[at]", "seen <= caps[at]"),
    Mutant("the cut is one offset late", "_allowed",
           "ends[self.partition]", "ends[self.partition] + 1"),
    Mutant("the cut is one offset early", "_allowed",
           "ends[self.partition]", "max(applied, ends[self.partition] - 1)"),
    Mutant("a late record is taken", "placed", "schedule.windows(time), time",
           "np.maximum(schedule.windows(time), timeline.floor), time"),
    Mutant("a record of the far future is taken", "placed",
           "time > beat + pipeline.max_future_skew", "time < 0"),
    Mutant("a key's sum goes into the next micro-batch", "_send",
           "window, batch, mine)", "window, batch + (partition == 0), mine)"),
    Mutant("statuses are read a trigger too early", "_status", "batch - 1 -", "batch - 2 -"),
    Mutant("the label lacks the charge", "_label", "window, self.charge,", "window,"),
    Mutant("the label lacks the window", "_label", "self.config, window,", "self.config,"),
    Mutant("the label lacks the nonce", "_label", ", nonce]", "]"),
    Mutant("the label has the last nonce for all draws", "_drawn",
           "self.nonces[one][1]", "self.nonces[-1][1]"),
    Mutant("a nonce counts a trigger too late", "_drawn", 'side="right") - 1',
           'side="left") - 1'),
    Mutant("the label lacks the key", "_message", "_LENGTH : _LENGTH + width] = keys",
           "_LENGTH : _LENGTH + width] = 0"),
    Mutant("the threshold is one lower", "least_by_trigger",
           "least.tolist()", "(least - STEPS).tolist()"),
    Mutant("the threshold is 1/256 lower", "least_by_trigger",
           "least.tolist()", "(least - 1).tolist()"),
    Mutant("δ of selection is spent at each trigger", "shares",
           "(1 - last) / (horizon - 1)", "(1 - last)"),
    Mutant("the noise of V is not scaled by w", "processes",
           "variance * first / weight", "variance"),
    Mutant("V is released before it has noise", "_noisy",
           'state["first"] + self.delay', 'state["first"] + self.delay + 1'),
    Mutant("values are rounded down", "_noisy",
           "(steps.sum(axis=0) + (STEPS + len(steps)) // 2)", "steps.sum(axis=0)"),
    Mutant("keys are found by their exact counts", "_select",
           "(exact * STEPS, ahead, bar)", "(exact * STEPS, ahead * 0, bar)"),
    Mutant("a unit counts twice in a round", "_newly_counted", "place + round_ > before",
           "place + round_ >= before"),
    Mutant("a chain outlives its nonce", "_continued", 'state["chain"] < closed.renewed',
           'state["chain"] < 0'),
    Mutant("the buffer is released twice", "release",
           'state["buffer"][now], state["units"][now] = 0, 0', 'state["units"][now] = 0'),
    Mutant("a sum may move by more than its noise is for", "reach",
           "max(self.high - self.middle, self.middle - self.low, 1)", "1"),
    Mutant("deletions are added", "_part",
           "batch.sign[rows].astype(np.int64)", "abs(batch.sign[rows].astype(np.int64))"),
    Mutant("a purse is not written", "_capped", "Opened(done.purse,", "Opened(opened.purse,"),
    Mutant("each epoch has a purse of its own", "period", "epoch // self.epochs", "epoch"),
    Mutant("a purse is paid by window", "by_window", " or pipeline.lifetime is not None", ""),
    Mutant("each member has a cap of its own", "_lifetime",
           "together(map(_spending, group))", "together([_spending(p)])"),
    Mutant("a member's cap counts itself twice, and no other", "with_caps",
           "one for one in pipelines if one.name in members", "p for _ in members"),
    Mutant("one member does not count", "together",
           "one.whole for one in spendings", "one.whole for one in tuple(spendings)[1:]"),
]  # fmt: skip

CAP = 'per_unit = { epsilon = 8, delta = 0.02, period = "2d" }'
TEXT = (
    INPUT.format(units=2, cells=2, partitioner="none", unit='"user"')
    + "".join(
        PIPELINE.format(
            key='["page"]',
            name=name,
            window=HORIZONS[4],
            more=f"aggregate = [{', '.join(shown)}]\n{more}",
            epsilon=8,
            delta=delta,
            mechanism=mechanism,
        )
        for name, shown, more, mechanism, delta in (
            ("found", [COUNT, SUM], 'epoch = "2d"', ", min_users = 2", "0.01"),
            ("listed", [COUNT, MEAN], KEYS + '\nsign = "gone"', ", budget = 5", "0.01"),
            ("rounds", [COUNT], 'sign = "gone"', ', selection = "rounds", budget = 5', "0.01"),
            ("capped", [COUNT], 'lateness = "12h"', ", budget = 4", f"0.01, {CAP}"),
        )
    )
    + "".join(
        sharing(name, '["page"]', 4, f"aggregate = [{shown}]\n{more}", mechanism)
        for name, shown, more, mechanism in (
            ("all", COUNT, "", ", budget = 4"),
            ("some", SUM, KEYS, ", budget = 3"),
        )
    )
    + SHARED.format(members="all = 3, some = 1", epsilon=8, delta="0.02", cap=CAP)
)


def judged() -> list[str]:
    """The judge's objections to the product as it is now, over two fixed worlds.

    In the second, purses run dry; windows overlap, and some windows are refused.
    """
    made = compile_config(loads(TEXT, environ={}), {"events": 2})
    found: list[str] = []
    for seed, events, users in ((20190301, 2500, 300), (5, 1000, 10)):
        one = world(made, Random(seed), events, windows=6, users=users)
        more, rows = verdict(made, one.logs, one.clock)
        found += more
        assert rows > 60
        if found:
            break
    return found


@pytest.mark.thorough
def test_the_product_as_it_is_has_nothing_to_object_to():
    assert judged() == []


FEW = [
    pytest.param(m, id=m.what.replace(" ", "-"), marks=[pytest.mark.thorough] * (n % 10 > 0))
    for n, m in enumerate(MUTANTS)
]


def test_members_that_spend_more_together_than_they_have_are_found():
    made = compile_config(loads(TEXT, environ={}), {"events": 2})
    (source,) = made.inputs
    each = [public(source, p).rules() for p in source.pipelines if p.purse is not None]
    assert len(each) == 2 and all(one.affordable() for one in each)
    for one in each:
        budget = one.config["budget"]
        more = {
            n: str(Fraction(budget["shared"][n]) * Fraction(99, 100)) for n in ("epsilon", "delta")
        }
        rules = Rules(one.config | {"budget": budget | more}, one.listed, 1, one.beside)
        assert not rules.affordable()


def test_the_text_of_each_mutant_is_in_the_product():
    absent = [one.what for one in MUTANTS if not any(functions(one))]
    assert not absent, "the text of the product has changed: so must these mutants"


@pytest.mark.thorough
@pytest.mark.spread(2)
@pytest.mark.parametrize("mutant", FEW)
def test_a_mutant_is_found(mutant: Mutant, monkeypatch: pytest.MonkeyPatch):
    apply(mutant, monkeypatch)
    assert judged() != []


def apply(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile the changed text of the function, and put the result wherever the name is bound."""
    for one in set(functions(mutant)):
        text = source(one).replace(mutant.old, mutant.new)
        space: dict[str, Any] = dict(plain(one).__globals__)
        exec(compile(text, mutant.what, "exec"), space)  # noqa: S102
        for owner in owners():
            if vars(owner).get(mutant.function) is one:
                monkeypatch.setattr(owner, mutant.function, space[mutant.function])


def owners() -> Iterator[Any]:
    """Every loaded module of the product, and every class in it."""
    for name, module in sorted(sys.modules.items()):
        if name.startswith("hushstream."):
            yield module
            yield from (one for one in vars(module).values() if inspect.isclass(one))


def functions(mutant: Mutant) -> Iterator[Any]:
    """Functions with this name that contain the text, compiled loops included."""
    for owner in owners():
        one = vars(owner).get(mutant.function)
        if inspect.isfunction(plain(one)) and mutant.old in source(one):
            yield one


def plain(one: Any) -> Any:
    """The Python function behind a compiled loop."""
    return getattr(one, "py_func", one)


def source(one: Any) -> str:
    """The source text; a changed loop then runs without a compiler."""
    try:
        text = inspect.getsource(plain(one))
    except OSError:  # a dataclass generated it
        return ""
    return textwrap.dedent(text).removeprefix("@compiled\n")
