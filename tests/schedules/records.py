"""The records that producers and devices of the simulation send, by kind of mechanism."""

from __future__ import annotations

import json
from collections.abc import Iterable
from fractions import Fraction
from functools import lru_cache
from random import Random
from typing import Any

from hushstream.cli.planning.plan import describe
from hushstream.client import Budget, Client, ReportStore, Survey, published_threshold
from hushstream.client.survey import RANGE

from .deployments import Template

SPACE, VALUES = ("phdstream", "privhp"), ("pak", "tops", "quantile")


def more(kind: str, random: Random) -> dict[str, Any]:
    """Fields of a record beyond the usual ones."""
    if kind in SPACE:
        return {"x": 2 * random.betavariate(1, 4), "y": 2 * random.betavariate(1, 4) - 1}
    if kind in VALUES:
        return {"fare": round(random.expovariate(1 / 12), 2)}
    return {"city": f"c{random.randrange(4)}"} if kind == "distinct" else {}


@lru_cache(None)
def _survey(template: Template) -> Survey:
    pipeline = template.deployment.pipelines[0]
    return Survey.from_json(json.dumps(describe(pipeline)["survey"]))


class Devices:
    """Devices with one report each, whose thresholds come from the releases.

    Args:
        template: deployment with the survey.
        random: source of their perturbation.
    """

    def __init__(self, template: Template, random: Random) -> None:
        self._template = template
        self._random = random

    def report(self, user: str, slot: int, told: Iterable[Any]) -> bytes | None:
        """A report; None if the device has not received what it needs.

        Args:
            told: values of the release topic.
        """
        survey = _survey(self._template)
        theta, group = None, survey.group(user)
        if group != RANGE:
            found = (published_threshold(value, survey, slot, group) for value in told)
            theta = next((theta for theta in found if theta), None)
            if theta is None:
                return None
        with ReportStore(":memory:", Budget(Fraction(100))) as store:
            client = Client(survey, store, self._random.randrange)
            return client.report(user, slot, self._random.gammavariate(3, 12), theta)
