"""Proposals and forecasts of ``hush plan``: options, the request they form, and progress."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ...agents.deployment.compile import parameters_of, setting_of, value_columns
from ...agents.deployment.model import Deployment, Input, Pipeline
from ...agents.worker.lines.screen import Screen, say
from ...errors import ConfigError, ParameterError
from ...mechanisms.catalogue import entries, find
from ...mechanisms.planner import Goal, Option, Planner, Question
from ...mechanisms.stated_shape import Shape
from ...mechanisms.workload import Sample
from ...offline.files import stream_file
from ...offline.first_rows import mistimed
from ...offline.purses import MOST, Left, left
from ...planning.records import read_records
from ...planning.sample import sample_of, shape_sample
from ...planning.search import Answer, Search
from ...topics.config.load import Config

F = TypeVar("F", bound=Callable[..., Any])


def _whole(text: str) -> int:
    """Read a whole number, also one such as 1e6."""
    if not (found := float(text)).is_integer():
        raise ValueError(text)
    return int(found)


_NUMBERS: dict[str, Callable[[str], float]] = {
    "users": _whole, "records": _whole, "keys": _whole, "zipf": float, "repeat": float,
}  # fmt: skip


class Request(NamedTuple):
    """Options of the command line."""

    sample: Path | None = None
    shape: Shape | None = None
    pipeline: str | None = None
    goal: Goal = "last"
    records: int | None = None
    scale: float | None = None
    tune: bool = False


def _shape(value: str) -> Shape:
    given: dict[str, Any] = {}
    for part in value.split(","):
        name, _, text = part.strip().partition("=")
        if name not in _NUMBERS:
            known = ", ".join(_NUMBERS)
            raise click.BadParameter(f"{name!r} is unknown; expected one of {known}")
        try:
            given[name] = _NUMBERS[name](text.replace("_", ""))
        except ValueError:
            raise click.BadParameter(f"{name} = {text!r} is not a number") from None
    if missing := [name for name in ("users", "records", "keys") if name not in given]:
        raise click.BadParameter(f"{missing[0]} is missing")
    try:
        return Shape(**given)
    except ParameterError as error:
        raise click.BadParameter(str(error)) from None


def plan_options(command: F) -> F:
    """Add ``--sample``, ``--shape`` and the other options of a plan to a command."""
    for option in (
        click.option(
            "--tune",
            is_flag=True,
            help="With --sample: instead try a histogram's settings one by one, and list them.",
        ),
        click.option(
            "--tail-scale",
            "scale",
            type=click.FloatRange(min=0, min_open=True),
            metavar="S",
            help="pak, tops, topl: public guess that large values get e times rarer every S; "
            "default: from `excess`.",
        ),
        click.option(
            "--records",
            type=click.IntRange(min=2),
            metavar="N",
            help="pak, tops, topl: public guess of the records per window; "
            "default: from `expected`.",
        ),
        click.option(
            "--goal",
            type=click.Choice(["last", "mean"]),
            default="last",
            show_default=True,
            help="Error to minimise: at a window's last trigger, or the mean over its triggers.",
        ),
        click.option("--pipeline", help="Plan this pipeline; default: all of the first input."),
        click.option(
            "--shape",
            type=_shape,
            metavar="users=N,records=N,keys=N[,zipf=1][,repeat=0]",
            help="Instead of a sample: your guess of one window. The key of rank r is as popular "
            "as r^-zipf; `repeat` is the share of a unit's records that go to one key of its own.",
        ),
        click.option(
            "--sample",
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="Forecast from all of FILE (CSV, JSON lines, Arrow) what would be released, and "
            "three ways to go: best settings, less detail, another ε. PUBLIC OR SYNTHETIC data "
            "only: settings tuned on the protected stream leak it, and no charge covers that.",
        ),
    ):
        command = option(command)
    return command


def proposals(
    config: Config,
    deployment: Deployment,
    asked: Request,
    quiet: bool,
    without: Container[str] = (),
) -> dict[str, dict[str, Any]]:
    """Propose settings, by pipeline, if the mechanism needs no sample or has one.

    ``without`` names pipelines that need none. Raises `ConfigError` for an unusable sample, or a
    shape that describes no pipeline; one that it does not describe is left out with a message.
    """
    found, refused, shaped = {}, list[ConfigError](), False
    for source, pipeline, mine in _pipelines(config, deployment, asked):
        planner = find(pipeline.kind).planner
        if planner is None or pipeline.name in without or not (mine or asked.pipeline is None):
            continue
        using = _of_use(asked, planner) if mine else Request()
        try:
            question = _question(config, source, pipeline, using)
        except ConfigError as error:
            if using.shape is None:
                raise
            refused.append(error)
            continue
        shaped |= using.shape is not None
        if question.sample is not None or "sample" not in planner.options:
            found[pipeline.name] = _proposed(planner, question, quiet)
    if refused and not shaped:
        raise refused[0]
    for why in refused:
        say(f"{why}; the others are planned, and --pipeline NAME plans one alone", err=True)
    return found


def _pipelines(
    config: Config, deployment: Deployment, asked: Request
) -> Iterator[tuple[Input, Pipeline, bool]]:
    """Each pipeline with its input, and whether the command line selects it."""
    for source in deployment.inputs:
        for pipeline in source.pipelines:
            yield source, pipeline, _asked(config, pipeline, asked)


def _of_use(asked: Request, planner: Planner) -> Request:
    """Drop the options that the mechanism's proposals do not use."""
    if "sample" not in planner.options:
        return asked._replace(sample=None, shape=None)
    return asked if asked.tune else asked._replace(sample=None)


