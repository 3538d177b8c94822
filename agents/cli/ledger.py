"""``hush ledger show | verify | explain``: the spent budget, by epoch and purpose."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from ...errors import ConfigError
from ...topics.config.load import Config
from ...topics.config.secret import noise_key
from ...topics.events.decode import utc
from ...topics.names import Names
from ..clock.genesis import read_ledger
from ..clock.ledger import Ledger, Record, number, totals
from ..clock.start import check_paid, read_clock
from ..clock.witness import Witness
from ..deployment.compile import compile_config
from ..deployment.model import Pipeline
from ..kafka.cluster import Cluster
from .options import config_options, emit, json_option, read_config, readable


@click.group()
def ledger() -> None:
    """Show, verify or explain the privacy ledger."""


def _open(path: str, bootstrap: str | None, settings: tuple[str, ...]) -> tuple[Config, Ledger]:
    config = read_config(path, bootstrap, settings)
    cluster = Cluster(config.kafka)
    cluster.wait()
    return config, read_ledger(cluster, config.deployment.name)


@ledger.command()
@config_options
@json_option
def show(path: str, bootstrap: str | None, settings: tuple[str, ...], as_json: bool) -> None:
    """Show every record, oldest first, and the totals."""
    _, read = _open(path, bootstrap, settings)
    sums = totals(read, list(read.pipelines))
    if as_json:
        emit(
            {
                "records": [_plain(r) for r in read.records],
                "totals": {
                    name: {"epsilon": float(e), "delta": float(d), "epochs": n}
                    for name, (e, d, n) in sums.items()
                },
            }
        )
        return
    console = Console()
    console.print(records(read.records))
    units = {r.body.get("pipeline"): r.body.get("unit") for r in read.records if "unit" in r.body}
    for name, (epsilon, delta, epochs) in sums.items():
        console.print(
            f"{name}: {epochs} epochs charged; a {units.get(name, 'unit')} active in all of them "
            f"pays at most ε={float(epsilon):g}, δ={float(delta):g} in total"
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
def verify(path: str, bootstrap: str | None, settings: tuple[str, ...], as_json: bool) -> None:
    """Check the chain, one charge per epoch, a charge for each trigger; exit 3 if it fails."""
    config, read = _open(path, bootstrap, settings)
    read = _against_clock(config, read)
    body = {"records": len(read.records), "charges": len(read.charges), "head": read.head}
    if as_json:
        emit(body)
    else:
        click.echo(
            f"intact: {body['records']} records, {body['charges']} charges, each epoch once, every "
            f"trigger of the clock log paid for; head {read.head}"
        )


def _against_clock(config: Config, read: Ledger) -> Ledger:
    """The ledger, once the clock log knows of no trigger that it has not paid for."""
    names = Names(config.deployment.name, read.genesis["genesis"])
    horizons = {p.name: p.mechanism.horizon for p in compile_config(config).pipelines}
    cluster, kafka = Cluster(config.kafka), config.kafka
    if config.engine.witness:
        witness = Witness(Path(config.engine.witness), names, noise_key(config))
        witness.check(kafka, lambda: read_ledger(cluster, names.deployment))
    return check_paid(cluster, read_clock(kafka, names, horizons), read, names)


@ledger.command()
@config_options
@click.argument("pipeline")
def explain(path: str, bootstrap: str | None, settings: tuple[str, ...], pipeline: str) -> None:
    """Explain what PIPELINE has paid for, and what its figures mean."""
    config, read = _open(path, bootstrap, settings)
    charges = [r for (name, _), r in sorted(read.charges.items()) if name == pipeline]
    if pipeline not in read.pipelines:
        raise ConfigError(f"pipeline {pipeline!r} is not in the ledger")
    if not charges:
        click.echo(f"{pipeline}: nothing has been released or charged yet.")
        return
    body = charges[-1].body
    epsilon = sum(float(number(r.body["epsilon"])) for r in charges)
    compiled = {p.name: p for p in compile_config(config).pipelines}.get(pipeline)
    click.echo(_explanation(pipeline, body, len(charges), epsilon, compiled))
    for record in charges:
        epoch = record.body["epoch"]
        click.echo(
            f"  record {record.seq}: epoch {epoch}{_span(compiled, epoch)}, charged "
            f"{utc(record.time // 1_000_000 * 1_000_000)} before its first release; "
            f"hash {record.hash()[:16]}"
        )
    refused = sorted(epoch for name, epoch in read.refused if name == pipeline)
    if refused:
        click.echo(f"  refused for lack of budget: epochs {', '.join(map(str, refused))}")


def _explanation(
    pipeline: str, body: dict[str, Any], epochs: int, epsilon: float, compiled: Pipeline | None
) -> str:
    unit = body["unit"]
    limit = compiled.limit_epsilon if compiled else None
    return (
        f"{pipeline}: mechanism {body['mechanism']}; adding or removing all records of one {unit} "
        f"in one epoch changes what anyone sees by at most ε={_short(body['epsilon'])}, "
        f"δ={_short(body['delta'])}, for all triggers of all windows of that epoch together.\n"
        f"  {epochs} epochs were charged once each, whatever was retried: a {unit} present "
        f"in all of them pays ε={epsilon:g}"
        + (f" of the limit {float(limit):g}.\n" if limit is not None else "; no limit is set.\n")
        + f"  exact cost of one epoch: μ²={_short(body['mu2'])} (Gaussian part), pure "
        f"ε={_short(body['pure_epsilon'])}, δ of thresholds {_short(body['coupling_delta'])}."
    )


def _span(compiled: Pipeline | None, epoch: int) -> str:
    if compiled is None:
        return ""
    schedule = compiled.windows
    start = schedule.start(epoch * schedule.per_epoch)
    return f" ({utc(start)} to {utc(start + schedule.length * schedule.per_epoch)})"


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


COMMANDS: list[click.Command] = [ledger]
