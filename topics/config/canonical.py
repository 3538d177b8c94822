"""The privacy configuration of a pipeline as canonical bytes, and their hash.

Configurations with the same bytes give the same releases from the same logs and key. Settings that
only affect how workers run (addresses, partitions, memory, intervals, dead letters, limits) are
left out, so they may change while an epoch is open.
"""

from __future__ import annotations

import hashlib
from dataclasses import fields, is_dataclass
from fractions import Fraction
from typing import Any

import msgspec

from ...errors import ConfigError
from ..calendar import CalendarSpan
from .aggregates.kinds import apart, value_columns
from .expressions.conditions import pinned
from .model import Config, InputSettings
from .pipelines.pipeline import PipelineSettings
from .pipelines.public import digest
from .sharing import owner

VERSION = "hush.config/1"

_ENCODER = msgspec.json.Encoder(order="deterministic", decimal_format="string")


def canonical(config: Config, pipeline: PipelineSettings) -> bytes:
    """Return canonical JSON of everything that determines the releases of ``pipeline``.

    Keys are sorted, fractions are texts such as ``"1/100"``, times integer microseconds. A list
    of public keys is represented by its number and digest.

    Raises:
        ConfigError: the pipeline's input is not in ``config``.
    """
    return _ENCODER.encode(privacy_settings(config, pipeline))


def privacy_settings(config: Config, pipeline: PipelineSettings) -> dict[str, Any]:
    """Return the settings that `canonical` encodes, as plain values."""
    settings: dict[str, Any] = _plain(pipeline)
    for name in ("public_keys_file", "query", "clip", "learn"):
        del settings[name]  # other settings state their meaning
    for name in ("noise_key_file", "forget_keys"):
        del settings[name]  # the ledger has the key's fingerprint
    del settings["until"]  # it ends charges but changes none; the ledger records it
    keys = pipeline.public_keys
    settings["public_keys"] = keys and {"count": len(keys), "sha256": digest(keys)}
    settings["where"] = _plain(pinned(pipeline.where))
    columns = value_columns(pipeline.aggregate)
    if groups := apart(columns):  # absent, as before aggregates had conditions
        settings["apart"] = [[columns[place].name for place in group] for group in groups]
    silent = ("where", "derive", "follows", "session")  # absent, as before these settings existed
    settings = {n: v for n, v in settings.items() if v or n not in silent}
    settings["epoch"] = _plain(pipeline.epoch_length)
    settings["window"] = _window(pipeline)
    settings["release"]["topic"] = pipeline.release_topic
    del settings["release"]["latest"]  # it only copies releases
    if pipeline.release.encoding == "json":
        del settings["release"]["encoding"]  # as before other encodings existed
    for limit in ("limit_epsilon", "limit_delta"):
        del settings["budget"][limit]
    if pipeline.budget.per_unit is None:
        del settings["budget"]["per_unit"]  # as before this setting existed
    if (shared := owner(config, pipeline.name)) is not None:
        settings["budget"]["shared"] = {
            name: _plain(getattr(shared, name))
            for name in ("name", "members", "epsilon", "delta", "per_unit")
            if name != "per_unit" or shared.per_unit is not None
        }
    settings["input"] = _input(_input_of(config, pipeline))
    other = next((one for one in config.input if one.attributes_of == pipeline.input), None)
    for name, column in pipeline.derive.items():
        if column.attributed and other is not None:
            settings["derive"][name]["of"] = _input(other)
    settings["deployment"] = config.deployment.name
    settings["max_future_skew"] = config.engine.max_future_skew
    settings["schema"] = VERSION
    return settings


def _window(pipeline: PipelineSettings) -> dict[str, Any]:
    """The window; of the calendar, with the zone and the digest of its midnights."""
    window: dict[str, Any] = _plain(pipeline.window)
    del window["zone"]  # as before this setting existed
    if pipeline.window.hop is None:
        del window["hop"]
    if not pipeline.window.endless:
        del window["endless"]
    made = pipeline.calendar
    return window if made is None else window | {"zone": made.zone, "midnights": made.digest}


def config_hash(config: Config, pipeline: PipelineSettings) -> str:
    """Return the SHA-256 of `canonical`, hexadecimal."""
    return hashlib.sha256(canonical(config, pipeline)).hexdigest()


def _input_of(config: Config, pipeline: PipelineSettings) -> InputSettings:
    for source in config.input:
        if source.name == pipeline.input:
            return source
    raise ConfigError(f"pipeline {pipeline.name}: there is no input {pipeline.input!r}")


def _input(source: InputSettings) -> dict[str, Any]:
    names = ("name", "topic", "unit", "time", "format", "max_record_bytes")
    return {name: _plain(getattr(source, name)) for name in names}


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        pinned = getattr(value, "pinned", None)  # its own text, always short
        value = pinned() if pinned else {f.name: getattr(value, f.name) for f in fields(value)}
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Fraction | CalendarSpan) else value
