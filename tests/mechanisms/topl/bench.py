"""Reports of a survey as columns, and a crowd that answers it, for tests of the aggregator."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import cache

import numpy as np
from hushstream.client import Survey
from hushstream.client.survey import RANGE
from hushstream.mechanisms.columns import Batch, Releases
from hushstream.mechanisms.in_memory import Memory, Trace, run
from hushstream.mechanisms.keys import Keys
from hushstream.mechanisms.noise import ZeroNoise
from hushstream.mechanisms.topl.estimate import CHOSEN
from hushstream.mechanisms.topl.fit import simulate
from hushstream.mechanisms.topl.mechanism import INPUTS, ToPL

TOLD = Keys.of_codes(np.array([CHOSEN], np.uint64)).tolist()[0]
SURVEY = Survey(Fraction(1), Fraction(100), "s", reports=2, buckets=32, levels=16)


@cache
def somebody(survey: Survey, group: int) -> str:
    """A user whom the survey's hash puts into a group, or any user if there is no such group."""
    return next((u for u in map(str, range(5000)) if survey.group(u) == group), "nobody")


def columns(
    rows: Sequence[tuple[int, int, int, int]], survey: Survey = SURVEY
) -> dict[str, np.ndarray]:
    """Reports (slot, group, theta, code) as columns, each from a user of its group."""
    table = np.array(rows, np.int64).reshape(-1, 4).T
    users = np.array([somebody(survey, group) for group in table[1].tolist()], object)
    every = [*table, np.full(len(rows), survey.number), users]
    return dict(zip(INPUTS, every, strict=True))


def batch_of(mechanism: ToPL, given_: dict[str, np.ndarray], unit: np.ndarray) -> Batch:
    coded = mechanism.encode(given_)
    rows = np.flatnonzero(coded.keep)
    status = np.zeros(len(coded.keys), np.int32)
    ones = np.ones(len(rows), np.int8)
    return Batch(coded.keys, coded.key[rows], unit[rows], coded.value[rows], ones, status)


def feed(
    mechanism: ToPL, given_: dict[str, np.ndarray], unit: np.ndarray, trigger: np.ndarray
) -> list[Releases]:
    coded = mechanism.encode(given_)
    rows = np.flatnonzero(coded.keep)
    trace = Trace(
        trigger[rows],
        unit[rows],
        coded.keys,
        coded.key[rows],
        coded.value[rows],
        np.ones(len(rows), np.int8),
    )
    return list(run(Memory(mechanism, ZeroNoise()), trace))


@cache
def crowd(survey: Survey, n: int) -> tuple[np.ndarray, np.ndarray]:
    """(n,) users and their groups."""
    users = np.array([f"user {i}" for i in range(n)], object)
    return users, np.array([survey.group(user) for user in users], np.int64)


def survey_run(
    survey: Survey,
    value: np.ndarray,
    seed: int = 0,
    warmup: int = 2,
    horizon: int = 6,
    told: int | None = None,
) -> tuple[ToPL, list[Releases]]:
    """Range reports at any trigger; value reports after the warm-up, with theta or ``told``."""
    n = len(value)
    generator = np.random.default_rng(seed)
    mechanism = ToPL(survey, Fraction(1, 1000), horizon, warmup, expected=n // horizon)
    memory = Memory(mechanism, ZeroNoise())
    users, group = crowd(survey, n)
    trigger = np.where(
        group == RANGE,
        generator.integers(1, horizon + 1, n),
        generator.integers(warmup + 1, horizon + 1, n),
    )
    out, theta = [], survey.buckets
    for t in range(1, horizon + 1):
        now = np.flatnonzero(trigger == t)
        words = generator.integers(0, 1 << 64, (len(now), 3), dtype=np.uint64)
        code = simulate(survey, value[now], group[now], theta, words)
        step = np.where(group[now] == RANGE, 0, theta)
        slot, own = np.zeros(len(now)), np.full(len(now), survey.number)
        each = [slot, group[now], step, code, own, users[now]]
        coded = mechanism.encode(dict(zip(INPUTS, each, strict=True)))
        batch = Trace(
            np.full(len(now), t),
            now,
            coded.keys,
            coded.key,
            coded.value,
            np.ones(len(now), np.int8),
        )
        memory.absorb(batch)
        out.append(memory.trigger())
        if told and t == warmup:  # as if it followed from range reports
            kept = memory.row_tables[0].rows
            kept.state["count"][kept.key.tolist().index(TOLD)] = told
            memory.row_tables[0].store(kept)
        theta = int(out[-1].public.get("theta", [theta])[0]) if t != warmup or not told else told
    return mechanism, out
