"""The planner of PrivHP: a distribution over a space in bounded memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from ..forecast import distinct
from ..in_memory import last_releases
from ..parts.bounds.planner import BoundPlanner, bounded
from ..planner import USUAL, Forecast, Question
from ..spatial import forecast
from .settings import PrivHPParameters, build

NODES = (64, 256, 1024, 4096)


class PrivHPPlanner(BoundPlanner):
    """See `planner.Planner`."""

    kind = "privhp"
    score = forecast.SCORE
    effort = USUAL._replace(step=0)  # releases do not depend on each other

    def candidates(self, question: Question) -> Sequence[Any]:
        """Numbers of nodes and kinds of noise, with the sample's own number of records."""
        given: PrivHPParameters = question.parameters
        known = replace(given, expected=forecast.window_records(question))
        kinds: list[Literal["laplace", "gauss"]] = ["laplace"]
        kinds += ["gauss"] if question.setting.delta else []
        made = [given]
        made += [replace(known, noise=noise) for noise in kinds]
        made += bounded(question, known)
        made += [replace(known, noise=noise, k=k) for k in NODES for noise in kinds]
        return distinct(made)

    def near(self, question: Question, tuned: Any) -> Sequence[Any]:
        """The tuned settings for this number of records, with the nodes that follow from it."""
        return [replace(tuned, expected=forecast.window_records(question), k=None)]

    def forecast(self, question: Question, parameters: Any, plays: range) -> Forecast:
        made = build(parameters, question.setting)
        return forecast.forecast(question, parameters, made, plays, last_releases)
