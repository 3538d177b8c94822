"""Spread: the size of inputs decides it once, and the ledger's value never changes."""

from __future__ import annotations

from typing import Any

import pytest
from hushstream.agents.deployment.compile import compile_config
from hushstream.agents.deployment.spread import (
    BEFORE,
    MOST,
    StatePartitions,
    by_inputs,
    held,
    is_open,
    spread_of,
)
from hushstream.topics.config.load import Config, loads

TEXT = """
[engine]
{engine}
[[input]]
name = "events"
topic = "events"
unit = "user"
time = {{ format = "record" }}
[[pipeline]]
name = "p"
input = "events"
key = ["page"]
window = {{ length = "1d" }}
triggers = {{ every = "6h" }}
budget = {{ epsilon = 1.0, delta = 1e-6 }}
mechanism = {{ kind = "histogram", debias = true }}
"""


def config(engine: str = "") -> Config:
    return loads(TEXT.format(engine=engine), environ={})


@pytest.mark.parametrize(
    ("partitions", "number"), [([], 1), ([0], 1), ([1], 1), ([1, 3], 3), ([4], 4), ([64, 1], MOST)]
)
def test_state_is_spread_as_the_largest_input_is_and_never_wider_than_the_most(partitions, number):
    assert by_inputs(partitions) == StatePartitions(number, number)


def test_what_is_stated_holds_and_the_rest_is_what_the_ledger_holds():
    assert is_open(config()) and spread_of(config()) == StatePartitions(MOST, MOST)
    assert spread_of(config(), StatePartitions(1, 2)) == StatePartitions(1, 2)
    half = config("units_partitions = 7")
    assert is_open(half) and spread_of(half, StatePartitions(1, 2)) == StatePartitions(7, 2)
    assert not is_open(config("units_partitions = 7\ncells_partitions = 3"))


def test_a_genesis_of_an_earlier_version_means_four():
    assert held({"format": 2}) == BEFORE == StatePartitions(4, 4)
    assert held({"spread": {"units": 1, "cells": 2}}) == StatePartitions(1, 2)


def compiled(engine: str = "", **more: Any) -> Any:
    made = compile_config(config(engine), **more)
    (p,) = made.pipelines
    return made.spread, (p.units_partitions, p.cells_partitions), p.config_hash


def test_pipelines_are_compiled_as_spread_whoever_decided_it():
    stated = "units_partitions = 1\ncells_partitions = 2"
    assert (
        compiled(stated)
        == compiled(spread=StatePartitions(1, 2))
        == compiled(stated, spread=BEFORE)
    )
    assert compiled()[:2] == (StatePartitions(MOST, MOST), (MOST, MOST))
    # Each shard releases its debiasing counters with its own noise, and each is charged.
    assert compiled(spread=StatePartitions(1, 2))[2] != compiled(spread=StatePartitions(1, 1))[2]
    assert compiled(spread=StatePartitions(1, 2))[2] == compiled(spread=StatePartitions(3, 2))[2]
