"""Genesis and declarations: creates the topics of a deployment and pins them in its ledger."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...errors import LedgerError
from ...mechanisms.noise import fingerprint
from ...topics.names import Names, genesis_id, ledger_topic
from ...topics.signatures import SigningKey
from ..deployment.cluster.growth import Growth
from ..deployment.cluster.seats import declared_in_order, own, seated, taken
from ..deployment.cluster.topic_specs import TopicSpec, internal_topics, layout, public_topics
from ..deployment.model import Deployment, Input, Pipeline
from ..deployment.published.schema_pins import pins
from ..kafka.access.owners import claim, verify_unclaimed
from ..kafka.cluster import Cluster
from .appending import Line, Overtaken, append, ledger_line
from .begins import Begins
from .ends import following, retirement
from .ledger import FORMAT, GROWN, SHARED, SIGNED, Ledger
from .pinned import growths, placement, verify_declared, verify_key, verify_signing, verify_there
from .tables import records_of

OLDEST = 2
"""The oldest format that this version can continue; older ones are refused, never guessed at."""


class NoLedgerError(LedgerError):
    """The ledger is missing or empty; other topics decide whether a new one may begin."""


def read_ledger(cluster: Cluster, deployment: str, key: SigningKey | None = None) -> Ledger:
    """Read and verify the ledger of a deployment.

    Args:
        key: signing key for new records; None: read only.

    Raises:
        NoLedgerError: there is none.
        LedgerError: its chain is broken, or a version of Hushstream wrote it that is too old.
        EngineError: it has the format of a later version.
        RightError: this user may not read it.
    """
    topic = ledger_topic(deployment)
    if not cluster.partitions(topic, "READ"):
        raise NoLedgerError(
            f"there is no ledger topic {topic!r}: run `hush topics` to begin this deployment"
        )
    ledger = Ledger.read((m.value() for m in cluster.read(topic)), key)
    if not ledger.records:
        raise NoLedgerError(f"the ledger {topic!r} is empty: run `hush topics` to begin")
    if ledger.format < OLDEST:
        raise LedgerError(
            f"the ledger {topic!r} has format {ledger.format}, this version of Hushstream reads "
            f"{OLDEST}: go on with the version that wrote it, or begin a new deployment (another "
            "deployment.name), with charges of its own"
        )
    return ledger


Fired = Callable[[Names, Collection[str]], Mapping[str, int]]
"""Reads the number of each pipeline's last trigger at the end of the clock log."""
Stated = tuple[str, dict[str, Any]]
"""Kind and body of a ledger record to be made."""


