"""``hush topics`` and ``hush alerts``: what a deployment needs on the cluster and beside it."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import click

from ..agents.clock.genesis import Beginning, NoLedgerError, read_ledger
from ..agents.clock.ledger import Ledger
from ..agents.clock.pinned import signed
from ..agents.clock.start import last_triggers
from ..agents.deployment.cautions import cautions, unordered
from ..agents.deployment.cluster.grants import (
    CLUSTER,
    kafka_acls,
    missing_genesis,
    strimzi_topic,
    strimzi_user,
    table,
)
from ..agents.deployment.cluster.rights import (
    ROLES,
    TASKS,
    UNKNOWN,
    Role,
    reached,
    rights,
    wanted,
)
from ..agents.deployment.cluster.topic_specs import (
    TopicSpec,
    counted,
    internal_topics,
    public_topics,
)
from ..agents.deployment.compile import compile_config
from ..agents.deployment.model import Deployment
from ..agents.deployment.published.schema_pins import subjects, verify_pinned, with_pinned_codecs
from ..agents.deployment.spread import StatePartitions, by_inputs, is_open
from ..agents.kafka.access.orphans import delete_orphans, left_behind
from ..agents.kafka.cluster import Cluster
from ..agents.registry.announced import announce
from ..agents.worker.lines.screen import put, say
from ..deploy.alerts import RUNBOOKS, rules, text
from ..errors import ConfigError
from ..topics.config.access.secret import noise_key, own_keys, signing_key
from ..topics.config.load import Config
from ..topics.config.pipelines.schedule import Schedule
from ..topics.names import Names
from .deployed import by_size, cluster_of
from .options import Flags, config_options, emit, json_option, read_config

FORMATS = ("table", "kafka-acls", "strimzi")


def _genesis(_: click.Context, __: click.Parameter, given: str | None) -> str | None:
    """Refuse what is no genesis id: rights on names that never exist would look right."""
    if given is not None and re.fullmatch("[0-9a-f]+", given) is None:
        raise click.BadParameter(
            f"{given!r} is no genesis id: write the digits 0-9 and a-f that `hush topics` says"
        )
    return given


@click.command()
@config_options
@json_option
@click.option("--print", "only_print", is_flag=True, help="Create nothing; show what must exist.")
@click.option(
    "--format", "kind", type=click.Choice(FORMATS), help="Format of printed rights and topics."
)
@click.option("--role", "roles", multiple=True, type=click.Choice(ROLES),
              help="Print the rights of this role; repeatable; default: all.")  # fmt: skip
@click.option("--user", "users", multiple=True, metavar="ROLE=NAME",
              help="Print this user's name in a role; default: hush-ROLE.")  # fmt: skip
@click.option("--grow", is_flag=True,
              help="Count partitions that were added to raw topics; cannot be undone.")  # fmt: skip
@click.option("--delete-orphans", "deleting", is_flag=True,
              help="Delete topics that an interrupted `hush topics` left.")  # fmt: skip
@click.option("--genesis", metavar="ID", callback=_genesis,
              help="Print names with this genesis id.")  # fmt: skip
@click.option("--cluster", "resource", default=CLUSTER, show_default=True, metavar="NAME",
              help="Strimzi's name of the cluster.")  # fmt: skip
def topics(
    flags: Flags,
    as_json: bool,
    only_print: bool,
    kind: str | None,
    roles: tuple[Role, ...],
    users: tuple[str, ...],
    grow: bool,
    deleting: bool,
    genesis: str | None,
    resource: str,
) -> None:
    """Create a deployment's topics and its ledger, or show them for an administrator.

    With --print, --format, --role, --user or --genesis nothing is created, and no cluster is asked.
    """
    printed = bool(only_print or kind or roles or genesis or users)
    config = read_config(flags, tables=not printed)
    if printed:
        shown = Shown(config, genesis or UNKNOWN, roles or ROLES, _named(users), resource)
        shown.say(kind or "table", as_json, topics=not roles or only_print)
        return
    if deleting:
        _delete_orphans(config, as_json)
        return
    _create(config, as_json, grow)


def _named(users: tuple[str, ...]) -> dict[str, str]:
    named: dict[str, str] = {role: f"hush-{role}" for role in ROLES}
    for one in users:
        role, equals, name = one.partition("=")
        if role not in named or not equals or not name:
            raise click.UsageError(f"--user {one}: write ROLE=NAME; roles: {', '.join(ROLES)}")
        named[role] = name
    return named


def _delete_orphans(config: Config, as_json: bool) -> None:
    cluster, name = cluster_of(config, "administrator"), config.deployment.name

    def genesis() -> str:
        try:
            return str(read_ledger(cluster, name).genesis["genesis"])
        except NoLedgerError:
            return ""

    deleted = [topic for one in delete_orphans(cluster, name, genesis) for topic in one.topics]
    if as_json:
        emit({"deleted": deleted})
        return
    say(f"deployment {name}: {len(deleted)} topics deleted that no ledger names")
    for topic in deleted:
        say(f"  {topic}")


def _create(config: Config, as_json: bool, grow: bool) -> None:
    cluster = cluster_of(config, "administrator")
    partitions = {i.topic: cluster.partitions(i.topic) for i in config.input}
    spread = _spread(cluster, config.deployment.name, partitions)
    deployment = compile_config(config, partitions, spread=spread).with_keys(own_keys(config))
    beginning = Beginning(
        cluster, deployment, config.engine.replication_factor, int(time.time() * 1e6),
        noise_key(config), partial(last_triggers, config.kafka) if grow else None,
        signing_key(config),
    )  # fmt: skip
    doubts = list(cautions(config, int(time.time() * 1e6)))  # most of it is fixed from here on
    doubts += unordered(config, partitions)
    # Nothing can be deleted from a registry, so every check that may refuse comes first.
    deployment = _registered(config, deployment, beginning.verify())
    doubts += _lost(cluster, deployment)
    if not as_json:
        for doubt in doubts:
            say(f"warning: {doubt}", err=True)
        specs = (*public_topics(deployment), *internal_topics(deployment, Names(UNKNOWN, UNKNOWN)))
        say(f"needed: {counted(specs)[0]} (`hush topics --print` lists them)")
        if is_open(config):
            units, cells = deployment.spread
            say(f"units_partitions = {units}, cells_partitions = {cells}: the ledger holds them")
    created = replace(beginning, deployment=deployment).begin()
    ledger = read_ledger(cluster, deployment.name)
    _announce(cluster, deployment, ledger)
    names = ledger.names(deployment.name)
    genesis = names.genesis
    changed, refused = cluster.resize(internal_topics(deployment, names))
    others = left_behind(cluster, deployment.name, genesis)
    if as_json:
        left = [topic for one in others for topic in one.topics]
        emit({"genesis": genesis, "created": created, "changed": changed, "refused": refused,
              "left_behind": left, "warnings": doubts})  # fmt: skip
        return
    say(f"deployment {deployment.name}, genesis {genesis}: {len(created)} topics created")
    say(signed(ledger))
    for name in created:
        say(f"  {name}")
    for name in changed:
        say(f"  {name}: segments and compaction set as they should be")
    for name in refused:
        say(f"  {name}: not allowed to set segments and compaction (ALTER_CONFIGS)")
    for one in others:
        say(f"note: {one}")


def _lost(cluster: Cluster, deployment: Deployment) -> Iterator[str]:
    """Say which topics of releases will be made anew although something was released."""
    try:
        ledger = read_ledger(cluster, deployment.name)
    except NoLedgerError:
        return
    there = cluster.topics(p.release_topic for p in deployment.pipelines)
    for p in deployment.pipelines:
        if p.release_topic not in there and ledger.epochs(p.name):
            yield (
                f"topic {p.release_topic} is gone, and what pipeline {p.name!r} has released with "
                "it: an empty one is made, and `hush verify` and `hush replay` will miss the rest"
            )


def _spread(cluster: Cluster, name: str, partitions: Mapping[str, int]) -> StatePartitions:
    """Partitions that the ledger holds; without a ledger, chosen by those of the input topics."""
    try:
        return read_ledger(cluster, name).spread
    except NoLedgerError:
        return by_inputs(partitions.values())


def _registered(config: Config, deployment: Deployment, ledger: Ledger) -> Deployment:
    """Register the releases' schemas first: without them nothing is declared."""
    if not any(subjects(p) for p in deployment.pipelines):
        return deployment
    from ..agents.registry.subjects import register, verify_numbers  # needs an optional part

    declared = deployment.only(ledger.pipelines)
    verify_numbers(config.registry, with_pinned_codecs(declared, ledger.pipelines))
    return register(config.registry, deployment)


