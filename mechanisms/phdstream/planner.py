"""The planner of PHDStream, a continual map."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal

from ..columns import Releases
from ..contract import Mechanism, Noise
from ..forecast import distinct
from ..in_memory import replays
from ..parts.bounds.planner import BoundPlanner, bounded
from ..planner import USUAL, Forecast, Question
from ..spatial import forecast
from ..workload import Workload
from .settings import PHDStreamParameters, build

RESOLUTIONS = (3, 1, 6)


class PHDStreamPlanner(BoundPlanner):
    """See `planner.Planner`."""

    kind = "phdstream"
    score = forecast.SCORE
    effort = USUAL

    def candidates(self, question: Question) -> Sequence[Any]:
        """Counters and resolutions, with the number of records that the first trigger counts."""
        given: PHDStreamParameters = question.parameters
        known = replace(given, expected=forecast.first_records(question))
        counters: list[Literal["simple", "block", "tree", "matrix"]] = ["simple"]
        counters += ["block", "tree"] if question.setting.horizon > 1 else []
        counters += ["matrix"] if question.setting.delta else []
        made = [given, known, *bounded(question, known)]
        for resolution in RESOLUTIONS:
            for counter in counters:
                opens = known.selection == "released" and counter != "matrix"
                start = known.start if opens else None
                made.append(replace(known, counter=counter, resolution=resolution, start=start))
        return distinct(made)

    def near(self, question: Question, tuned: Any) -> Sequence[Any]:
        """The tuned settings for this number of records."""
        return [replace(tuned, expected=forecast.first_records(question))]

    def forecast(self, question: Question, parameters: Any, plays: range) -> Forecast:
        made = build(parameters, question.setting)
        return forecast.forecast(question, parameters, made, plays, _lasts)


def _lasts(mechanism: Mechanism, work: Workload, noises: Sequence[Noise]) -> Iterator[Releases]:
    """A map's last release under each noise; each release depends on the previous one."""
    for *_, last in replays(mechanism, work, noises):
        yield last