@dataclass(frozen=True)
class Beginning:
    """Begins a deployment, or declares what is new in it.

    Attributes:
        replication: copies of each partition; -1 is the cluster's default.
        now: microseconds since 1970.
        grow: reads the last triggers before added partitions of raw topics count; None: added
            partitions are refused.
        signing: signing key of a new deployment, or of one that began with this key; None: a new
            deployment stays unsigned for ever.
    """

    cluster: Cluster
    deployment: Deployment
    replication: int
    now: int
    secret: bytes
    grow: Fired | None = None
    signing: SigningKey | None = None

    def begin(self) -> list[str]:
        """Create all topics, declare them in the ledger with the pipelines, and return their names.

        Safe to repeat: existing topics stay as they are, and new pipelines are added to the ledger.
        A deployment of an earlier format is moved to this version's; older versions then refuse it.

        Raises:
            ConfigError: an end differs from the ledger's.
            EngineError: an input is missing, or what was declared before has changed.
            LedgerError: the ledger is broken, lost, or belongs to another key; or a pipeline would
                be retired before an epoch that has begun.
        """
        ledger = self.verify()
        if ledger.records:
            return self._again(ledger)
        created = self._create(public_topics(self.deployment))
        claim(self.cluster, self.deployment)
        return created + self._first()

    def verify(self) -> Ledger:
        """Check all that `begin` needs without writing; the ledger of a new deployment is empty.

        Raises:
            ConfigError, EngineError: as `begin`.
        """
        cluster, deployment = self.cluster, self.deployment
        raw = cluster.topics(source.topic for source in deployment.inputs)
        ledger, begun = Ledger(), _begun(cluster, deployment.name, raw)
        if begun:
            ledger = read_ledger(cluster, deployment.name, self.signing)
        verify_there(raw, (source.topic for source in deployment.inputs), ledger)
        if begun:
            verify_key(ledger, self.secret)
            verify_signing(ledger, self.signing)
            verify_declared(cluster, deployment, ledger, self._growing(ledger))
        else:
            refuse_lost(cluster, deployment.name)
        _declare_on_copy(deployment, ledger, self.now)
        verify_unclaimed(cluster, deployment, ledger.pipelines)
        return ledger

    def _growing(self, ledger: Ledger) -> list[Growth]:
        names = ledger.names(self.deployment.name)
        return [] if self.grow is None else growths(self.deployment, ledger, names)

    def _create(self, specs: Iterable[TopicSpec]) -> list[str]:
        return self.cluster.create(specs, self.replication)

    def _create_internal(self, names: Names) -> list[str]:
        """Create missing internal topics, and partitions for new pipelines in shared ones.

        Added partitions affect no existing pipeline: each uses the partitions of its seat alone.
        """
        specs = internal_topics(self.deployment, names)
        created = self._create(specs)
        if self.deployment.shared:
            shared = taken(seated(self.deployment, names).seats.values())
            self.cluster.extend({one.name: one.partitions for one in specs if one.name in shared})
        return created

    def _again(self, ledger: Ledger) -> list[str]:
        """Create what is missing, declare what is new."""
        deployment, names = self.deployment, ledger.names(self.deployment.name)
        growing = self._growing(ledger)
        ends = any(retirement(p, ledger, self.now) is not None for p in deployment.pipelines)
        created = self._create(public_topics(deployment))
        claim(self.cluster, deployment)
        created += self._create_internal(names)
        if growing:
            self.cluster.extend({one.changelog: one.after for one in growing})
        declared = set(ledger.pipelines) >= {p.name for p in deployment.pipelines}
        if declared and not ends and not growing and ledger.format >= FORMAT:
            return created

        def missing(ledger: Ledger) -> list[Line]:
            now = ledger.names(deployment.name)
            grown = [] if self.grow is None else _grown(deployment, ledger, now, self.grow)
            if deployment.shared:  # other processes may have declared pipelines meanwhile
                self._create_internal(now)
            return self._declarations(ledger, now, grown)

        # Use the clock's id, because its owner may be writing a charge at this moment. The owner is
        # fenced, and reads the ledger again before it continues.
        identity = names.transactional_id("clock", "clock", 0)
        append(self.cluster, identity, names.ledger, self.signing, missing)
        return created

    def _first(self) -> list[str]:
        """Make a genesis. All first runs share this transactional id; one commits."""
        # Random, so that topics left behind by an earlier deployment of this name are never taken
        # for ours.
        names = Names(self.deployment.name, secrets.token_hex(5))
        created: list[str] = []

        def lines(ledger: Ledger) -> list[Line]:
            if ledger.records:
                return []  # another process was first
            created.extend(self._create(internal_topics(self.deployment, names)))
            return self._declarations(Ledger(key=self.signing), names)

        try:
            append(self.cluster, genesis_id(self.deployment.name), names.ledger, None, lines)
        except Overtaken:
            there = Ledger.read(m.value() for m in self.cluster.read(names.ledger))
            if there.genesis.get("genesis") != names.genesis:
                self.cluster.delete(created)  # their genesis was not committed
            raise
        return created or replace(self, grow=None).begin()

    def _declarations(
        self, ledger: Ledger, names: Names, grown: Collection[Stated] = ()
    ) -> list[Line]:
        """Make the missing records: genesis, this version's format, growths and new pipelines."""
        cluster, deployment, lines = self.cluster, self.deployment, list[Line]()
        names = seated(deployment, names)

        def declare(kind: str, body: dict[str, Any]) -> None:
            record = ledger.next(kind, self.now, body)
            ledger.take(record.encode())  # now, because the next record is chained to it
            lines.append(ledger_line(names.ledger, record))

        def retire(p: Pipeline) -> None:
            if (body := retirement(p, ledger, self.now)) is not None:
                declare("retired", body)

        if not ledger.records:
            declare("genesis", self._genesis(names))
        if ledger.format < FORMAT:
            declare("format", {"format": FORMAT})
        for kind, body in grown:
            declare(kind, body)
        for p in deployment.pipelines:
            if p.name in ledger.pipelines:
                retire(p)
        for source in deployment.inputs:
            offsets = cluster.offsets.begins(source.topic, source.partitions)
            for p in declared_in_order(source):
                if p.name in ledger.pipelines:
                    continue
                lines += [
                    Line(names.tables, *one) for t in p.tables for one in records_of(p.name, t)
                ]
                begins = Begins(names.genesis, p.name, source.topic, offsets)
                lines.append(Line(names.begins, p.name.encode(), begins.encode()))
                body = _pipeline(cluster, source, p, names) | following(p, ledger, self.now)
                if p.own_key is not None:
                    body["key_fingerprint"] = p.own_key
                number = len(ledger.pipelines)
                declare("pipeline", body | {"number": number, "begins": begins.seal(self.secret)})
                retire(p)
        return lines

    def _genesis(self, names: Names) -> dict[str, Any]:
        inputs = {i.topic: i.partitions for i in self.deployment.inputs}
        body = {
            "format": FORMAT,
            "genesis": names.genesis,
            "deployment": self.deployment.name,
            "key_fingerprint": fingerprint(self.secret),
            "topic_ids": self.cluster.ids([*inputs, names.clock, names.requests, names.begins]),
            "partitions": inputs,
            "spread": self.deployment.spread._asdict(),
        }
        # The format stops versions that cannot sign or do not know shared topics.
        if self.signing is not None:
            body |= {"format": SIGNED, "public_key": self.signing.public}
        return body | {"format": SHARED, "shared_topics": True} if self.deployment.shared else body


