"""The command line: ``hush``. Exit codes: 0 done, 1 unexpected, 2 usage or configuration,
3 ledger or budget, 4 engine or cluster, 130 interrupted, 141 the reader of the output left."""

from __future__ import annotations

import contextlib
import gc
import importlib
import io
import logging
import os
import shutil
import signal
import sys
import textwrap
import traceback
from collections.abc import Iterator

import click

from ..agents.worker.lines import log_lines, redaction
from ..agents.worker.lines.visible import visible_lines
from ..errors import ConfigError, ExtraError, HushError, LedgerError, ParameterError
from .nearest import Nearest

COMMANDS = {  # name: its module, and its line of the help, whose order this is
    "init": ("init", "Write a commented hush.toml and two fresh keys."),
    "check": ("init", "Check configuration, key, topics, ledger and clock log."),
    "mechanisms": ("mechanisms", "List mechanisms, or the settings of one."),
    "plan": ("planning.plan", "Print bounds, noise, thresholds and cost."),
    "sql": ("planning.sql", "Show the pipeline that a query becomes, and its cost."),
    "simulate": ("planning.simulate", "Run the pipelines on a file and compare with the truth."),
    "learn": ("planning.learn", "Choose a contribution bound from the first releases."),
    "size": ("planning.size", "Estimate what a load needs, and what gives way first."),
    "produce": ("produce", "Write the rows of a file as records to a raw topic."),
    "topics": ("topics", "Create a deployment's topics and its ledger."),
    "reset": ("reset", "Delete a deployment, so that it can begin anew."),
    "worker": ("worker", "Run a worker; any number of them form one group."),
    "trigger": ("trigger", "Fire the triggers of pipelines with an external schedule."),
    "status": ("status", "Show whether all is well, and what to do if it is not."),
    "dead-letters": ("dead_letters", "Show records that could not be used, and send them again."),
    "releases": ("releases", "Show what a pipeline has released, with error bars."),
    "sink": ("sink", "Keep tables of all releases in a database or a folder."),
    "connect": ("releases", "Print the properties of a Kafka Connect sink."),
    "map": ("maps", "Write the newest map of a spatial pipeline."),
    "points": ("maps", "Write synthetic points from the newest map."),
    "plot": ("seeing", "Draw what a pipeline has released."),
    "live": ("seeing", "Serve a live page of all releases."),
    "watch": ("watching", "Show a pipeline's newest values in the terminal."),
    "ledger": ("ledger", "Show, verify or explain the privacy ledger."),
    "verify": ("verify", "Prove that releases are complete, unaltered and paid for."),
    "accept-loss": ("loss", "Accept that raw records were deleted before they were used."),
    "ratchet": ("ratchet", "Make the ratchet of pipelines that forget their noise keys."),
    "replay": ("replay", "Recompute releases and compare them, byte by byte."),
    "alerts": ("topics", "Print Prometheus rules for these pipelines."),
    "broker": ("broker", "Run a local Apache Kafka on the loopback interface."),
    "demo": ("demo.command", "Show three private pipelines on a real Kafka."),
    "help": ("help", "Show this list, or the help of a command."),
    "version": ("version", "Print the version."),
}


