"""What a pipeline must release, from logs as plain lists: in memory or from real topics.

Real topics are read with confluent-kafka alone. This module computes nothing that is judged.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

from .activity import ActivityJudge, ActivityRules
from .attributes import Beside, Stated
from .distinct import DistinctJudge
from .histogram import Judge, Release
from .hopping import HoppingJudge
from .hp_rules import PrivhpRules
from .noise import Secret
from .pak import PakJudge, PakRules
from .phd_rules import PhdRules
from .phdstream import PhdJudge
from .places import home
from .privhp import PrivhpJudge
from .published import Published, name_of
from .quantiles import QuantileJudge, QuantileRules
from .records import Event, read
from .rounds import RoundsJudge
from .rows import utc
from .rules import Rules
from .sessions import SessionJudge, of_records
from .space import SpaceRules
from .stream import Clock, Objection, Order
from .topl import ToplJudge, ToplRules
from .tops import TopsJudge, TopsRules

KINDS: dict[str, type[Rules]] = {
    "activity": ActivityRules, "histogram": Rules, "pak": PakRules, "phdstream": PhdRules,
    "privhp": PrivhpRules, "quantile": QuantileRules, "topl": ToplRules, "tops": TopsRules,
}  # fmt: skip
"""Rules of the mechanisms that the judge knows."""

OWN: dict[type[Rules], type[Judge]] = {
    PakRules: PakJudge, PhdRules: PhdJudge, PrivhpRules: PrivhpJudge,
    ToplRules: ToplJudge, TopsRules: TopsJudge,
}  # fmt: skip
"""Judges of mechanisms that have keys of their own."""

Raw = tuple[int, int, bytes | None]  # offset, timestamp in milliseconds, value


def rules_of(config: dict[str, Any]) -> type[Rules]:
    """The class of a pipeline's rules.

    Raises:
        Objection: the judge does not know the mechanism, or cannot judge the pipeline.
    """
    kind = config["mechanism"]["kind"]
    if kind not in KINDS:
        raise Objection(f"{kind} is no mechanism that can be judged: {', '.join(KINDS)}")
    counted = {one["kind"] for one in config.get("aggregate", ())}
    if "distinct" in counted and config["window"].get("endless"):
        raise Objection("distinct values over an endless window are not judged: there are none")
    return KINDS[kind]


class Pipeline(NamedTuple):
    """Public facts of a pipeline and of its input.

    Attributes:
        config: canonical configuration, as the ledger's charge has it.
        listed: public keys; the configuration has only their digest.
        partitioner: partitioner that producers have declared, if any.
        partitions: number of partitions of the raw topic.
        beside: configuration and public keys of the pipelines with which it shares a budget.
    """

    config: dict[str, Any]
    listed: Sequence[Sequence[Any]] | None = None
    partitioner: str = "none"
    partitions: int = 1
    beside: Sequence[tuple[dict[str, Any], Sequence[Sequence[Any]] | None]] = ()

    def rules(self, shards: int = 1) -> Rules:
        """The rules that follow from these facts when so many shards publish."""
        beside = [rules_of(config)(config, listed, shards) for config, listed in self.beside]
        kind = rules_of(self.config)
        return kind(self.config, self.listed, shards, beside)

    def usable(
        self, partition: int, records: Iterable[Raw], stated: Stated | None = None
    ) -> Iterator[tuple[int, Event]]:
        """Offset and event of every record that counts; ``stated`` gives attributes of its unit."""
        asked = of_records(self.config)
        for offset, timestamp, value in records:
            known = {} if stated is None else {"stated": stated.until(offset)}
            event = read(asked, timestamp, value, **known)
            if event is not None and self.here(event.unit, partition):
                yield offset, event

    def here(self, unit: tuple[Any, ...], partition: int) -> bool:
        """Whether a unit belongs to a partition."""
        how = self.partitioner
        return how == "none" or home(unit, how, self.partitions) == partition


class Nonces:
    """The nonces that manifests publish, by shard and trigger."""

    def __init__(self, rules: Rules, published: Iterable[Published]) -> None:
        self._rules = rules
        self._known: dict[tuple[str, int, int], bytes] = {}
        self._shards = rules.shards
        for _, value in published:
            body = json.loads(value)
            if body["schema"] == "hush.manifest/2":
                place = body["window"]["start"], body["shard"], body["trigger"]
                self._known[place] = bytes.fromhex(body["nonce"])

    def shard(self, key: bytes) -> int:
        """The aggregate shard of a key: FNV-1a over four zero bytes and the key, folded."""
        state = 0xCBF29CE484222325
        for byte in bytes(4) + key:
            state = (state ^ byte) * 0x100000001B3 % 2**64
        return (state >> 32 ^ state & 0xFFFFFFFF) % self._shards

    def nonce(self, window: int, shard: int, trigger: int) -> bytes:
        """The nonce in force at a trigger; empty if no manifest has published it."""
        return self._known.get((utc(self._rules.opens(window)), shard, trigger), b"")


def judged(
    pipeline: Pipeline,
    secret: Secret,
    clock: Iterable[Clock],
    raw: Sequence[Iterable[Raw]],
    published: Iterable[Published],
    order: Order | None = None,
    beside: Sequence[Iterable[Beside]] = (),
) -> Iterator[Release]:
    """Yield what a pipeline must release.

    Args:
        pipeline: public facts of the pipeline.
        secret: the noise key.
        clock: records of the clock log.
        raw: records of each raw partition.
        published: records of the release topic, which contain the nonces.
        order: see `Judge`.
        beside: records of each partition of the topic of attributes.
    """
    published = list(published)
    every = [json.loads(value) for _, value in published]
    manifests = [body for body in every if body["schema"] == "hush.manifest/2"]
    rules = pipeline.rules(manifests[0]["shards"] if manifests else 1)
    if isinstance(rules, SpaceRules):
        rules.situate(manifests)
    kind = RoundsJudge if rules.rounds else DistinctJudge if rules.distinct else Judge
    kind = HoppingJudge if rules.hops > 1 else kind
    kind = QuantileJudge if isinstance(rules, QuantileRules) else kind
    kind = ActivityJudge if isinstance(rules, ActivityRules) else kind
    kind = OWN.get(type(rules), kind)
    if "session" in rules.config:
        kind = type("Sessions", (SessionJudge, kind), {})
    judge = kind(rules, secret, Nonces(rules, published), order)
    clock = list(clock)
    told = [Stated(pipeline.config, n, clock, log, pipeline.here) for n, log in enumerate(beside)]
    pairs = zip_longest(raw, told)
    return judge.run(clock, [pipeline.usable(n, *one) for n, one in enumerate(pairs)])


def until_published(
    releases: Iterable[Release], published: Iterable[Published]
) -> Iterator[Release]:
    """Releases up to the last trigger for which anything was published.

    Later triggers were fired while the workers stopped. Logs between the stages may lack records
    for them, and nothing was published to compare with.
    """
    missing = {(key.split(b"|", 2)[1].decode(), json.loads(value)["trigger"])
               for key, value in published}  # fmt: skip
    made = iter(releases)
    while missing and (release := next(made, None)) is not None:
        missing.discard(name_of(release))
        yield release


def charges(ledger: Sequence[bytes], clock: Iterable[Clock]) -> Iterator[str]:
    """Breaks of the ledger's chain, and triggers that no charge of the ledger has paid for."""
    before, paid, ends, begins = "0" * 64, {}, {}, {}
    for place, value in enumerate(ledger):
        record = json.loads(value)
        if (record["seq"], record["prev_hash"]) != (place, before):
            yield f"the ledger's chain is broken at record {place}"
        before = hashlib.sha256(value).hexdigest()
        if record["kind"] == "charge":
            unit = record["body"]["pipeline"], record["body"]["epoch"]
            if unit in paid:
                yield f"the ledger charges {unit} twice"
            if unit[1] >= ends.get(unit[0], unit[1] + 1):
                yield f"the ledger charges {unit}, beyond the end of the pipeline"
            paid[unit] = before
        elif record["kind"] == "pipeline" and "follows" in record["body"]:
            told, origin = record["body"]["follows"], record["body"]["config"]["window"]["origin"]
            if (told["from"], origin) != (begins.get(told["pipeline"]),) * 2:
                yield f"the ledger lets {record['body']['pipeline']} begin elsewhere than at an end"
        elif record["kind"] == "retired":
            begins[record["body"]["pipeline"]] = record["body"]["until"]
            if record["body"]["pipeline"] in ends:
                yield f"the ledger retires {record['body']['pipeline']} twice"
            ends[record["body"]["pipeline"]] = record["body"]["epoch"]
    for entry in clock:
        if "ordinal" in entry and entry["charge"] != paid.get((entry["pipeline"], entry["epoch"])):
            yield f"trigger {entry['ordinal']} of {entry['pipeline']} was not paid for"
