"""The configuration of a deployment: one TOML file, with overrides from environment and flags.

A flag overrides an environment variable, which overrides the file, which overrides the default.
Unknown, ill-typed, out-of-range and contradictory settings are all reported at once, each with its
line.

    >>> config = loads('''
    ... [[input]]
    ... name = "trips"
    ... topic = "trips"
    ... unit = "trip_id"
    ... time = { field = "pickup", format = "iso" }
    ... ''', environ={"HUSH_ENGINE__BEAT_INTERVAL": "1s"})
    >>> config.input[0].unit, config.engine.beat_interval
    (('trip_id',), 1000000)
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from decimal import Decimal
from pathlib import Path as FilePath
from typing import Any, TypeVar

from ...errors import ConfigError
from ..digits import NOT_HUGE
from ..natural import fill_in_keys
from ..sql.expand import expand
from .check import contradictions
from .inputs.lookups import Tables, read_lookups
from .learn import stand_for
from .merge import SECRETS, Origins, merge, tables_of_names
from .model import Config, Kafka, RegistrySettings, SecretFiles
from .pipelines.pipeline import PipelineSettings
from .pipelines.public import read_public_keys_file, read_regions
from .sharing import fill_in
from .toml.lines import Path, line_index
from .toml.read import Problem, Reader
from .toml.values import UNIX_EPOCH, Instant, format_instant

__all__ = ["Config", "load", "loads"]

DEFAULT_FILE = "hush.toml"
_ENDLESS = re.compile(r"[0-9_]{4301}")  # too many digits for Python to read as an integer
_Table = TypeVar("_Table", Kafka, RegistrySettings, SecretFiles)


def load(
    path: FilePath | str = DEFAULT_FILE,
    *,
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
    tables: Tables | None = None,
) -> Config:
    """Return the configuration in file ``path`` with its overrides.

    Paths of other files are relative to the folder of ``path``, and returned as absolute paths.

    Args:
        environ: environment; by default that of this process.
        flags: dotted settings and their values; ``None`` means not given.
        tables: finds the table of a topic lookup; None: it stays unread.

    Raises:
        ConfigError: the file cannot be read, or a setting is wrong.
    """
    file = FilePath(path)
    text = read_text(file)
    return loads(
        text, name=str(path), folder=file.parent, environ=environ, flags=flags, tables=tables
    )


def read_text(file: FilePath) -> str:
    """Read the text of a configuration; a `ConfigError` says why that is impossible."""
    try:
        return file.read_text("utf-8-sig")  # some editors write a byte order mark
    except FileNotFoundError as error:
        raise ConfigError(f"{file}: file not found; `hush init` writes one") from error
    except IsADirectoryError as error:
        inside = file / DEFAULT_FILE
        raise ConfigError(f"{file}: is a folder; name the file, such as {inside}") from error
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{file}:{line}: is not in UTF-8: save it in that encoding") from error
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read ({error.strerror})") from error


def loads(
    text: str,
    *,
    name: str = DEFAULT_FILE,
    folder: FilePath | None = None,
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
    tables: Tables | None = None,
) -> Config:
    """Return the configuration in ``text``; see `load`. ``name`` names it in messages."""
    try:
        data = tomllib.loads(text, parse_float=Decimal)
        origins = Origins(name, line_index(text))
    except (ValueError, ArithmeticError) as error:  # TOMLDecodeError is a ValueError
        if (found := _ENDLESS.search(text)) is not None:
            line = text.count("\n", 0, found.start()) + 1
            raise ConfigError(f"{name}:{line}: {NOT_HUGE}") from error
        raise ConfigError(f"{name}:{_unread(str(error), text)}") from error
    except RecursionError as error:
        raise ConfigError(f"{name}: tables or lists are nested too deeply") from error
    problems = [Problem(path, SECRETS[path]) for path in SECRETS if _take_out(data, path)]
    problems += merge(data, os.environ if environ is None else environ, flags or {}, origins)
    where = (folder or FilePath()).resolve()
    problems += read_regions(data, where)
    problems += [Problem(place, message) for place, message in expand(data)]
    problems += read_lookups(data, where, tables)
    problems += [Problem(place, message) for place, message in fill_in_keys(data)]
    problems += [Problem(place, message) for place, message in stand_for(data, origins.lines)]
    problems += [Problem(place, message) for place, message in fill_in(data)]
    reader = Reader(tables_of_names())
    config = reader.try_read(Config, data, ())
    problems += reader.problems
    if config is not None and not problems:
        config = _with_files(config, where, problems)
    if config is not None and not problems:
        config = _follow(config, problems)
    if config is not None and not problems:
        problems += contradictions(config)
    if problems:
        raise ConfigError(_report(problems, origins))
    assert isinstance(config, Config)
    return config


def _unread(message: str, text: str) -> str:
    """Put the line of a parser's message first, as in messages about settings."""
    what, _, place = message.rpartition(" (at ")
    if (found := re.fullmatch(r"line (\d+), (column \d+)\)", place)) is not None:
        return f"{found[1]}: not TOML: {what} ({found[2]})"
    if place == "end of document)":
        return f"{text.rstrip().count(chr(10)) + 1}: not TOML: {what} at the end of the file"
    return f" {message}"


