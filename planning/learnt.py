"""Learn the budget of a contribution bound from releases of the first epochs of its pipeline.

Everything here is a function of public releases and of the configuration, so it costs nothing. The
first window with informative activity of units decides, and later windows change nothing, so every
call gives the same budget.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ..agents.deployment.compile import parameters_of, setting_of, value_columns
from ..agents.deployment.model import Pipeline
from ..errors import EngineError
from ..mechanisms.catalogue import find
from ..mechanisms.contract import Setting
from ..mechanisms.entry import ActivityTold, LearntBudget
from ..topics.assembly import Released
from ..topics.config.learn import count_of
from ..topics.config.pipelines.pipeline import PipelineSettings
from ..topics.config.pipelines.schedule import Schedule
from ..topics.releases import WindowSpan


class LearntBound(NamedTuple):
    """A learnt budget.

    Attributes:
        window: the window whose releases decided.
        stated: the budget so far.
        found: the learnt budget, and the expected error of each candidate.
        at: the first boundary from which it can hold, in microseconds since 1970.
    """

    window: WindowSpan
    stated: float
    found: LearntBudget
    at: int


def learnt(
    settings: PipelineSettings,
    p: Pipeline,
    activity: Iterable[Released],
    own: Sequence[Released],
    now: int,
) -> LearntBound | None:
    """Learn the budget of a pipeline's bound; None while releases are uninformative.

    Args:
        settings: settings of the pipeline, which has a table ``learn``.
        p: the compiled pipeline.
        activity: releases of its units' activity.
        own: last releases of the pipeline's own windows.
        now: microseconds since 1970.

    Raises:
        EngineError: a release of the activity lacks rows or has wrong ones.
    """
    learner, label = find(settings.mechanism.kind).learner, count_of(settings)
    assert learner is not None and label is not None  # the configuration was checked
    last = {one.window.start: one for one in own if one.final and one.pipeline == p.name}
    parameters, setting = parameters_of(settings), _setting(settings, p)
    for one in sorted(activity, key=lambda one: one.window.start):
        if (mine := last.get(one.window.start)) is None:
            continue
        counts = [value.value for row in mine.rows if (value := row.values[label]) is not None]
        if (found := learner.choose(told(one), counts, parameters, setting)) is not None:
            stated = learner.default(parameters, setting)
            return LearntBound(one.window, stated, found, boundary(p, now))
    return None


def boundary(p: Pipeline, now: int) -> int:
    """The first boundary of epochs after all records that can have arrived by ``now``."""
    return p.windows.boundary(now + p.max_future_skew)


def told(release: Released) -> ActivityTold:
    """The figures of a release of activity.

    Raises:
        EngineError: a row lacks its number.
    """
    units, deviations = {}, set[float]()
    for row in release.rows:
        value = row.values.get("units")
        if value is None:
            raise EngineError(f"a release of {release.pipeline} has a row without units")
        units[int(row.key["records"]), int(row.key["repeats"])] = float(value.value)
        deviations.add(value.stddev)
    if len(deviations) != 1:
        raise EngineError(f"a release of {release.pipeline} has rows with different noise")
    return ActivityTold(units, deviations.pop())


def _setting(settings: PipelineSettings, p: Pipeline) -> Setting:
    """The mechanism's setting once the bound is learnt, with the whole budget."""
    columns, keys = value_columns(settings), p.public_keys
    return setting_of(settings, Schedule.of(settings), columns, keys, p.cells_partitions)
