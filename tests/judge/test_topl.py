"""The judge against the product on reports of devices, in memory; some reports are false."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import datetime
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
import pytest
from hushstream.agents.deployment.compile import compile_config
from hushstream.agents.deployment.model import Deployment
from hushstream.client import Survey
from hushstream.client.survey import NARROW, RANGE, STEP, VALUE
from hushstream.formats.events.decode import RawRecord
from hushstream.mechanisms.topl import estimate, rounds
from hushstream.mechanisms.topl import mechanism as topl
from hushstream.topics.config.load import loads

from . import topl as judged
from .outcomes import outcome, ran, verdict
from .published import objections
from .survey import Survey as JudgedSurvey
from .worlds import HORIZONS, INPUT, PIPELINE, World, world

AGGREGATE = 'aggregate = [{ kind = "mean", field = "spent", low = 0, high = 60, grid = "0.01" }]'
CASES = {
    "two-rounds": ', share = "1/2", buckets = 32, levels = 16',
    "one-round": ', share = "1/2", buckets = 30, levels = 16, reports = 2, rounds = 1',
    "sharp": ', share = "1/3", buckets = 16, levels = 8, reports = 3, smooth = false',
    "plain": ', share = "1/3", buckets = 30, levels = 16, rounds = 1, beyond = false',
    "as-before": ', share = "1/2", buckets = 32, levels = 16, guard = 1.0, beyond = false',
    "hybrid": ', share = "1/2", buckets = 32, levels = 16, channel = "hybrid"',
}


def text(more: str, pipeline: str = "") -> str:
    head = INPUT.format(units=2, cells=2, partitioner="none", unit='"user"')
    return head + PIPELINE.format(
        name="p", key="[]", window=HORIZONS[6], epsilon=9, delta=0, mechanism=more,
        more=f"{AGGREGATE}\n{pipeline}",
    ).replace('kind = "histogram"', 'kind = "topl"').replace("key = []\n", "")  # fmt: skip


def reported(
    made: Deployment, one: World, told: dict[tuple[str, int], int], seed: int
) -> list[list[RawRecord]]:
    """The records of a world as reports, from the steps told for each window and group."""
    survey: Survey = made.pipelines[0].mechanism.survey  # type: ignore[attr-defined]
    return [[_report(survey, r, told, Random(f"{seed} {n} {r.offset}")) for r in log]
            for n, log in enumerate(one.logs)]  # fmt: skip


def _report(
    survey: Survey, record: RawRecord, told: dict[tuple[str, int], int], random: Random
) -> RawRecord:
    try:
        body = json.loads(record.value or b"")
        user, day = str(body["user"]), str(body["t"] // 86_400_000_000)
        value = Fraction(str(body["spent"]))
    except (ValueError, TypeError, KeyError):
        return record
    group = survey.group(user)
    theta = told.get((day, group), 0)
    if group == RANGE:
        code = survey.perturb_range(value, random.randrange)
    elif group == NARROW:
        code = survey.perturb_narrow(value, theta or 3, random.randrange)
    else:
        code = survey.perturb_value(value, theta or 3, random.randrange)
    slot = body["t"] // 1_000_000 // 21_600
    report = {"slot": slot, "group": group, "theta": theta, "code": code, "survey": survey.number}
    if random.random() < 0.1:
        wrong: list[dict[str, Any]] = [
            {"group": 3 - group}, {"theta": theta + 1}, {"code": 99}, {"survey": 5}, {"slot": 0.5},
            {"slot": -1}, {"code": None}, {"theta": theta + STEP}, {"theta": theta % STEP},
            {"theta": theta + 3 * STEP},
        ]  # fmt: skip
        report |= random.choice(wrong)
    return record._replace(value=json.dumps(body | report).encode())


def logs_of(made: Deployment, one: World, seed: int = 3) -> list[list[RawRecord]]:
    """Reports of devices that know what has been published."""
    told: dict[tuple[str, int], int] = {}
    logs: list[list[RawRecord]] = []
    for _ in range(3):
        logs = reported(made, one, told, seed)
        for out in ran(made, logs, one.clock)["hush.p.releases.v1"]:
            body = json.loads(out.value or b"")
            for name, group in (("range", NARROW), ("theta", VALUE)):
                if "public" in body and name in body["public"]:
                    (channel,) = body["public"].get("channel", [0]) if group == VALUE else [0]
                    step = body["public"][name][0] + channel * STEP
                    told[_day(body["window"]["start"]), group] = step
    return logs


def _day(start: str) -> str:
    return str(round(datetime.fromisoformat(start).timestamp()) // 86_400)


def setting(case: str) -> tuple[Deployment, World]:
    made = compile_config(loads(text(CASES[case]), environ={}), {"events": 2})
    return made, world(made, Random(case), events=800, users=200)


@pytest.mark.spread(3)
@pytest.mark.parametrize("case", CASES)
def test_topl_releases_what_the_judge_says(case: str) -> None:
    made, one = setting(case)
    logs = logs_of(made, one)
    found, rows = verdict(made, logs, one.clock)
    assert found == [] and rows > 8
    names = {name for out in ran(made, logs, one.clock)["hush.p.releases.v1"]
             for name in json.loads(out.value or b"").get("public", ())}  # fmt: skip
    assert names >= {"theta", "distribution"}
    assert ("beyond" in names) == ("beyond = false" not in CASES[case])
    assert ("channel" in names) == ("hybrid" not in CASES[case])


@pytest.mark.parametrize("place", [20, 300, 400, 511])
@pytest.mark.parametrize("epsilon", ["1/2", "2"])
def test_a_range_of_b_has_the_judges_threshold(epsilon: str, place: int) -> None:
    """Mass at a place, a third to five times its noise: B is kept if enough of it shows."""
    survey = Survey(Fraction(epsilon), Fraction(60), "s", rounds=2, channel="told")
    parameters = asdict(survey) | {"warmup": 1}
    config = {"mechanism": {"parameters": parameters}, "budget": {"epsilon": epsilon}}
    own, n, found = JudgedSurvey(config, survey.bound, 24), 10_000, set()
    seen = estimate.Buckets(*(np.array([one]) for one in (NARROW, 512, 0, n)))
    for times in (0.3, 0.9, 1.2, 1.4, 1.6, 2, 5):
        exact = np.zeros(512)
        exact[place] = times * float(own.variances[NARROW] / n) ** 0.5
        exact[5] = 1 - exact[place]
        step = judged.found_threshold(own, Counter({(NARROW, 512, 0): n}), exact.tolist(), 512)
        assert rounds.found_threshold(survey, seen, exact, 512) == step
        found.add(step % STEP)
    assert (512 in found) == (place == 511 or (place, epsilon) == (400, "1/2"))


def _twice(real: Any) -> Any:
    return lambda *given: (given[0], real(*given)[1])


def _more(real: Any) -> Any:
    return property(lambda self: replace(real.func(self), bound=99))


@pytest.mark.spread(4)
@pytest.mark.parametrize(
    ("where", "name", "wrong"),
    [
        (topl, "accept", _twice),
        (topl.ToPL, "traits", _more),
        (topl, "threshold", lambda real: lambda *given: real(*given) % 30 + 1),
        (topl, "counted", lambda real: lambda seen, told: seen),
        (topl, "beyond", lambda real: lambda *given: real(*given)._replace(high=10**6 - 5)),
        (estimate, "noise_of", lambda real: lambda *given: real(*given) * 2),
        (topl, "division", lambda real: lambda *given: 0.0),
        (topl, "mean", lambda real: lambda survey, seen: (real(survey, seen)[0], 1.0)),
    ],
)
def test_a_product_that_errs_is_found_out(
    where: Any, name: str, wrong: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, one = setting("one-round")
    logs = logs_of(made, one)
    monkeypatch.setattr(where, name, wrong(getattr(where, name)))
    assert verdict(made, logs, one.clock)[0] != []


def test_one_released_number_that_is_another_is_named() -> None:
    made, one = setting("one-round")
    ((releases, published),) = outcome(made, logs_of(made, one), one.clock)
    assert objections(releases, published) == []
    changes: Sequence[tuple[bytes, Any]] = (
        (b'"values"', lambda body: body["values"]["mean"].update(value=0.01)),
        (b'"theta"', lambda body: body["public"].update(theta=[1])),
        (b'"distribution"', lambda body: body["public"]["distribution"].__setitem__(0, 10**6)),
    )
    for mark, change in changes:
        place = next(n for n, (_, value) in enumerate(published) if mark in value)
        key, value = published[place]
        body = json.loads(value)
        change(body)
        other = [*published[:place], (key, json.dumps(body).encode()), *published[place + 1 :]]
        assert len(objections(releases, other)) == 1
