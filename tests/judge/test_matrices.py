"""The judge's factorisations by one column against the product's, alone and in releases."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import numpy as np
import pytest
from hushstream.agents.deployment.compile import compile_config
from hushstream.mechanisms import factorization
from hushstream.mechanisms.factorization import matrix as matrices
from hushstream.mechanisms.factorization import normalized, toeplitz
from hushstream.mechanisms.factorization.prefix_noise import chosen
from hushstream.mechanisms.histogram.distinct import displaced
from hushstream.topics.config.load import loads

from .matrices import FINE, Shifted, matrix
from .outcomes import verdict
from .test_histogram import COUNT, DISTINCT, KEYS, MEAN
from .test_space import judged, text
from .worlds import HORIZONS, INPUT, PIPELINE, world

NAMES = ("toeplitz", "blt", "normalized")


@pytest.mark.parametrize("horizon", [1, 2, 5, 40, 101, 1100])
@pytest.mark.parametrize("name", NAMES)
def test_columns_are_those_of_the_product(name: str, horizon: int) -> None:
    mine, built = matrix(name, horizon), factorization.build(chosen(name, horizon), horizon)
    assert isinstance(mine, Shifted)
    assert [*mine.core, *(mine.scale if name == "normalized" else ())] == built.core.tolist()
    assert mine.sensitivity2 == built.sensitivity2
    for t in {1, horizon}:
        row, common = mine.row(t)
        assert np.allclose([b / common for b in row], built.rows(np.array([t]))[0, :t], 0, 1e-12)
        assert abs(float(mine.norm2(t)) ** 0.5 - float(built.norm2(t)) ** 0.5) < 1e-8
    row, common = mine.row(horizon)
    assert mine.norm2(horizon, 1) * common**2 == sum(b * b for b in row[1:])


@pytest.mark.parametrize("name", NAMES)
def test_rows_undo_the_encoder(name: str) -> None:
    one, size = matrix(name, 30), 30
    C = [[one.core[i - j] * one.scale[j] if i >= j else 0 for j in range(size)]
         for i in range(size)]  # fmt: skip
    for t in (1, 7, size):
        row, common = one.row(t)
        for j in range(size):
            product = sum(b * C[i][j] for i, b in enumerate(row))
            assert abs(product - (j < t) * (common << one.bits)) < 1 << 40
        assert common == 1 << FINE


@pytest.mark.parametrize("horizon", [1, 6, 33, 2049])
@pytest.mark.parametrize("name", NAMES)
def test_columns_lie_as_far_apart_as_the_product_says(name: str, horizon: int) -> None:
    built = factorization.build(chosen(name, horizon), horizon)
    assert matrix(name, horizon).further == displaced(built)


def test_long_windows_have_the_one_that_auto_means() -> None:
    assert matrix("auto", 1025).core == matrix("blt", 1025).core
    assert not isinstance(matrix("auto", 1), Shifted)


MANY = 'window = { length = "1d", origin = "2019-03-01T00:00:00Z" }\ntriggers = { every = "16m" }'


def released(
    name: str, more: str, window: str = HORIZONS[6], events: int = 900
) -> tuple[list[str], int]:
    given = INPUT.format(units=2, cells=2, partitioner="none", unit='"user"') + PIPELINE.format(
        name="p", key='["page"]', window=window, more=more, epsilon=8, delta="0.01",
        mechanism=f', budget = 4, factorization = "{name}"',
    )  # fmt: skip
    made = compile_config(loads(given, environ={}), {"events": 2})
    one = world(made, Random(5), events, windows=2, users=120)
    return verdict(made, one.logs, one.clock)


SOME = [f"aggregate = [{COUNT}, {MEAN}]\nsign = \"gone\"", f"{KEYS}\naggregate = [{DISTINCT}]",
        f"{KEYS}\naggregate = [{COUNT}]"]  # fmt: skip


@pytest.mark.parametrize("more", SOME)
@pytest.mark.parametrize("name", ["blt", "normalized"])
def test_histograms_are_released_as_the_judge_says(name: str, more: str) -> None:
    found, rows = released(name, more)
    assert found == [] and rows > 10


@pytest.mark.parametrize("name", ["blt", "normalized"])
def test_maps_are_released_as_the_judge_says(name: str) -> None:
    for kind, more, depth in (("phdstream", ', counter = "matrix"', 3),
                              ("privhp", ', noise = "gauss", k = 4', 7)):  # fmt: skip
        given = f'{more}, bound = 2, factorization = "{name}"'
        found, rows = judged(text(kind, given, depth=depth), events=300)
        assert found == [] and rows > 20


@pytest.mark.parametrize("name", ["blt", pytest.param("normalized", marks=pytest.mark.thorough)])
def test_a_window_of_many_triggers_is_released_as_the_judge_says(name: str) -> None:
    found, rows = released(name, SOME[2], MANY, events=300)
    assert found == [] and rows > 90


def _fewer(real: Any) -> Any:
    return lambda horizon: toeplitz.Buffers(*(part[1:] for part in real(horizon)))


def _shorter(real: Any) -> Any:
    return lambda core, *more: real(core, *more) // 2


MISTAKES = [
    ("blt", toeplitz, "buffers", _fewer),
    ("blt", toeplitz, "blt_column", lambda real: toeplitz.sqrt_column),
    ("blt", toeplitz, "blt_column", lambda real: lambda horizon: real(horizon + 1)[:horizon]),
    ("blt", toeplitz, "series", lambda real: lambda core, bits: real(core, bits) * 1.01),
    ("normalized", normalized, "POWER", lambda real: 0.5),
    ("normalized", normalized, "scales", _shorter),
]  # fmt: skip


@pytest.fixture
def anew() -> Iterator[None]:
    """Empty the caches, so that no matrix made with a mistake stays."""
    matrices.build.cache_clear()
    yield
    matrices.build.cache_clear()


@pytest.mark.usefixtures("anew")
@pytest.mark.parametrize(("kind", "where", "name", "wrong"), MISTAKES)
def test_a_product_that_errs_is_found_out(
    kind: str, where: Any, name: str, wrong: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(where, name, wrong(getattr(where, name)))
    found, rows = released(kind, SOME[2])
    assert found != [] and rows > 20
