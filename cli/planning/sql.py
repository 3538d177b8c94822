"""``hush sql``: a query as the pipeline that it becomes."""

from __future__ import annotations

import errno
import os
import re
import shlex
import time
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import click

from ...agents.deployment.cautions import cautions
from ...agents.deployment.compile import compile_config
from ...agents.deployment.compiling.looked_up import stated_tables
from ...agents.worker.lines.screen import Screen, put, say
from ...errors import ConfigError
from ...planning.ways import show_ways
from ...topics.config.load import Config, loads, read_text
from ...topics.digits import NOT_HUGE, huge
from ...topics.sql.columns import QuerySource, plain_number
from ...topics.sql.query import Query, read_query
from ...topics.sql.written import table
from ..options import CONFIG, emit, json_option, kept_tables, readable
from .plan import describe, described
from .request import Request, check, forecasts

_ORDER = (
    "name", "query", "input", "key", "derive", "public_keys", "where", "session", "inputs",
    "aggregate", "clip", "window", "triggers", "mechanism", "budget",
)  # fmt: skip


def number(text: str) -> Decimal:
    """Read a number of the command line; click shows this function's name in the help."""
    try:
        found = Decimal(text)
    except ArithmeticError:
        raise click.BadParameter(f"{text!r} is not a number") from None
    if not found.is_finite():
        raise click.BadParameter(f"{text!r} is not finite")
    if huge(str(found)):
        raise click.BadParameter(f"{text[:80]!r} {NOT_HUGE}")
    return found


def _clip(text: str) -> tuple[str, dict[str, Any]]:
    field, equals, ends = text.partition("=")
    parts = ends.split(":")
    if not equals or not field or len(parts) not in (2, 3):
        raise click.BadParameter(f"{text!r}: write FIELD=LOW:HIGH or FIELD=LOW:HIGH:GRID")
    numbers = (plain_number(number(part)) for part in parts)
    return field, dict(zip(("low", "high", "grid"), numbers, strict=False))


class _Commented(click.Command):
    """A command whose query may begin with a comment, which would pass for an option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the words; one that begins with ``--`` and has blanks before any ``=`` is a text."""
        texts = [f" {one}" if _COMMENT.match(one) else one for one in args]
        return super().parse_args(ctx, texts)


_COMMENT = re.compile(r"--[^\s=]*\s")


@click.command(cls=_Commented)
@click.argument("query")
@click.option("-c", "--config", "path", default=CONFIG, show_default=True, help="Configuration.")
@click.option("--name", help="Name of the pipeline; default: made from the key.")
@click.option("--epsilon", type=number,
              help="ε per privacy unit and epoch; default: the query's, or 1.")  # fmt: skip
@click.option("--delta", type=number,
              help="δ per privacy unit and epoch; default: the query's, or 0.000001.")  # fmt: skip
@click.option("--window", help="Length of the window, if the query has no TUMBLE.")
@click.option("--every", help="Interval between triggers; default: the window's length.")
@click.option("--clip", type=_clip, multiple=True, metavar="FIELD=LOW:HIGH[:GRID]",
              help="Bounds of a field that the query sums without CLIP.")  # fmt: skip
@click.option("--sample", type=click.Path(path_type=Path), metavar="FILE",
              help="Propose settings from trials on FILE: PUBLIC OR SYNTHETIC data.")  # fmt: skip
