"""Released columns as records that anyone may read: rows, then one manifest per shard.

Everything here is post-processing of `Releases` and public configuration. Bytes are the same on
every machine: standard deviations and half widths of intervals are rounded to six significant
digits, values are exact multiples of their public grid.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from fractions import Fraction
from functools import cached_property
from statistics import NormalDist
from typing import Any

from ....mechanisms.columns import I64, Releases
from ....mechanisms.parts.stated_bound import plain
from ....topics.config.aggregates import Estimate
from ....topics.events.decode import utc
from ....topics.events.keys import decode_key
from ....topics.records import Trigger, encode
from ...deployment import statement
from ...deployment.model import Pipeline
from ...deployment.statement import significant
from ..routing import route
from ..step import Out


class Writer:
    """Records of one trigger of one pipeline at one aggregate shard.

    Args:
        pipeline: whose releases.
        trigger: of the releases; every record carries its scheduled time, in milliseconds.
        shard: number of the aggregate shard.
    """

    def __init__(self, pipeline: Pipeline, trigger: Trigger, shard: int) -> None:
        self._pipeline = pipeline
        self._trigger = trigger
        self._shard = shard
        self._quantile = NormalDist().inv_cdf((1 + pipeline.confidence) / 2)
        start = pipeline.windows.start(trigger.window)
        self._window = {"start": utc(start), "end": utc(start + pipeline.windows.length)}
        # The time of the record is the schedule's. The broker's time of arrival would show how long
        # the release took, and so how many records there were.
        self._millis = trigger.scheduled // 1000

    def rows(self, releases: Releases) -> Iterator[Out]:
        """Yield one record for each released key, in canonical key order."""
        homes = route(releases.key, self._pipeline.release_partitions).tolist()
        values, variances = releases.value.tolist(), releases.variance.tolist()
        for row, key in enumerate(releases.key.tolist()):
            record = self._row(key, values[row], variances[row])
            yield self._out(self._record_key(key), encode(record), homes[row])

    def manifest(self, public: dict[str, I64], nonce: bytes) -> Out:
        """Make the manifest: everything that all rows of this shard and trigger have in common.

        Args:
            public: public columns of the release by name, such as thresholds.
            nonce: the one in force at this trigger, 16 bytes.
        """
        body = self._common | {
            "schema": "hush.manifest/1",
            "shard": self._shard,
            "shards": self._pipeline.cells_partitions,
            "nonce": nonce.hex(),
            "public": {name: value.tolist() for name, value in sorted(public.items())},
        }
        return self.kept_manifest(encode(body))

    def kept_manifest(self, value: bytes) -> Out:
        """Make the record of a manifest whose bytes were made earlier."""
        key = self._record_key(b"manifest:%d" % self._shard)
        return self._out(key, value, self._shard % self._pipeline.release_partitions)

    def _row(self, key: bytes, values: list[int], variances: list[float]) -> dict[str, Any]:
        p, t = self._pipeline, self._trigger
        body = {
            "schema": "hush.release/1",
            "release_id": release_id(t, key),
            "pipeline": p.name,
            "window": self._window,
            "trigger": t.index,
            "final": t.final,
            "key": self._key(key),
            "values": self._values(values, variances),
        }
        return self._common | body if p.full_rows else body

    def _key(self, key: bytes) -> Any:
        p = self._pipeline
        if p.mechanism.key_form == "code":  # bytes of the mechanism's own, such as a cell or slot
            return key.hex()
        return dict(zip(p.key_names, decode_key(key), strict=True))

    def _values(self, values: list[int], variances: list[float]) -> dict[str, Any]:
        m, every = self._pipeline.mechanism, {}
        for output, value, variance in zip(m.outputs, values, variances, strict=True):
            stddev = significant(math.sqrt(variance) * float(output.grid))
            every[output.name] = Estimate(value * output.grid, stddev)
        if m.key_form == "code":  # aggregates are of records by key; this has outputs of its own
            return {name: self._value(one) for name, one in every.items()}
        finished = {
            a.label: a.finish([every[part] for part in a.parts]) for a in self._pipeline.aggregates
        }
        return {name: one and self._value(one) for name, one in finished.items()}

    def _value(self, one: Estimate) -> dict[str, Any]:
        rounded = significant(one.stddev)
        # Rounded on its own: six digits of a large value would swallow the whole interval.
        reach = Fraction(repr(significant(self._quantile * rounded)))
        value = plain(one.value)
        body = {
            "value": value,
            "stddev": rounded,
            "low": float(one.value - reach),
            "high": float(one.value + reach),
        }
        if self._pipeline.non_negative:
            body["display_value"] = max(value, 0)
        return body

    @cached_property
    def _common(self) -> dict[str, Any]:
        p, t = self._pipeline, self._trigger
        return {
            "schema": "hush.release/1",
            "pipeline": p.name,
            "window": self._window,
            "trigger": t.index,
            "triggers": p.mechanism.horizon,
            "final": t.final,
            "mechanism": p.kind,
            "confidence_level": p.confidence,
            "noise": {"distribution": p.mechanism.distribution},
            "privacy": statement.privacy(p, t),
            "bounds": statement.bounds(p),
            "key_threshold": statement.key_threshold(p.mechanism, t.index),
            "config_hash": t.config_hash,
            "code_version": t.code_version,
            "emitted_at": utc(t.scheduled),
        }

    def _record_key(self, key: bytes) -> bytes:
        p, start = self._pipeline, self._window["start"]
        return p.name.encode() + b"|" + start.encode() + b"|" + key

    def _out(self, key: bytes, value: bytes, partition: int) -> Out:
        return Out(self._pipeline.release_topic, partition, key, value, self._millis)


def release_id(trigger: Trigger, key: bytes) -> str:
    """Name a released row: the same row has the same name in every replay.

    Args:
        trigger: of the release; its charge is in the name, so a row that was paid for twice would
            have two.
        key: of the row.

    Returns:
        32 hexadecimal digits.
    """
    parts = (
        trigger.charge.encode(),
        trigger.pipeline.encode(),
        str(trigger.window).encode(),
        str(trigger.index).encode(),
        key,
    )
    # Each part carries its length, so no two lists of parts are joined to the same bytes.
    joined = b"".join(b"%d:%b" % (len(part), part) for part in parts)
    return hashlib.sha256(joined).hexdigest()[:32]
