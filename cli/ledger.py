"""``hush ledger show | verify | explain | sum | page``: the spent budget, by epoch and purpose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from ..agents.clock.genesis import NoLedgerError, read_ledger
from ..agents.clock.ledger import Ledger, number, totals
from ..agents.clock.ledger_record import Record
from ..agents.clock.start import check_paid, read_clock
from ..agents.clock.witness import Witness
from ..agents.deployment.compile import compile_config
from ..agents.deployment.compiling.lifetime import ChargedCap, cap_of, capped
from ..agents.deployment.compiling.lineage import generations
from ..agents.deployment.model import Pipeline
from ..agents.kafka.cluster import Cluster
from ..agents.worker.lines.screen import Screen, say
from ..errors import ConfigError, LedgerError
from ..formats.events.decode import utc
from ..mechanisms.accounting.composition import Spent
from ..reading.client import kafka_at
from ..reading.joint import joint
from ..reading.live.budget import purses
from ..topics.config.access.secret import noise_key
from ..topics.config.load import Config
from ..topics.config.toml.values import counted
from .deployed import ledger_of
from .ledger_sum import cost, lines, plain_sum, summed
from .nearest import Nearest
from .options import Flags, config_options, emit, json_option, no_view, read_config, readable
from .page import page


@click.group(cls=Nearest)
def ledger() -> None:
    """Show, verify, explain or add up privacy ledgers."""


def _open(flags: Flags) -> tuple[Config, Ledger]:
    config = read_config(flags)
    return config, ledger_of(config)


@ledger.command()
@config_options
@json_option
def show(flags: Flags, as_json: bool) -> None:
    """Show every record, oldest first, and the totals."""
    _, read = _open(flags)
    sums = totals(read, list(read.pipelines))
    if as_json:
        emit(
            {
                "records": [_plain(r) for r in read.records],
                "totals": {
                    name: cost(one)
                    | {"epochs": one.epochs, "composed_epsilon": float(one.composed())}
                    for name, one in sums.items()
                },
                "generations": [
                    {
                        "pipelines": list(chain),
                        "epsilon": float(sum(sums[name].epsilon for name in chain)),
                        "delta": float(sum(sums[name].delta for name in chain)),
                    }
                    for chain in generations(read.pipelines)
                ],
            }
        )
        return
    console = Screen()
    console.print(records(read.records))
    units = {r.body.get("pipeline"): r.body.get("unit") for r in read.records if "unit" in r.body}
    caps = {r.body["pipeline"]: cap_of(r.body) for r in read.charges.values()}
    for name, one in sums.items():
        console.print(
            f"{name}: {counted(one.epochs, 'epoch')} charged; a {units.get(name, 'unit')} active "
            f"in all of them pays at most {composed(one)}{_by_cap(caps, [name])}"
        )
    for line in shared(read, sums):
        say(line)
    for chain in generations(read.pipelines):
        say(over_generations(chain, sums, read))


def shared(read: Ledger, sums: Mapping[str, Spent]) -> list[str]:
    """State, for each shared budget, what a unit pays for all its pipelines.

    Args:
        sums: amounts charged, by pipeline.
    """
    caps = {name: cap_of(record.body) for (name, _), record in read.charges.items()}
    return [
        f"budget {one.name} of {' and '.join(one.members)}: "
        f"{counted(one.spent.epochs, 'epoch')} at ε={float(one.epsilon):g}, "
        f"δ={float(one.delta):g} for all of them; "
        f"together {composed(one.spent)}{_by_cap(caps, one.members)}"
        for one in purses(read, sums)
    ]


def _by_cap(caps: Mapping[str, ChargedCap | None], pipelines: Sequence[str]) -> str:
    """State the cap of pipelines, if they have one."""
    cap = next((cap for name in pipelines if (cap := caps.get(name)) is not None), None)
    return "" if cap is None else f"; by the cap at most {cap.in_words}"


def composed(spent: Spent) -> str:
    """State what a unit pays in several epochs, and the sum of their ε if that is more."""
    epsilon = spent.composed()
    beside = f" (their sum: ε={float(spent.epsilon):g})" if epsilon < spent.epsilon else ""
    return f"ε={float(epsilon):.6g}, δ={float(spent.delta):g} in total{beside}"


def over_generations(chain: Sequence[str], sums: Mapping[str, Spent], read: Ledger) -> str:
    """State what one unit pays over pipelines that succeed each other.

    The boundary divides records, not units: a unit may have records on both sides, so neighbouring
    streams differ in both, and the maximum of the costs would be too low.

    Args:
        chain: names, oldest generation first.
        sums: amounts charged, by pipeline.
        read: the ledger, which records where each ended.
    """
    body = read.pipelines[chain[-1]]["config"]
    epsilon = sum((sums[name].epsilon for name in chain), Fraction(0))
    delta = sum((sums[name].delta for name in chain), Fraction(0))
    parts = [
        f"{name} ε={float(sums[name].epsilon):g}, δ={float(sums[name].delta):g}"
        + (f" until {utc(read.retired[name]['until'])}" if name in read.retired else "")
        for name in chain
    ]
    return (
        f"{', then '.join(parts)}: each follows the one before. A {body['unit_name']} active in "
        f"all epochs of all of them pays the sum, ε={float(epsilon):g}, δ={float(delta):g} "
        f"({body['neighbouring']}); in one epoch alone, what that epoch costs"
    )


def records(found: Sequence[Record]) -> Table:
    """Records of a ledger as a table that fits into 80 columns."""
    table = Table(box=None, padding=(0, 1, 0, 0))
    for name in ("seq", "time (UTC)", "kind", "pipeline", "epoch", "ε", "δ", "hash"):
        number = name in ("seq", "epoch", "ε", "δ")
        table.add_column(name, justify="right" if number else "left", no_wrap=name != "pipeline")
    for record in found:
        body = record.body
        table.add_row(
            str(record.seq),
            utc(record.time // 1_000_000 * 1_000_000).replace("T", " ").removesuffix("Z"),
            record.kind,
            str(body.get("pipeline", "")),
            str(body.get("epoch", "")),
            _short(body.get("epsilon")),
            _short(body.get("delta")),
            record.hash()[:12],
        )
    return readable(table)


@ledger.command()
@config_options
@json_option
def verify(flags: Flags, as_json: bool) -> None:
    """Check the chain, one charge per epoch, a charge for each trigger; exit 3 if it fails."""
    config, read = _open(flags)
    read = _against_clock(config, read)
    body = {"records": len(read.records), "charges": len(read.charges), "head": read.head}
    if as_json:
        emit(body)
    else:
        say(
            f"intact: {counted(len(read.records), 'record')}, "
            f"{counted(len(read.charges), 'charge')}, each epoch once, every trigger of the clock "
            f"log paid for; head {read.head}"
        )


def _against_clock(config: Config, read: Ledger) -> Ledger:
    """The ledger, after checking that it paid for every trigger of the clock log."""
    names = read.names(config.deployment.name)
    horizons = {p.name: p.traits.horizon for p in compile_config(config).pipelines}
    cluster, kafka = Cluster(config.kafka, role="auditor"), config.kafka
    if config.engine.witness:
        witness = Witness(Path(config.engine.witness), names, noise_key(config))
        witness.check(kafka, lambda: read_ledger(cluster, names.deployment))
    return check_paid(cluster, read_clock(kafka, names, horizons), read, names)


@ledger.command()
@config_options
@click.argument("pipeline")
def explain(flags: Flags, pipeline: str) -> None:
    """Explain what PIPELINE has paid for, and what its figures mean."""
    config = read_config(flags)
    no_view(config, pipeline)
    read = ledger_of(config)
    charges = [r for (name, _), r in sorted(read.charges.items()) if name == pipeline]
    if pipeline not in read.pipelines:
        there = ", ".join(read.pipelines) or "none"
        raise ConfigError(f"pipeline {pipeline!r} is not in the ledger, which has: {there}")
    if not charges:
        say(f"{pipeline}: nothing has been released or charged yet.")
        return
    body = charges[-1].body
    made = compile_config(config, spread=read.spread)
    compiled = next((p for p in made.pipelines if p.name == pipeline), None)
    say(_explanation(pipeline, body, read.spent(pipeline), compiled))
    for line in shared(read, totals(read, read.pipelines)):
        if compiled and compiled.purse and line.startswith(f"budget {compiled.purse.name} of "):
            say(f"  {line}")
    for record in charges:
        epoch = record.body["epoch"]
        say(
            f"  record {record.seq}: epoch {epoch}{_span(compiled, epoch)}, charged "
            f"{utc(record.time // 1_000_000 * 1_000_000)} before its first release; "
            f"hash {record.hash()[:16]}"
        )
    refused = sorted(epoch for name, epoch in read.refused if name == pipeline)
    if refused:
        say(f"  refused for lack of budget: epochs {', '.join(map(str, refused))}")
    if (end := read.retired.get(pipeline)) is not None:
        say(f"  retired at {utc(end['until'])}: no epoch from {end['epoch']} on is charged")


def _explanation(
    pipeline: str, body: dict[str, Any], spent: Spent, compiled: Pipeline | None
) -> str:
    unit = body["unit"]
    limit = compiled.terms.limit_epsilon if compiled else None
    held = "no limit is set" if limit is None else f"the limit is ε={float(limit):g}"
    if compiled and compiled.purse and limit is not None:
        held += f", of all of the budget {compiled.purse.name} together"
    cap = capped(body)
    pays = f"a {unit} present in all of them pays {composed(spent)}"
    if cap:  # the charges are an upper bound; the cap may be below it
        pays = f"by these alone a {unit} present in all of them pays at most {composed(spent)}"
        held += ", but a cap" if limit is None else ", and a cap"
    return (
        f"{pipeline}: mechanism {body['mechanism']}; adding or removing all records of one {unit} "
        f"in one epoch changes what anyone sees by at most ε={_short(body['epsilon'])}, "
        f"δ={_short(body['delta'])}, for all triggers of all windows of that epoch together.\n"
        f"  {counted(spent.epochs, 'epoch')} charged, once each, retries included: {pays}; "
        f"{held}.\n"
        + _why_less(spent)
        + cap
        + f"  exact cost of one epoch: μ²={_short(body['mu2'])} of Gaussian noise, "
        f"ε={_short(body['pure_epsilon'])} of other noise and rounding, "
        f"δ={_short(body['coupling_delta'])} of rare events, such as a key of one {unit} appearing."
    )


def _why_less(spent: Spent) -> str:
    if spent.composed() == spent.epsilon:
        return ""
    return (
        "  That is less than the sum, since the noise of the epochs is independent: what one of "
        "them gives away is not sure to point the same way in the next, so the squares of their "
        f"losses add up, μ²={float(spent.joint.mu2):.4g}, and not the losses. δ and what is not "
        "Gaussian noise are added as they are.\n"
    )


def _span(compiled: Pipeline | None, epoch: int) -> str:
    if compiled is None:
        return ""
    schedule = compiled.windows
    return f" ({utc(schedule.begin(epoch))} to {utc(schedule.begin(epoch + 1))})"


@ledger.command("sum")
@config_options
@json_option
@click.argument("ledgers", nargs=-1, required=True, metavar="LEDGER...")
def add_up(flags: Flags, as_json: bool, ledgers: tuple[str, ...]) -> None:
    """Add up LEDGERs: what one unit pays if its data are in all of them.

    Each LEDGER is a file with a copy, one record per line, or the name of a deployment.
    """
    found: dict[str, Ledger] = {}
    for name in ledgers:
        if Path(name).is_file():
            found[name] = _copy(Path(name))
        elif "." in name or "/" in name:  # no deployment's name contains these
            raise ConfigError(f"{name}: file not found; a LEDGER is a file, or a deployment's name")
        else:
            found[name] = _of_deployment(flags, name)
    whole = joint(found)
    if as_json:
        emit(plain_sum(found, whole))
        return
    console = Screen()
    for name, one in found.items():
        say(f"{name}: {counted(len(one.records), 'record')}, chain intact, head {one.head[:16]}")
    for one_sum in whole.sums:
        console.print()
        console.print(lines(one_sum))
        say(summed(one_sum))
    if not whole.sums:
        say("nothing has been charged yet")
    if whole.twice:
        say(f"\n{whole.twice} charges are in more than one of these ledgers, and count once")
    if len(whole.sums) > 1:
        say(
            "\nUnits and neighbouring relations of these sums differ, so they are not added: "
            "a person who is several of these units pays for each."
        )


def _copy(path: Path) -> Ledger:
    values = path.read_bytes().splitlines()
    try:
        return Ledger.read(value for value in values if value.strip())
    except LedgerError as error:
        raise LedgerError(f"{path}: {error}") from None


def _of_deployment(flags: Flags, name: str) -> Ledger:
    if flags.bootstrap and flags.alone:
        kafka = kafka_at(flags.bootstrap)
    else:
        kafka = read_config(flags).kafka
    cluster = Cluster(kafka, role="auditor")
    cluster.wait()
    try:
        return read_ledger(cluster, name)
    except NoLedgerError:
        raise ConfigError(f"{name!r} is neither a file nor a deployment on this cluster") from None


def _short(value: str | None) -> str:
    return "" if value is None else f"{float(number(value)):.6g}"


def _plain(record: Any) -> dict[str, Any]:
    return {
        "seq": record.seq,
        "prev_hash": record.prev_hash,
        "hash": record.hash(),
        "kind": record.kind,
        "time": record.time,
        **{name: value for name, value in record.body.items() if name != "config"},
    }


ledger.add_command(page)
