"""The release topic that a command reads: of the configuration, or without one, as it is named."""

from __future__ import annotations

from pathlib import Path

from ...errors import ConfigError
from ..reading.client import ReleaseTopic, source_of
from .options import CONFIG, read_config


def release_topic(
    path: str, bootstrap: str | None, settings: tuple[str, ...], pipeline: str
) -> ReleaseTopic:
    """Find the releases of a pipeline.

    Releases are public, so whoever has an address needs no configuration: where none was named and
    none lies in this folder, the topic is ``hush.<pipeline>.releases.v1``.

    Args:
        path: of the configuration.
        bootstrap: address of Kafka; None: that of the configuration.
        settings: overrides, each ``SETTING=VALUE``.
        pipeline: its name.

    Raises:
        UsageError: an override has another form.
        ConfigError: the configuration is missing or not valid, or does not know the pipeline.
    """
    if bootstrap and not settings and path == CONFIG and not Path(path).exists():
        return source_of(bootstrap, pipeline)
    config = read_config(path, bootstrap, settings)
    found = [p for p in config.pipeline if p.name == pipeline]
    if not found:
        known = ", ".join(p.name for p in config.pipeline)
        raise ConfigError(f"pipeline {pipeline!r} is unknown; expected one of {known}")
    return ReleaseTopic(config.kafka, found[0].release_topic, pipeline)
