"""Defaults of declared pipelines: an upgrade changes none of them."""

from __future__ import annotations

from typing import Any

import pytest
from hushstream.agents.deployment.compile import compile_config
from hushstream.agents.deployment.kept_defaults import with_kept_defaults
from hushstream.agents.deployment.model import Pipeline
from hushstream.topics.config.load import Config, loads

TOML = """
[[input]]
name = "events"
topic = "raw"
unit = "user"
time = { field = "t", format = "iso" }
[[pipeline]]
name = "pages"
input = "events"
key = ["page"]
window = { length = "1d" }
triggers = { every = "1d" }
budget = { epsilon = 6, delta = 1e-6 }
"""


def config(settings: str = "") -> Config:
    return loads(f'{TOML}mechanism = {{ kind = "histogram"{settings} }}\n', environ={})


def compiled(made: Config) -> Pipeline:
    (p,) = compile_config(made).pipelines
    return p


def ledger(settings: str, name: str = "pages") -> dict[str, dict[str, Any]]:
    """What a deployment with these settings declared."""
    return {name: {"config": compiled(config(settings)).config}}


@pytest.mark.parametrize("version", [1, 2])
def test_a_declared_pipeline_keeps_the_default_that_it_began_with(version: int) -> None:
    began = f", defaults = {version}"
    kept = compiled(with_kept_defaults(config(), ledger(began)))
    assert kept.config_hash == compiled(config(began)).config_hash
    assert kept.mechanism == compiled(config(began)).mechanism


def test_a_pipeline_that_is_not_declared_has_the_newest_default() -> None:
    for held in ({}, {"pages": {}}, ledger(", defaults = 1", "others")):
        assert with_kept_defaults(config(), held) == config()


def test_settings_that_are_given_stay_as_they_are() -> None:
    kept = compiled(with_kept_defaults(config(", budget = 7"), ledger(", defaults = 1")))
    assert kept.config_hash == compiled(config(", budget = 7")).config_hash


def test_a_mechanism_without_versions_stays_as_it_is() -> None:
    other = loads(
        TOML
        + 'inputs = { value = "v" }\n[pipeline.mechanism]\nkind = "quantile"\nlow = 0\nhigh = 9\n',
        environ={},
    )
    assert with_kept_defaults(other, {"pages": {"config": compiled(other).config}}) == other
    assert with_kept_defaults(other, ledger(", defaults = 1")) == other
