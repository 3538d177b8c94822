"""Options shared by several commands."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import click
from rich.table import Table

from ..agents.clock.kept_tables import KeptTables
from ..agents.worker.lines.screen import put
from ..agents.worker.lines.visible import visible
from ..errors import ConfigError
from ..reading.client import ReleaseTopic, source_of
from ..topics.config.load import Config, load
from ..topics.config.pipelines.pipeline import PipelineSettings
from .lines import with_line

F = TypeVar("F", bound=Callable[..., Any])
CONFIG = "hush.toml"


class Flags(NamedTuple):
    """The options of every command that reads a deployment."""

    path: str = CONFIG  # of the configuration
    bootstrap: str | None = None  # address of Kafka; None: the configuration's
    settings: tuple[str, ...] = ()  # overrides, each ``SETTING=VALUE``

    @property
    def alone(self) -> bool:
        """Whether no configuration exists, and no option asks for one."""
        return not self.settings and self.path == CONFIG and not Path(self.path).exists()


_MEMBER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")  # as Kafka and folders have it


def member_option(text: str) -> Callable[[F], F]:
    """Add ``--member``, a name that also names a folder; empty: none."""

    def checked(_: click.Context, __: click.Parameter, name: str) -> str:
        if name and _MEMBER.fullmatch(name) is None:
            raise click.BadParameter(
                f"{name!r} is no name of a worker: write up to 200 letters, digits, '.', '_' and "
                "'-', the first a letter or a digit"
            )
        return name

    return click.option("--member", default="", callback=checked, help=text)


def config_options(command: F) -> F:
    """Add ``--config``, ``--bootstrap`` and ``--set`` to a command, which gets them as `Flags`."""

    @wraps(command)
    def flagged(path: str, bootstrap: str | None, settings: tuple[str, ...], **more: Any) -> None:
        try:
            command(flags=Flags(path, bootstrap, settings), **more)
        except ConfigError as error:
            raise with_line(error, path) from None

    for option in (
        click.option(
            "--set",
            "settings",
            multiple=True,
            metavar="SETTING=VALUE",
            help="Override a setting, for example engine.data_dir=/data.",
        ),
        click.option("--bootstrap", metavar="HOST:PORT", help="Kafka to use."),
        click.option(
            "-c", "--config", "path", default=CONFIG, show_default=True, help="Configuration."
        ),
    ):
        flagged = option(flagged)
    return cast(F, flagged)


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")


def read_config(flags: Flags, tables: bool = True) -> Config:
    """Read the configuration with overrides from flags.

    Args:
        tables: whether to read the tables of topic lookups from the cluster.

    Raises:
        UsageError: an override is not SECTION.NAME=VALUE.
        ConfigError: the configuration is missing or not valid.
        EngineError: there are topic lookups, and no cluster answers.
    """
    given: dict[str, Any] = {}
    for setting in flags.settings:
        name, equals, value = setting.partition("=")
        if not equals:
            raise click.UsageError(f"--set {setting}: write SETTING=VALUE")
        given[name.strip()] = value.strip()
    if flags.bootstrap:
        given["kafka.bootstrap"] = flags.bootstrap
    config = load(flags.path, flags=given)
    if not tables or not config.lookup:
        return config
    return load(flags.path, flags=given, tables=kept_tables(config))


def kept_tables(config: Config) -> KeptTables:
    """The tables of a deployment's topic lookups."""
    patience = config.kafka.outage_timeout / 1e6
    return KeptTables(config.kafka, config.deployment.name, patience)


def release_topic(flags: Flags, pipeline: str) -> ReleaseTopic:
    """Find the releases of a pipeline or view; errors as for `read_config`.

    Releases are public, so readers need no configuration: if none is named and this folder has
    none, the topic is ``hush.<pipeline>.releases.v1``.
    """
    if flags.bootstrap and flags.alone:
        return source_of(flags.bootstrap, pipeline)
    config = read_config(flags, tables=False)
    view = next((one for one in config.view if one.name == pipeline), None)
    found = view or declared(config, pipeline, [one.name for one in config.view])
    return ReleaseTopic(config.kafka, found.release_topic, pipeline)


def declared(config: Config, name: str, also: Sequence[str] = ()) -> PipelineSettings:
    """Look up a pipeline of the configuration; a `ConfigError` if there is none of this name.

    Args:
        also: further names to list in the error.
    """
    for one in config.pipeline:
        if one.name == name:
            return one
    no_view(config, name)
    known = ", ".join([*(p.name for p in config.pipeline), *also])
    raise ConfigError(f"pipeline {name!r} is unknown; expected one of {known}")


def no_view(config: Config, name: str) -> None:
    """Refuse the name of a view, where a command is about pipelines; raises `ConfigError`."""
    for one in config.view:
        if one.name == name:
            raise ConfigError(
                f"{name!r} is a view of pipeline {one.source!r}, and this command takes pipelines: "
                f"take {one.source}; `hush releases {name}` shows the view, and `hush sink` keeps "
                "it in a table"
            )


def check_place(option: str, file: Path | None) -> None:
    """Refuse an output file whose folder does not exist."""
    if file is not None and not file.parent.is_dir():
        raise click.BadParameter(f"there is no folder {file.parent}", param_hint=option)


def emit(body: object) -> None:
    """Print one JSON object on a line of its own."""
    put(visible(json.dumps(body, default=str)))  # the same JSON, without DEL


def readable(table: Table) -> Table:
    """Fold long cells in a narrow terminal; by default they would be cut."""
    for column in table.columns:
        column.overflow = "fold"
    return table


def moment(text: str | None, option: str | None = None) -> int:
    """Read an ISO time (UTC if it names no zone; None: now) as microseconds since 1970.

    Raises:
        BadParameter: it is not a time; the message names the option.
    """
    if text is None:
        return int(time.time() * 1e6)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        rule = "is not an ISO time such as 2019-03-02T00:00Z"
        raise click.BadParameter(f"{text!r} {rule}", param_hint=option) from None
    return round((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1_000_000)