@click.option("--write", type=click.Choice(["settings", "query"]),
              help="Append the pipeline to the file, as settings (as CREATE does) or as its query.",
)  # fmt: skip
@json_option
def sql(
    query: str,
    path: str,
    name: str | None,
    epsilon: Decimal | None,
    delta: Decimal | None,
    window: str | None,
    every: str | None,
    clip: tuple[tuple[str, dict[str, Any]], ...],
    sample: Path | None,
    write: str | None,
    as_json: bool,
) -> None:
    """Show the pipeline that QUERY becomes, and what it would release and cost.

    QUERY is one SELECT over an input of the configuration; CREATE MATERIALIZED VIEW name AS before
    it names the pipeline and appends it to the file. What the query asks of released rows, such as
    HAVING and LIMIT, becomes a view, which costs nothing. For example

    \b
      SELECT product, COUNT(*) AS orders FROM orders
      GROUP BY product, TUMBLE(created, INTERVAL '1' DAY)
    """
    if re.search("[\ud800-\udfff]", query):
        raise click.BadParameter("is not in UTF-8: save or send it so", param_hint="QUERY")
    file = Path(path)
    text = read_text(file)
    before = loads(text, name=path, folder=file.parent)
    if len(bounds := dict(clip)) < len(clip):
        names = [field for field, _ in clip]
        twice = next(one for one in names if names.count(one) > 1)
        raise click.UsageError(f"--clip {twice}: is given twice; give the bounds of a field once")
    sources = [
        QuerySource(i.name, i.topic, i.unit, i.time.field, i.attributes_of) for i in before.input
    ]
    sources += [QuerySource(one.name, one.topic, (), None, public=True) for one in before.lookup]
    read = read_query(query, sources, bounds)
    meant = read.settings
    if read.view is not None:
        own = read.view if read.over is None else f"{read.view}-source"[:63]
        name, write = name or own, write or "settings"
    if name in {p.name for p in before.pipeline}:
        given = "--name" if read.view is None else "CREATE"
        raise click.UsageError(f"{given} {name}: {path} has a pipeline of this name: give another")
    if read.over is not None and write == "query":
        raise click.UsageError("--write query: a view is a table of its own; --write settings")
    settings = _completed(before, meant, name, window, every)
    settings["budget"] = _budget(read, epsilon, delta)
    view = _view(read, str(settings["name"]))
    ways = {"settings": _ordered(settings), "query": _asked(settings, meant, query, bounds)}
    shown = f"\n{table(view, 'view')}" if view else ""
    added = f"{table(ways[write or 'settings'])}{shown}"
    after = f"{text.rstrip()}\n\n{added}"
    try:
        config = _checked(after, path, file.parent, str(settings["name"]))
    except ConfigError as error:
        raise ConfigError(_unplaced(str(error), path, before)) from None
    for note in read.notes:
        say(f"note: {note}", err=True)
    if as_json:
        (p,) = compile_config(config).pipelines
        views = {"view": view} if view else {}
        doubts = list(cautions(config, int(time.time() * 1e6)))
        emit({"pipeline": ways["settings"], **views, "plan": describe(p), "warnings": doubts})
    else:
        put(table(ways["settings"]) + shown)
        if view:
            say(f"view {view['name']}: computed from the releases of {view['source']}, at no cost")
        _explain(config, sample)
    if write:
        _append(file, added)
        also = f" and view {view['name']} are" if view else " is"
        place = "" if path == CONFIG else f" -c {shlex.quote(path)}"
        say(
            f"{path}: pipeline {settings['name']}{also} appended; next: `hush topics{place}`, then "
            "start the workers again",
            err=True,
        )


def _append(file: Path, tail: str) -> None:
    """Append to a file with its own ends of lines; if that fails, it keeps what it had.

    It is not replaced, so it stays the same file: a link, its owner and its rights remain.
    """
    try:
        with file.open("r+b", buffering=0) as out:
            held = out.read()
            gap = 2 - min(2, len(re.findall(rb"\n", held[len(held.rstrip()) :])))
            new = ("\n" * gap + tail).replace("\n", "\r\n" if b"\r\n" in held else "\n").encode()
            try:
                if out.write(new) < len(new):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                os.fsync(out.fileno())
            except BaseException:
                out.truncate(len(held))
                raise
    except OSError as error:
        raise ConfigError(f"{file}: cannot be written, it is as before: {error.strerror}") from None


def _view(read: Query, source: str) -> dict[str, Any]:
    """The settings of the query's view, with name and source; empty without a view."""
    if read.over is None:
        return {}
    return {"name": read.view or f"{source}-view"[:63], "source": source, **read.over}