def _take_out(data: dict[str, Any], path: Path) -> bool:
    """Remove a setting from the tables of a file; return whether it was present."""
    table, name = path
    inner = data.get(str(table))
    return isinstance(inner, dict) and inner.pop(name, None) is not None


def _with_files(config: Config, folder: FilePath, problems: list[Problem]) -> Config:
    """Resolve relative paths and read the lists of public keys."""
    pipelines = []
    for place, pipeline in enumerate(config.pipeline):
        try:
            made = read_public_keys_file(pipeline, folder)
            key = made.noise_key_file and str(folder / made.noise_key_file)
            pipelines.append(replace(made, noise_key_file=key))
        except ConfigError as error:
            problems.append(Problem(("pipeline", place, "public_keys_file"), str(error)))
    return replace(
        config,
        kafka=_with_absolute_files(config.kafka, folder),
        registry=_with_absolute_files(config.registry, folder),
        secret=_with_absolute_files(config.secret, folder),
        engine=replace(
            config.engine,
            data_dir=str(folder / config.engine.data_dir),
            witness=config.engine.witness and str(folder / config.engine.witness),
        ),
        pipeline=tuple(pipelines),
    )


def _with_absolute_files(table: _Table, folder: FilePath) -> _Table:
    """Make the paths of passwords, certificates and keys absolute."""
    files = [f.name for f in fields(table) if f.name.endswith("file")]
    given = {name: getattr(table, name) for name in files}
    made: dict[str, Any] = {name: file and str(folder / file) for name, file in given.items()}
    return replace(table, **made)


def _follow(config: Config, problems: list[Problem]) -> Config:
    """Complete ``window.origin`` and ``release.topic`` of pipelines that follow others here."""
    known = {p.name: p for p in config.pipeline}
    places = {p.name: place for place, p in enumerate(config.pipeline)}
    done: dict[str, PipelineSettings] = {}
    left = list(config.pipeline)
    while left:
        ready = [p for p in left if p.follows not in known or p.follows in done]
        if not ready:  # they follow each other in a circle
            said = "pipelines follow each other in a circle"
            problems += [Problem(("pipeline", places[p.name], "follows"), said) for p in left]
            return config
        for p in ready:
            found = list(_objections(p, known, config))
            problems += [Problem.under(("pipeline", places[p.name]), one) for one in found]
            done[p.name] = p if found else _completed(p, done)
        left = [p for p in left if p.name not in done]
    return replace(config, pipeline=tuple(done[p.name] for p in config.pipeline))


def _completed(p: PipelineSettings, done: dict[str, PipelineSettings]) -> PipelineSettings:
    other = done.get(p.follows or "")
    if other is None or other.until is None:
        return p
    topic = p.release.topic or other.release_topic
    window = replace(p.window, origin=Instant(other.until))
    return replace(p, window=window, release=replace(p.release, topic=topic))


def _objections(
    p: PipelineSettings, known: dict[str, PipelineSettings], config: Config
) -> Iterator[tuple[str, str]]:
    """Settings of a follower that contradict its predecessor, and why."""
    if p.follows is None:
        return
    if p.schedule == "external":
        yield "follows", "needs triggers that follow the clock: an epoch's end is a time of it"
    if p.window.length is None:
        yield "follows", "needs window.length: by arrival, a record could count in both"
    if p.window.hop is not None:
        yield "follows", "is not possible with window.hop: its windows begin before the boundary"
    if any(q.follows == p.follows and q.name != p.name for q in config.pipeline):
        yield "follows", f'"{p.follows}" is followed by another pipeline already'
    other = known.get(p.follows)
    if other is not None:
        yield from _between(p, other)
    elif p.window.origin == UNIX_EPOCH or p.release.topic is None:
        instead = "write window.origin and release.topic as `hush topics` declared them"
        yield "follows", f'"{p.follows}" is not in this file: keep its block, or {instead}'


def _between(p: PipelineSettings, other: PipelineSettings) -> Iterator[tuple[str, str]]:
    if other.until is None:
        yield "follows", f'"{other.name}" has no until, so nothing follows it'
        return
    if other.window.hop is not None:
        yield "follows", f'"{other.name}" has window.hop, and no other goes on with its windows'
    if other.schedule == "external" or other.window.length is None:
        rule = "must have triggers that follow the clock, and window.length"
        yield "follows", f'"{other.name}" {rule}'
    if p.window.origin not in (UNIX_EPOCH, other.until):
        begin = format_instant(other.until)
        yield "window.origin", f"is not where {other.name} ends: leave it out, or write {begin}"
    for name in ("input", "unit_name", "neighbouring"):
        mine, theirs = getattr(p, name), getattr(other, name)
        if mine != theirs:
            yield name, f'"{mine}" is not that of {other.name}, "{theirs}": costs would not add up'
    shared = p.release.topic in (None, other.release.topic)
    if shared and (p.release.encoding, other.release.encoding) != ("json", "json"):
        why = f"{other.name} and this one would have one schema"
        yield "release.encoding", f"needs a release.topic of its own: {why}"


def _report(problems: list[Problem], origins: Origins) -> str:
    lines = [origins.describe(problem) for problem in problems]
    return "\n".join(dict.fromkeys(lines))
