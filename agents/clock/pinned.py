"""Settings and topics that a deployment pins in its ledger, checked at every start.

A unit's contribution bound is kept with the unit's state. So the settings that decide where the
state lies must never change in place: a unit that moved would begin a second bound within the same
charge.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...errors import ConfigError, EngineError, LedgerError
from ...mechanisms.noise import fingerprint
from ...topics.config.toml.values import format_instant
from ...topics.names import Names, Seat
from ...topics.signatures import SigningKey
from ..deployment.cluster.growth import Growth, growth, keyed
from ..deployment.cluster.seats import read_seats
from ..deployment.cluster.topic_specs import layout
from ..deployment.difference import Terms, proposal
from ..deployment.model import Deployment, Input, Pipeline
from ..kafka.cluster import Cluster
from .ledger import Ledger

ROUTING = "1"
"""Version of the routing of units and keys to partitions; raise it when the routing changes."""


def placement(source: Input, pipeline: Pipeline) -> dict[str, Any]:
    """Collect the settings, all public, that decide which shard has a unit's or key's state.

    The rest is pinned elsewhere: partitions of topics by `layout`, unit fields by the
    configuration's hash, and the noise key, which makes the routed digests, by its fingerprint.
    """
    return {
        "routing": ROUTING,
        "partitioner": source.partitioner,
        "release_partitions": pipeline.release_partitions,
    }


def verify(cluster: Cluster, deployment: Deployment, ledger: Ledger) -> Names:
    """Check that ledger, configuration and topics match; return the names, or fail closed.

    Raises:
        ConfigError: an end differs from the ledger's.
        EngineError: something else does not fit; the message says what to do.
    """
    undeclared = [p.name for p in deployment.pipelines if p.name not in ledger.pipelines]
    if undeclared:
        raise EngineError(f"pipelines {', '.join(undeclared)} are not declared: run `hush topics`")
    for p in deployment.pipelines:
        if p.until is not None and p.name not in ledger.retired:
            raise EngineError(
                f"pipeline {p.name!r}: until is not in the ledger yet: run `hush topics`"
            )
    return verify_declared(cluster, deployment, ledger)


def growths(deployment: Deployment, ledger: Ledger, names: Names) -> list[Growth]:
    """List the raw topics that were compiled with more partitions than the ledger counts.

    Raises:
        EngineError: one of them cannot grow.
    """
    found = []
    for source in deployment.inputs:
        # Include pipelines that are not in the file now, since they could return.
        layouts = {name: ledger.layout(name) for name in ledger.readers(source.topic)}
        fixed = [name for name in layouts if keyed(ledger.pipelines[name])]
        found.append(growth(source, names, layouts, fixed))
    return [one for one in found if one is not None]


def verify_declared(
    cluster: Cluster, deployment: Deployment, ledger: Ledger, growing: Sequence[Growth] = ()
) -> Names:
    """Do the checks of `verify` for the pipelines that the ledger already has.

    Args:
        growing: raw topics whose added partitions will count.

    Raises:
        ConfigError: an end differs from the ledger's.
        EngineError: something else does not fit; the message says what to do.
    """
    names = ledger.names(deployment.name)
    _verify_shared(deployment, ledger)
    known = [
        (source, p, ledger.pipelines[p.name])
        for source in deployment.inputs
        for p in source.pipelines
        if p.name in ledger.pipelines
    ]
    for _, p, declared in known:
        _verify_configuration(declared, p, ledger.retired.get(p.name))
        _verify_end(ledger, p)
        _verify_own_key(declared, p)
    _verify_ids(cluster, _of_clock(ledger, names), "the deployment")
    if not growing:
        _verify_inputs(cluster, deployment, ledger, names)
    for source, p, declared in known:
        pinned = ledger.layout(p.name)
        for one in growing:
            pinned |= {t: n for t, n in one.layout.items() if t in pinned}
        half = {one.changelog: one.before for one in growing}  # for an interrupted `hush topics`
        _verify_topics(cluster, pinned, half, p.name, read_seats(declared))
        _verify_ids(cluster, declared["topic_ids"], f"pipeline {p.name!r}")
        _verify_placement(declared, source, p)
        _verify_layout(layout(source, p, names), pinned, p.name)
    return names


def verify_signing(ledger: Ledger, key: SigningKey | None) -> None:
    """Check ``key`` against the public key in the genesis, if there is one.

    Raises:
        LedgerError: the key is missing, or is another one.
    """
    public = ledger.public_key
    if public is not None and (key is None or key.public != public):
        raise LedgerError(
            f"this deployment signs with the key whose public part is {public[:16]}…, and "
            + ("no signing key is here" if key is None else f"this one's is {key.public[:16]}…")
            + ": set secret.signing_key_file, or HUSH_SIGNING_KEY_FILE, to that key's file"
        )


def verify_there(topics: Collection[str], inputs: Iterable[str], ledger: Ledger) -> None:
    """Check that input topics exist; what the error advises depends on the ledger.

    Args:
        topics: existing topics.

    Raises:
        EngineError: one of ``inputs`` is missing.
    """
    for topic in inputs:
        if topic not in topics and ledger.readers(topic):
            raise EngineError(
                f"input topic {topic!r} is gone, and one of this name that is made now would be "
                "refused, since its records are counted already: restore it, or begin a new "
                "deployment (another deployment.name)"
            )
        if topic not in topics:
            raise EngineError(
                f"input topic {topic!r} does not exist: create it, or let a producer do so, as "
                f"`hush produce FILE {topic}` does"
            )


def signed(ledger: Ledger) -> str:
    """Say whether, and with which key, a deployment signs what it publishes."""
    if ledger.public_key is None:
        return "releases and ledger are not signed: the deployment began without a signing key"
    return f"releases and ledger are signed, public key {ledger.public_key}"


def verify_key(ledger: Ledger, secret: bytes) -> None:
    """Check that the noise key is the one in the deployment's genesis and charges.

    Under another key, each unit would have another digest, and so another place and a second bound,
    and a release would get a second noise.

    Pipelines with a key of their own were charged with that key; `verify_declared` checks it.

    Raises:
        LedgerError: the fingerprint differs.
    """
    mine = fingerprint(secret)
    own = {name: body.get("key_fingerprint", mine) for name, body in ledger.pipelines.items()}
    pinned = [(0, ledger.genesis.get("key_fingerprint", mine), mine)]
    pinned += [
        (r.seq, r.body["key_fingerprint"], own.get(name, mine))
        for (name, _), r in ledger.charges.items()
    ]
    for seq, other, wanted in pinned:
        if other != wanted:
            raise LedgerError(
                f"this noise key (fingerprint {wanted}) is not the one that ledger record {seq} "
                f"names ({other}): use that key, or begin a new deployment (another "
                "deployment.name)"
            )


def _verify_configuration(
    declared: Mapping[str, Any], p: Pipeline, end: Mapping[str, Any] | None
) -> None:
    if declared["config_hash"] == p.config_hash:
        return
    changed = ", ".join(_differences(declared["config"], p.config)) or "the configuration"
    held = Terms(p.name, declared["config"], None if end is None else int(end["until"]))
    raise EngineError(
        f"pipeline {p.name!r}: {changed} differs from what the ledger declared, which "
        "stays for as long as the pipeline has its name: restore the old configuration, "
        f"or let the change begin with another pipeline. {proposal(held, int(time.time() * 1e6))}"
    )


def _verify_own_key(declared: Mapping[str, Any], p: Pipeline) -> None:
    """Check that a pipeline has its declared key, so that no release gets a second noise."""
    pinned = declared.get("key_fingerprint")
    if pinned == p.own_key:
        return
    here = f"fingerprint {p.own_key}" if p.own_key else "none"
    there = f"the fingerprint {pinned}" if pinned else "none"
    raise EngineError(
        f"pipeline {p.name!r}: its own noise key (noise_key_file, or forget_keys) is {here} here, "
        f"and the ledger declared it with {there}: restore that, or let another pipeline follow "
        "it, with a key of its own"
    )


def _verify_end(ledger: Ledger, p: Pipeline) -> None:
    """Check that the configured end is the one in the ledger, since an end never moves.

    Only an edit of the configuration helps, so it is an error of that: no restart does.
    """
    body = ledger.retired.get(p.name)
    if body is None or body["until"] == p.until:
        return
    held = format_instant(body["until"])
    here = "missing" if p.until is None else f'"{format_instant(p.until)}"'
    raise ConfigError(
        f"pipeline {p.name!r}: until is {here} here, and the ledger retires it at {held}: an end "
        f'cannot be moved or taken back; write until = "{held}"'
    )


def _verify_placement(declared: Mapping[str, Any], source: Input, p: Pipeline) -> None:
    """Check that units are routed to shards as declared: any other routing gives a second bound."""
    pinned, wanted = declared.get("placement", {}), placement(source, p)
    for setting in sorted({*pinned, *wanted}):
        if pinned.get(setting) != wanted.get(setting):
            raise EngineError(
                f"pipeline {p.name!r}: {setting} is {wanted.get(setting)!r} here, the ledger "
                f"pinned {pinned.get(setting)!r}: it decides where the state of a unit lies, so a "
                "change would count units anew within the same charge, and it cannot change; "
                "restore it, or give the pipeline a new name, and with it charges of its own"
            )


def _verify_layout(wanted: Mapping[str, int], pinned: Mapping[str, int], name: str) -> None:
    for topic in sorted({*wanted, *pinned}):
        if (topic in wanted) != (topic in pinned):
            here, there = ("needs", "lacks") if topic in wanted else ("does not need", "pinned")
            raise EngineError(
                f"pipeline {name!r}: this configuration {here} topic {topic}, which the ledger "
                f"{there}: the input's partitioner and the mechanism decide which topics there "
                "are; restore them, or begin a new deployment (another deployment.name)"
            )
        if wanted.get(topic) != pinned.get(topic):
            raise EngineError(
                f"pipeline {name!r}: topic {topic} would have {wanted[topic]} partitions "
                f"by this configuration, the ledger pinned {pinned[topic]}: partitions of "
                "inputs, units_partitions and cells_partitions cannot change; restore them, or "
                "begin a new deployment (another deployment.name)"
            )


def _verify_inputs(cluster: Cluster, deployment: Deployment, ledger: Ledger, names: Names) -> None:
    """Refuse raw topics with partitions that do not count yet, with advice where there is any."""
    raw = cluster.topics(source.topic for source in deployment.inputs)
    there = (replace(source, partitions=raw.get(source.topic, 0)) for source in deployment.inputs)
    for one in growths(replace(deployment, inputs=tuple(there)), ledger, names):
        raise EngineError(one.proposal())


def _verify_shared(deployment: Deployment, ledger: Ledger) -> None:
    """Check that pipelines share topics if and only if the genesis says so."""
    if deployment.shared != ledger.shared:
        here, there = ("true", "without") if deployment.shared else ("false", "with")
        raise EngineError(
            f"deployment.shared_topics is {here} here, and this deployment began {there} shared "
            "topics, in which its state lies: restore the setting, or begin a new deployment "
            "(another deployment.name, and other names of pipelines), with charges of its own"
        )


def _verify_topics(
    cluster: Cluster,
    pinned: Mapping[str, int],
    half: Mapping[str, int],
    pipeline: str,
    seats: Mapping[str, Seat],
) -> None:
    pinned = {topic: number for topic, number in pinned.items() if topic not in seats}
    existing = cluster.topics([*pinned, *(seat.topic for seat in seats.values())])
    for seat in seats.values():  # other partitions are free, or other pipelines'
        if existing.get(seat.topic, seat.first + seat.partitions) < seat.first + seat.partitions:
            raise EngineError(
                f"pipeline {pipeline!r}: topic {seat.topic} has {existing[seat.topic]} partitions, "
                "fewer than the ledger names: the topic was created anew; restore it, or begin "
                "a new deployment (another deployment.name)"
            )
    # In Kafka, anyone with the right can add partitions at any time, and the number of partitions
    # decides where keys go: from then on, a unit would be at home in two places.
    for topic, partitions in pinned.items():
        if not half.get(topic, partitions) <= existing.get(topic, partitions) <= partitions:
            raise EngineError(
                f"pipeline {pipeline!r}: topic {topic} has {existing[topic]} partitions, the "
                f"ledger pinned {partitions}; partitions cannot be added to a running deployment, "
                "and Kafka takes none away again: begin a new one (another deployment.name), with "
                "charges of its own; docs/operations.md, 'Growing partitions', says in which order"
            )


def _of_clock(ledger: Ledger, names: Names) -> dict[str, str]:
    """Pinned ids of the clock's topics, since a new clock log would fire each trigger again."""
    pinned = ledger.genesis.get("topic_ids", {})
    return {t: pinned[t] for t in (names.clock, names.requests, names.begins) if t in pinned}


def _verify_ids(cluster: Cluster, pinned: Mapping[str, str], whose: str) -> None:
    existing = cluster.topics(pinned)
    for topic in pinned:
        if topic not in existing:
            raise EngineError(
                f"{whose}: topic {topic} is gone, and with it part of the state; "
                "restore it, or begin a new deployment (another deployment.name)"
            )
    # A topic may be deleted and created again under its name; Kafka's topic id shows that.
    for topic, identity in cluster.ids(pinned).items():
        if identity != pinned[topic]:
            raise EngineError(
                f"{whose}: topic {topic} was deleted and created again; its old records are "
                "counted already: begin a new deployment (another deployment.name)"
            )


def _differences(old: Mapping[str, Any], new: Mapping[str, Any], path: str = "") -> list[str]:
    """List the paths of the settings that differ."""
    found = []
    for name in sorted({*old, *new}):
        a, b = old.get(name), new.get(name)
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            found += _differences(a, b, f"{path}{name}.")
        elif a != b:
            found.append(f"{path}{name}")
    return found
