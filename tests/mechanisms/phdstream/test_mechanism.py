"""PHDStream: the tree it grows, what it counts, and audits that detect the published flaws."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest
from hushstream.errors import ContractError
from hushstream.mechanisms import accounting
from hushstream.mechanisms.columns import Closed, Part, Releases, Rows, merge
from hushstream.mechanisms.contract import Noise, Setting
from hushstream.mechanisms.in_memory import Memory, Trace, run
from hushstream.mechanisms.keys import Keys
from hushstream.mechanisms.noise import STEADY, KeyedNoise, ZeroNoise
from hushstream.mechanisms.phdstream.mechanism import PHDStream
from hushstream.mechanisms.phdstream.settings import PHDStreamParameters as Parameters
from hushstream.mechanisms.phdstream.settings import build
from hushstream.mechanisms.phdstream.tree import GRID, NODE, project
from hushstream.mechanisms.spatial.domain import Domain
from hushstream.mechanisms.spatial.privtree import STEPS, Selection

from ...oracles.keys import is_canonical
from ...oracles.phdstream import spread

LINE = Domain.unit(1, 6)


def made(domain: Domain, epsilon: Fraction, horizon: int, **parameters: object) -> PHDStream:
    parameters = {"selection": "private", **parameters}
    setting = Setting(epsilon, Fraction(1, 10**6), horizon)
    return build(Parameters(domain=domain, **parameters), setting)  # type: ignore[arg-type]


def keyed(window: str = "w") -> KeyedNoise:
    secret = b"p" * 32
    return KeyedNoise(
        secret,
        charge=bytes(32),
        mechanism="m",
        config=b"",
        pipeline="",
        window=window,
        nonces=STEADY,
    )


def trace(*events: tuple[int, int, int, int]) -> Trace:
    """Events as (trigger, unit, finest cell, sign), in log order."""
    table = np.array(events, np.int64).reshape(-1, 4)
    codes, key = np.unique(table[:, 2].astype(np.uint64), return_inverse=True)
    value = np.empty((len(table), 0), np.int64)
    sign = table[:, 3].astype(np.int8)
    return Trace(table[:, 0], table[:, 1], Keys.of_codes(codes), key, value, sign)


def released(mechanism: PHDStream, events: Trace, noise: Noise) -> list[Releases]:
    return list(run(Memory(mechanism, noise), events))


def some_events(seed: int, cells: Domain, horizon: int, n: int = 300) -> Trace:
    """Clustered insertions by distinct units, a quarter of them deleted later."""
    rng = np.random.default_rng(seed)
    cell = cells.place(np.clip(rng.normal(0.3, 0.1, (n, cells.dimensions)), 0, 1))
    when = np.sort(rng.integers(1, horizon + 1, n))
    rows = [(int(t), unit, int(c), 1) for unit, (t, c) in enumerate(zip(when, cell, strict=True))]
    gone = [(t + 1, u, c, -1) for t, u, c, _ in rows[::4] if t < horizon]
    return trace(*sorted(rows + gone, key=lambda row: row[0]))


# The tree


@pytest.mark.parametrize("selection", ["private", "released"])
def test_without_data_and_noise_the_root_is_the_only_leaf(selection: str) -> None:
    mechanism = made(LINE, Fraction(1), 4, selection=selection)
    for release in released(mechanism, trace(), ZeroNoise()):
        assert release.key.codes().tolist() == [1]
        assert release.value.tolist() == [[0, 0]]


def test_a_tree_without_depth_is_one_counter() -> None:
    domain = Domain.unit(2, 0)
    mechanism = made(domain, Fraction(1), 6, share=Fraction(1, 2))
    events = some_events(0, domain, 6)
    outputs = [int(r.value[0, 1]) for r in released(mechanism, events, keyed())]
    changes = [int(((events.trigger == t) & (events.sign > 0)).sum()) for t in range(1, 7)]
    root = Keys.of_codes(np.ones(1, np.uint64))
    noise = [
        int(keyed().laplace("simple", root, np.array([t]), Fraction(2), np.array([t]))[0, 0])
        for t in range(1, 7)
    ]
    assert outputs == (GRID * np.cumsum(np.add(changes, noise))).tolist()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("theta", [0, 9])
def test_the_tree_is_the_one_of_the_recursion(seed: int, theta: int) -> None:
    """A score is the released count of earlier triggers plus this trigger's insertions."""
    domain, horizon = Domain.unit(2, 6), 5
    options = {"smoothing": 0, "theta": theta, "deletions": True, "bound": 2, "forget": False}
    mechanism = made(domain, Fraction(8), horizon, **options)
    events = some_events(seed, domain, horizon)
    cells = events.keys.codes()[events.key].tolist()
    changes: dict[int, int] = {}
    for t, release in enumerate(released(mechanism, events, ZeroNoise()), 1):
        rows = np.flatnonzero(events.trigger == t).tolist()
        now = [(cells[row], int(events.sign[row])) for row in rows]
        leaves = sorted(recursion(mechanism, changes, [c for c, sign in now if sign > 0]))
        assert release.key.codes().tolist() == leaves
        for leaf in leaves:
            inside = sum(sign for cell, sign in now if within(cell, leaf))
            changes[leaf] = changes.get(leaf, 0) + inside