def _budget(read: Query, epsilon: Decimal | None, delta: Decimal | None) -> dict[str, Any]:
    """The budget that the query states, completed by options and defaults."""
    budget = dict(read.settings.get("budget", {}))
    defaults = {"epsilon": Decimal(1), "delta": Decimal("0.000001")}
    for key, given in (("epsilon", epsilon), ("delta", delta)):
        if given is not None and key in budget:
            raise click.UsageError(f"--{key}: the query says {key} = {budget[key]} already")
        budget.setdefault(key, plain_number(defaults[key] if given is None else given))
    return {key: value for key, value in budget.items() if value or key == "epsilon"}


def _completed(
    before: Config, meant: dict[str, Any], name: str | None, window: str | None, every: str | None
) -> dict[str, Any]:
    """The query's settings with a name, a window and triggers."""
    settings = dict(meant)
    if window is not None:
        if "window" in meant:
            raise click.UsageError("--window: the query has a window already")
        settings["window"] = {"length": window}
    if "window" not in settings:
        raise ConfigError(
            "the query has no window: group by TUMBLE(time, INTERVAL '1' DAY), or give --window 1d"
        )
    settings["triggers"] = {"every": every or _at_ends(settings["window"])}
    settings["name"] = name or _free_name(before, meant)
    return settings


def _at_ends(window: dict[str, Any]) -> str:
    """Time between ends of windows: the default trigger interval."""
    return str(window.get("hop", window["length"]))


def _free_name(before: Config, meant: dict[str, Any]) -> str:
    """An unused name made from the key."""
    words = "-".join(meant.get("key", ["all"]))
    plain = "".join(c if c.isascii() and c.isalnum() else "-" for c in words).strip("-")
    base = f"by-{plain or 'key'}"[:56]
    taken = {p.name for p in before.pipeline} | {v.name for v in before.view}
    return next(n for k in range(1, len(taken) + 2) if (n := base + f"-{k}" * (k > 1)) not in taken)


def _ordered(settings: dict[str, Any]) -> dict[str, Any]:
    names = [*(name for name in _ORDER if name in settings), *settings]
    return {name: settings[name] for name in names}  # all of them


def _asked(
    settings: dict[str, Any], meant: dict[str, Any], query: str, bounds: dict[str, Any]
) -> dict[str, Any]:
    """The pipeline with its query in place of the settings that it becomes."""
    kept = {name: value for name, value in settings.items() if meant.get(name) != value}
    if settings["triggers"]["every"] == _at_ends(settings["window"]):
        kept.pop("triggers", None)
    return _ordered(kept | {"query": query} | ({"clip": bounds} if bounds else {}))


def _checked(text: str, path: str, folder: Path, name: str) -> Config:
    """The configuration with the new pipeline alone; its mistakes are the query's."""
    config = loads(text, name=path, folder=folder)
    if any(stated_tables(p) for p in config.pipeline if p.name == name):
        config = loads(text, name=path, folder=folder, tables=kept_tables(config))
    return replace(
        config,
        pipeline=tuple(p for p in config.pipeline if p.name == name),
        view=tuple(v for v in config.view if v.source == name),
    )


def _unplaced(message: str, path: str, before: Config) -> str:
    """A message about the query's tables without lines, which the file does not have yet."""
    for name, place in (("pipeline", len(before.pipeline)), ("view", len(before.view))):
        own = re.compile(rf"^{re.escape(path)}:\d+: {name}\[{place}\]\.?", re.MULTILINE)
        message = own.sub(f"the query's {name}: ", message)
    return message


def _explain(config: Config, sample: Path | None) -> None:
    """Print what the pipeline would release and cost, and a forecast from a sample."""
    console, deployment = Screen(), compile_config(config)
    (p,) = deployment.pipelines
    console.print(readable(described(p, describe(p))))
    for caution in cautions(config, int(time.time() * 1e6)):
        console.print(f"warning: {caution}", soft_wrap=True, markup=False)
    if sample is None:
        return
    asked = Request(sample=sample, pipeline=p.name)
    check(config, deployment, asked)
    for kind, answer in forecasts(config, deployment, asked, quiet=False).values():
        show_ways(console, p.name, kind, answer)
