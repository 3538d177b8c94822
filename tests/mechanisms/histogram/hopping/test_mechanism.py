"""Windows that hop: every release equals a slow specification's, also across epochs.

Covers: mechanisms/histogram/hopping/noise.py
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hushstream.errors import ContractError
from hushstream.mechanisms import accounting, catalogue
from hushstream.mechanisms.columns import Closed, Hop, Releases, empty_part
from hushstream.mechanisms.contract import Setting
from hushstream.mechanisms.histogram.hopping.mechanism import Hopping
from hushstream.mechanisms.histogram.settings import HistogramParameters
from hushstream.mechanisms.in_memory import Memory, Trace, seed
from hushstream.mechanisms.keys import Keys
from hushstream.mechanisms.noise import STEADY, KeyedNoise
from hushstream.mechanisms.tables import UnitTable
from scipy.stats import beta as beta_law
from scipy.stats import norm

from ....oracles.hopping import Oracle

EPSILON, DELTA = Fraction(8), Fraction(1, 100)
SIZES = [(2, 1), (2, 2), (3, 2), (4, 4), (3, 5), (5, 2)]


def made(hops: int, per_epoch: int, **more: object) -> Hopping:
    settings = {k: more.pop(k) for k in list(more) if k not in Setting.__dataclass_fields__}
    setting = Setting(EPSILON, DELTA, 1, windows=per_epoch, hops=hops)
    parameters = HistogramParameters(**settings)  # type: ignore[arg-type]
    built = catalogue.build("histogram", parameters, replace(setting, **more))  # type: ignore[arg-type]
    assert isinstance(built, Hopping)
    return built


def noise(window: int) -> KeyedNoise:
    return KeyedNoise(
        b"h" * 32, charge=bytes(32), mechanism="m", config=b"", pipeline="p",
        window=str(window), nonces=STEADY,
    )  # fmt: skip


class Run:
    """Successive windows in memory, with ``shards`` shards of each stage."""

    def __init__(self, mechanism: Hopping, shards: int = 1) -> None:
        self.mechanism, self.shards = mechanism, shards
        self.before: Memory | None = None
        self.epoch, self.units = -1, list[UnitTable]()
        self.chain = 0

    def window(
        self, hop: int, keys: list[bytes], units: list[int], signs: list[int] | None = None,
        values: np.ndarray | None = None,
    ) -> Releases:  # fmt: skip
        m = self.mechanism
        if hop // m.per_epoch != self.epoch:
            self.epoch = hop // m.per_epoch
            self.units = [UnitTable(m.traits) for _ in range(self.shards)]
        self.chain += 1
        memory = Memory(
            m, noise(hop), self.shards, self.shards, window=hop % m.per_epoch,
            hop=Hop(hop % m.per_epoch + 1, self.chain), before=self.before,
            unit_tables=self.units,
        )  # fmt: skip
        if self.before is None and m.public is not None:
            seed(memory, Keys.of(sorted(m.public)))
        distinct, key = Keys.of(keys).unique()
        none = np.zeros((len(keys), m.traits.columns), np.int64)
        memory.absorb(Trace(
            np.ones(len(keys), np.intp), np.array(units, np.int64), distinct, key,
            none if values is None else values,
            np.array(signs or [1] * len(keys), np.int8),
        ))  # fmt: skip
        self.before = memory
        return memory.trigger()

    def broken(self) -> None:
        """Forget earlier windows, as after a refused epoch."""
        self.before, self.chain = None, 0


def stream(seed_: int, hops: int) -> Iterator[list[bytes]]:
    """Keys of each hop's records; some keys return after a long absence."""
    rng = np.random.default_rng(seed_)
    for hop in range(hops):
        names = [b"busy"] * int(rng.integers(20, 60))
        names += [b"rare"] * int(rng.integers(30, 50)) * (hop % 17 in (2, 3))
        names += [b"once"] * 40 * (hop == 4)
        names += [b"late"] * 70 * (hop > 20 and hop % 5 == 0)
        yield names


def oracle(mechanism: Hopping, listed: frozenset[bytes] = frozenset()) -> Oracle:
    factor, one = mechanism.noises[0].factor, mechanism.noises[0]

    def draw(window: int, key: bytes, number: int) -> int:
        index, first = np.array([number]), np.ones(1, np.int64)
        return int(noise(window).gauss("count/S", Keys.of([key]), index, one.variance, first)[0, 0])

    return Oracle(factor.C.tolist(), mechanism.hops, mechanism.threshold, draw, listed)


@pytest.mark.spread(3)
@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize(("hops", "per_epoch"), SIZES)
def test_releases_are_those_of_the_specification(hops: int, per_epoch: int, shards: int) -> None:
    mechanism = made(hops, per_epoch, budget=1)
    _compared(mechanism, Run(mechanism, shards), oracle(mechanism), 36)


@pytest.mark.parametrize(("hops", "per_epoch"), [(3, 2), (4, 4), (2, 5)])
def test_public_keys_are_released_in_every_window(hops: int, per_epoch: int) -> None:
    names = (b"busy", b"once", b"silent")
    mechanism = made(hops, per_epoch, budget=1, keys=names)
    shown = _compared(mechanism, Run(mechanism), oracle(mechanism, frozenset(names)), 24)
    assert all(keys == set(names) for keys in shown)


