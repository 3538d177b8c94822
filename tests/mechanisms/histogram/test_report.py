"""A plan: public, correct, with words that say how noise changes from trigger to trigger."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hushstream.mechanisms.catalogue import build
from hushstream.mechanisms.columns import F64
from hushstream.mechanisms.contract import Setting
from hushstream.mechanisms.histogram.report import plan
from hushstream.mechanisms.histogram.settings import HistogramParameters
from hushstream.mechanisms.histogram.tumbling import build as tumbling
from hushstream.mechanisms.in_memory import Memory, run

from .bench import CODES, DELTA, EPSILON, keyed, made, trace

SETTING = Setting(Fraction(1), Fraction(1, 10**6), 32)


def planned(factorization: str) -> tuple[str, F64]:
    """A plan's words on noise, and the count's noise at each trigger."""
    made = build("histogram", HistogramParameters(factorization=factorization), SETTING)
    noise = np.array([made.error(t)[0] for t in range(1, SETTING.horizon + 1)])
    return dict(made.plan_rows("user"))["noise by trigger"], noise


@pytest.mark.parametrize(
    ("setting", "words", "falls", "ends_lower"),
    [
        ("terminal", "less at the last trigger", False, True),
        ("final", "less than usual", False, True),
        ("toeplitz", "grows slowly until the last", False, False),
        ("blt", "grows slowly until the last", False, False),
        ("normalized", "then falls towards the last", False, False),
        ("tree", "up and down", True, True),
        ("honaker", "up and down", True, True),
    ],
)
def test_words_on_noise_agree_with_the_noise(
    setting: str, words: str, falls: bool, ends_lower: bool
) -> None:
    said, noise = planned(setting)
    assert words in said and f'(factorization = "{setting}")' in said
    middle = noise[: 3 * len(noise) // 4]
    assert bool(np.any(np.diff(middle) < -0.1 * middle[1:])) == falls
    assert (noise[-1] < 0.95 * noise[-2]) == ends_lower


def test_noise_that_falls_towards_the_last_trigger_does() -> None:
    noise = planned("normalized")[1]
    assert noise[-1] < 0.95 * noise.max() and np.all(np.diff(noise[noise.argmax() :]) < 0)
    assert np.all(np.diff(planned("toeplitz")[1]) > 0)


def test_the_usual_noise_is_that_of_the_default() -> None:
    usual = planned("auto")[1]
    final, tree = planned("final")[1], planned("tree")[1]
    assert np.all(final[: len(final) // 2] > usual[: len(usual) // 2]) and final[-1] < usual[-1]
    assert np.median(tree) > np.median(usual)


def test_a_plan_of_one_trigger_tells_no_course() -> None:
    made = build("histogram", HistogramParameters(), replace(SETTING, horizon=1))
    rows = dict(made.plan_rows("user"))
    assert not rows.keys() & {"noise over time", "noise by trigger"}
    assert rows["feedback"].startswith("none: ") and "(triggers.every)" in rows["feedback"]
    none = build("histogram", HistogramParameters(budget=1), replace(SETTING, horizon=1))
    assert "feedback" not in dict(none.plan_rows("user"))
    assert float(rows["threshold of a key"]) > 0


def test_noise_over_time_names_its_outputs_in_their_own_units() -> None:
    """Steps of the grid mean nothing to a reader."""
    priced = replace(
        SETTING, columns=(("price", 0, 10_000),), grids=(Fraction(1, 100),), squares=("price",)
    )
    made = build("histogram", HistogramParameters(), priced)
    first, last = (
        [e * float(o.grid) for e, o in zip(made.error(t), made.traits.outputs, strict=True)]
        for t in (1, SETTING.horizon)
    )
    told = plan(made)  # type: ignore[arg-type]
    assert told["noise_stddev"][0] == pytest.approx(first)
    assert told["noise_stddev"][-1] == pytest.approx(last)
    (name, low, high), *others = zip(told["outputs"], first, last, strict=True)
    assert {other for other, _, _ in others} > {"sum:price", "square:price"}
    parts = [f"{name} ±{low:.4g} at the first trigger … ±{high:.4g}"]
    parts += [f"{name} ±{low:.4g} … ±{high:.4g}" for name, low, high in others]
    assert dict(made.plan_rows("user"))["noise over time"] == "; ".join(parts)


def test_the_plan_is_public_plain_and_right() -> None:
    mechanism = made(31, budget=1)
    told = json.loads(json.dumps(plan(mechanism)))
    assert told["users_50"] == told["threshold"][-1] < told["users_95"]
    assert told["noise_stddev"][-1][0] == pytest.approx(mechanism.error(31)[0])
    least = round(told["users_50"])
    appeared = []
    for count in (least, round(told["users_95"])):
        rows = [(31, 1000 * k + i, k) for k in range(400) for i in range(count)]
        *_, last = run(Memory(mechanism, keyed()), trace(rows, CODES[:400]))
        appeared.append(len(last.key) / 400)
    assert 0.4 < appeared[0] < 0.62 and 0.91 < appeared[1] < 0.985


@pytest.mark.parametrize(
    "parameters", [{"selection": "rounds"}, {"aggregate": "keys"}, {"bound": "records"}], ids=str
)
def test_every_kind_has_a_plan(parameters: dict[str, Any]) -> None:
    mechanism = tumbling(HistogramParameters(**parameters), Setting(EPSILON, DELTA, 5))
    told = json.loads(json.dumps(plan(mechanism)))
    assert len(told["threshold"]) == len(told["noise_stddev"]) == 5
    assert 1 <= told["users_50"] < told["users_95"] and told["bound"]["budget"] > 0


def test_a_public_list_has_a_plan_without_thresholds() -> None:
    assert "threshold" not in plan(made(keys=(b"a",)))
