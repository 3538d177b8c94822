"""Forecast of PrivHP: a distribution over a space in bounded memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from ..advice import Question
from ..forecast import USUAL, Forecast, distinct
from ..in_memory import last_release
from ..parts.bound_advisor import bounded
from ..spatial import foretell
from .settings import PrivHPParameters, build

NODES = (64, 256, 1024, 4096)


class PrivHPForecaster:
    """See `forecast.Forecaster`."""

    score = foretell.SCORE
    squared = False
    stepwise = False
    effort = USUAL

    def candidates(self, question: Question) -> Sequence[Any]:
        """Numbers of nodes and kinds of noise, with the sample's own number of records."""
        given: PrivHPParameters = question.parameters
        known = replace(given, expected=foretell.window_records(question))
        kinds: list[Literal["laplace", "gauss"]] = ["laplace"]
        kinds += ["gauss"] if question.setting.delta else []
        made = [given]
        made += [replace(known, noise=noise) for noise in kinds]
        made += bounded(question, known)
        made += [replace(known, noise=noise, k=k) for k in NODES for noise in kinds]
        return distinct(made)

    def near(self, question: Question, tuned: Any) -> Sequence[Any]:
        """The same for this number of records, with as many nodes as follow from it."""
        return [replace(tuned, expected=foretell.window_records(question), k=None)]

    def forecast(self, question: Question, parameters: Any, plays: range) -> Forecast:
        """The figures of one candidate, by running it."""
        made = build(parameters, question.setting)
        return foretell.forecast(question, parameters, made, plays, last_release)