def within(cell: int, node: int) -> bool:
    return cell >> (cell.bit_length() - node.bit_length()) == node


def recursion(mechanism: PHDStream, changes: dict[int, int], inserted: list[int]) -> list[int]:
    """Leaves of the tree by the definition of G, one node at a time."""
    rule = mechanism.selection
    assert isinstance(rule, Selection)

    def total(node: int) -> int:
        return int(GRID * sum(spread(node, v, 1) * d for v, d in changes.items()))

    def grow(node: int, estimate: int) -> Iterator[int]:
        level = node.bit_length() - 1
        score = estimate * STEPS // GRID + STEPS * sum(within(cell, node) for cell in inserted)
        biased = max(score - level * rule.delta, STEPS * rule.theta - rule.delta)
        if level == rule.depth or biased <= STEPS * rule.theta:
            yield node
            return
        pair = np.array([[total(2 * node), total(2 * node + 1)]])
        shares = project(np.array([estimate]), pair, np.ones((1, 2), bool))[0].tolist()
        for child, share in zip((2 * node, 2 * node + 1), shares, strict=True):
            yield from grow(child, share)

    return list(grow(1, max(0, total(1))))


def test_empty_triggers_are_released_like_others() -> None:
    mechanism = made(LINE, Fraction(1), 5)
    assert all(len(r.key) for r in released(mechanism, trace((3, 1, 70, 1)), keyed()))


def test_hold_back_is_one_large_trigger() -> None:
    domain = Domain.unit(2, 6)
    mechanism = made(domain, Fraction(2), 8, first=4, bound=2, deletions=True)
    events = some_events(3, domain, 8)
    late = events._replace(trigger=np.maximum(events.trigger, 4))
    first, second = (released(mechanism, one, keyed()) for one in (events, late))
    assert [len(r.key) for r in first[:3]] == [0, 0, 0]
    assert all(map(same, first, second))


def test_a_lifetime_is_a_later_deletion() -> None:
    domain, horizon = Domain.unit(2, 6), 9
    inserts = some_events(4, domain, horizon).where(
        np.flatnonzero(some_events(4, domain, horizon).sign > 0)
    )
    lasting = made(domain, Fraction(2), horizon, lifetime=3, bound=2, smoothing=10)
    explicit = PHDStream(
        domain, horizon, 2, lasting.counter, lasting.selection, smoothing=10, forget=True
    )
    later = inserts.where(np.flatnonzero(inserts.trigger + 3 <= horizon))
    both = Trace(
        np.concatenate([inserts.trigger, later.trigger + 3]),
        np.concatenate([inserts.unit, later.unit]),
        inserts.keys,
        np.concatenate([inserts.key, later.key]),
        np.empty((len(inserts.key) + len(later.key), 0), np.int64),
        np.concatenate([inserts.sign, -later.sign]),
    )
    both = both.where(np.argsort(both.trigger, kind="stable"))
    pairs = zip(released(lasting, inserts, keyed()), released(explicit, both, keyed()), strict=True)
    assert all(same(a, b) for a, b in pairs)


def same(first: Releases, second: Releases) -> bool:
    return first.key == second.key and np.array_equal(first.value, second.value)


@pytest.mark.parametrize("counter", ["simple", "block"])
@pytest.mark.parametrize("selection", ["private", "released"])
def test_state_is_the_live_tree(counter: str, selection: str) -> None:
    """Stored rows are the leaves and their ancestors; everything below a leaf is forgotten."""
    domain = Domain.unit(2, 6)
    mechanism = made(domain, Fraction(1), 12, counter=counter, selection=selection, floor=1)
    memory = Memory(mechanism, keyed())
    ever: set[bytes] = set()
    for release in run(memory, some_events(8, domain, 12, 600)):
        live = set(release.key.codes().tolist())
        for code in list(live):
            live.update(code >> up for up in range(1, code.bit_length()))
        stored = memory.row_tables[0].rows
        kept = set(stored.key[stored.due == -1].tolist())
        assert kept == set(Keys.of_codes(np.array(sorted(live), np.uint64)))
        assert (stored.state[stored.due != -1] == np.zeros((), NODE)).all()
        ever |= kept
    assert len(ever) > len(kept)


