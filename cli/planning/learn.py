"""``hush learn``: contribution bounds from what the first epochs have released."""

from __future__ import annotations

import time

import click
from rich.table import Table

from ...agents.deployment.compile import compile_config
from ...agents.worker.lines.screen import Screen, say
from ...errors import ConfigError
from ...planning.learnt import LearntBound, learnt
from ...reading.client import ReleaseTopic, Wanted, releases
from ...topics.config.learn import activity_of, learnt_of
from ...topics.config.load import Config
from ...topics.config.pipelines.pipeline import PipelineSettings
from ...topics.config.toml.values import format_instant
from ..options import Flags, config_options, declared, emit, json_option, read_config, readable


@click.command()
@config_options
@json_option
@click.argument("pipelines", nargs=-1, metavar="[PIPELINE]...")
def learn(flags: Flags, as_json: bool, pipelines: tuple[str, ...]) -> None:
    """Choose a contribution bound from the first releases, and say what to write.

    Only public releases are read, so this costs nothing; default: every pipeline with a table
    learn whose bound is unknown.
    """
    config = read_config(flags)
    chosen = [declared(config, name) for name in pipelines] or list(config.pipeline)
    for one in chosen:
        if one.learn is None and pipelines:
            raise ConfigError(f"pipeline {one.name!r} has no table learn: its bound is stated")
    found = {
        one.name: _learnt(config, one)
        for one in chosen
        if one.learn is not None and one.learn.budget is None
    }
    if as_json:
        emit({"pipelines": {name: one and _body(one) for name, one in found.items()}})
        return
    if not found:
        say("no bound is left to learn: no pipeline has a table learn without a budget")
    for name, known in found.items():
        _say(name, known)


def _learnt(config: Config, settings: PipelineSettings) -> LearntBound | None:
    made = {p.name: p for p in compile_config(config).pipelines}
    p, other = made[settings.name], made[activity_of(settings.name)]
    activity, own = (
        list(releases(ReleaseTopic(config.kafka, q.release_topic, q.name), Wanted(final=True)))
        for q in (other, p)
    )
    return learnt(settings, p, activity, own, int(time.time() * 1e6))


def line(one: LearntBound) -> str:
    """The line of the configuration that applies a learnt bound."""
    return f"learn = {{ budget = {one.found.budget:g}, at = {format_instant(one.at)} }}"


def _body(one: LearntBound) -> dict[str, object]:
    return {
        "budget": one.found.budget,
        "at": format_instant(one.at),
        "stated": one.stated,
        "expected": {f"{budget:g}": error for budget, error in one.found.expected.items()},
        "window": one.window.start,
        "toml": line(one),
    }


def _say(name: str, one: LearntBound | None) -> None:
    if one is None:
        say(
            f"{name}: nothing is known yet: no window has ended whose activity stands out of the "
            "noise"
        )
        return
    table = Table(title=f"{name}: expected error of all counts, as a share of all records")
    for head in ("budget", "error", ""):
        table.add_column(head)
    for budget, error in one.found.expected.items():
        words = {one.found.budget: "learnt", one.stated: "until now"}
        table.add_row(f"{budget:g}", f"{error:.1%}", words.get(budget, ""))
    Screen().print(readable(table))
    say(
        f"from the window that began at {one.window.start:%Y-%m-%dT%H:%MZ}. Write in the block of "
        f"{name!r}:\n\n    {line(one)}\n\nthen stop the workers, run `hush topics` and start "
        f"them, before that time: {learnt_of(name)!r} goes on from there."
    )
