"""The sources of an ingest shard beside its raw log and the clock log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..feedback import Feedback
from .attributes import AttributeLog, NoAttributes
from .schemas import NoSchemas, SchemaSource


@dataclass(frozen=True)
class Beside:
    """The sources that decide, with both logs, which records count and for which key.

    Attributes:
        feedback: statuses of released keys, by pipeline.
        schemas: source of schemas by id, for values that carry one.
        stated: reader of the attribute topic.
    """

    feedback: Mapping[str, Feedback] = field(default_factory=dict)
    schemas: SchemaSource = field(default_factory=NoSchemas)
    stated: AttributeLog = field(default_factory=NoAttributes)