def _question(config: Config, source: Input, p: Pipeline, asked: Request) -> Question:
    (given,) = (one for one in config.pipeline if one.name == p.name)
    return Question(
        name=p.name,
        parameters=parameters_of(given),
        setting=setting_of(
            given, p.windows, value_columns(given), p.public_keys, p.cells_partitions
        ),
        mechanism=p.mechanism,
        sample=_sample(source, p, asked),
        source=str(asked.sample or "the stated shape"),
        goal=asked.goal,
        records=asked.records,
        scale=asked.scale,
    )


def _sample(source: Input, p: Pipeline, asked: Request) -> Sample | None:
    if asked.shape is not None:
        return shape_sample(p, asked.shape)
    return None if asked.sample is None else sample_of(p, source, asked.sample)


def _proposed(planner: Planner, question: Question, quiet: bool) -> dict[str, Any]:
    """The proposal, with a bar where it takes a while."""
    most = planner.ticks(question)
    columns = (
        TextColumn("trying settings of {task.description}"), BarColumn(), MofNCompleteColumn(),
        TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=Screen(stderr=True), disable=quiet or not most) as bar:
        task = bar.add_task(question.name, total=most)
        body = planner.propose(question, lambda: bar.advance(task))
        bar.update(task, completed=most)  # some candidates occur twice
    return body


def forecasts(
    config: Config, deployment: Deployment, asked: Request, quiet: bool
) -> dict[str, tuple[str, Answer]]:
    """Forecast three changes of each pipeline that has a sample: mechanism and answer, by pipeline.

    Raises `ConfigError` if the sample cannot be used.
    """
    if asked.sample is None or asked.tune:
        return {}
    return {
        pipeline.name: (
            pipeline.kind, _searched(config, source, pipeline, asked.sample, quiet)
        )
        for source, pipeline, mine in _pipelines(config, deployment, asked)
        if mine and find(pipeline.kind).planner is not None
    }  # fmt: skip


FIRST = 1_000  # rows of a sample that reveal the unit of its times


def warn_of_times(config: Config, deployment: Deployment, asked: Request) -> None:
    """Warn on standard error if a sample's times are probably in another unit."""
    if asked.sample is None:
        return
    rows = list(islice(stream_file(asked.sample), FIRST))
    sources = {s.name: s for s, _, mine in _pipelines(config, deployment, asked) if mine}
    for source in sources.values():
        if (why := mistimed(source, rows)) is not None:
            say(f"warning: {asked.sample}: {why}", err=True)


