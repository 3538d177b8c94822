"""``hush plan``: judge a configuration before any budget is spent."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from ...agents.deployment.cautions import NOTHING, cautions
from ...agents.deployment.cluster.rights import UNKNOWN as GENESIS
from ...agents.deployment.cluster.topic_specs import counted as counted_topics
from ...agents.deployment.cluster.topic_specs import internal_topics, public_topics
from ...agents.deployment.compile import compile_config
from ...agents.deployment.model import Pipeline
from ...agents.deployment.published import statement
from ...agents.stages.view.records import in_words
from ...agents.worker.lines.screen import Screen
from ...formats.events.decode import utc
from ...mechanisms.catalogue import planner_of
from ...mechanisms.parts.bounds.stated import plain
from ...mechanisms.planner import PlanTable
from ...offline.files import stream_file
from ...offline.purses import Left
from ...planning.implied import implied_bound
from ...planning.search import Answer
from ...planning.ways import body_of, of_query, show_ways
from ...topics.config.toml.values import counted, format_duration
from ...topics.names import Names
from ..deployed import by_size, least_partitions
from ..options import Flags, config_options, emit, json_option, read_config, readable
from .diff import show_difference
from .over_epochs import cap, many
from .request import Request, check, forecasts, plan_options, proposals, purses, warn_of_times

UNKNOWN = (
    "No record was read: bounds, cost, noise and thresholds follow from the configuration alone. "
    "What is released, with what error and loss, depends on the records. --sample FILE "
    "forecasts it from public or synthetic ones, with three ways to go; for histograms and "
    "quantiles, --shape users=N,records=N,keys=N does from your guess of a window."
)
HOPPING = (
    "Windows that hop or have no end are not forecast: hush simulate runs them on such records."
)
SLIGHT = 1e-4  # share of ε: rounding costs far less, deliberate noise more
SAMPLER = 2.0**-60  # inexact sampling costs far less than this


def describe(p: Pipeline) -> dict[str, Any]:
    """Describe a pipeline from its public parameters alone."""
    m, schedule = p.mechanism, p.windows
    cost = m.cost()
    error = m.error(m.traits.foremost).tolist()
    body: dict[str, Any] = {
        "pipeline": p.name,
        "mechanism": p.kind,
        "unit": p.unit_name,
        "window": schedule.shown,
        "windows_per_epoch": schedule.per_epoch,
        "triggers": m.traits.horizon,
        "epsilon": float(p.epsilon),
        "delta": float(p.delta),
        "mu2": float(cost.mu2),
        "pure_epsilon": float(cost.epsilon),
        "coupling_delta": float(cost.delta),
        "noise": {o.name: e * float(o.grid) for o, e in zip(m.traits.outputs, error, strict=True)},
        "epsilon_every_window": float(p.epsilon),
        "definition": statement.definition(p),
    }
    stated = {name: plain(value) for name, value in statement.stated(p).items()}
    return body | stated | capped(p) | m.plan()


def capped(p: Pipeline) -> dict[str, Any]:
    """Describe the cap per unit, if any, and how long it lasts by use of the contribution bound."""
    if p.lifetime is None:
        return {}
    lasts = float(p.lifetime.part)
    epochs = p.lifetime.cap.epochs
    most = None if epochs is None else min(1.0, lasts / epochs)
    return {"per_unit_bounds": lasts, "per_unit_epochs": epochs, "kept_of_full_bounds": most}


@click.command()
@config_options
@plan_options
@click.option("--diff", "before", metavar="OLD.toml|ledger",
              help="Instead show what differs from a file, or from what was declared.")  # fmt: skip
@json_option
def plan(flags: Flags, as_json: bool, before: str | None, **options: Any) -> None:
    """Print bounds, noise, thresholds and cost, before anything is spent.

    With --sample, forecast what would be released and three ways to go. With --shape, or --sample
    with --tune, propose settings for histograms. For values (pak, tops, topl), always print
    the expected errors and a proposal.

    With --diff, tell each setting that differs, from when on it holds, and what a unit pays for the
    old terms, the new ones and both.
    """
    config = read_config(flags)
    if before is not None:
        show_difference(config, before, as_json)
        return
    deployment, asked = compile_config(config), Request(**options)
    check(config, deployment, asked)
    if asked.sample is not None:
        stream_file(asked.sample)  # refuses an unreadable file before anything is printed
    bodies = {p.name: describe(p) for p in deployment.pipelines}
    names = Names(deployment.name, GENESIS)
    topics = [*public_topics(deployment), *internal_topics(deployment, names)]
    wanted = [p for p in deployment.pipelines if asked.pipeline in (None, p.name)]
    computed = [v for v in deployment.views if v.source in wanted]
    console = Screen()
    doubts = list(cautions(config, int(time.time() * 1e6)))
    doubts += [] if deployment.pipelines else [NOTHING]
    if not as_json:
        for p in wanted:
            console.print(readable(described(p, bodies[p.name])))
        for v in computed:
            text = f"view {v.name}: {', '.join(one.label for one in v.values)}; {in_words(v)}"
            console.print(text, soft_wrap=True, highlight=False, markup=False)
        _together(console, config.input, deployment.pipelines)
        for text in doubts:
            console.print(f"warning: {text}", soft_wrap=True, markup=False)
        needed = counted_topics(topics)[0]
        console.print(f"needed: {needed} (`hush topics --print`)", highlight=False)
        if said := by_size(config):
            console.print(said, soft_wrap=True, highlight=False)
    warn_of_times(config, deployment, asked)
    found = forecasts(config, deployment, asked, as_json)
    queries = {p.name: p.query for p in config.pipeline}
    queried = {name: of_query(queries.get(name)) for name in found}
    shown = () if as_json else found  # forecasts use records; proposals assume them
    proposed = proposals(config, deployment, asked, as_json, shown)
    dry = purses(config, deployment, asked)
    if as_json:
        told: dict[str, Any] = {
            "pipelines": [_planned(bodies[p.name], proposed, found, queried, dry) for p in wanted],
            "topics": len(topics),
            "partitions": sum(one.partitions for one in topics),
            "least_partitions": least_partitions(config),
            "warnings": doubts,
        }
        views = [{"view": v.name, "source": v.source.name, "epsilon": 0} for v in computed]
        emit(told | ({"views": views} if views else {}))
        return
    for p in deployment.pipelines:
        if p.name in proposed:
            _show_proposal(console, p, proposed[p.name])
        if p.name in found:
            show_ways(console, p.name, *found[p.name], queried[p.name])
        if p.name in dry:
            console.print(f"\n{p.name}: cap per {p.unit_name}", style="bold", highlight=False)
            console.print(dry[p.name].in_words, highlight=False, markup=False)
    if asked.sample is None and asked.shape is None and deployment.pipelines:
        hops = any(p.windows.hops > 1 or p.windows.endless for p in deployment.pipelines)
        words = f"{UNKNOWN} {HOPPING}" if hops else UNKNOWN
        console.print(f"\n{words}", highlight=False, markup=False)


def _planned(
    body: dict[str, Any],
    proposed: dict[str, Any],
    found: dict[str, tuple[str, Answer]],
    queried: dict[str, frozenset[str]],
    dry: dict[str, Left],
) -> dict[str, Any]:
    name = body["pipeline"]
    more = body | {"advice": proposed.get(name)}
    if name in dry:
        more["per_unit_forecast"] = dry[name].body
    return more | ({"forecast": body_of(*found[name], queried[name])} if name in found else {})


def _show_proposal(console: Console, pipeline: Pipeline, body: dict[str, Any]) -> None:
    made = planner_of(pipeline.kind).table(pipeline.name, body)
    console.print()
    if made.intro:
        console.print(made.intro, highlight=False, markup=False)
    console.print(readable(_columns(made) if made.heads else _pairs(made)))
    for note in body["notes"]:
        console.print(f"• {note}", markup=False, highlight=False)
    console.print("proposed:" if body["changed"] else "no change needed:", style="bold")
    console.print(body["toml"], markup=False, highlight=False, soft_wrap=True)


def _columns(made: PlanTable) -> Table:
    table = Table(title=made.title, title_justify="left", box=None, padding=(0, 2, 0, 0))
    for place, head in enumerate(made.heads):
        justify = "right" if place else "left"
        table.add_column(head.text, justify=justify, no_wrap=not head.wraps)  # type: ignore[arg-type]
    for row in made.rows:
        table.add_row(*row)
    return table


def _pairs(made: PlanTable) -> Table:
    table = Table(title=made.title, show_header=False, title_justify="left")
    for row in made.rows:
        table.add_row(*row)
    return table


def described(p: Pipeline, body: dict[str, Any]) -> Table:
    """Lay out the result of `describe` as a table."""
    table = Table(title=f"{p.name}: {body['mechanism']}", show_header=False, title_justify="left")
    table.add_column(no_wrap=True)
    table.add_column()
    dated = p.windows.calendar
    most = "" if dated is None or dated.alike else "up to "
    triggers = f"{most}{body['triggers']} per window of {body['window']}"
    table.add_row(
        "releases",
        f"every {format_duration(p.windows.every)}, without a stated end; one charge for all"
        if p.windows.endless
        else f"{triggers}; {counted(body['windows_per_epoch'], 'window')} per epoch",
    )
    table.add_row("privacy unit", _unit(p, body))
    if p.public_keys is not None:
        table.add_row("keys", _listed(p))
    share = "" if p.purse is None else (
        f": its share of the budget {p.purse.name}, ε={float(p.purse.one.epsilon):g}, "
        f"δ={float(p.purse.one.delta):g} for {' and '.join(p.purse.members)} together"
    )  # fmt: skip
    table.add_row(
        "cost", f"ε={body['epsilon']:g}, δ={body['delta']:g} per {p.unit_name} and epoch{share}"
    )
    for part in cost_parts(p, body):
        table.add_row("  of which", part)
    if words := p.mechanism.stated(p.unit_name).in_words:
        table.add_row("  of which", words)
    table.add_row("over many epochs", many(p))
    if p.lifetime is not None:
        table.add_row(f"cap per {p.unit_name}", cap(p, body))
    partial = _parts_of_some(p)
    inexact = {one.name for one in p.traits.outputs if one.ends}
    for name, stddev in body["noise"].items():
        last = "last trigger" if p.windows.hops == 1 else "worst window of an epoch"
        last = f"trigger {p.traits.foremost:,}" if p.windows.endless else last
        last = f"{last} of the longest windows" if most else last
        words = f"standard deviation, {last}"
        if name in inexact:
            words = "at most; it depends on the values, and each release has its interval"
        table.add_row(f"noise of {partial.get(name, name)}", f"±{stddev:.4g} ({words})")
    for name, value in p.mechanism.plan_rows(p.unit_name):
        table.add_row(name, _labelled(value, partial))
    if dated is not None and most:
        table.add_row("shorter windows", _shorter(p, dated.fewest))
    if said := implied_bound(p):
        table.add_row("what the bound keeps", said)
    return table


def _shorter(p: Pipeline, fewest: int) -> str:
    """Say with which noise and threshold windows end that lack the last triggers."""
    m, partial = p.mechanism, _parts_of_some(p)
    ends = range(fewest, m.traits.horizon)
    noise = np.array([m.error(t) for t in ends]).max(axis=0)
    words = [
        f"{partial.get(one.name, one.name)} ±{noise[n] * float(one.grid):.4g}"
        for n, one in enumerate(m.traits.outputs)
        if not one.ends
    ]
    bars = [float(bar) for t in ends if (bar := m.key_threshold(t)) is not None]
    words += [f"threshold of a key {max(bars):.4g}"] if bars else []
    times = f"{ends[0]:,}" if len(ends) == 1 else f"{ends[0]:,} to {ends[-1]:,}"
    return f"end at trigger {times}, with at most: {', '.join(words)}"


def _parts_of_some(p: Pipeline) -> dict[str, str]:
    """Name the parts released for some records only: by the value, or by the value they serve."""
    found: dict[str, str] = {}
    for one in p.aggregates:
        for column in (c for c in one.columns if c.where):
            plainly = "count" if column.field is None else "sum"
            words = {"sum": plainly, "square": "squares", "centred": "sum around the middle"}
            for part, word in words.items():
                found.setdefault(f"{part}:{column.name}", f"{one.label}: {word}")
    alone = {one.parts[0]: one.label for one in p.aggregates if len(one.parts) == 1}
    return found | alone


def _labelled(text: str, partial: dict[str, str]) -> str:
    """Call noise of a part by the same name as in other rows."""
    named = r"(^|[;,] )([^;,±]+) ±"
    return re.sub(named, lambda m: f"{m[1]}{partial.get(m[2], m[2])} ±", text)


def _listed(p: Pipeline) -> str:
    """Say which keys are public, and that selecting them costs nothing."""
    number = len(p.public_keys or ())
    columns = [p.sampled.fields.derived.get(name) for name in p.key_names]
    domains = [one.domain if one is not None else None for one in columns]
    free = "nothing is selected, which costs nothing and hides no key"
    if not p.key_names and p.public_keys:
        return f"one total of all records: {free}"
    if None not in domains and math.prod(len(d or ()) for d in domains) == number:
        names = ", ".join(p.key_names)
        return f"all {counted(number, 'key')} of {names}, public by nature: {free}"
    return f"{counted(number, 'key')} of the public list: {free}"


def cost_parts(p: Pipeline, body: dict[str, Any]) -> Iterator[str]:
    """List the parts of the cost, if it has more than one."""
    mu2, pure, delta = body["mu2"], body["pure_epsilon"], body["coupling_delta"]
    if mu2:
        yield (
            f"μ²={mu2:.6g}: Gaussian noise; all releases with one {p.unit_name} and without it are "
            "at least as hard to tell apart as N(μ, 1) and N(0, 1)"
        )
    if pure and mu2:
        source = "noise is drawn on a grid" if pure < SLIGHT * body["epsilon"] else "other noise"
        yield f"ε={pure:.3g}: {source}"
    if delta < SAMPLER:
        source = "drawn noise is not quite exact"
    elif p.mechanism.key_threshold(1) is not None:
        source = f"the chance that a key which one {p.unit_name} alone has appears"
    else:
        source = "noise that has a δ of its own"
    if delta:
        yield f"δ={delta:.3g}: {source}"


def _unit(p: Pipeline, body: dict[str, Any]) -> str:
    if body["definition"] == "local":
        return f"values that one {p.unit_name} reports; local: they never leave the device"
    return f"one {p.unit_name}, added or removed with all its records"


def _together(console: Console, inputs: Any, pipelines: tuple[Pipeline, ...]) -> None:
    for source in inputs:
        mine = [p for p in pipelines if p.config["input"]["name"] == source.name]
        if len(mine) > 1:
            # Members of a shared budget pay its charge once, and not the sum of their shares.
            charges = {p.name if p.purse is None else p.purse.name: p.terms.one for p in mine}
            total = float(sum(one.epsilon for one in charges.values()))
            for p in mine:
                if p.follows is not None:
                    console.print(
                        f"{p.name} follows {p.follows} from {utc(p.windows.origin)} on: a "
                        f"{p.unit_name} active before and after pays the sum over both; the "
                        "boundary divides records, and not units",
                        soft_wrap=True,
                    )
            names = " and ".join(p.name for p in mine)
            console.print(
                f"{names} read the same input: together they charge a unit at most ε={total:g} "
                "if it is active in one epoch of each"
            )
