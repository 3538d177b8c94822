"""Audits of PHDStream: splitting against planted counts, and units that insert and delete."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hushstream.mechanisms.in_memory import Trace
from hushstream.mechanisms.phdstream.events import INSERT, Events
from hushstream.mechanisms.phdstream.mechanism import PHDStream
from hushstream.mechanisms.phdstream.tree import GRID, NODE, Nodes
from hushstream.mechanisms.spatial.domain import Domain
from hushstream.mechanisms.spatial.privtree import STEPS, Selection
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import beta

from ..mechanisms.phdstream.test_mechanism import keyed, made, released, trace
from ..oracles.privtree import probability


def hostile(seed: int, domain: Domain) -> Nodes:
    """A complete tree of released numbers, many of them negative."""
    rng = np.random.default_rng(seed)
    code = np.concatenate(
        [(1 << d * domain.step) + np.arange(1 << d * domain.step) for d in range(domain.depth + 1)]
    ).astype(np.uint64)
    cell = np.zeros(len(code), NODE)
    cell["out"] = rng.integers(-400, 200, len(code)) * (rng.random(len(code)) < 0.7)
    for row in range(len(code) - 1, 0, -1):
        parent = np.searchsorted(code, code[row] >> np.uint64(domain.step))
        cell["below"][parent] += cell["out"][row] + cell["below"][row]
    return Nodes(code, cell)


def scores(mechanism: PHDStream, nodes: Nodes, events: Events) -> dict[int, int]:
    """Score of every node that the descent meets when everything splits, in grid steps."""
    met: dict[int, int] = {}

    def walk(estimate: np.ndarray, level: int, codes: np.ndarray) -> np.ndarray:
        inserts = events.within(mechanism.domain, codes)[INSERT]
        score = estimate // (GRID // STEPS) + STEPS * inserts
        met.update(zip(codes.tolist(), score.tolist(), strict=True))
        return np.full(len(codes), level < mechanism.domain.depth)

    mechanism.descend(nodes, walk)
    return met


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(0, 2**32), st.booleans(), st.sampled_from([0, 9]))
def test_no_child_scores_more_than_its_parent(seed: int, every: bool, smoothing: int) -> None:
    """Whatever was released before and whatever is deleted now."""
    domain = Domain.unit(2, 3, "all") if every else Domain.unit(2, 5)
    mechanism = made(domain, Fraction(1), 9, smoothing=smoothing, deletions=True)
    rng = np.random.default_rng(seed)
    cells = domain.place(rng.random((20, 2)))
    events = Events.of(cells, rng.integers(0, 9, (2, 20)))
    met = scores(mechanism, hostile(seed, domain), events)
    for node, score in met.items():
        assert 0 <= score <= met.get(node >> domain.step, score)


def path_loss(selection: Selection, first: list[int], second: list[int]) -> float:
    """Largest |ln ratio| of where a path stops splitting, for its scores in two worlds."""
    laws = []
    for path in (first, second):
        one = [float(probability(selection, np.array([s]), i)[0]) for i, s in enumerate(path)]
        alive = np.cumprod([1.0, *one])
        laws.append(np.append(alive[:-1] * (1 - np.array(one)), alive[-1]))
    possible = (laws[0] > 0) & (laws[1] > 0)
    return float(np.abs(np.log(laws[0][possible] / laws[1][possible])).max())


DEEP = Domain.unit(1, 14)


def planted(selection: Selection) -> Nodes:
    """Siblings at about -δ at every level and a deepest leaf that makes raw scores grow down."""
    bias = [round(level * selection.delta / STEPS) for level in range(DEEP.depth + 1)]
    code, out = [1], [0]
    for level in range(1, DEEP.depth + 1):
        code += [1 << level, (1 << level) + 1]
        out += [0, bias[level - 1] - bias[level]]
    out[-2] = bias[-1]
    order = np.argsort(code)
    cell = np.zeros(len(code), NODE)
    cell["out"] = np.array(out)[order]
    codes = np.array(code, np.uint64)[order]
    for row in range(len(codes) - 1, 0, -1):
        parent = np.searchsorted(codes, codes[row] >> np.uint64(1))
        cell["below"][parent] += cell["out"][row] + cell["below"][row]
    return Nodes(codes, cell)


def raw_scores(nodes: Nodes, changes: int) -> list[int]:
    """The published score on the path of zeros: released counts, negative or not, plus changes."""
    path = nodes.take(np.array([1 << level for level in range(DEEP.depth + 1)], np.uint64))
    return [STEPS * (int(cell["out"]) + int(cell["below"]) + changes) for cell in path]


def test_audit_of_splitting_against_planted_counts() -> None:
    """One insertion, or one deletion, at the end of a path of hostile released counts."""
    mechanism = made(DEEP, Fraction(1), 9, share=Fraction(1, 4), deletions=True)
    rule = mechanism.selection
    assert isinstance(rule, Selection)
    nodes = planted(rule)
    path = [1 << level for level in range(DEEP.depth + 1)]
    cell = np.array([1 << DEEP.depth], np.uint64)
    laws = []
    for counts in ([[0], [0]], [[1], [0]], [[0], [1]]):
        met = scores(mechanism, nodes, Events.of(cell, np.array(counts)))
        laws.append([met[node] for node in path])
    assert path_loss(rule, laws[0], laws[1]) <= float(rule.epsilon)
    assert path_loss(rule, laws[0], laws[2]) == 0  # a deletion costs nothing here
    published = path_loss(rule, raw_scores(nodes, 0), raw_scores(nodes, -1))
    assert published > 3 * float(rule.epsilon)  # put back, the flaw is caught


def epsilon_between(first: np.ndarray, second: np.ndarray, alpha: float = 1e-3) -> float:
    """Largest lower confidence bound of ln(P(E)/P'(E)) over the first half's best event E."""
    half = len(first) // 2
    best, seen = 0, -math.inf
    for event in range(first.shape[1]):
        one, two = first[:half, event].mean(), second[:half, event].mean()
        if one > 0.02 and math.log(one / max(two, 0.5 / half)) > seen:
            best, seen = event, math.log(one / max(two, 0.5 / half))
    k, m, n = int(first[half:, best].sum()), int(second[half:, best].sum()), len(first) - half
    low = beta.ppf(alpha, k, n - k + 1) if k else 0.0
    high = beta.ppf(1 - alpha, m + 1, n - m)
    return math.log(low / high) if low else -math.inf


def looks(mechanism: PHDStream, events: Trace, name: str, runs: int) -> np.ndarray:
    """(runs, events) which of some events happened in each run: splits, and changes of a leaf."""
    out = np.zeros((runs, 25), bool)
    for number in range(runs):
        both = released(mechanism, events, keyed(f"{name}{number}"))
        sizes = [len(release.key) for release in both]
        values = [int(release.value[:, 1].sum()) / GRID for release in both]
        up, down = values[0], values[1] - values[0]
        places = ((0, 0), (2, 1), (2, 2), (3, 1), (3, 2))
        grid = np.array([(up >= a) & (down <= -b) for a, b in places])
        for shape, seen in enumerate(((), (1, 1), (1, 2), (2, 1), (2, 2))):
            kept = not seen or tuple(sizes) == seen
            out[number, 5 * shape : 5 * shape + 5] = grid & kept
    return out


@pytest.mark.thorough
def test_audit_of_a_unit_that_inserts_and_deletes() -> None:
    """Neighbours differ by all events of a unit; a bound that is too small is noticed."""
    domain, epsilon, runs = Domain.unit(1, 1), Fraction(2), 600
    others = [(1, 9, 2, 1)]
    unit = [(1, 7, 2, 1)] * 2 + [(2, 7, 2, -1)] * 2
    sound = made(domain, epsilon, 2, bound=4, deletions=True)
    paid = made(domain, epsilon, 2, bound=1, deletions=True)
    careless = PHDStream(domain, 2, 4, paid.counter, paid.selection, smoothing=paid.smoothing)
    measured = []
    for mechanism in (sound, careless):
        with_unit = looks(mechanism, trace(*others, *unit), "a", runs)
        without = looks(mechanism, trace(*others), "b", runs)
        measured.append(
            max(epsilon_between(with_unit, without), epsilon_between(without, with_unit))
        )
    assert measured[0] <= float(epsilon)
    assert measured[1] > float(epsilon)
