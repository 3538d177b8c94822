"""The part of ``hush plan`` that advises: options, progress, and how advice is shown."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click
from hushstream.mechanisms.errors import ParameterError
from hushstream.mechanisms.histogram_propose import Goal, plays
from hushstream.mechanisms.shapes import Shape
from hushstream.topics.config import Config
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from .advice import (
    Subject,
    histogram_advice,
    pak_advice,
    shape_sample,
    subject,
    tops_advice,
)
from .model import Deployment, Pipeline
from .sample import Sample, sample_of

F = TypeVar("F", bound=Callable[..., Any])

VALUES = {"pak": pak_advice, "tops": tops_advice}
_NUMBERS: dict[str, type[int] | type[float]] = {
    "users": int, "records": int, "keys": int, "zipf": float, "repeat": float,
}  # fmt: skip


class Request(NamedTuple):
    """What was asked for on the command line."""

    sample: Path | None
    shape: Shape | None
    pipeline: str | None
    goal: Goal
    records: int | None
    scale: float | None


class _ShapeType(click.ParamType):
    name = "shape"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Shape:
        if isinstance(value, Shape):
            return value
        given: dict[str, Any] = {}
        for part in value.split(","):
            name, _, text = part.strip().partition("=")
            if name not in _NUMBERS:
                self.fail(f"{name!r} is none of {', '.join(_NUMBERS)}", param, ctx)
            try:
                given[name] = _NUMBERS[name](text.replace("_", ""))
            except ValueError:
                self.fail(f"{name} = {text!r} is no number", param, ctx)
        missing = [name for name in ("users", "records", "keys") if name not in given]
        if missing:
            self.fail(f"{missing[0]} is missing", param, ctx)
        try:
            return Shape(**given)
        except ParameterError as error:
            self.fail(str(error), param, ctx)


def advice_options(command: F) -> F:
    """``--sample``, ``--shape`` and what else `plan` needs to give advice."""
    for option in (
        click.option(
            "--tail-scale",
            "scale",
            type=click.FloatRange(min=0, min_open=True),
            metavar="S",
            help="pak, tops: large values get e times rarer every S, roughly and publicly; "
            "default: what `excess` says.",
        ),
        click.option(
            "--records",
            type=click.IntRange(min=2),
            metavar="N",
            help="pak, tops: records of a window, roughly and publicly; default: from `expected`.",
        ),
        click.option(
            "--goal",
            type=click.Choice(["last", "mean"]),
            default="last",
            show_default=True,
            help="Error to minimise: at a window's last trigger, or the mean over its triggers.",
        ),
        click.option(
            "--pipeline", "only", help="Advise on this one; default: all that read the first input."
        ),
        click.option(
            "--shape",
            type=_ShapeType(),
            metavar="users=N,records=N,keys=N[,zipf=1][,repeat=0]",
            help="Instead of a sample: one window as you guess it. The key of rank r is as popular "
            "as r^-zipf; `repeat` is the share of a unit's records that go to one key of its own.",
        ),
        click.option(
            "--sample",
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="Propose bound, weight, factorisation and split of histograms by playing FILE "
            "(CSV, JSON lines, Arrow), at least one whole window. PUBLIC OR SYNTHETIC data only: "
            "settings tuned on the protected stream leak it, and nothing pays for that.",
        ),
    ):
        command = option(command)
    return command


def request(
    sample: Path | None,
    shape: Shape | None,
    only: str | None,
    goal: Goal,
    records: int | None,
    scale: float | None,
) -> Request:
    """The options that were given.

    Raises:
        UsageError: they exclude each other, or a number is none.
    """
    if scale is not None and not math.isfinite(scale):
        raise click.UsageError("--tail-scale must be finite")
    if sample is not None and shape is not None:
        raise click.UsageError("give --sample or --shape, not both")
    return Request(sample, shape, only, goal, records, scale)


def advice(
    config: Config, deployment: Deployment, asked: Request, quiet: bool
) -> dict[str, dict[str, Any]]:
    """Advice by pipeline: on streams of values always, on histograms if there is a sample.

    Raises:
        ConfigError: the sample cannot be used.
    """
    found = {}
    for pipeline in deployment.pipelines:
        one = subject(config, pipeline)
        mine = _asked(config, one, asked)
        if one.kind in VALUES and (mine or asked.pipeline is None):
            numbers = (asked.records, asked.scale) if mine else (None, None)
            found[pipeline.name] = VALUES[one.kind](one, *numbers)
        elif one.kind == "histogram" and mine and (asked.sample or asked.shape):
            found[pipeline.name] = _played(deployment, one, asked, quiet)
    return found


def _asked(config: Config, one: Subject, asked: Request) -> bool:
    if asked.pipeline is not None:
        return one.pipeline.name == asked.pipeline
    return bool(one.pipeline.config["input"]["name"] == config.input[0].name)


def check(config: Config, deployment: Deployment, asked: Request) -> None:
    """Refuse options that fit no pipeline.

    Raises:
        UsageError: there is one.
    """
    names = [p.name for p in deployment.pipelines]
    if asked.pipeline is not None and asked.pipeline not in names:
        raise click.UsageError(f"there is no pipeline {asked.pipeline!r}; there is {_list(names)}")
    every = [subject(config, p) for p in deployment.pipelines]
    kinds = {one.kind for one in every if _asked(config, one, asked)}
    for option, given, wanted in (
        ("--sample", asked.sample, {"histogram"}),
        ("--shape", asked.shape, {"histogram"}),
        ("--records", asked.records, set(VALUES)),
        ("--tail-scale", asked.scale, set(VALUES)),
    ):
        if given is not None and not kinds & wanted:
            which = asked.pipeline or f"any pipeline of input {config.input[0].name!r}"
            raise click.UsageError(
                f"{option} is of no use to {which}: it is for {_list(sorted(wanted))}"
            )


def _list(names: list[str]) -> str:
    return ", ".join(names)


def _played(deployment: Deployment, one: Subject, asked: Request, quiet: bool) -> dict[str, Any]:
    sample = _sample(deployment, one, asked)
    columns = (
        TextColumn("trying settings of {task.description}"), BarColumn(), MofNCompleteColumn(),
        TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True), disable=quiet) as bar:
        most = plays(one.parameters, one.setting)
        task = bar.add_task(one.pipeline.name, total=most)
        body = histogram_advice(one, sample, asked.goal, lambda: bar.advance(task))
        bar.update(task, completed=most)  # some candidates turn up twice
    return {"source": str(asked.sample or "the stated shape"), **body}


def _sample(deployment: Deployment, one: Subject, asked: Request) -> Sample:
    if asked.shape is not None:
        return shape_sample(one, asked.shape)
    (source,) = (i for i in deployment.inputs if one.pipeline in i.pipelines)
    assert asked.sample is not None
    return sample_of(one.pipeline, source, asked.sample)


# What a person sees


def show(console: Console, pipeline: Pipeline, body: dict[str, Any]) -> None:
    """Print advice on one pipeline."""
    console.print()
    if body["kind"] == "histogram":
        _show_histogram(console, pipeline, body)
    else:
        console.print(_values(pipeline, body))
    for note in body["notes"]:
        console.print(f"• {note}", markup=False, highlight=False)
    console.print("proposed:" if body["changed"] else "nothing to change:", style="bold")
    console.print(body["toml"], markup=False, highlight=False, soft_wrap=True)


def _show_histogram(console: Console, pipeline: Pipeline, body: dict[str, Any]) -> None:
    sample, goal = body["sample"], body["goal"]
    console.print(
        f"{pipeline.name}, tried on {body['source']} (records: {sample['records']:,}, units: "
        f"{sample['units']:,}, keys: {sample['keys']:,}, windows: {sample['windows']}). "
        "This must be public or synthetic data: settings that are tuned on the protected stream "
        "leak it, and nothing pays for that. It should be as large as a real window: noise and "
        "thresholds do not shrink with a sample.",
        highlight=False, markup=False,
    )  # fmt: skip
    rows = list(_rows(body))
    first = rows[0][1]["settings"]
    varied = [n for n in first if any(r["settings"][n] != first[n] for _, r in rows)]
    at = "at a window's last trigger" if goal == "last" else "on average over a window's triggers"
    table = Table(title=f"{pipeline.name}: expected error {at}", title_justify="left")
    table.add_column("", no_wrap=True)
    for name in varied:
        table.add_column(name.replace("_", " "), justify="right")
    table.add_column("keys released", justify="right")
    for name in body["proposed"]["l1"]:
        table.add_column(f"l1 {name}", justify="right")
    table.add_column("of all", justify="right")
    for mark, candidate in rows:
        table.add_row(mark, *_cells(candidate, goal, varied))
    console.print(table)


def _rows(body: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """What is configured; then the best candidate of every budget, the proposed one marked."""
    best: dict[float, dict[str, Any]] = {}
    for candidate in body["candidates"]:  # best first
        best.setdefault(candidate["settings"]["budget"], candidate)
    proposed, given = body["proposed"], body["configured"]
    best[proposed["settings"]["budget"]] = proposed
    if given != proposed:
        yield "configured", given
    for _, candidate in sorted(best.items()):
        if candidate != given or given == proposed:
            yield "proposed" if candidate == proposed else "", candidate


def _cells(candidate: dict[str, Any], goal: str, names: list[str]) -> list[str]:
    settings = [candidate["settings"][name] for name in names]
    errors = candidate["l1" if goal == "last" else "mean_l1"].values()
    numbers = [f"{candidate['released']:,.0f}", *(f"{x:,.0f}" for x in errors)]
    return [
        *(v if isinstance(v, str) else f"{v:g}" for v in settings), *numbers,
        f"{candidate['share']:.1%}",
    ]  # fmt: skip


def _values(pipeline: Pipeline, body: dict[str, Any]) -> Table:
    what = "running total" if body["kind"] == "pak" else "sum of a range"
    table = Table(
        title=f"{pipeline.name}: expected for {body['records']:,} records a window, large values "
        f"e times rarer every {body['scale']:g}",
        show_header=False, title_justify="left",
    )  # fmt: skip
    names = {
        "proposed": "as proposed",
        "configured": "as configured",
        "ideal": "with the ideal threshold",
        "top": f"with B = {body['largest_value']:g}",
    }
    for name, error in body["expected_error"].items():
        text = "nothing sensible: no threshold" if error is None else f"±{error:,.4g}"
        table.add_row(f"error of a {what}, {names[name]}", text)
    for name, text in _details(body):
        table.add_row(name, text)
    return table


def _details(body: dict[str, Any]) -> Iterator[tuple[str, str]]:
    if body["kind"] == "pak":
        if body["rank"]:
            yield "threshold from the warm-up's", f"{body['rank']}-th largest value"
        return
    threshold = body["threshold"]
    spread = f"{threshold['5%']:g} to {threshold['95%']:g}, ideal {threshold['ideal']:g}"
    yield "threshold, 9 times of 10", spread
    block = f"{body['slots_per_block']:,} slots (skip = {body['skip']})"
    yield "finest sum with noise of its own", block
    chunk = body["slots_per_chunk"]
    yield "hierarchy", f"chunks of {chunk:,} slots" if chunk else "one endless tree"