def _announce(cluster: Cluster, deployment: Deployment, ledger: Ledger) -> None:
    """Compare the registry's answers with the pinned schemas, and tell readers."""
    pinned = with_pinned_codecs(deployment, ledger.pipelines)
    verify_pinned(deployment, pinned)
    announce(cluster, pinned)


class Shown:
    """Topics and rights of a deployment, as text; works without a cluster.

    ``genesis`` may be `UNKNOWN`; ``users`` holds user names by role; ``resource`` is the name of
    the cluster in Strimzi.
    """

    def __init__(
        self,
        config: Config,
        genesis: str,
        roles: Sequence[Role],
        users: Mapping[str, str],
        resource: str,
    ) -> None:
        self._deployment = deployment = compile_config(config)
        self._names = names = Names(deployment.name, genesis)
        self._public = public_topics(deployment)
        self._internal = internal_topics(deployment, names)
        self._rights = {role: rights(role, deployment, names) for role in roles}
        self._users, self._resource = users, resource
        self._replicas = config.engine.replication_factor
        self._config = config

    def say(self, kind: str, as_json: bool, topics: bool) -> None:
        """Print everything in one of `FORMATS`, with or without the topics."""
        if as_json:
            emit(self._body())
        elif kind == "table":
            if topics:
                self._topics()
            say("\n\n".join(table(role, given) for role, given in self._rights.items()))
            say("\n" + "\n".join(self._remarks()))
        else:
            put("\n".join(f"# {line}" for line in self._remarks()))
            self._commands() if kind == "kafka-acls" else self._manifests(topics)

    def _commands(self) -> None:
        for role, given in self._rights.items():
            put(f"\n# {role}: {TASKS[role]}\n{kafka_acls(self._users[role], given)}")

    def _manifests(self, topics: bool) -> None:
        # Internal topics have names only once there is a genesis.
        known = self._names.genesis != UNKNOWN
        if known and topics and is_open(self._config):
            raise ConfigError(
                "engine.units_partitions and cells_partitions follow the inputs, and no cluster is "
                "asked here: write the numbers that `hush topics` said into the file"
            )
        named = self._internal if known else []
        for spec in [*self._public, *named] if topics else []:
            put(strimzi_topic(spec, self._replicas, self._resource), "")
        for role, given in self._rights.items():
            put(strimzi_user(self._users[role], given, self._resource), "")

    def _body(self) -> dict[str, object]:
        return {
            "topics": [s._asdict() for s in (*self._public, *self._internal)],
            "group": self._names.group,
            "transactional_ids": f"{self._names.base}.*",
            "reads": [i.topic for i in self._deployment.inputs],
            "rights": {r: [one._asdict() for one in given] for r, given in self._rights.items()},
        }

    def _topics(self) -> None:
        for spec in (*self._public, *self._internal):
            say(_line(spec, self._readers(spec.name)))
        say("\n" + "\n".join(counted((*self._public, *self._internal))))
        if by := by_size(self._config):
            say(by)
        say(
            "\nA changelog of stage `ingest` has as many partitions as its input topic.\n"
            "Rights of each role; READ, WRITE and others include DESCRIBE:\n"
        )

    def _readers(self, topic: str) -> list[Role]:
        """List the roles that may read a topic."""
        given = {role: rights(role, self._deployment, self._names) for role in ROLES}
        return [r for r in ROLES if "READ" in wanted(given[r], [topic]).get(topic, ())]

    def _remarks(self) -> list[str]:
        """Remarks on what the list itself does not show."""
        said = []
        if any(missing_genesis(given) for given in self._rights.values()):
            said.append(
                f"{UNKNOWN} is made by the first `hush topics`, which the administrator runs; "
                "after that, print this again with --genesis ID."
            )
        if "administrator" in self._rights and (also := reached(self._deployment)):
            said.append(
                f"The administrator's prefix {self._deployment.name}. reaches {also} too; it would "
                "not with another deployment.name."
            )
        return said


def _line(spec: TopicSpec, roles: Sequence[Role]) -> str:
    who = "anyone" if "reader" in roles else ", ".join(roles)
    config = " ".join(f"{name}={value}" for name, value in sorted(spec.config.items()))
    return (
        f"{spec.name}\n    partitions {spec.partitions}; {config}\n"
        f"    {spec.purpose}; readers: {who}"
    )


@click.command()
@config_options
@json_option
@click.option(
    "--runbooks",
    default=RUNBOOKS,
    show_default=True,
    help="Address of the page with a section for each alert.",
)
def alerts(flags: Flags, as_json: bool, runbooks: str) -> None:
    """Print Prometheus rules; each pipeline's schedule decides when it is overdue."""
    found = gaps(read_config(flags, tables=False))
    if as_json:
        emit(rules(found, runbooks))
    else:
        put(text(found, runbooks), "")


def gaps(config: Config) -> dict[str, float]:
    """Find the most seconds between two triggers of each pipeline that follows the clock.

    Pipelines that wait for `hush trigger` are left out: they cannot be overdue.
    """
    return {
        p.name: Schedule.of(p).longest_gap() / 1e6 for p in config.pipeline if p.schedule == "wall"
    }