def _declare_on_copy(deployment: Deployment, ledger: Ledger, now: int) -> None:
    """Declare on a copy of the ledger, to raise the errors that the real ledger would raise."""
    copy = Ledger.read((record.encode() for record in ledger.records), ledger.key)

    def declare(kind: str, body: dict[str, Any] | None) -> None:
        if body is not None:
            copy.take(copy.next(kind, now, body).encode())

    if not ledger.records:
        declare("genesis", {"format": FORMAT})
    fresh = [p for p in deployment.pipelines if p.name not in ledger.pipelines]
    for p in deployment.pipelines:
        if p not in fresh:
            declare("retired", retirement(p, copy, now))
    for p in sorted(fresh, key=lambda p: len(p.lineage)):
        body = {"pipeline": p.name, "config": p.config}
        declare("pipeline", body | following(p, copy, now))
        declare("retired", retirement(p, copy, now))


def _begun(cluster: Cluster, deployment: str, topics: Collection[str]) -> bool:
    topic = ledger_topic(deployment)
    return topic in topics and bool(cluster.read(topic))


def refuse_lost(cluster: Cluster, deployment: str) -> None:
    """Refuse to begin if an earlier genesis was committed: its ledger must be lost.

    Topics of an uncommitted genesis are empty and do not count.

    Raises:
        LedgerError: a topic of an earlier genesis holds records.
    """
    begun = re.compile(rf"{re.escape(deployment)}\.[0-9a-f]{{10}}\.begins")
    for topic in sorted(filter(begun.fullmatch, cluster.topics())):
        if cluster.read(topic):
            raise LedgerError(
                f"the ledger {ledger_topic(deployment)!r} is gone or empty, but topic {topic} "
                "shows that this deployment had begun: restore the ledger from its backup; if it "
                "is lost for good, begin a new deployment (another deployment.name), and count "
                "what both have spent"
            )


def _grown(deployment: Deployment, ledger: Ledger, names: Names, fired: Fired) -> list[Stated]:
    """List growths of raw topics, after the format that makes older versions stop.

    The clock's owner is already fenced, and the next owner reads the ledger. So no trigger comes
    between the ones named here and the record. If a new owner opens before the record is written,
    it fences this process, and nothing is written.
    """
    found: list[Stated] = []
    for one in growths(deployment, ledger, names):
        readers = ledger.readers(one.topic)
        last = fired(names, readers)
        found.append(("grown", one.body({name: last[name] for name in readers})))
    return [("format", {"format": GROWN}), *found] if found and ledger.format < GROWN else found


def _pipeline(cluster: Cluster, source: Input, p: Pipeline, names: Names) -> dict[str, Any]:
    parts = layout(source, p, names)
    seats = own(names, parts)
    there = dict.fromkeys(names.place(topic)[0] for topic in parts)
    return {
        "pipeline": p.name,
        "config_hash": p.config_hash,
        "config": p.config,
        "placement": placement(source, p),
        "topic_ids": cluster.ids(there),
        "partitions": parts,
        **({"seats": seats} if seats else {}),
        **pins(p),
    }