class Group(Nearest):
    """Loads the module of a command when that command is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """List all names, without an import."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Import the module of a command; None if there is no such command."""
        if name not in COMMANDS:
            return None
        gc.disable()  # modules stay: looking for garbage among them would take a tenth of the time
        try:
            module = importlib.import_module(f"{__package__}.{COMMANDS[name][0]}")
        finally:
            gc.enable()
        every = (one for one in vars(module).values() if isinstance(one, click.Command))
        return next(one for one in every if one.name == name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing any of them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


def _version(ctx: click.Context, _: click.Parameter, asked: bool) -> None:
    """Print what ``hush version`` prints: many people try the option first."""
    if asked and not ctx.resilient_parsing:
        found = hush.get_command(ctx, "version")
        assert found is not None
        ctx.invoke(found, as_json=False)
        ctx.exit()


@click.command(cls=Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_version,
    help="Print the version and exit.",
)
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
    help="Format of the log.",
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
    """Run ``hush`` with these words, by default those of this process, and exit with its code."""
    if args is None and "worker" in sys.argv:
        signal.signal(signal.SIGTERM, _stopped)  # what it needs takes seconds to load
        # A worker's shards keep the cores busy. BLAS threads would only spin and slow down products
        # of small matrices. NumPy, which is loaded later, reads this.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal in ASCII shows what it cannot
            stream.reconfigure(errors="backslashreplace")
    try:
        with redaction.hooks():
            # Commands return None: a number is the exit code of a command that exited early.
            code = hush.main(args, standalone_mode=False)
    except BrokenPipeError:
        code = READER_LEFT
    except SystemExit as ended:
        if not isinstance(ended.__context__, BrokenPipeError):
            raise
        code = READER_LEFT  # the libraries that print said 1, which is an unexpected error
    except (Exception, KeyboardInterrupt) as error:
        code = _failed(error)
    sys.exit(code if isinstance(code, int) else 0)


READER_LEFT = 128 + signal.SIGPIPE  # as shells have it; not 0, for the command may be half done


def _stopped(*_: object) -> None:
    """End a service with exit code 0. Other commands end by the signal, so that callers see it."""
    raise SystemExit(0)


def _failed(error: BaseException) -> int:
    """Print the error and return the exit code, even if standard error cannot be written."""
    if _interrupted(error):
        _tell("interrupted")
        return 130
    if (code := _told_to_end(error)) is not None:
        return code
    if isinstance(error, click.ClickException):
        error.message = fitting(visible_lines(error.message), "Error: ")
        with contextlib.suppress(OSError):
            error.show(sys.stderr or io.StringIO())
        return 2
    if isinstance(error, HushError):
        _tell(f"hush: {fitting(visible_lines(str(error)), 'hush: ')}")
        return exit_code(error)
    if (said := _of_broker(error)) is not None:
        _tell(f"hush: {fitting(visible_lines(said), 'hush: ')}")
        return 4
    if redaction.quoting():
        _tell(visible_lines("".join(traceback.format_exception(error))), end="")
    _tell(f"hush: {fitting(visible_lines(redaction.told(error)), 'hush: ')}")
    return 1


def _tell(text: str, end: str = "\n") -> None:
    with contextlib.suppress(OSError):
        click.echo(text + end, err=True, nl=False)


def fitting(text: str, head: str) -> str:
    """Break lines between words, where a terminal would break them anywhere.

    Args:
        text: message for standard error; unchanged if that is a file.
        head: text before its first line.
    """
    if sys.stderr is None or not sys.stderr.isatty():
        return text
    width, lines = shutil.get_terminal_size().columns, []
    for place, line in enumerate(text.split("\n")):
        lead = " " * len(head) if not place else ""
        found = textwrap.wrap(line, width, initial_indent=lead, subsequent_indent="  ",
                              break_long_words=False, break_on_hyphens=False)  # fmt: skip
        lines.append("\n".join(found)[len(lead) :])
    return "\n".join(lines)


def _of_broker(error: BaseException) -> str | None:
    """Describe a Kafka client's error without quoting a record; None for other errors."""
    from aiokafka.errors import KafkaError  # imported on failure only: commands start faster
    from confluent_kafka import KafkaException

    from ..agents.kafka.access.refusals import DENIED
    from ..agents.kafka.patience import aio_refusal

    if isinstance(error, KafkaException):
        said, kind = str(error.args[0].str()), DENIED.get(error.args[0].code())
        if kind is not None:
            listed = "`hush topics --print` lists the rights of each role"
            return f"the cluster refuses a right on a {kind} ({said}): {listed}"
    elif isinstance(error, KafkaError):
        if (refused := aio_refusal(error)) is not None:
            return str(refused)
        said = type(error).__name__
    else:
        return None
    return f"Kafka did not answer as it should ({said}); try again"


def _interrupted(error: BaseException) -> bool:
    """Whether Ctrl-C caused an error: it may arrive inside a library, or during cleanup."""
    return any(isinstance(one, click.Abort | KeyboardInterrupt) for one in _chain(error))


def _told_to_end(error: BaseException) -> int | None:
    """The exit code of a signal that asked to end, and arrived inside a library; None if none did.

    A C library turns it into a `SystemError`. After exit code 0, any other error is a real one.
    """
    for one in _chain(error):
        if isinstance(one, SystemExit) and isinstance(one.code, int):
            return one.code if one.code > 128 or isinstance(error, SystemError) else None
    return None


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error, then its causes."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
