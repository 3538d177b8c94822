from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hushstream.errors import ContractError
from hushstream.mechanisms.columns import Batch, Closed, Part, Releases, Rows, empty_part, merge
from hushstream.mechanisms.keys import Keys
from hushstream.mechanisms.noise import ZeroNoise
from hushstream.mechanisms.privhp.mechanism import PrivHP
from hushstream.mechanisms.spatial.domain import Domain, bit_level

from ...oracles.privhp import keyed
from ..cases.privhp import made


def one_pass(**given: object) -> PrivHP:
    return made(Domain.unit(1, depth=8), 1, **{"k": 8, **given})


def part_of(mechanism: PrivHP, x: np.ndarray) -> Part:
    encoded = mechanism.encode({"x1": x})
    n = len(x)
    batch = Batch(
        encoded.keys, encoded.key, np.arange(n), encoded.value, np.ones(n, np.int8),
        np.zeros(len(encoded.keys), np.int32),
    )  # fmt: skip
    return mechanism.absorb(mechanism.traits.units(n), batch)[1]


def first_release(mechanism: PrivHP, part: Part, noise: object = None) -> tuple[Rows, Releases]:
    return mechanism.release(Closed(mechanism.traits.rows(part.key), part, 1), noise or keyed())


def rows_for(mechanism: PrivHP, stored: Rows, part: Part) -> Rows:
    """Rows as a shard loads them: stored rows, and fresh rows for new keys."""
    known = dict(zip(stored.key, range(len(stored.key)), strict=True))
    keys = Keys.of(sorted({*stored.key, *part.key}))
    rows = mechanism.traits.rows(keys)
    for place, key in enumerate(keys):
        if key in known:
            rows.state[place] = stored.state[known[key]]
    return rows


X = np.random.default_rng(0).beta(2, 6, 3000)


def test_dump_twice_is_refused_because_it_would_reveal_exact_counts() -> None:
    mechanism = one_pass(k=256, exact=8)
    first, more = part_of(mechanism, X), part_of(mechanism, np.full(7, 0.6))
    stored, begun = first_release(mechanism, first)
    with pytest.raises(ContractError, match="grown at trigger 1 before"):
        mechanism.release(Closed(rows_for(mechanism, stored, more), more, 1), keyed())
    with pytest.raises(ContractError, match="beyond the horizon"):
        mechanism.release(Closed(rows_for(mechanism, stored, more), more, 2), keyed())
    # The refusal is needed: without it two releases differ by exactly the new records.
    _, again = first_release(mechanism, merge([first, more]))
    assert again.value.sum() - begun.value.sum() == 7
    noise = mechanism.counter.draw(keyed(), 1)
    assert noise[0] != 0


def test_an_empty_sketch_cannot_be_grown_twice_either() -> None:
    mechanism = one_pass()
    stored, released = first_release(mechanism, empty_part(0))
    assert len(stored.key) == 1 and len(released.key) > 8
    more = part_of(mechanism, X)
    with pytest.raises(ContractError):
        mechanism.release(Closed(rows_for(mechanism, stored, more), more, 1), keyed())


def test_continual_release_grows_at_every_trigger_and_at_no_earlier_one() -> None:
    mechanism = made(Domain.unit(1, depth=8), 4, k=8)
    part, stored = part_of(mechanism, X), mechanism.traits.rows(Keys.of([]))
    totals = []
    for t in range(1, 5):
        closed = Closed(rows_for(mechanism, stored, part), part, t)
        new, released = mechanism.release(closed, ZeroNoise())
        totals.append(int(released.value.sum()))
        kept = Keys.of(sorted({*stored.key} - {*new.key}))
        assert len(kept) == 0  # the same cells are touched at every trigger here
        stored = new
        with pytest.raises(ContractError):
            mechanism.release(Closed(rows_for(mechanism, stored, part), part, t), ZeroNoise())
    assert totals == [3000, 6000, 9000, 12000]