def _compared(mechanism: Hopping, run: Run, slow: Oracle, windows: int) -> list[set[bytes]]:
    begun, shown, unit = 3, [], 0  # the first hop need not begin an epoch
    for hop, names in enumerate(stream(1, windows), begun):
        if hop == 18 - 18 % mechanism.per_epoch:
            run.broken()
            begun = hop
        out = run.window(hop, names, list(range(unit, unit + len(names))))
        unit += len(names)
        mine = [n for n in names if mechanism.public is None or n in mechanism.public]
        wanted = slow.window(hop, begun, Counter(mine))
        found = dict(zip(out.key.tolist(), out.value[:, 0].tolist(), strict=True))
        assert found == {key: one.value for key, one in wanted.items()}, hop
        scale = float(mechanism.noises[0].variance)
        for key, spread in zip(out.key.tolist(), out.variance[:, 0].tolist(), strict=True):
            assert spread == pytest.approx(float(wanted[key].variance) * scale, rel=1e-9)
        told = min(hop - begun + 1, mechanism.hops)
        assert out.public["hops"].tolist() == [told, mechanism.hops]
        shown.append(set(found))
    return shown


def test_keys_appear_vanish_and_come_back() -> None:
    mechanism = made(3, 3, budget=1)
    run, shown = Run(mechanism), []
    for hop, names in enumerate(stream(1, 36)):
        out = run.window(hop, names, list(range(1000 * hop, 1000 * hop + len(names))))
        shown.append(set(out.key.tolist()))
    assert all(b"busy" in keys for keys in shown[1:])
    rare = [b"rare" in keys for keys in shown]
    assert rare[3] and not any(rare[7:18]) and any(rare[18:24])


def test_a_row_ends_when_nothing_can_depend_on_it_and_not_before() -> None:
    mechanism = made(3, 2, budget=1)  # K = 1: a row lives two epochs past its last record's
    run = Run(mechanism)
    run.window(0, [b"a"], [1])
    alive = []
    for hop in range(1, 8):
        run.window(hop, [], [])
        assert run.before is not None
        alive.append(len(run.before.row_tables[0].rows.key))
    assert alive == [1, 1, 1, 1, 1, 0, 0]


def test_the_bound_holds_over_all_hops_of_an_epoch() -> None:
    mechanism = made(4, 4, budget=12, bound="quadratic")
    run, exact = Run(mechanism), 0
    for hop in range(4):
        run.window(hop, [b"a"] * 3, [7] * 3)
        assert run.before is not None
        exact = int(run.before.row_tables[0].rows.state["sums"][0, :, 0].sum())
    assert exact == 3  # 1 + 3 + 5 ≤ 12 < 16: the price rises over all hops of an epoch
    run.window(4, [b"a"] * 3, [7] * 3)
    assert run.before is not None
    assert int(run.before.row_tables[0].rows.state["sums"][0, :, 0].sum()) == 3  # a new epoch


def test_sums_means_and_deletions_are_windows_too() -> None:
    columns = (("x", 0, 100),)
    mechanism = made(
        3, 2, budget=1, keys=(b"a",), columns=columns, grids=(Fraction(1),), squares=("x",)
    )
    run, rng, held = Run(mechanism), np.random.default_rng(3), list[np.ndarray]()
    for hop in range(9):
        size = int(rng.integers(1, 400))
        value = rng.integers(0, 101, (size, 1))
        signs = rng.choice([1, 1, 1, -1], size)
        out = run.window(
            hop, [b"a"] * size, list(range(1000 * hop, 1000 * hop + size)), signs.tolist(),
            np.concatenate([value, value], axis=1),
        )  # fmt: skip
        held.append(np.array([signs.sum(), (signs * value[:, 0]).sum()]))
        wanted = np.sum(held[-3:], axis=0)
        off = (out.value[0, :2] - wanted) / np.sqrt(out.variance[0, :2])
        assert np.abs(off).max() < 5
    assert mechanism.error(mechanism.traits.foremost).shape == (len(mechanism.traits.outputs),)


@pytest.mark.parametrize(("hops", "per_epoch"), SIZES)
def test_a_unit_alone_decides_with_no_more_than_delta(hops: int, per_epoch: int) -> None:
    """By the normal law, over all windows that may hold a unit's records, tails included."""
    mechanism = made(hops, per_epoch, budget=12)
    one, share = mechanism.noises[0], float(DELTA) / 2
    for m in range(1, mechanism.bound.most_per_key() + 1):
        reached = 0.0
        for row in range(per_epoch + hops - 1):
            ordinal = row % per_epoch + 1
            deviation = one.variance_at(ordinal) ** 0.5
            bar = mechanism.threshold[ordinal - 1] / 256
            reached += norm.sf((bar - m) / deviation)
        assert reached <= share * m**2 / 12


