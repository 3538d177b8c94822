"""The command line: ``hush``. Exit codes: 0 done, 1 unexpected, 2 usage or configuration,
3 ledger or budget, 4 engine or cluster, 130 interrupted."""

from __future__ import annotations

import importlib
import logging
import sys
import traceback

import click

from ...errors import ConfigError, ExtraError, HushError, LedgerError, ParameterError
from ..worker import log_lines, redaction

COMMANDS = {  # in the order of the help
    "init": "init",
    "check": "init",
    "plan": "plan",
    "simulate": "plan",
    "topics": "topics",
    "worker": "worker",
    "trigger": "trigger",
    "releases": "releases",
    "connect": "releases",
    "map": "maps",
    "points": "maps",
    "plot": "seeing",
    "live": "seeing",
    "ledger": "ledger",
    "replay": "replay",
    "alerts": "topics",
    "broker": "broker",
    "demo": "demo",
    "version": "init",
}


class Group(click.Group):
    """Loads the module of a command when that command is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """List all names, without an import."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Import the module of a command; None if there is no such command."""
        if name not in COMMANDS:
            return None
        module = importlib.import_module(f"{__package__}.{COMMANDS[name]}")
        found: dict[str | None, click.Command] = {c.name: c for c in module.COMMANDS}
        return found[name]


@click.command(cls=Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "-v",
    "--verbose",
    is_flag=True,
    help="Log more, including full error texts, which may quote records.",
)
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="How lines of the log are written.",
)
def hush(verbose: bool, log_format: str) -> None:
    """Differentially private releases from Kafka streams, under one guarantee.

    Start with `hush demo`, or with `hush init` for your own deployment.
    """
    log_lines.set_up(logging.INFO if verbose else logging.WARNING, log_format == "json")
    logging.getLogger("hushstream").setLevel(logging.DEBUG if verbose else logging.NOTSET)


def exit_code(error: HushError) -> int:
    """Look up the documented exit code of an error."""
    if isinstance(error, ConfigError | ExtraError | ParameterError):
        return 2
    return 3 if isinstance(error, LedgerError) else 4


def main(args: list[str] | None = None) -> None:
    """Run ``hush`` and exit with its code.

    Args:
        args: words after the program's name; None: those of this process.
    """
    try:
        with redaction.hooks():
            # Commands return None: a number is the exit code of a command that exited early.
            code = hush.main(args, standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)
    except BrokenPipeError:
        sys.exit(0)
    except (Exception, KeyboardInterrupt) as error:
        sys.exit(_failed(error))


def _failed(error: BaseException) -> int:
    """Print the error and return the exit code."""
    if _interrupted(error):
        click.echo("interrupted", err=True)
        return 130
    if isinstance(error, click.ClickException):
        error.show()
        return 2
    if isinstance(error, HushError):
        click.echo(f"hush: {error}", err=True)
        return exit_code(error)
    if (said := _of_broker(error)) is not None:
        click.echo(f"hush: Kafka did not answer as it should ({said}); try again", err=True)
        return 4
    if redaction.quoting():
        traceback.print_exception(error)
    click.echo(f"hush: {redaction.told(error)}", err=True)
    return 1


def _of_broker(error: BaseException) -> str | None:
    """Text of a Kafka client's error; None for other errors. It quotes no record."""
    from aiokafka.errors import KafkaError  # here: most commands end well, and start faster
    from confluent_kafka import KafkaException

    if isinstance(error, KafkaException):
        return str(error.args[0].str())
    return type(error).__name__ if isinstance(error, KafkaError) else None


def _interrupted(error: BaseException | None) -> bool:
    """Whether Ctrl-C caused an error: it may arrive inside a library, or during cleanup."""
    while error is not None:
        if isinstance(error, click.Abort | KeyboardInterrupt):
            return True
        error = error.__cause__ or error.__context__
    return False