def purses(config: Config, deployment: Deployment, asked: Request) -> dict[str, Left]:
    """Forecast, by pipeline, what the cap for each unit keeps of a sample."""
    if asked.sample is None or asked.tune:
        return {}
    wanted = {
        p.name: source.name
        for source, p, mine in _pipelines(config, deployment, asked)
        if mine and p.lifetime is not None
    }
    if not wanted:
        return {}
    (source,) = set(wanted.values())
    rows = list(islice(stream_file(asked.sample), MOST))
    try:
        found = left(config, rows, source)
    except ConfigError as error:  # a window can be forecast from records without times
        say(f"the cap for each unit cannot be forecast: {error}", err=True)
        return {}
    return {name: one for name, one in found.items() if name in wanted}


def _searched(config: Config, source: Input, p: Pipeline, path: Path, quiet: bool) -> Answer:
    (given,) = (one for one in config.pipeline if one.name == p.name)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=Screen(stderr=True), disable=quiet) as bar:
        reading = bar.add_task(f"reading {path.name}", total=None)
        records = read_records(
            p, source, tuple(value_columns(given)), path, lambda n: bar.advance(reading, n)
        )
        bar.update(reading, total=records.read, completed=records.read)
        trying = bar.add_task(f"forecasting {p.name}", total=None)
        search = Search(p, given, records, lambda: bar.advance(trying))
        bar.update(trying, total=(most := search.ticks()))
        answer = search.answer(path)
        bar.update(trying, completed=most)
    return answer


def _asked(config: Config, pipeline: Pipeline, asked: Request) -> bool:
    if asked.pipeline is not None:
        return pipeline.name == asked.pipeline
    return bool(pipeline.config["input"]["name"] == config.input[0].name)


def check(config: Config, deployment: Deployment, asked: Request) -> None:
    """Raise `UsageError` for options that exclude each other or fit no pipeline."""
    _check_together(asked)
    names = [p.name for p in deployment.pipelines]
    if asked.pipeline is not None and asked.pipeline not in names:
        known = ", ".join(names) or "none"
        raise click.UsageError(f"pipeline {asked.pipeline!r} is unknown; expected one of {known}")
    if not names:
        return  # the plan says that nothing will be released
    kinds = {p.kind for p in deployment.pipelines if _asked(config, p, asked)}
    options: tuple[tuple[Option, object], ...] = (
        ("sample", asked.sample),
        ("shape", asked.shape),
        ("records", asked.records),
        ("tail-scale", asked.scale),
    )
    for option, given in options:
        wanted = {
            name for name, entry in entries().items()
            if entry.planner is not None
            and (option in entry.planner.options or (option == "sample" and not asked.tune))
        }  # fmt: skip
        if given is not None and not kinds & wanted:
            which = asked.pipeline or f"any pipeline of input {config.input[0].name!r}"
            whose = ", ".join(sorted(wanted))
            raise click.UsageError(f"--{option} does not apply to {which}: it is for {whose}")


def _check_together(asked: Request) -> None:
    if asked.scale is not None and not math.isfinite(asked.scale):
        raise click.UsageError("--tail-scale must be finite")
    if asked.sample is not None and asked.shape is not None:
        raise click.UsageError("give --sample or --shape, not both")
    if asked.tune and asked.sample is None:
        raise click.UsageError("--tune needs a --sample to try settings on")
    if asked.goal != "last" and asked.shape is None and not asked.tune:
        raise click.UsageError("--goal is for --shape, and for --sample with --tune")
    guesses = {"--tail-scale": asked.scale, "--records": asked.records}
    given = [name for name, guess in guesses.items() if guess is not None]
    if asked.sample is not None and not asked.tune and given:
        raise click.UsageError(f"{given[0]} is a guess, and --sample tells it: give one of them")