@pytest.mark.parametrize(("hops", "per_epoch"), SIZES)
def test_a_unit_in_all_epochs_of_a_window_decides_with_almost_its_share(
    hops: int, per_epoch: int
) -> None:
    """Of all ways to spread records over epochs, the worst uses up β·Σ m²/Q to a fiftieth."""
    mechanism = made(hops, per_epoch, budget=12)
    epochs, most = 1 + -(-(hops - 1) // per_epoch), mechanism.bound.most_per_key()
    beta = float(DELTA) / 2 / (per_epoch + hops - 1)
    spread = [one for one in itertools.product(range(most + 1), repeat=epochs) if any(one)]
    for ordinal in range(1, per_epoch + 1):
        deviation = mechanism.noises[0].variance_at(ordinal) ** 0.5
        bar = mechanism.threshold[ordinal - 1] / 256
        used = [
            norm.sf((bar - sum(one)) / deviation) / (beta * sum(m * m for m in one) / 12)
            for one in spread
        ]
        assert 0.98 < max(used) <= 1


def test_epochs_together_decide_with_no_more_than_their_sum() -> None:
    mechanism = made(4, 2, budget=12)
    one, beta = mechanism.noises[0], float(DELTA) / 2 / (2 + 4 - 1)
    for records in np.ndindex(4, 4, 4):  # records of one unit and key in each epoch of a window
        if not any(records):
            continue
        for ordinal in (1, 2):
            bar = mechanism.threshold[ordinal - 1] / 256
            reached = norm.sf((bar - sum(records)) / one.variance_at(ordinal) ** 0.5)
            assert reached <= beta * sum(m * m for m in records) / 12


def test_a_unit_that_reacts_decides_more_often_as_the_text_says() -> None:
    """It knows the noise of N keys from an epoch of windows, and takes the most promising one."""
    hops, keys, runs = 4, 400, 200
    mechanism = made(hops, hops, budget=1, epsilon=Fraction(1))
    one, share = mechanism.noises[0], float(DELTA) / 2
    codes = Keys.of_codes(np.arange(keys * runs, dtype=np.uint64))
    z = np.zeros((keys * runs, 2, hops), np.int64)  # this epoch and the one before it
    z[:, 1] = one.drawn(noise(0), codes, 0, range(hops))
    z[:, 0, :1] = one.drawn(noise(1), codes, 0, range(1))
    past = z[:, ::-1]  # as it was in the epoch before
    seen = np.stack([one.steps(past, n, n) for n in range(1, hops + 1)], axis=1) / 256
    following = one.steps(z, 1, hops + 1) / 256
    wanted = np.linalg.lstsq(seen, following, rcond=None)[0]
    chosen = (seen @ wanted).reshape(runs, keys).argmax(axis=1) + keys * np.arange(runs)
    hits = int((1 + following[chosen] >= mechanism.threshold[0] / 256).sum())
    assert beta_law.ppf(0.001, hits, runs - hits + 1) > share
    assert beta_law.ppf(0.001, hits, runs - hits + 1) <= (keys + 1) * share


def test_the_cost_fits_into_the_budget() -> None:
    for hops, per_epoch in SIZES:
        loss = made(hops, per_epoch).cost()
        assert accounting.total([loss], DELTA)[0] <= EPSILON


def test_other_triggers_and_hops_are_refused() -> None:
    mechanism = made(3, 2)
    rows, part = mechanism.traits.rows(Keys.of([])), empty_part(0)
    for t, ordinal in ((2, 1), (1, 3), (1, 0)):
        with pytest.raises(ContractError):
            mechanism.release(Closed(rows, part, t, hop=Hop(ordinal, 1)), noise(0))


def test_the_bound_counts_over_the_epoch_in_words_too() -> None:
    quadratic = made(24, 24, budget=12).bounds("user")["in_words"]
    assert quadratic.startswith("m records of one user with one key in one epoch cost m*m;")
    most = made(24, 24, bound="per-key", budget=12, per_key=3).bounds("user")["in_words"]
    assert most.endswith("at most 3 of them with one key in one epoch")


def test_a_plan_tells_noise_in_the_unit_of_each_value() -> None:
    priced = made(4, 4, columns=(("price", 0, 10_000),), grids=(Fraction(1, 100),))
    worst = (priced.error(1) * [1, 0.01]).tolist()
    body = priced.plan()["hopping"]
    assert np.max(body["noise_stddev"], axis=0).tolist() == pytest.approx(worst)
    said = dict(priced.plan_rows("user"))["noise by place in the epoch"]
    assert all(f"… {stddev:.4g}" in said for stddev in worst)


def test_a_plan_says_what_is_public() -> None:
    mechanism = made(24, 24)
    body = mechanism.plan()["hopping"]
    assert (body["hops"], body["hops_per_epoch"]) == (24, 24)
    assert len(body["noise_stddev"]) == len(body["threshold"]) == 24
    rows = dict(mechanism.plan_rows("user"))
    assert rows["windows"] == "each the sum of 24 hops, 24 an epoch"
    assert "threshold of a key" in rows and "noise by place in the epoch" in rows
    assert [mechanism.key_threshold(t) for t in (1, 24)] == [
        Fraction(mechanism.threshold[t], 256) for t in (0, 23)
    ]
