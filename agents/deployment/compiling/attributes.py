"""Attributes of units, compiled: which topic states them, and which columns of a key they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ....errors import ConfigError
from ....formats.events.expressions.derived import OfUnit
from ....formats.events.fields import InputFields, PipelineFields
from ....topics.config.inputs.attributes import asked_of, stating
from ....topics.config.load import Config
from ....topics.config.model import InputSettings
from ..model import Attributed, Attributes


def input_fields(source: InputSettings) -> InputFields:
    """Collect the fields that every record of an input has."""
    time = source.time
    return InputFields(
        time.field, time.format, time.zone, source.unit, source.max_record_bytes, source.format
    )


def attributes_of(
    config: Config, source: InputSettings, partitions: Mapping[str, int]
) -> Attributes | None:
    """The topic that states attributes of the units of an input; None if there is none.

    Raises:
        ConfigError: it has another number of partitions, so that a unit has two homes.
    """
    other, asked = stating(config, source), asked_of(config, source)
    if other is None or not asked:
        return None
    here, there = partitions.get(source.topic, 1), partitions.get(other.topic, 1)
    if here and there and here != there:
        raise ConfigError(
            f"topic {other.topic} has {there} partitions, and {source.topic} {here}: attributes "
            f"are found by the partition of their unit; create {other.topic} with {here}"
        )
    compared = frozenset(path for path, role in asked.items() if role == "scalar")
    return Attributes(other.topic, input_fields(other), tuple(asked), compared)


def split_key(fields: PipelineFields) -> tuple[Attributed | None, PipelineFields]:
    """Take the columns of attributes out of a key: they are no function of a record.

    The list of public keys goes with them, since it has whole keys.
    """
    columns = tuple(
        (place, column)
        for place, name in enumerate(fields.key)
        if isinstance(column := fields.derived.get(name), OfUnit)
    )
    if not columns:
        return None, fields
    derived = {n: d for n, d in fields.derived.items() if not isinstance(d, OfUnit)}
    names = fields.derived.keys() - derived.keys()
    key = tuple(name for name in fields.key if name not in names)
    own = replace(fields, key=key, derived=derived, allowed=None)
    return Attributed(columns, fields), own