def test_served_events_leave_nothing_behind() -> None:
    mechanism = made(LINE, Fraction(2), 6, first=2, lifetime=2, bound=2)
    memory = Memory(mechanism, keyed())
    list(run(memory, trace((1, 1, 70, 1), (2, 2, 71, 1), (3, 3, 72, 1))))
    stored = memory.row_tables[0].rows
    waiting = np.diff(stored.key.offsets) != 8
    assert waiting.any()
    assert (stored.state[waiting] == np.zeros((), NODE)).all()
    assert (stored.due[waiting] == 0).all()


def test_insertions_and_deletions_are_never_netted() -> None:
    """A deletion in the same cell and trigger must not take an insertion out of the score."""
    mechanism = made(LINE, Fraction(2), 2, bound=2, deletions=True)
    units = mechanism.traits.units(2)
    events = trace((1, 0, 70, 1), (1, 0, 70, -1), (1, 1, 70, 1))
    part = Memory(mechanism, ZeroNoise()).absorb(events)[0]
    assert len(units.left) == 2
    assert dict(zip(part.lane.tolist(), part.sums[:, 0].tolist(), strict=True)) == {0: 2, 1: 1}


@pytest.mark.parametrize(
    ("events", "lanes"),
    [
        ([(1, 0, 70, -1), (1, 0, 70, 1)], {0: 1}),  # an orphan, then an insertion
        ([(1, 0, 70, 1), (1, 1, 70, -1)], {0: 1}),  # another unit's insertion
        ([(1, 0, 70, 1), (1, 0, 71, -1)], {0: 1}),  # another cell
        ([(1, 0, 70, 1), (1, 0, 70, -1), (1, 0, 70, -1)], {0: 1, 1: 1}),  # deleted already
        ([(1, 0, 70, 1)] * 5, {0: 3}),  # the bound
        ([(1, 0, 70, 1)] * 3 + [(1, 0, 70, -1)], {0: 3}),  # deletions count as well
    ],
)
def test_deletions_need_a_live_insertion_and_count_towards_the_bound(
    events: list[tuple[int, int, int, int]], lanes: dict[int, int]
) -> None:
    mechanism = made(LINE, Fraction(2), 2, bound=3, deletions=True)
    parts = merge(Memory(mechanism, ZeroNoise()).absorb(trace(*events)))
    assert dict(zip(parts.lane.tolist(), parts.sums[:, 0].tolist(), strict=True)) == lanes


def test_leaves_stay_inside_the_region() -> None:
    ring = ((0.1, 0.1), (0.9, 0.2), (0.4, 0.8))
    domain = Domain(Domain.unit(2, 6, "all").axes, 6, "all", polygon=ring)
    mechanism = made(domain, Fraction(4), 3)
    for release in released(mechanism, some_events(5, domain, 3), keyed()):
        assert domain.touches(release.key.codes()).all()


def test_triggers_beyond_the_horizon_are_refused() -> None:
    mechanism = made(LINE, Fraction(1), 2)
    empty = Part(Keys.of([]), np.empty(0, np.uint8), np.empty((0, 1), np.int64), np.empty(0, int))
    for t in (0, 3):
        with pytest.raises(ContractError, match=str(t)):
            mechanism.release(Closed(mechanism.traits.rows(Keys.of([])), empty, t), keyed())


# Noise


@pytest.mark.thorough
@pytest.mark.spread(4)
@pytest.mark.parametrize("counter", ["simple", "block", "tree", "matrix"])
def test_error_is_the_noise_of_a_leaf_that_always_counted(counter: str) -> None:
    """Chi-square over 400 windows: accepts σ, rejects ⅔σ and 1.5σ."""
    domain, t, windows = Domain.unit(2, 0), 3, 400
    mechanism = made(domain, Fraction(1), t, counter=counter, selection="released", block=2)
    last = [released(mechanism, trace(), keyed(str(w)))[-1] for w in range(windows)]
    noise = np.array([release.value[0, 1] for release in last], float)
    np.testing.assert_allclose(last[0].variance, mechanism.error(t)[1] ** 2)
    ratio = math.sqrt((noise**2).mean()) / (mechanism.error(t)[1] * np.array([1, 2 / 3, 1.5]))
    assert (np.abs(ratio - 1) < 4 * math.sqrt(5 / (4 * windows))).tolist() == [True, False, False]