def test_memory_follows_the_sketch_and_not_the_stream_or_the_domain() -> None:
    rng = np.random.default_rng(1)
    for depth in (16, 40):
        mechanism = made(Domain.unit(1, depth=depth), 1, k=16, width=20)
        cells = mechanism.shape.sums
        assert cells == 31 + (depth - 4) * 20
        part = part_of(mechanism, rng.random(50_000))
        stored, released = first_release(mechanism, part)
        assert len(part.key) <= cells and len(stored.key) <= cells + 1
        assert stored.state.dtype.itemsize == 12
        assert len(released.key) <= 16 + (depth - 4) * 16


def test_a_release_without_any_record_is_noise() -> None:
    mechanism = one_pass()
    seen = [first_release(mechanism, empty_part(0), keyed(w))[1] for w in range(20)]
    assert len({tuple(r.value[:, 0].tolist()) for r in seen}) >= 8, "too many roots are below 0"
    assert max(r.value.sum() for r in seen) > 0


def test_records_outside_are_not_kept_and_the_upper_edge_is() -> None:
    encoded = one_pass().encode({"x1": np.array([-0.1, 0.0, 1.0, 1.1, np.nan])})
    assert encoded.keep.tolist() == [False, True, True, False, False]
    codes = encoded.keys.codes()[encoded.key]
    assert codes[1:3].tolist() == [256, 511]


def test_every_level_of_a_release_has_the_variance_of_its_noise() -> None:
    mechanism = one_pass()
    _, released = first_release(mechanism, part_of(mechanism, X))
    variance = mechanism.counter.variance(1)
    levels = bit_level(released.key.codes())
    np.testing.assert_array_equal(released.variance[:, 0], variance[levels])
    assert mechanism.error(1) == np.sqrt(variance.max())


def test_threshold_pruning_refines_what_exceeds_the_noise() -> None:
    mechanism = one_pass(prune="threshold", bar=3.0, width=4096, decode="single")
    table = mechanism.shape.sum_leaves(*truth(mechanism))
    tree = mechanism.grow(table, 1)
    deviation = np.sqrt(mechanism.counter.variance(1))
    for code, count, leaf in zip(
        tree.code.tolist(), tree.records.tolist(), tree.leaf.tolist(), strict=True
    ):
        level = code.bit_length() - 1
        if mechanism.shape.exact <= level < 8:
            assert leaf == (count < 3 * deviation[level + 1])
    assert tree.leaf[bit_level(tree.code) < 8].any()


def truth(mechanism: PrivHP) -> tuple[np.ndarray, np.ndarray]:
    return np.unique(mechanism.domain.place(X[:, None]), return_counts=True)


def test_a_private_tree_is_close_to_the_data() -> None:
    """W1 in one dimension at ε = 1.5 and n = 3000, one pass and each trigger of four."""
    for mechanism, limit in ((one_pass(k=16), 0.01), (made(Domain.unit(1, 8), 4, k=16), 0.05)):
        part = part_of(mechanism, X)
        _, released = first_release(mechanism, part)
        low, high = mechanism.domain.fractions(released.key.codes())
        grid = np.linspace(0, 1, 257)
        covered = np.clip((grid[:, None] - low[:, 0]) / (high - low)[:, 0], 0, 1)
        cumulated = covered @ released.value[:, 0] / released.value.sum()
        error = np.abs(cumulated - np.searchsorted(np.sort(X), grid) / len(X)).mean()
        assert error < limit


def test_replacing_a_record_costs_twice_what_adding_does_but_for_the_root() -> None:
    mechanism = one_pass(k=16, exact=8)
    one, other = part_of(mechanism, np.array([0.1])), part_of(mechanism, np.array([0.9]))
    scales = [float(scale) for scale in mechanism.counter.scales]  # type: ignore[attr-defined]

    def loss(*parts: Part) -> float:
        change = np.zeros(mechanism.shape.sums)
        for sign, part in zip((1, -1), parts, strict=False):
            change[mechanism.shape.places(part.key)] += sign * part.sums[:, 0]
        levels = [np.abs(mechanism.shape.part(change, i)).sum() for i in range(9)]
        return sum(moved / scale for moved, scale in zip(levels, scales, strict=True))

    epsilon = float(mechanism.cost().epsilon)
    assert loss(one) == pytest.approx(epsilon)
    assert loss(one, other) == pytest.approx(2 * (epsilon - 1 / scales[0]))
    assert epsilon <= Fraction(3, 2)
