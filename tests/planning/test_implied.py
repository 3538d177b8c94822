"""Bounds that a configuration does not state: the plan names them and what they cut."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hushstream.agents.deployment.compile import compile_config
from hushstream.mechanisms.histogram.calibration.bound import bound_of
from hushstream.mechanisms.histogram.settings import HistogramParameters
from hushstream.planning.implied import SENT, implied_bound
from hushstream.topics.config.load import loads

from ..mechanisms.histogram.planning.test_formulas import SETTING
from .visits import INPUT

PLAIN = INPUT.split("mechanism =")[0]
MAP = PLAIN.replace('key = ["page", "age"]', 'inputs = { x1 = "x", x2 = "y" }')


def said(text: str) -> str:
    return implied_bound(compile_config(loads(text, environ={})).pipelines[0])


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (PLAIN, ("budget = 12", "without public_keys (4 with)", "10 count if each", "3 if all")),
        (PLAIN + 'public_keys = [["a", 1]]', ("budget = 4", "(12 without)", "4 count", "2 if all")),
        (PLAIN + 'mechanism = { kind = "histogram", selection = "rounds" }', ("budget = 32",)),
        (MAP + 'mechanism = { kind = "phdstream" }', (f"of {SENT} records", "1 counts")),
    ],
)
def test_a_default_names_what_it_depends_on_and_what_it_keeps(
    text: str, parts: tuple[str, ...]
) -> None:
    for part in (*parts, "--sample"):
        assert part in said(text)


def test_what_is_given_needs_no_word() -> None:
    assert said(PLAIN + 'mechanism = { kind = "histogram", budget = 12 }') == ""
    assert said(MAP + 'mechanism = { kind = "phdstream", bound = 2 }') == ""


def test_the_numbers_in_the_words_are_the_defaults() -> None:
    for keys, default in ((None, 12), ((b'["a"]',), 4)):
        bound = bound_of(HistogramParameters(), replace(SETTING, keys=keys))
        assert bound.left // bound.weights[0] == default