def test_variance_of_leaves_follows_their_counters() -> None:
    """With the floor at full depth every leaf counts at every trigger and inherits nothing."""
    domain = Domain.unit(2, 3)
    mechanism = made(domain, Fraction(1), 5, floor=3, selection="released")
    for t, release in enumerate(released(mechanism, trace(), keyed()), 1):
        assert release.key.codes().tolist() == list(range(8, 16))
        count, unbiased = release.value.T
        lowered = np.maximum(unbiased - count, 0) ** 2
        np.testing.assert_allclose(release.variance[:, 1], mechanism.error(t)[0] ** 2)
        np.testing.assert_allclose(release.variance[:, 0], release.variance[:, 1] + lowered)


# Privacy


@pytest.mark.parametrize("counter", ["simple", "block", "tree", "matrix"])
@pytest.mark.parametrize("selection", ["private", "released"])
@pytest.mark.parametrize(("bound", "lifetime"), [(1, 0), (5, 0), (5, 2)])
def test_cost_stays_within_the_budget(
    counter: str, selection: str, bound: int, lifetime: int
) -> None:
    epsilon, delta = Fraction(3, 2), Fraction(1, 10**6)
    options = {"counter": counter, "selection": selection, "bound": bound, "lifetime": lifetime}
    cost = made(LINE, epsilon, 20, **options).cost()
    spent = accounting.total([cost], delta)[0] if cost.mu2 else cost.epsilon
    assert epsilon * Fraction(999, 1000) < spent <= epsilon


def test_a_lifetime_pays_for_its_deletions() -> None:
    mechanism = made(LINE, Fraction(3), 20, bound=4, lifetime=2, share=Fraction(1, 2))
    split, count = mechanism.selection.epsilon, mechanism.counter.cost(1).epsilon
    assert 2 * (split + 2 * count) == 3 and split == count


def test_a_record_enters_one_counter() -> None:
    """Feeding every counter on its path would cost ε_count once per level."""
    mechanism = made(LINE, Fraction(1), 1, smoothing=0)
    with_record, without = (Memory(mechanism, ZeroNoise()) for _ in range(2))
    list(run(with_record, trace((1, 0, 70, 1)))), list(run(without, trace()))
    outputs = with_record.row_tables[0].rows.state["out"].tolist()
    assert len(outputs) > 1 and sorted(outputs)[-2:] == [0, 1]
    assert without.row_tables[0].rows.state["out"].tolist() == [0]


class Strict(ZeroNoise):
    """Zero noise that refuses to draw a label twice."""

    def __init__(self) -> None:
        super().__init__()
        object.__setattr__(self, "seen", set())

    def laplace(
        self, purpose: str, key: Keys, index: np.ndarray, scale: Fraction, first: np.ndarray
    ) -> np.ndarray:
        labels = [(purpose, one, i) for one in key for i in index.tolist()]
        assert not self.seen.intersection(labels) and len(set(labels)) == len(labels)
        self.seen.update(labels)
        return keyed().laplace(purpose, key, index, scale, first)


@pytest.mark.parametrize("selection", ["private", "released"])
@pytest.mark.parametrize("counter", ["simple", "block"])
def test_noise_labels_never_repeat(selection: str, counter: str) -> None:
    """One draw per node, trigger and purpose, even for nodes that are forgotten and return."""
    domain = Domain.unit(2, 5)
    mechanism = made(domain, Fraction(2), 9, selection=selection, counter=counter, floor=1)
    noise = Strict()
    released(mechanism, some_events(6, domain, 9), noise)
    assert len(noise.seen) > 50


def test_rows_are_due_at_every_trigger_once_they_are_nodes() -> None:
    mechanism = made(LINE, Fraction(1), 3)
    rows, _ = mechanism.release(
        Closed(mechanism.traits.rows(Keys.of([])), merge([_one_insert()]), 1), keyed()
    )
    assert isinstance(rows, Rows) and (rows.due == -1).all() and is_canonical(rows.key)


def _one_insert() -> Part:
    key = Keys.of_codes(np.array([70], np.uint64))
    return Part(key, np.zeros(1, np.uint8), np.ones((1, 1), np.int64), np.empty(0, np.int64))
