"""Releases as public records: rows, then one manifest per shard.

The name of a record's first header gives its kind: `ROW`, `MANIFEST` or `GONE`, because filters of
common tools match names. In signed deployments, rows and manifests have a second header, see
`signatures`. Rows also go to the latest topic, as the same bytes under the same key.

Everything here is post-processing of `Releases` and public configuration. Bytes are the same on
every machine: standard deviations and half widths of intervals are rounded to six significant
digits, values are exact multiples of their public grid.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from statistics import NormalDist
from typing import Any

from ....formats.events.decode import utc
from ....mechanisms.columns import I64, Counted, Releases
from ....mechanisms.key_form import Place
from ....mechanisms.keys import Keys
from ....topics.cut_share import cut_share
from ....topics.records import Trigger
from ....topics.releases import GONE, MANIFEST, MANIFEST_SCHEMA, ROW, ROW_SCHEMA
from ....topics.signatures import (
    PLACE,
    START,
    Headers,
    RowPlace,
    Seal,
    Sealing,
    Signed,
    chained,
    rows_digest,
)
from ...deployment.model import Pipeline
from ...deployment.published import shapes, statement
from ...deployment.published.statement import significant
from ..step import Out, route
from .stated_values import StatedValues, deviations


class Writer:
    """Records of one trigger of one pipeline at one aggregate shard.

    Args:
        trigger: the trigger; its scheduled time, in milliseconds, is the timestamp of every record.
        sealing: seals of releases; None: they are not signed.
    """

    def __init__(
        self, pipeline: Pipeline, trigger: Trigger, shard: int, sealing: Sealing | None = None
    ) -> None:
        self._pipeline = pipeline
        self._trigger = trigger
        self._shard = shard
        self._sealing = sealing
        self._quantile = NormalDist().inv_cdf((1 + pipeline.confidence) / 2)
        noise = pipeline.mechanism.guarantee.distribution
        self._values = StatedValues(pipeline, deviations(pipeline.confidence, noise))
        self._name = named(trigger)
        windows, number = pipeline.windows, trigger.window
        self._window = {"start": utc(windows.opens(number)), "end": utc(windows.end(number))}
        # The timestamp is the scheduled time. The broker's time of arrival would show how long the
        # release took, and thus how many records there were.
        self._millis = trigger.scheduled // 1000

    def rows(self, releases: Releases) -> Iterator[Out]:
        """Yield one record for each released key, in canonical key order."""
        homes = route(releases.key, self._pipeline.release_partitions).tolist()
        values, variances = releases.value.tolist(), releases.variance.tolist()
        form, names = self._pipeline.traits.keys, self._pipeline.key_names
        places = zip(releases.key.tolist(), form.places(releases.key, names), strict=True)
        own: Headers = ()
        if self._sealing is not None:
            own = ((PLACE, RowPlace(self._shard, self._trigger.ordinal).encode()),)
        for row, (key, place) in enumerate(places):
            record = self._row(key, place, values[row], variances[row])
            value = self._pipeline.codec.encode(ROW, record)
            yield self._out(self._text(key), value, homes[row], ROW, ROW_SCHEMA, own)

    def latest(self, rows: Iterable[Out], gone: Sequence[bytes]) -> Iterator[Out]:
        """Yield records of the latest topic: the same rows, and a tombstone per gone key.

        Args:
            gone: keys of an earlier release of this window that this release lacks.
        """
        topic = self._pipeline.latest_topic
        if topic is None:
            return
        yield from (row._replace(topic=topic) for row in rows)
        homes = route(Keys.of(gone), self._pipeline.release_partitions).tolist()
        for key, home in zip(gone, homes, strict=True):
            out = self._out(self._text(key), None, home, GONE, str(self._trigger.index))
            yield out._replace(topic=topic)

    def manifest(
        self, public: dict[str, I64], nonce: bytes, rows: int, counted: Counted | None = None
    ) -> Out:
        """Make the manifest: what all rows of this shard and trigger have in common.

        Args:
            public: public columns of the release by name, such as thresholds.
            nonce: nonce in force at this trigger, 16 bytes.
            counted: released numbers of all records, if the mechanism releases them.
        """
        p = self._pipeline
        m = p.mechanism
        body = self._common | {
            "schema": MANIFEST_SCHEMA,
            "shard": self._shard,
            "shards": p.cells_partitions,
            "rows": rows,
            "key_names": list(shapes.key_names(p)),
            "value_names": shapes.value_names(p),
            "replaces": m.traits.keys.replaces,
            "nonce": nonce.hex(),
            "public": {name: value.tolist() for name, value in sorted(public.items())},
        }
        if counted is not None:
            body["cut"] = self._cut(counted)
        if (
            p.lineage and p.encoding == "json"
        ):  # other encodings have topics and schemas of their own
            body["follows"] = list(p.lineage)
        if space := m.traits.keys.geometry():
            body["space"] = space
        return self.kept_manifest(p.codec.encode(MANIFEST, body))

    def _cut(self, counted: Counted) -> dict[str, Any]:
        """State the share of records that the bound cut, with the counts behind it."""
        spread = [
            significant(math.sqrt(one))
            for one in (counted.arrived_variance, counted.accepted_variance)
        ]
        share = cut_share(counted.arrived, spread[0], counted.accepted, spread[1], self._quantile)
        return {
            "arrived": counted.arrived,
            "arrived_stddev": spread[0],
            "accepted": counted.accepted,
            "accepted_stddev": spread[1],
            "cap": counted.cap,
            **share._asdict(),
        }

    def chained(self, chains: Mapping[int, bytes], rows: Iterable[Out]) -> dict[int, bytes]:
        """Continue the chains of rows by partition; {} if nothing is signed.

        Args:
            chains: chains of the rows published so far.
            rows: next rows, made by `rows`.
        """
        made = dict(chains)
        if self._sealing is not None:
            for out in rows:
                before = made.get(out.partition, START)
                made[out.partition] = chained(
                    before, out.key or b"", out.value or b"", self._millis, out.headers
                )
        return made

    def sealed(self, value: bytes, chains: Mapping[int, bytes]) -> Out:
        """Make the record of a manifest from its bytes, signed if releases are signed.

        Args:
            value: bytes of the manifest.
            chains: chains of all rows of this shard and trigger.
        """
        out, t = self.kept_manifest(value), self._trigger
        if self._sealing is None:
            return out
        seal = Seal(
            self._shard, self._pipeline.cells_partitions, t.ordinal, t.index, t.charge,
            rows_digest(chains),
        )  # fmt: skip
        record = Signed(out.topic, out.partition, out.key or b"", value, self._millis, out.headers)
        return out._replace(headers=(*out.headers, self._sealing.seal(record, seal)))

    def kept_manifest(self, value: bytes) -> Out:
        """Make the unsigned record of a manifest from its bytes."""
        home = self._shard % self._pipeline.release_partitions
        return self._out(f"manifest:{self._shard}", value, home, MANIFEST, MANIFEST_SCHEMA)

    def _text(self, key: bytes) -> str:
        """Write a key as the last part of a record key."""
        return self._pipeline.traits.keys.text(key)

    def _row(
        self, key: bytes, place: Place, values: list[int], variances: list[float]
    ) -> dict[str, Any]:
        p, t = self._pipeline, self._trigger
        body = {
            "schema": ROW_SCHEMA,
            "release_id": self._name(key),
            "pipeline": p.name,
            "window": self._window,
            "trigger": t.index,
            "final": t.final,
            "key": place.key,
            "values": self._values.of(values, variances),
        }
        if place.box:
            body["box"] = place.box
        return self._common | body if p.full_rows else body

    @cached_property
    def _common(self) -> dict[str, Any]:
        p, t = self._pipeline, self._trigger
        place = p.windows.ordinal(t.window) + 1 if p.traits.carries else t.index
        return {
            "pipeline": p.name,
            "window": self._window,
            "trigger": t.index,
            "triggers": p.windows.triggers(t.window),
            "final": t.final,
            "mechanism": p.kind,
            "confidence_level": p.confidence,
            "noise": {"distribution": p.mechanism.guarantee.distribution},
            "privacy": statement.privacy(p, t),
            "bounds": statement.bounds(p),
            "key_threshold": statement.key_threshold(p.mechanism, place),
            "config_hash": t.config_hash,
            "code_version": t.code_version,
            "emitted_at": utc(t.scheduled),
        }

    def _out(
        self,
        last: str,
        value: bytes | None,
        partition: int,
        kind: str,
        told: str,
        own: Headers = (),
    ) -> Out:
        p = self._pipeline
        key = f"{p.name}|{self._window['start']}|{last}".encode()
        header = ((kind, told.encode()), *own)
        return Out(p.release_topic, partition, key, value, self._millis, header)


def named(trigger: Trigger) -> Callable[[bytes], str]:
    """Make the function that names the row of a key by 32 hexadecimal digits.

    Names are the same in every replay. They depend on the trigger's charge, so a row paid for twice
    would have two names.
    """
    parts = (trigger.charge, trigger.pipeline, str(trigger.window), str(trigger.index))
    # Each part carries its length, so different lists of parts never join to the same bytes.
    begun = hashlib.sha256(b"".join(_part(one.encode()) for one in parts))

    def name(key: bytes) -> str:
        digest = begun.copy()
        digest.update(_part(key))
        return digest.hexdigest()[:32]

    return name


def _part(data: bytes) -> bytes:
    return b"%d:%b" % (len(data), data)
