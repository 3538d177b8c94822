"""Acceptance of lost records: a person has the ledger state that releases go on without them.

The offsets at which reading continues are exact counts. So they go to the internal topic of begins,
and the ledger, which may be public, holds a keyed hash of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import msgspec

from ....errors import LedgerError
from ....topics.config.model import Kafka
from ....topics.names import Names
from ....topics.records import Trigger
from ....topics.signatures import SigningKey
from ...deployment.model import Deployment, Pipeline
from ...kafka.cluster import Cluster
from ..appending import Line, append, ledger_line
from ..begins import SealedOffsets
from ..genesis import Stated
from ..ledger import LOST, Ledger
from ..log import ALL, entries_of
from ..paid import Clocked
from ..start import beginning_of, committed_lists, read_standing
from ..timeline import Timeline
from .found import Loss, Places

Epochs = dict[str, tuple[int, int]]
"""The first and the last epoch of each pipeline that may lack records."""


class Lost(SealedOffsets, frozen=True):
    """Offsets [begin, end) of each partition of a raw topic that are given up; none if equal."""

    purpose: ClassVar[str] = "losses"

    genesis: str
    topic: str
    begin: list[int]
    end: list[int]


def read_accepted(cluster: Cluster, names: Names, ledger: Ledger, secret: bytes) -> list[Lost]:
    """Read the losses that the ledger accepts, in its order.

    Raises:
        LedgerError: one is missing from the internal topic.
    """
    if not ledger.losses:
        return []
    known = {}
    for message in cluster.read(names.begins):
        try:
            one = msgspec.json.decode(message.value(), type=Lost)
        except msgspec.MsgspecError:
            continue  # the begins of an input
        known[one.seal(secret)] = one
    found = [known.get(body["seal"]) for body in ledger.losses]
    if None in found:
        raise LedgerError(
            f"topic {names.begins} does not hold a loss as the ledger sealed it: one of the two "
            "was changed or restored alone; restore both from the same moment"
        )
    return [one for one in found if one is not None]


def resumed(accepted: Iterable[Lost]) -> dict[str, list[int]]:
    """Find the least offsets, by raw topic and partition, at which reading continues."""
    found: dict[str, list[int]] = {}
    for one in accepted:
        found[one.topic] = one.end  # the newest decides: it begins where earlier ones end
    return found


def lacking(
    kafka: Kafka, names: Names, deployment: Deployment, losses: Sequence[Loss], now: int
) -> Epochs:
    """Find the epochs, of all readers of the topic, that may lack records by ``now``, microseconds.

    They are a function of the clock log and the time: from the oldest window that was open at a
    shard with losses, up to the newest window for which records may have been sent.
    """
    horizons = {p.name: p.traits.horizon for p in deployment.pipelines}
    lines = read_standing(kafka, names, horizons, Clocked())
    since = min(one.clock for one in losses)
    waiting: dict[str, list[int]] = {name: [] for name in horizons}
    for records in committed_lists(
        kafka, names.clock, max(since, beginning_of(kafka, names.clock))
    ):
        for place, record in entries_of(records, ALL):
            if isinstance(record, Trigger) and place >= since and record.pipeline in waiting:
                waiting[record.pipeline].append(record.window)
    topic = losses[0].topic
    (source,) = (one for one in deployment.inputs if one.topic == topic)
    return {p.name: _span(p, lines[p.name], waiting[p.name], now) for p in source.pipelines}


def _span(p: Pipeline, line: Timeline, waiting: Sequence[int], now: int) -> tuple[int, int]:
    windows = [*waiting, line.floor, *line.done]
    newest = max(windows)
    if not p.external:
        newest = max(newest, p.windows.window(now + p.max_future_skew))
    return p.windows.epoch(min(windows)), p.windows.epoch(newest)


@dataclass(frozen=True)
class Acceptance:
    """The context of an acceptance.

    Attributes:
        now: microseconds since 1970.
        floors: offset at which reading of each raw topic continues.
    """

    cluster: Cluster
    deployment: Deployment
    names: Names
    now: int
    secret: bytes
    floors: Places
    signing: SigningKey | None = None

    def write(self, losses: Sequence[Loss], epochs: Epochs) -> None:
        """Give up the lost records of one raw topic, in the ledger.

        This fences the clock's owner, which reads the ledger again before it continues.

        Raises:
            EngineError: another process writes to the ledger at the same time.
        """
        names, topic = self.names, losses[0].topic
        (source,) = (one for one in self.deployment.inputs if one.topic == topic)
        known = self.floors.get(topic, [])
        begin = [*known, *[0] * (source.partitions - len(known))]
        end = list(begin)
        for one in losses:
            begin[one.partition], end[one.partition] = one.begin, one.end
        lost = Lost(names.genesis, topic, begin, end)

        def lines(ledger: Ledger) -> list[Line]:
            made = [Line(names.begins, topic.encode(), lost.encode())]
            body = {"topic": topic, "epochs": epochs, "seal": lost.seal(self.secret)}
            stated: list[Stated] = [("loss", body)]
            if ledger.format < LOST:
                stated.insert(0, ("format", {"format": LOST}))
            for kind, said in stated:
                record = ledger.next(kind, self.now // 60_000_000 * 60_000_000, said)
                ledger.take(record.encode())
                made.append(ledger_line(names.ledger, record))
            return made

        identity = names.transactional_id("clock", "clock", 0)
        append(self.cluster, identity, names.ledger, self.signing, lines)
