"""No draw covers two contents: the draws that two continuations of a rewound log may share.

A run is copied at some trigger and continues twice, the second time with other records and, as a
shard does when it reopens, under another nonce. The continuations may share only draws that the
common part of the log has used. All mechanisms are checked.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hushstream.mechanisms.contract import I64, Noise, Releases, Setting
from hushstream.mechanisms.factorization import build as factorization
from hushstream.mechanisms.factorization.matrix import NAMES
from hushstream.mechanisms.factorization.prefix_noise import Process
from hushstream.mechanisms.in_memory import Memory, Trace, run, seed
from hushstream.mechanisms.keys import Keys
from hushstream.mechanisms.noise import STEADY, KeyedNoise, Nonces, ZeroNoise
from hushstream.mechanisms.pak.mechanism import Pak
from hushstream.mechanisms.phdstream.node_counters import Now
from hushstream.mechanisms.phdstream.settings import PHDStreamParameters
from hushstream.mechanisms.phdstream.settings import build as spatial
from hushstream.mechanisms.phdstream.tree import NODE
from hushstream.mechanisms.spatial.domain import Domain

from .case import Case
from .test_contract import CASES, trace_of

pytestmark = pytest.mark.spread(4)

each = pytest.mark.parametrize("case", [c for c in CASES if c.noisy], ids=lambda c: c.name)
longer = pytest.mark.parametrize(
    "case",
    [
        # Its deep tree alone takes ten seconds.
        pytest.param(c, id=c.name, marks=[pytest.mark.thorough] * (c.name == "privhp-tree"))
        for c in CASES
        if c.noisy and c.mechanism.traits.horizon > 1
    ],
)
ANOTHER = b"another nonce..."


class Noting(KeyedNoise):
    """Keyed noise that records each label that it draws, and the first trigger stated for it."""

    def __init__(self, nonces: Nonces, window: str = "w") -> None:
        super().__init__(
            b"s" * 32, charge=b"c" * 32, mechanism="m", config=b"f", pipeline="p", window=window,
            nonces=nonces,
        )  # fmt: skip
        object.__setattr__(self, "drawn", {})

    def _drawn(self, what: Any, key: Keys, index: I64, first: I64, draw: Any) -> Any:
        begins = np.array([begin for begin, _ in self.nonces])
        shown = np.broadcast_to(first, (len(key), len(index)))
        held = np.searchsorted(begins, shown, side="right") - 1
        labels = [self._label(*what, nonce) for _, nonce in self.nonces]
        places, drawn = index.tolist(), self.drawn  # type: ignore[attr-defined]
        for one, nonces, triggers in zip(key, held.tolist(), shown.tolist(), strict=True):
            for place, nonce, trigger in zip(places, nonces, triggers, strict=True):
                drawn.setdefault((labels[nonce], one, place), set()).add(trigger)
        return super()._drawn(what, key, index, first, draw)

    # By identity, because a draw cached for one instance would be hidden from another.
    __hash__ = object.__hash__
    __eq__ = object.__eq__


def begun(case: Case, noise: Noise, renewals: tuple[int, ...] = ()) -> Memory:
    made = Memory(case.mechanism, noise, renewals=renewals)
    if case.public is not None:
        seed(made, case.public)
    return made


def upto(memory: Memory, trace: Trace, last: int) -> list[Releases]:
    return [
        released for _, released in zip(range(memory.t, last), run(memory, trace), strict=False)
    ]


Course = tuple[Noting, list[Releases]]


def forked(case: Case, at: int, *others: Nonces) -> list[Course]:
    """Continuations of a run that was copied after trigger ``at``.

    The first keeps its own nonce and records. Each other one has its own nonces; they share other
    records.
    """
    first = begun(case, Noting(STEADY))
    upto(first, trace_of(case, 1), at)
    out = list[Course]()
    for number, held in enumerate((STEADY, *others)):
        memory = copy.deepcopy(first, {id(first.noise): first.noise})  # its noise is replaced
        memory.t, memory.renewals = at, _begins(held)
        memory.noise = noise = Noting(held)
        trace = trace_of(case, 2 if number else 1)
        out.append((noise, upto(memory, trace, case.mechanism.traits.horizon)))
    return out


def _begins(nonces: Nonces) -> tuple[int, ...]:
    return tuple(begin for begin, _ in nonces[1:])


def shared_beyond(one: Noting, other: Noting, at: int) -> list[Any]:
    """Draws in both runs with a stated first trigger after the copy."""
    mine, theirs = one.drawn, other.drawn  # type: ignore[attr-defined]
    return [label for label in mine.keys() & theirs.keys() if max(mine[label] | theirs[label]) > at]


@pytest.mark.spread(3)
@longer
def test_two_continuations_share_no_draw_of_what_came_later(case: Case) -> None:
    blind, last = True, case.mechanism.traits.horizon - 1
    for at in sorted({1, (last + 1) // 2, last}):
        ours, theirs, steady = forked(case, at, (*STEADY, (at + 1, ANOTHER)), STEADY)
        assert not shared_beyond(ours[0], theirs[0], at)
        blind = blind and not shared_beyond(ours[0], steady[0], at)
    assert not blind, "the check would not notice missing nonces"


@pytest.mark.spread(3)
@longer
def test_the_difference_of_two_continuations_is_not_exact(case: Case) -> None:
    """The attack subtracts released values; under one noise it would get the exact difference."""
    at = case.mechanism.traits.horizon // 2
    quiet = begun(case, ZeroNoise())
    upto(quiet, trace_of(case, 1), at)
    exact = []
    for number in (1, 2):
        memory = copy.deepcopy(quiet)
        memory.t = at
        exact.append(upto(memory, trace_of(case, number), case.mechanism.traits.horizon))
    ours, theirs = forked(case, at, (*STEADY, (at + 1, ANOTHER)))
    told = []
    for runs in zip(ours[1], theirs[1], *exact, strict=True):
        rows = [dict(zip(one.key.tolist(), one.value.tolist(), strict=True)) for one in runs]
        for key in rows[0].keys() & rows[1].keys() & rows[2].keys() & rows[3].keys():
            a, b, x, y = (np.array(one[key]) for one in rows)
            told += ((a - b) == (x - y)).tolist()
    assert not told or sum(told) <= 0.5 * len(told)


@each
def test_a_label_says_one_trigger_however_often_it_is_used(case: Case) -> None:
    """With two first triggers for one label, a new nonce could come between them."""
    renewals = tuple(range(2, case.mechanism.traits.horizon + 1, 2))
    for nonces in (STEADY, (*STEADY, *((t, bytes([t]) * 16) for t in renewals))):
        noise = Noting(nonces)
        list(run(begun(case, noise, _begins(nonces)), trace_of(case, 3)))
        assert all(len(triggers) == 1 for triggers in noise.drawn.values())  # type: ignore[attr-defined]


@each
@pytest.mark.parametrize("every", [1, 2])
def test_without_noise_renewals_change_nothing(case: Case, every: int) -> None:
    """Chains start from released totals, so without noise they add up to the exact answer."""
    renewals = tuple(range(2, case.mechanism.traits.horizon + 1, every))
    trace = trace_of(case, 4)
    made = begun(case, ZeroNoise(), renewals)
    case.exact(trace, list(run(made, trace)))


@pytest.mark.spread(3)
@each
def test_renewal_makes_no_difference_to_how_the_work_is_cut(case: Case) -> None:
    renewals = tuple(range(2, case.mechanism.traits.horizon + 1, 2))
    nonces = (*STEADY, *((t, bytes([t]) * 16) for t in renewals))
    runs = []
    for shards in (1, 3):
        made = Memory(case.mechanism, Noting(nonces), shards, shards, renewals=renewals)
        if case.public is not None:
            seed(made, case.public)
        runs.append(list(run(made, trace_of(case, 5), 7 if shards > 1 else None)))
    for one, other in zip(*runs, strict=True):
        assert one.key.tolist() == other.key.tolist()
        np.testing.assert_array_equal(one.value, other.value)
        np.testing.assert_array_equal(one.variance, other.variance)


@pytest.mark.spread(3)
@pytest.mark.parametrize("case", [c for c in CASES if c.mechanism.traits.load == "due" and c.noisy],
                         ids=lambda c: c.name)  # fmt: skip
def test_predictions_are_made_anew_at_a_renewal(case: Case) -> None:
    """Keys appear at the same triggers as if every row were read at every trigger."""
    for begins in ((3,), (2, 4), tuple(range(2, case.mechanism.traits.horizon + 1))):
        nonces = (*STEADY, *((t, bytes([t]) * 16) for t in begins))
        trace, out = trace_of(case, 6), []
        for scan in (False, True):
            made = begun(case, Noting(nonces), begins)
            made.scan = scan
            out.append(list(run(made, trace)))
        for due, every in zip(*out, strict=True):
            assert due.key.tolist() == every.key.tolist()
            np.testing.assert_array_equal(due.value, every.value)


# -- what a draw covers is complete at its first trigger ------------------------------------------


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("horizon", [1, 2, 7, 24])
def test_a_coordinate_is_complete_where_it_is_used_first(name: str, horizon: int) -> None:
    """(Cx)_i contains no record after the first release that uses z_i."""
    factor = factorization(name, horizon)
    first = Process("p", name, horizon, Fraction(1)).first
    assert len(first) == factor.noises
    for place, step in enumerate(first.tolist()):
        assert not factor.C[place, step:].any()
        assert not factor.B[: step - 1, place].any()


# -- variances over renewals ----------------------------------------------------------------------


def accepted(drawn: np.ndarray, variance: float, spread: int = 5) -> None:
    """Test the mean square of independent draws: accept σ, reject ⅔σ and 1.5σ.

    ``spread`` is the variance of a squared standardised draw: 5 for Laplace, 2 for Gaussian noise.
    """
    ratio = float(np.mean(np.square(drawn))) / variance
    width = 4 * (spread / drawn.size) ** 0.5
    assert width < 0.5
    assert abs(ratio - 1) < width
    assert abs(ratio * 9 / 4 - 1) > width and abs(ratio * 4 / 9 - 1) > width


def renewed(every: int, horizon: int, number: int) -> Nonces:
    return (
        *STEADY,
        *((t, number.to_bytes(8) + t.to_bytes(8)) for t in range(1 + every, horizon + 1, every)),
    )


def plain(nonces: Nonces, number: int = 0) -> KeyedNoise:
    return KeyedNoise(
        b"s" * 32, charge=b"c" * 32, mechanism="m", config=b"f", pipeline="p",
        window=str(number), nonces=nonces,
    )  # fmt: skip


@pytest.mark.parametrize("every", [2, 3, 5])
@pytest.mark.parametrize("counter", ["tree", "matrix"])
def test_spatial_chains_have_the_variance_that_is_stated(counter: str, every: int) -> None:
    parameters = PHDStreamParameters(domain=Domain.unit(1, 2), counter=counter)
    made = spatial(parameters, Setting(Fraction(2), Fraction(1, 10**6), 16)).counter
    nodes = np.arange(1, 3001, dtype=np.uint64)
    nonces, cell = renewed(every, 16, 0), np.zeros(len(nodes), NODE)
    for t in range(1, 12):
        begin = max([1, *(b for b in _begins(nonces) if b <= t)])
        nothing = np.zeros(len(nodes), np.int64)
        cell = made.step(cell, nodes, nothing, Now(t, begin), plain(nonces))
        stated = made.variance(cell["steps"]) + cell["carried"]
        assert len(set(stated.tolist())) == 1
        accepted(cell["out"].astype(float), float(stated[0]))
    assert stated[0] > 1.2 * made.variance(np.array([11], np.int32))[0]  # the cost of chains


def largest(mechanism: Any) -> Any:
    """The stream with only one threshold, so that its noise has one variance."""
    slots, again = replace(mechanism.slots, thresholds=(mechanism.slots.top,)), mechanism.relearning
    if isinstance(mechanism, Pak):
        if again:
            again = replace(again, chooser=replace(again.chooser, penalty=(0,)))
        return replace(mechanism, slots=slots, chooser=None, relearning=again)
    return replace(mechanism, slots=slots, penalty=(0,))


NOBODY = Trace(
    np.zeros(0, np.int64), np.zeros(0, np.int64), Keys.of([]), np.zeros(0, np.int64),
    np.zeros((0, 1), np.int64), np.zeros(0, np.int8),
)  # fmt: skip


SLOW = [pytest.param(name, marks=pytest.mark.thorough) for name in ("tops-slots", "tops-smooth")]
STREAMS = ["pak-hierarchy", "pak-views", "tops-blocks", *SLOW]


@pytest.mark.thorough
@pytest.mark.parametrize("name", STREAMS)
def test_streams_of_values_have_the_variance_that_is_stated(name: str) -> None:
    """In windows without records, released values less public predictions are noise."""
    (case,) = (c for c in CASES if c.name == name)
    made, horizon = largest(case.mechanism), case.mechanism.traits.horizon
    drawn, stated = list[I64](), list[list[float]]()
    silent = Memory(made, ZeroNoise(), renewals=_begins(renewed(2, horizon, 0)))
    base = upto(silent, NOBODY, horizon)[-1].value[-1, 1:]
    for number in range(250):
        nonces = renewed(2, horizon, number)
        memory = Memory(made, plain(nonces, number), renewals=_begins(nonces))
        out = upto(memory, NOBODY, horizon)
        drawn.append(out[-1].value[-1, 1:] - base)
        stated.append(out[-1].variance[-1, 1:].tolist())
    assert all(one == stated[0] for one in stated)
    for column, variance in zip(np.array(drawn, float).T, stated[0], strict=True):
        accepted(column, variance, 3)  # sums of several Laplace draws
