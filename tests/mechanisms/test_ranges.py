"""Every mechanism that `build` accepts releases at every trigger; others are refused by name.

The configurations are random and extreme: budgets over fifteen orders of magnitude, clip intervals
up to 2^45 grid steps, records at the clip ends. None may fail except with `ParameterError`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hushstream.errors import ParameterError
from hushstream.mechanisms import catalogue, ranges
from hushstream.mechanisms.columns import I64
from hushstream.mechanisms.contract import UNIT, Mechanism, Setting
from hushstream.mechanisms.histogram.settings import HistogramParameters
from hushstream.mechanisms.in_memory import Memory, Trace, run, seed
from hushstream.mechanisms.keys import Keys
from hushstream.mechanisms.noise import STEADY, KeyedNoise, zero
from hushstream.mechanisms.pak.settings import PakParameters
from hushstream.mechanisms.phdstream.settings import PHDStreamParameters
from hushstream.mechanisms.privhp.settings import PrivHPParameters
from hushstream.mechanisms.spatial.domain import Domain
from hushstream.mechanisms.topl.settings import ToPLParameters
from hushstream.mechanisms.tops.settings import TopsParameters
from hypothesis import given, settings
from hypothesis import strategies as st

from .test_contract import CASES, Case

KEYED = KeyedNoise(
    b"s" * 32, charge=b"c" * 32, mechanism="m", config=b"f", pipeline="p", window="w",
    nonces=STEADY,
)  # fmt: skip
PUBLIC = (b"a", b"b", b"c")


@dataclass(eq=False)
class Loud:
    """Noise of twice the law's size, or its negative; records the largest parameter asked for."""

    sign: int = 1
    asked: dict[str, Fraction] = field(default_factory=dict)

    def _normal(
        self, kind: str, deviation: float, key: Keys, index: I64, parameter: Fraction
    ) -> I64:
        self.asked[kind] = max(self.asked.get(kind, Fraction(0)), parameter)
        words = [sum(one) + len(one) for one in key]
        draw = np.random.default_rng([*(words or [0]), len(index)])
        return self.sign * np.rint(
            2 * deviation * draw.standard_normal((len(key), len(index)))
        ).astype(np.int64)

    def gauss(self, purpose: str, key: Keys, index: I64, variance: Fraction, first: I64) -> I64:
        zero.gauss(purpose, key, index, variance, first)
        return self._normal("gauss", math.sqrt(variance), key, index, variance)

    def laplace(self, purpose: str, key: Keys, index: I64, scale: Fraction, first: I64) -> I64:
        zero.laplace(purpose, key, index, scale, first)
        return self._normal("laplace", 10 * float(scale), key, index, scale)

    def bits(self, purpose: str, key: Keys, index: I64, first: I64) -> Any:
        return zero.bits(purpose, key, index, first)


budgets = st.builds(
    lambda a, b: Fraction(a) * Fraction(10) ** b, st.integers(1, 99), st.integers(-13, 2)
)
deltas = st.sampled_from(["0", "1e-40", "1e-12", "1e-6", "0.3"]).map(Fraction)
widths = st.builds(lambda a, b: a << b, st.integers(1, 9), st.integers(0, 42))


