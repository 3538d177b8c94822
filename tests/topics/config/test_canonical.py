"""The hash of a configuration covers all settings that decide a release, and no others."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from typing import Any

import pytest
from hushstream.topics.config.canonical import canonical, config_hash

from .small import _mechanism, changed, small

__all__ = ["_mechanism"]  # a fixture


# Settings that decide a release change the hash; settings of how workers run do not.
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("epsilon = 0.1", "epsilon = 0.2"),
        ('every = "6h"', 'every = "3h"'),
        ('length = "1d"', 'length = "2d"'),
        ('key = "zone"', 'key = "borough"'),
        ('key = "zone"', 'key = "zone"\nmechanism = { bound = 4 }'),
        ('key = "zone"', 'key = "zone"\npublic_keys = ["a"]'),
        ('key = "zone"', 'key = "zone"\nlateness = "1h"'),
        ('key = "zone"', 'key = "zone"\nepoch = "2d"'),
        ('key = "zone"', 'key = "zone"\nfeedback_delay = 2'),
        ('"number"]', '"plate"]'),
        ('format = "epoch_ms"', 'format = "epoch_s"'),
        ('topic = "trips"', 'topic = "trips2"'),
        ("[[input]]", "[engine]\nmax_future_skew = '1h'\n[[input]]"),
        ("[[input]]", "[deployment]\nname = 'other'\n[[input]]"),
    ],
)
def test_the_hash_covers_every_privacy_setting(old: str, new: str) -> None:
    before, after = small(), small(changed(old, new))
    assert config_hash(before, before.pipeline[0]) != config_hash(after, after.pipeline[0])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("epsilon = 0.1", "epsilon = 0.10"),
        ("epsilon = 0.1", "epsilon = 0.1, limit_epsilon = 7"),
        ('key = "zone"', 'key = "zone"\nuntil = 2031-01-01'),
        ('key = "zone"', 'key = "zone"\nnoise_key_file = "other.key"'),
        ('length = "1d"', 'length = "24h"'),
        ('key = "zone"', 'key = ["zone"]\nepoch = "1d"\nmechanism = { kind = "knobs", bound = 3 }'),
        ('topic = "trips"', 'topic = "trips"\non_error = "drop"\nlate = "topic"'),
        ("[[input]]", "[kafka]\nbootstrap = 'b:1'\n[engine]\nstep_records = 5\n[[input]]"),
    ],
)
def test_the_hash_ignores_how_workers_run_and_how_values_are_written(old: str, new: str) -> None:
    before, after = small(), small(changed(old, new))
    assert canonical(before, before.pipeline[0]) == canonical(after, after.pipeline[0])


def test_every_pipeline_setting_is_in_the_canonical_form() -> None:
    config = small()
    pipeline = replace(config.pipeline[0], public_keys=(("b",), ("a",)))
    settings: dict[str, Any] = json.loads(canonical(config, pipeline))
    meant_elsewhere = {
        "public_keys_file", "noise_key_file", "forget_keys", "query", "clip", "until", "learn",
    }  # fmt: skip
    empty = {
        "where",
        "derive",
        "follows",
        "session",
    }  # they appear only if set: see their own tests
    assert {f.name for f in fields(pipeline)} - meant_elsewhere - empty <= set(settings)
    assert settings["public_keys"]["count"] == 2
    turned = replace(pipeline, public_keys=(("a",), ("b",)))
    assert canonical(config, turned) == canonical(config, pipeline)
