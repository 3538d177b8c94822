"""``hush dead-letters``: records that a pipeline could not use, and how to send them again."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from difflib import get_close_matches

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from ..agents.clock.genesis import read_ledger
from ..agents.deployment.cluster.rights import rights, wanted
from ..agents.deployment.compile import compile_config
from ..agents.kafka.set_aside import Letter, letters, reasons
from ..agents.worker.lines.screen import Screen, say
from ..agents.worker.lines.visible import visible
from ..errors import ConfigError, EngineError
from ..formats.events.reasons import REASONS
from ..offline.again import Again, Unsent
from .deployed import cluster_of
from .options import Flags, config_options, declared, emit, json_option, read_config, readable

OUTCOMES = ("late", "future")  # of records that were not taken in time
CHARACTERS = 300  # shown of a sample


@click.command("dead-letters")
@config_options
@click.argument("pipeline")
@click.option("--samples", type=click.IntRange(0, 1000), default=0, metavar="N",
              help="Show the newest N records of each reason.")  # fmt: skip
@click.option("--reason", metavar="WORD", help="Only records of this reason.")
@click.option("--late", is_flag=True, help="Late and far-future records instead.")
@click.option("--replay", is_flag=True,
              help="Send those that can be used now to their raw topic again.")  # fmt: skip
@click.option("--yes", is_flag=True,
              help="With --replay: those that cannot be sent now are not tried again.")  # fmt: skip
@json_option
def dead_letters(
    flags: Flags,
    pipeline: str,
    samples: int,
    reason: str | None,
    late: bool,
    replay: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Show the records that PIPELINE could not use: how many by reason and field, and some.

    Records are shown as producers wrote them: what this prints is for operators alone. --replay
    goes through the dead letters of PIPELINE's input once. It sends those that can be used now,
    that none of the input's pipelines has used, and whose window is still open: records in the
    wrong partition, which the input's partitioner places anew, and records whose schema was not
    known. It needs the rights of the role `mender` (`hush topics --print`).
    """
    if replay and late:
        raise click.UsageError("--replay --late: what came late comes later still")
    if reason is not None:
        _demand_known(reason, OUTCOMES if late else REASONS)
    config = read_config(flags)
    deployment = compile_config(config)
    name = declared(config, pipeline).name
    found = next(one for one in deployment.pipelines if one.name == name)
    topic = found.late_topic if late else found.dlq_topic
    if topic is None:
        setting = 'late = "topic"' if late else 'on_error = "dlq"'
        raise ConfigError(f"pipeline {pipeline!r} keeps none: its input would need {setting}")
    cluster = cluster_of(config, "mender" if replay else "auditor")
    if replay:
        names = read_ledger(cluster, deployment.name).names(deployment.name)
        source = next(one for one in deployment.inputs if found in one.pipelines)
        dead = {p.dlq_topic for p in source.pipelines if p.dlq_topic}
        needed = wanted(rights("mender", deployment, names), [source.topic, *sorted(dead)])
        cluster.rights.demand(needed)
        _replay(Again(cluster, source, names, reason), yes, as_json)
        return
    if not cluster.partitions(topic, "READ"):
        raise EngineError(
            f"topic {topic!r} does not exist on this cluster: `hush topics` creates it"
        )
    every = [
        one for one in letters(cluster, topic, whose=found.told) if reason in (None, one.reason)
    ]
    if as_json:
        emit([
            {"reason": one.reason, "field": one.field, "records": one.records,
             "newest": one.newest.timestamp}
            for one in reasons(every)
        ])  # fmt: skip
        return
    _table(every)
    if samples:
        _samples(every, samples)


def _demand_known(reason: str, known: Sequence[str]) -> None:
    """Refuse a reason that no record can have, and name the nearest one."""
    if reason not in known:
        near = get_close_matches(reason, known, 1, 0.5)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise click.BadParameter(
            f"{reason!r} is no reason; there is {', '.join(known)}{hint}", param_hint="--reason"
        )


def _table(every: Sequence[Letter]) -> None:
    if not every:
        say("none")
        return
    table = readable(Table("reason", "field", "records", "newest"))
    for one in reasons(every):
        when = datetime.fromtimestamp(one.newest.timestamp / 1_000, UTC)
        table.add_row(one.reason, one.field, f"{one.records:,}", f"{when:%Y-%m-%d %H:%M:%S}")
    Screen().print(table)


def _samples(every: Sequence[Letter], number: int) -> None:
    for one in reasons(every):
        alike = [x for x in every if (x.reason, x.field) == (one.reason, one.field)]
        say(f"\n{one.reason}{' of ' * bool(one.field)}{one.field}:")
        for letter in alike[-number:]:
            text = (letter.value or b"").decode(errors="backslashreplace")
            cut = "…" if len(text) > CHARACTERS else ""
            shown = visible(text[:CHARACTERS])  # on one line, as a producer could forge others
            say(f"  {letter.topic}-{letter.partition}@{letter.offset}: {shown}{cut}")


def _replay(again: Again, yes: bool, as_json: bool) -> None:
    seen = again.foreseen()
    if seen.left and not yes:
        _told(seen, "would be sent again")
        raise ConfigError(
            f"nothing was sent: each dead letter is tried once, and {seen.left} could not be sent "
            "now. Mend what they lack first, or give --yes to leave them behind"
        )
    columns = (TextColumn(f"reading {again.topic}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=Screen(stderr=True), disable=as_json) as bar:
        task = bar.add_task("", total=sum(seen))
        done = again.send(lambda number: bar.advance(task, number))
    if as_json:
        emit(done._asdict())
    else:
        _told(done, f"sent again to {again.source.topic}")


def _told(done: Unsent, what: str) -> None:
    say(f"{done.sent:,} records {what}")
    for number, why in (
        (done.unusable, "still cannot be used"),
        (done.used, "would count twice: sent before, or used by a pipeline of their input"),
        (done.closed, "belong to windows that are over"),
        (done.gone, "were not kept whole: hashed, too large or not read"),
        (done.other, "have another reason"),
    ):  # fmt: skip
        if number:
            say(f"  {number:,} {why}")
