"""The verdict on a run through faults: what replay, judge, counts and proof say of it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

from _chaos import Monkey
from _cluster import Local
from _conserve import conserved
from _forget import PRIVATE, forgotten
from _judge import judge
from _load import PARTITIONS
from _settled import behind, patiently, unproved, unreleased
from confluent_kafka import KafkaException
from hushstream.agents.clock.genesis import read_ledger
from hushstream.agents.kafka.logs import read_topic
from hushstream.offline.replay import replay
from hushstream.reading.proof import prove
from hushstream.reading.public_topics import PublicTopics

AWAY = ("Unable connect", "Unable to update", "Failed fetch", "Group Coordinator Request")
FIGURES = ("lost", "doubled", "differing", "compared", "pending", "aborted", "routed", "problems",
           "left_out")  # fmt: skip
WRONG = ("died", "unwell", "lost", "doubled", "differing", "stuck", "wrong_charges", "objected",
         "unconserved", "unproved", "left_out")  # fmt: skip


def finish(
    run: Local, monkey: Monkey, at: int, patience: float, report: Callable[[str], None]
) -> dict[str, Any]:
    """Wait for releases up to ``at``, end the workers; then compare by replay, judge and counts."""
    more: dict[str, Any] = {
        "patience": patience, "look": monkey.look, "starting": run.starting, "report": report
    }  # fmt: skip
    stuck = patiently(lambda: behind(run, at), what="pipelines' triggers", **more)
    triggers = run.triggers()
    stuck += unreleased(run, triggers, **more)
    said = [line for name in run.workers for line in last_words(run, name)] if stuck else []
    for line in stuck:
        report(f"stuck: {line}")
    quiet(run)
    for member in list(run.workers):
        run.stop(member)
    outcome = replay(run.config(), escrow_key=run.folder / PRIVATE)
    ledger = read_ledger(run.cluster, run.deployment.name)  # raises on a double charge
    paid = {(t.pipeline, t.epoch): t.charge for t in run.triggers()}
    wrong = [p for p, charge in paid.items() if ledger.charges[p].hash() != charge]
    figures, name = outcome.figures(), run.deployment.name
    public = PublicTopics(run.config().kafka, name)
    proof = prove(public.ledger, public.records, public.partitions, name)
    return {
        **{name: figures[name] for name in FIGURES},
        "stuck": len(stuck),
        "unreleased": [*stuck[:100], *said],
        "triggers": len(triggers),
        "charges": len(ledger.charges),
        "refused": len(ledger.refused),
        "wrong_charges": len(wrong),
        "trimmed": trimmed(run),
        "unproved": proof.fault or unproved(proof.releases, triggers),
        "forgotten": forgotten(run).forgotten,
        **judge(run),
        **conserved(run.bootstrap, run.toml),
    }


def last_words(run: Local, member: str, most: int = 15) -> list[str]:
    """The end of a worker's log, without clients' usual complaints about a missing broker."""
    lines = run.log(member).read_text(errors="replace").splitlines()
    told = [line[:180] for line in lines if not any(word in line for word in AWAY)]
    return [f"== {member}, {len(lines)} lines", *told[-most:]]


def quiet(run: Local, seconds: float = 6.0, most: float = 120.0) -> None:
    """Wait until workers have taken the rest of the raw topics, when hardly anything is written.

    Units topics also get a few barriers with every trigger.
    """
    routed = [p for p in run.deployment.pipelines if not p.direct]
    topics = [(run.names.units(p.name), p.units_partitions) for p in routed]

    def written() -> int:
        with contextlib.suppress(KafkaException):  # a recent change of leader
            return sum(sum(run.cluster.offsets.ends(topic, n)) for topic, n in topics)
        return -1

    until, before = time.monotonic() + most, written()
    barriers = 8 * PARTITIONS * sum(n for _, n in topics)
    while time.monotonic() < until:
        time.sleep(seconds)
        now = written()
        if before >= 0 and 0 <= now - before <= barriers:
            return
        before = now


def trimmed(run: Local) -> int:
    """Number of records that the workers have deleted from cells topics."""
    kafka = run.config().kafka
    return sum(
        log.begin
        for p in run.deployment.pipelines
        for log in read_topic(kafka, run.names.cells(p.name), p.cells_partitions)
    )


def failed(found: dict[str, Any], pause: bool, harsh: bool) -> bool:
    """Whether anything went wrong; nothing is compared before a pause."""
    if pause:
        return bool(found["died"] or found["unwell"])
    bad = any(found[name] for name in WRONG)
    if harsh:
        outage, crashes, flood = found["outage"], found["loop"], found["floods"]
        bad = bad or found["gone"]["wrong"] or outage["late"] or outage["ended"]
        bad = bad or crashes["charged"] or crashes["ready"] or crashes["accepted"]
        bad = bad or flood["killed"] or flood["stuck"]
    return bool(bad)
