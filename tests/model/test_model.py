"""The protocol's model holds, each mistake breaks its property, and workers follow the model."""

from __future__ import annotations

import pytest

from ..schedules.bugs import BUGS
from .checker import CASES, MISTAKES, Case, check
from .traces import Action, Trace, accepted, observed, refused

QUICK = (
    Case("direct", ("torn",), records=1),
    Case("re-partitioned", (), 1, 2, 0, split=2, owners=1),
)
FAST = {
    "release before its charge": (),
    "bound before records meet": (),
    "state read too soon": (),
    "cancelled clock": pytest.mark.thorough,  # a schedule finds it in the gate as well
}
TRACE: list[Action] = [  # of a schedule in which "b" takes over while "a" is about to release
    ("open", "a", "sums", 0, 0, 0, 0),
    ("open", "a", "bound", 0, 0, 0, 0),
    ("state", "a", "sums", 0, 0, 0, 0),
    ("beat", "", "", 4, 0, 0, 0),
    ("rec", "a", "bound", 0, 0, 0, 0),
    ("rec", "a", "bound", 0, 0, 0, 0),
    ("rec", "a", "bound", 0, 0, 0, 0),
    ("trigger", "", "", 4, 1, 1, 0),
    ("barrier", "a", "bound", 1, 0, 0, 0),
    ("take", "a", "sums", 0, 0, 0, 0),
    ("take", "a", "sums", 0, 0, 0, 0),
    ("take", "a", "sums", 0, 0, 0, 0),
    ("close", "a", "sums", 1, 3, 0, 0),
    ("tried", "a", "sums", 1, 0, 1, 1),
    ("open", "b", "sums", 0, 0, 0, 0),
    ("state", "b", "sums", 1, 0, 0, 0),
    ("release", "b", "sums", 1, 0, 1, 1),
    ("trigger", "", "", 4, 0, 1, 0),
    ("barrier", "a", "bound", 2, 0, 0, 0),
    ("close", "b", "sums", 2, 0, 0, 0),
    ("release", "b", "sums", 2, 0, 1, 2),
]

# In the first, a fence comes late; in the second, a worker starts its second producer after it has
# lost the first. Either way, the shard's owner closes a trigger before it learns of that.
FENCED = {203: "late", 440: "half"}

HALF: Action = ("half", "a", "sums", 0, 0, 0, 0)


def _changed(place: int, **numbers: int) -> list[Action]:
    names = ("number", "count", "charge", "nonce")
    old = TRACE[place]
    new = tuple(numbers.get(name, value) for name, value in zip(names, old[3:], strict=True))
    return [*TRACE[:place], (*old[:3], *new), *TRACE[place + 1 :]]  # type: ignore[list-item]


def _swapped(place: int) -> list[Action]:
    return [*TRACE[:place], TRACE[place + 1], TRACE[place], *TRACE[place + 2 :]]


WRONG = {
    "a release before it is closed": _swapped(19),
    "a barrier before its trigger": _swapped(7),
    "a release without a charge": _changed(7, count=0),
    "a release of another charge": _changed(20, charge=2),
    "a record too many": _changed(12, count=4),
    "records beyond the bound": [*TRACE[:7], TRACE[6], *TRACE[7:]],
    "a record that is left out": [*TRACE[:6], *TRACE[7:11], *TRACE[12:]],
    "a second release": [*TRACE[:17], TRACE[16], *TRACE[17:]],
    "a release by an owner that is fenced": [*TRACE[:16], ("release", "a", *TRACE[16][2:])],
    "a state that was lost": _changed(15, number=0),
    "a closing after half an opening": [*TRACE[:19], HALF, ("close", "a", *TRACE[19][2:])],
    "a release after the fence of half an opening": [*TRACE[:20], HALF, TRACE[20]],
    "another nonce for a content that was tried": _changed(16, nonce=3),
    "an old nonce after an opening": _changed(20, nonce=1),
}


@pytest.mark.parametrize("case", QUICK, ids=lambda c: c.name)
def test_a_small_model_holds(case: Case) -> None:
    found = check(case, short=True)
    assert found.broken == "" and found.states > 1_000


RIGHT = [
    [*TRACE[:19], ("late", "b", *TRACE[14][2:]), *TRACE[19:]],
    [*TRACE[:19], HALF, TRACE[19]],  # its owner closes
    [*TRACE[:20], HALF, ("release", "a", *TRACE[20][2:])],
]


def test_a_trace_is_accepted_and_none_that_was_changed() -> None:
    assert accepted([TRACE, *RIGHT, *WRONG.values()]) == {0, 1, 2, 3}


def _unread(trace: Trace) -> list[Action]:
    """Actions of "sums" after an opening without its state, and states without an opening."""
    found, opened = list[Action](), set[str]()
    for action in trace:
        what, worker, shard = action[:3]
        if shard == "sums" and what in ("open", "half"):
            opened.add(worker)
        elif shard == "sums" and what != "late" and (worker in opened) is not (what == "state"):
            found.append(action)
        if what == "state":
            opened.discard(worker)
    return found


def _goes_on(trace: Trace, fence: str) -> bool:
    """Whether a worker closes a trigger after such a fence, before it opens the shard again."""
    fenced, owner = False, ""
    for what, worker, shard, *_ in trace:
        if shard == "sums" and what in ("open", fence):
            fenced, owner = what == fence, owner if what == fence else worker
        elif what == "close" and fenced and worker == owner:
            return True
    return False


def test_the_model_accepts_two_schedules_and_refuses_a_nonce_that_outlives_its_opening() -> None:
    traces = observed(FENCED)
    for trace, fence in zip(traces, FENCED.values(), strict=True):
        assert _goes_on(trace, fence), f"another seed must show this: {fence}"
        assert _unread(trace) == []
    (kept,) = observed([*FENCED][:1], "kept nonce")
    assert [one[:3] for one in kept] == [one[:3] for one in traces[0]]  # but for its nonces
    assert accepted([*traces, kept]) == {0, 1}


@pytest.mark.parametrize(
    "case",
    [pytest.param(c, id=c.name, marks=FAST[c.name]) for c in MISTAKES if c.name in FAST],
)
def test_a_mistake_is_refuted_with_a_trace(case: Case) -> None:
    found = check(case, short=True)
    assert found.broken == case.broken
    assert "State 2" in found.told


def test_every_mistake_of_the_schedules_is_one_of_the_model() -> None:
    assert set(BUGS) <= {case.name for case in MISTAKES}


@pytest.mark.thorough
@pytest.mark.parametrize("case", [*CASES, *MISTAKES], ids=lambda c: c.name)
def test_the_model_holds_and_each_mistake_breaks_it(case: Case) -> None:
    assert check(case).broken == case.broken


@pytest.mark.thorough
def test_the_model_accepts_what_workers_do() -> None:
    wrong, actions = refused(100)
    assert wrong == [] and actions > 3_000


@pytest.mark.thorough
def test_the_model_refuses_what_workers_do_by_mistake() -> None:
    assert accepted(observed(range(30), "committed refusal")) < set(range(30))
