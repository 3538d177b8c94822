"""Times that Kafka would refuse as timestamps, found before any row is written."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import timedelta
from itertools import islice
from typing import NamedTuple

import numpy as np
from confluent_kafka import KafkaException

from ..agents.deployment.model import Input
from ..agents.kafka.cluster import Cluster
from ..errors import RightError
from ..formats.events.decode import Decoder, RawRecord, utc
from .contents import Content, as_json

CHUNK = 5_000  # rows that are looked at together
AFTER, BEFORE = "message.timestamp.after.max.ms", "message.timestamp.before.max.ms"


class TimeLimit(NamedTuple):
    """Most milliseconds between a record's time and the broker's; None: not known.

    Attributes:
        there: whether it is that of a topic that exists.
    """

    after: int | None = None
    before: int | None = None
    there: bool = True


def limit_of(cluster: Cluster, topic: str, there: bool) -> TimeLimit:
    """Ask for the limit of a topic, or, if it is not ``there``, of a new one."""
    try:
        found = cluster.settings([topic])[topic] if there else cluster.own_settings()
    except (RightError, KafkaException):  # the broker enforces what it does not tell
        return TimeLimit()
    if there and found.get("message.timestamp.type") == "LogAppendTime":
        return TimeLimit()
    after, before = (_whole(found, name if there else f"log.{name}") for name in (AFTER, BEFORE))
    return TimeLimit(after, before, there)


def _whole(found: Mapping[str, str], name: str) -> int | None:
    text = found.get(name) or ""
    return int(text) if text.isdigit() else None


def refused(content: Content, source: Input, limit: TimeLimit) -> str | None:
    """Say which row Kafka would refuse, if any, with its number (from 1), time and the limit."""
    if limit.after is None and limit.before is None:
        return None
    now = time.time_ns() // 1_000_000
    decoder, rows, at = Decoder(source.in_json().fields, (), ()), content.rows(False), 0
    while chunk := list(islice(rows, CHUNK)):
        decoded = decoder.decode([RawRecord(n, 0, None, as_json(r)) for n, r in enumerate(chunk)])
        times = np.asarray(decoded.time) // 1_000
        wrong = np.zeros(len(chunk), np.bool_)
        if limit.after is not None:
            wrong |= times - now > limit.after
        if limit.before is not None:
            wrong |= now - times > limit.before
        wrong[list(decoded.bad)] = False  # it gets the broker's own time
        if wrong.any():
            place = int(wrong.argmax())
            return _said(at + place + 1, int(decoded.time[place]), now, limit)
        at += len(chunk)
    return None


def _said(row: int, micros: int, now: int, limit: TimeLimit) -> str:
    late = micros // 1_000 > now
    most, name = (limit.after, AFTER) if late else (limit.before, BEFORE)
    side = "after" if late else "before"
    larger = "give the topic" if limit.there else "use --append with a topic that has"
    return (
        f"row {row:,} has the time {utc(micros)}, and Kafka accepts times up to "
        f"{timedelta(milliseconds=most or 0)} {side} its own ({name} = {most}). Leave out rows "
        f"beyond it, or {larger} a larger limit"
    )
