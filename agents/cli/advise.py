"""Advice in ``hush plan``: its options, the request that they form, progress."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ...errors import ParameterError
from ...mechanisms.histogram.advise import Goal, plays
from ...mechanisms.histogram.stated_shape import Shape
from ...topics.config.load import Config
from ..advice.advise import (
    Subject,
    histogram_advice,
    pak_advice,
    repeats_of,
    shape_sample,
    subject,
    tops_advice,
)
from ..advice.sample import Sample, sample_of
from ..deployment.model import Deployment

F = TypeVar("F", bound=Callable[..., Any])

VALUES = {"pak": pak_advice, "tops": tops_advice}
_NUMBERS: dict[str, type[int] | type[float]] = {
    "users": int, "records": int, "keys": int, "zipf": float, "repeat": float,
}  # fmt: skip


class Request(NamedTuple):
    """The advice that the command line asks for."""

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
                self.fail(f"{name!r} is unknown; expected one of {', '.join(_NUMBERS)}", param, ctx)
            try:
                given[name] = _NUMBERS[name](text.replace("_", ""))
            except ValueError:
                self.fail(f"{name} = {text!r} is not a number", param, ctx)
        missing = [name for name in ("users", "records", "keys") if name not in given]
        if missing:
            self.fail(f"{missing[0]} is missing", param, ctx)
        try:
            return Shape(**given)
        except ParameterError as error:
            self.fail(str(error), param, ctx)


def advice_options(command: F) -> F:
    """Add ``--sample``, ``--shape`` and the other options of advice to a command."""
    for option in (
        click.option(
            "--tail-scale",
            "scale",
            type=click.FloatRange(min=0, min_open=True),
            metavar="S",
            help="pak, tops: public guess that large values get e times rarer every S; "
            "default: from `excess`.",
        ),
        click.option(
            "--records",
            type=click.IntRange(min=2),
            metavar="N",
            help="pak, tops: public guess of the records per window; default: from `expected`.",
        ),
        click.option(
            "--goal",
            type=click.Choice(["last", "mean"]),
            default="last",
            show_default=True,
            help="Error to minimise: at a window's last trigger, or the mean over its triggers.",
        ),
        click.option(
            "--pipeline", "only", help="Advise on this pipeline; default: all of the first input."
        ),
        click.option(
            "--shape",
            type=_ShapeType(),
            metavar="users=N,records=N,keys=N[,zipf=1][,repeat=0]",
            help="Instead of a sample: your guess of one window. The key of rank r is as popular "
            "as r^-zipf; `repeat` is the share of a unit's records that go to one key of its own.",
        ),
        click.option(
            "--sample",
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="Propose bound, weight, factorisation and split of histograms from trials on FILE "
            "(CSV, JSON lines, Arrow), at least one whole window. PUBLIC OR SYNTHETIC data only: "
            "settings tuned on the protected stream leak it, and no charge covers that.",
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
    """Check the given options and collect them.

    Raises:
        UsageError: they exclude each other, or a number is not finite.
    """
    if scale is not None and not math.isfinite(scale):
        raise click.UsageError("--tail-scale must be finite")
    if sample is not None and shape is not None:
        raise click.UsageError("give --sample or --shape, not both")
    return Request(sample, shape, only, goal, records, scale)


def advice(
    config: Config, deployment: Deployment, asked: Request, quiet: bool
) -> dict[str, dict[str, Any]]:
    """Return advice by pipeline: always on streams of values, on histograms if there is a sample.

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
        UsageError: an option fits no pipeline.
    """
    names = [p.name for p in deployment.pipelines]
    if asked.pipeline is not None and asked.pipeline not in names:
        raise click.UsageError(
            f"pipeline {asked.pipeline!r} is unknown; expected one of {_list(names)}"
        )
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
                f"{option} does not apply to {which}: it is for {_list(sorted(wanted))}"
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
        most = plays(one.parameters, one.setting, repeats_of(sample))
        task = bar.add_task(one.pipeline.name, total=most)
        body = histogram_advice(one, sample, asked.goal, lambda: bar.advance(task))
        bar.update(task, completed=most)  # some candidates occur twice
    return {"source": str(asked.sample or "the stated shape"), **body}


def _sample(deployment: Deployment, one: Subject, asked: Request) -> Sample:
    if asked.shape is not None:
        return shape_sample(one, asked.shape)
    (source,) = (i for i in deployment.inputs if one.pipeline in i.pipelines)
    assert asked.sample is not None
    return sample_of(one.pipeline, source, asked.sample)
