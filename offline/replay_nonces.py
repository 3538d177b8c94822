"""Nonces of the noise from manifests, which a replay needs in addition to logs and secret."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

import msgspec

from ..agents.deployment.model import Deployment
from ..agents.stages.aggregate.nonces import Nonce
from ..formats.events.decode import RawRecord, utc
from ..formats.values.codec import JSON
from ..mechanisms.noise import NONCE
from ..topics.config.model import Kafka
from ..topics.records import Trigger
from .replay_logs import Span, StreamLog

_MOST = 20_000  # records read at a time
_MANIFEST = b"|manifest:"


class _Manifest(msgspec.Struct):
    """The fields of a manifest that identify its nonce."""

    trigger: int
    nonce: str


class PublishedNonces:
    """Nonces by pipeline, shard, start of the window and trigger.

    A trigger without a manifest has published nothing yet, so it is recomputed under an arbitrary
    nonce. If a manifest was deleted, its release and every later one of its window are recomputed
    with other noise; so releases must be kept as long as a replay may need them.
    """

    def __init__(self, deployment: Deployment) -> None:
        self._windows = {p.name: p.windows for p in deployment.pipelines}
        self._codecs = {p.name: p.codec for p in deployment.pipelines}
        self._known: dict[tuple[bytes, int], bytes] = {}

    def take(self, record: RawRecord) -> None:
        """Take a record of a release topic; skip it unless it is a manifest."""
        key = record.key or b""
        if _MANIFEST not in key:
            return
        try:
            codec = self._codecs.get(key.partition(b"|")[0].decode(), JSON)
            found = msgspec.json.decode(codec.to_json(record.value), type=_Manifest)
            nonce = bytes.fromhex(found.nonce)
        except (msgspec.DecodeError, ValueError):
            return  # the comparison will report that this record differs
        if len(nonce) == NONCE:
            self._known.setdefault((key, found.trigger), nonce)

    def opening(self, pipeline: str, shard: int) -> Nonce:
        """Make the source of one shard's nonces; an `Opening`."""
        windows = self._windows[pipeline]

        def nonce(trigger: Trigger) -> bytes:
            start = utc(windows.opens(trigger.window))
            key = f"{pipeline}|{start}|manifest:{shard}".encode()
            return self._known.get((key, trigger.index), bytes(NONCE))

        return nonce


def published_nonces(
    kafka: Kafka, deployment: Deployment, releases: Sequence[Span]
) -> PublishedNonces:
    """Read all manifests in these spans of the release topics; raises `EngineError`."""
    found = PublishedNonces(deployment)
    for span in releases:
        with closing(StreamLog(kafka, span, _MOST, whole=False, seen=found.take)) as log:
            log.drain()
    return found
