"""Defaults that a pipeline was declared with: a later version of a default is for later pipelines.

A mechanism that has changed a default has a setting ``defaults``, the version of it. The ledger
holds it since version 2, wherever it decides about a release.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...topics.config.load import Config
from ...topics.config.pipeline import PipelineSettings


def with_kept_defaults(config: Config, pipelines: Mapping[str, Mapping[str, Any]]) -> Config:
    """Give each declared pipeline the version of defaults that its declaration has.

    Args:
        pipelines: bodies of the ledger's declarations, by name.
    """

    def kept(p: PipelineSettings) -> PipelineSettings:
        held = pipelines.get(p.name, {}).get("config", {}).get("mechanism")
        given = p.mechanism.parameters
        if held is None or held["kind"] != p.mechanism.kind or not hasattr(given, "defaults"):
            return p
        version = held["parameters"].get("defaults", 1)
        return replace(
            p, mechanism=replace(p.mechanism, parameters=replace(given, defaults=version))
        )

    return replace(config, pipeline=tuple(kept(p) for p in config.pipeline))