@st.composite
def settings_of(draw: Any, values: str) -> Setting:
    """A random setting; ``values`` is "any", "one" (from zero up) or "none"."""
    count = {"any": draw(st.integers(0, 2)), "one": 1, "none": 0}[values]
    columns = []
    for place in range(count):
        high = draw(widths)
        low = 0 if values == "one" else draw(st.sampled_from([0, -high, high // 2, high]))
        columns.append((f"v{place}", low, high))
    keys = PUBLIC if values == "any" and draw(st.booleans()) else None
    return Setting(
        draw(budgets), draw(deltas), draw(st.integers(1, 6)), 1, tuple(columns),
        (Fraction(1),) * count, keys,
    )  # fmt: skip


def ends(low: int, high: int, n: int) -> I64:
    """Values at both clip ends and beyond."""
    return np.resize(np.array([low, high, high, 2 * high + 1], np.int64), n)


def grouped(mechanism: Mechanism, setting: Setting) -> Trace:
    n = 48 * setting.horizon
    value = np.stack([ends(low, high, n) for _, low, high in setting.columns] or [[0] * n], axis=1)
    value = value[:, : mechanism.traits.columns]
    trigger = np.sort(np.arange(n) % setting.horizon + 1)
    key = np.arange(n) % len(PUBLIC)
    return Trace(trigger, np.arange(n), Keys.of(PUBLIC), key, value, np.ones(n, np.int8))


def encoded(mechanism: Mechanism, setting: Setting) -> Trace:
    n = 48 * setting.horizon
    draw = np.random.default_rng(0)
    columns: dict[str, Any] = {name: draw.random(n) for name in mechanism.traits.inputs}
    if "value" in columns:
        columns["value"] = ends(0, setting.columns[0][2], n)
        columns["time"] = np.arange(n)
    if UNIT in columns:
        columns[UNIT] = np.array([f"u{i}" for i in range(n)], object)
    made = mechanism.encode(columns)
    value = made.value if mechanism.traits.columns else np.empty((n, 0), np.int64)
    trigger = np.sort(np.arange(n) % setting.horizon + 1)
    rows = np.flatnonzero(made.keep)
    return Trace(trigger, np.arange(n), made.keys, made.key, value, np.ones(n, np.int8)).where(rows)


def releases(mechanism: Mechanism, setting: Setting, noise: Any) -> list[I64]:
    """Released values at every trigger."""
    memory = Memory(mechanism, noise)
    if setting.keys is not None:
        seed(memory, Keys.of(setting.keys))
    trace = encoded(mechanism, setting) if mechanism.traits.inputs else grouped(mechanism, setting)
    return [one.value for one in run(memory, trace)]


def built(kind: str, parameters: Any, setting: Setting) -> Mechanism | None:
    """The mechanism, or None if `build` refuses the configuration; no other error may occur."""
    try:
        return catalogue.build(kind, parameters, setting)
    except ParameterError as error:
        assert str(error)
        return None


def prove(kind: str, parameters: Any, setting: Setting) -> None:
    """Release at every trigger, with real and loud draws; draws must stay within the stated."""
    mechanism = built(kind, parameters, setting)
    if mechanism is None:
        return
    loud = Loud()
    up = releases(mechanism, setting, loud)
    assert loud.asked.get("gauss", 0) <= most(mechanism, "gauss")
    assert loud.asked.get("laplace", 0) <= most(mechanism, "laplace")
    releases(mechanism, setting, KEYED)
    if setting.keys is not None:  # affine in the noise, so an overflow would break the symmetry
        down, middle = (releases(mechanism, setting, one) for one in (Loud(-1), zero))
        for a, b, c in zip(up, down, middle, strict=True):
            assert (a != c).any() or not mechanism.draws()
            assert np.abs(a + b - 2 * c).max(initial=0) <= 2 * (1 + span(setting))


def span(setting: Setting) -> int:
    """Largest change of a sum if a count is rounded differently by one."""
    return max((max(abs(low), abs(high)) for _, low, high in setting.columns), default=0)


def most(mechanism: Mechanism, kind: str) -> Fraction:
    """Largest parameter that the mechanism states; the smooth threshold's scale is constant."""
    fixed = [Fraction(1 << 49)] if kind == "laplace" and hasattr(mechanism, "chooser") else []
    return max([one.parameter for one in mechanism.draws() if one.kind == kind] + fixed, default=0)


small = settings(max_examples=25, deadline=None)


@small
@given(st.data(), settings_of("any"))
def test_histograms_that_build_can_release(data: Any, setting: Setting) -> None:
    chosen = data.draw(st.sampled_from(["threshold", "rounds", "debias", "keys", "min"]))
    parameters = {
        "threshold": HistogramParameters(
            factorization=data.draw(st.sampled_from(["auto", "tree"]))
        ),
        "rounds": HistogramParameters(selection="rounds"),
        "debias": HistogramParameters(debias=True),
        "keys": HistogramParameters(aggregate="keys"),
        "min": HistogramParameters(min_users=5, budget=data.draw(st.sampled_from([1, 30, 60000]))),
    }[chosen]
    prove("histogram", parameters, setting)


@small
@given(st.data(), settings_of("one"))
def test_pak_that_builds_can_release(data: Any, setting: Setting) -> None:
    counter = data.draw(st.sampled_from(["auto", "tree", "hierarchy", "matrix"]))
    threshold = data.draw(st.sampled_from(["auto", "noisy-max", "smooth", "top"]))
    bound = data.draw(st.sampled_from([1, 3, 1000]))
    expected = data.draw(st.sampled_from([1, 100, 10**12]))
    prove(
        "pak",
        PakParameters(
            bound=bound, expected=expected, counter=counter, threshold=threshold, resolution=2,
            slots_per_trigger=data.draw(st.integers(1, 3)),
        ),
        setting,
    )  # fmt: skip


@small
@given(st.data(), settings_of("one"))
def test_tops_that_builds_can_release(data: Any, setting: Setting) -> None:
    parameters = TopsParameters(
        bound=data.draw(st.sampled_from([1, 3, 1000])),
        expected=data.draw(st.sampled_from([1, 100, 10**12])),
        stream=data.draw(st.sampled_from(["chunks", "infinite"])),
        publish_warmup=data.draw(st.booleans()),
        fanout=data.draw(st.integers(2, 4)),
        height=data.draw(st.integers(0, 3)),
        resolution=2,
    )
    prove("tops", parameters, setting)


@small
@given(st.data(), settings_of("none"))
def test_phdstream_that_builds_can_release(data: Any, setting: Setting) -> None:
    parameters = PHDStreamParameters(
        domain=Domain.unit(2, depth=3, split="all"),
        counter=data.draw(st.sampled_from(["simple", "block", "tree", "matrix"])),
        selection=data.draw(st.sampled_from(["released", "private"])),
        bound=data.draw(st.sampled_from([1, 4, 65535])),
        theta=data.draw(st.sampled_from([0, 7, 1 << 60])),
        smoothing=data.draw(st.sampled_from([None, 0, 1 << 70])),
        resolution=data.draw(st.sampled_from([Fraction(3), Fraction(10) ** 30])),
        floor=data.draw(st.integers(0, 2)),
    )
    prove("phdstream", parameters, setting)


@small
@given(st.data(), settings_of("none"))
def test_privhp_that_builds_can_release(data: Any, setting: Setting) -> None:
    parameters = PrivHPParameters(
        domain=Domain.unit(2, depth=3),
        k=data.draw(st.sampled_from([1, 8])),
        rows=data.draw(st.integers(1, 3)),
        noise=data.draw(st.sampled_from(["laplace", "gauss"])),
        prune=data.draw(st.sampled_from(["top", "threshold"])),
        decode=data.draw(st.sampled_from(["joint", "single"])),
        bound=data.draw(st.sampled_from([1, 10**6])),
    )
    prove("privhp", parameters, setting)


@small
@given(settings_of("one"), st.sampled_from([1, 50]))
def test_topl_that_builds_can_release(setting: Setting, reports: int) -> None:
    prove("topl", ToPLParameters(reports=reports, buckets=16, levels=16), setting)


@pytest.mark.spread(3)
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_no_release_asks_for_more_than_is_stated(case: Case) -> None:
    loud = Loud()
    memory = Memory(case.mechanism, loud)
    if case.public is not None:
        seed(memory, case.public)
    list(run(memory, case.trace(np.random.default_rng(1))))
    for kind, asked in loud.asked.items():
        assert asked <= most(case.mechanism, kind)


WIDE = Setting(
    Fraction(1, 10**9), Fraction(1, 10**6), 4, 1, (("amount", 0, 1 << 30),), (Fraction(1),)
)


def test_noise_beyond_the_samplers_range_is_refused_by_the_name_of_its_column() -> None:
    with pytest.raises(ParameterError, match=r"amount = .*noise.*coarser grid, an interval"):
        catalogue.build("histogram", HistogramParameters(), WIDE)


def test_sums_beyond_63_bits_are_refused_by_the_name_of_their_column() -> None:
    setting = Setting(
        Fraction(1), Fraction(1, 10**6), 4, 1, (("amount", 0, 1 << 33),), (Fraction(1),)
    )
    with pytest.raises(ParameterError, match=r"amount = .*coarser grid"):
        catalogue.build("histogram", HistogramParameters(), setting)


def test_a_sum_of_the_most_records_at_the_widest_clip_end_is_exact() -> None:
    high = (1 << 62) // ranges.RECORDS - 1
    setting = Setting(
        Fraction(1), Fraction(1, 10**6), 1, 1, (("v", -high, high),), (Fraction(1),), PUBLIC
    )
    mechanism = catalogue.build("histogram", HistogramParameters(), setting)
    memory = Memory(mechanism, zero)
    seed(memory, Keys.of(PUBLIC))
    trace = grouped(mechanism, setting)
    memory.absorb(trace.where(np.flatnonzero(trace.key == 0)[1:2]))
    part = memory.parked[0][-1]
    memory.parked[0][-1] = part._replace(sums=part.sums * ranges.RECORDS)
    value = memory.trigger().value
    assert value[0].tolist() == [ranges.RECORDS, ranges.RECORDS * high]


STREAM = Setting(Fraction(1), Fraction(1, 10**6), 8, 1, (("v", 0, (1 << 30) - 1),), (Fraction(1),))
MATRIX = PakParameters(threshold="top", counter="matrix")
STREAMS = [("pak", MATRIX), ("tops", TopsParameters())]


@pytest.mark.parametrize(
    "kind, parameters, setting",
    [
        ("pak", MATRIX, replace(STREAM, columns=(("v", 0, 1 << 30),))),
        *((kind, replace(one, expected=1 << 33), STREAM) for kind, one in STREAMS),
    ],
    ids=["wide values", "many records of pak", "many records of tops"],
)
def test_a_stream_whose_expected_sums_do_not_fit_is_refused(
    kind: str, parameters: Any, setting: Setting
) -> None:
    """Sums are cut at 2^62 only if more records come than expected."""
    catalogue.build(kind, replace(parameters, expected=1), STREAM)
    with pytest.raises(ParameterError, match=r"grid steps: the sum of .* coarser grid"):
        catalogue.build(kind, parameters, setting)


@pytest.mark.parametrize("kind, parameters", STREAMS)
def test_sums_beyond_63_bits_stop_there_and_never_turn(kind: str, parameters: Any) -> None:
    """If a sum turned negative, one more record would show."""
    setting = replace(STREAM, columns=(("v", 0, 100),))
    mechanism = catalogue.build(kind, parameters, setting)
    memory, trace = Memory(mechanism, zero), encoded(mechanism, setting)
    found: list[int] = []
    for t in range(1, setting.horizon + 1):
        memory.absorb(trace.where(np.flatnonzero(trace.trigger == t)))
        for place, part in enumerate(memory.parked[0]):
            memory.parked[0][place] = part._replace(sums=np.minimum(part.sums, 1) << 56)
        found += memory.trigger().value.ravel().tolist()
    assert max(found) == 1 << 62 and min(found) >= 0


@pytest.mark.parametrize("epsilon", [64, 1000, 10**9])
@pytest.mark.parametrize(
    "kind, parameters",
    [("histogram", HistogramParameters()), ("privhp", PrivHPParameters(noise="gauss", k=8))],
)
def test_a_huge_epsilon_is_not_called_too_small(kind: str, parameters: Any, epsilon: int) -> None:
    with pytest.raises(ParameterError) as caught:
        catalogue.build(kind, parameters, Setting(Fraction(epsilon), Fraction(1, 10**6), 4))
    said = str(caught.value)
    assert "too large" in said or "a smaller epsilon" in said
    assert "too small" not in said or said.startswith("delta")


def test_no_delta_for_unknown_keys_says_what_to_set() -> None:
    setting = Setting(Fraction(1), Fraction(0), 4)
    with pytest.raises(ParameterError, match=r"delta = 0.*budget\.delta.*public_keys"):
        catalogue.build("histogram", HistogramParameters(), setting)
