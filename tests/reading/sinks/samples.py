"""Releases of a simulated pipeline, its configuration, and the batches that a reader gets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from hushstream.agents.deployment.compile import compile_config
from hushstream.agents.deployment.model import Deployment
from hushstream.formats.events.decode import utc
from hushstream.reading.sinks.feed import SinkBatch, SinkPosition, SinkProgress
from hushstream.reading.sinks.layout import SinkLayout, layouts
from hushstream.topics.assembly import Released
from hushstream.topics.config.load import loads
from hushstream.topics.releases import Manifest, Row, decode_public

from ..live.showcase import CASES, HEAD, HOUR, Made, recently, showcase

BEGIN = SinkPosition("topic", {"0": 0, "1": 0})


@cache
def made(case: str) -> Made:
    """Releases of four days by one mechanism."""
    return showcase("sinks", (case,), scale=1)


def text(made_: Made, case: str) -> str:
    """The configuration of a deployment of the showcase."""
    head = HEAD + CASES[case].replace("{", "{{").replace("}", "}}")
    return head.format(deployment=made_.deployment, name=made_.pipelines[case],
                       origin=utc(recently(HOUR)))  # fmt: skip


def deployment(case: str) -> Deployment:
    return compile_config(loads(text(made(case), case), environ={}))


def layout(case: str, **other: Any) -> SinkLayout:
    (found,) = layouts(deployment(case), (), other.get("table"), other.get("integers", ()))
    return found


def records(case: str) -> Iterator[tuple[int, Row | Manifest | None]]:
    """Records of the release topic, alternating between two partitions."""
    (outs,) = made(case).releases.values()
    for number, out in enumerate(outs):
        yield number % 2, decode_public(out.headers, out.value)


def batches(case: str, size: int = 12) -> list[SinkBatch]:
    """Complete releases in batches, as a feed reads them."""
    progress, places, found = SinkProgress(BEGIN), {0: 0, 1: 0}, []
    every: list[Released] = []
    for partition, record in records(case):
        release = progress.take(partition, places[partition], record)
        places[partition] += 1
        if release is not None:
            every.append(release)
        if len(every) == size:
            found.append(SinkBatch(every, progress.position()))
            every = []
    return [*found, SinkBatch(every, progress.position())] if every else found


def with_keys(values: Sequence[Any], trigger: int = 1) -> Released:
    """Make a release of the histogram whose rows have these zones."""
    every = (one for batch in batches("histogram") for one in batch.releases)
    release = next(one for one in every if one.rows)
    row = release.rows[0]
    rows = [
        type(row)(row.schema, f"{trigger}-{place}", row.pipeline, row.window, trigger, row.final,
                  {"zone": value}, row.values)
        for place, value in enumerate(values)
    ]  # fmt: skip
    manifests = [
        type(m)(**{f: getattr(m, f) for f in m.__struct_fields__} | {"trigger": trigger})
        for m in release.manifests
    ]
    return Released(tuple(rows), tuple(manifests))
