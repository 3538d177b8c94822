"""``hush demo``: private releases on the screen, from nothing but Python."""

from __future__ import annotations

from pathlib import Path

import click

from ...agents.worker.lines.screen import Screen, say
from ...errors import ExtraError


@click.command()
@click.option("--keep", is_flag=True, help="Leave everything running, and print how to stop it.")
@click.option(
    "--out",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    default=Path("hush-demo.png"),
    show_default=True,
    help="File for the plot.",
)
@click.option(
    "--users",
    type=click.IntRange(1_000, 2_000_000),
    default=200_000,
    show_default=True,
    help="Users of the clicks pipeline.",
)
@click.option(
    "--workers", type=click.IntRange(1, 16), default=2, show_default=True, help="Worker processes."
)
@click.option("--bootstrap", metavar="HOST:PORT", help="Kafka to use; default: start one.")
@click.option(
    "--stop",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Stop a demo that --keep left running in this folder.",
)
def demo(
    keep: bool, out: Path, users: int, workers: int, bootstrap: str | None, stop: Path | None
) -> None:
    """Show three private pipelines on a real Kafka: replay, releases, budget, a plot.

    Needs no running services. It ends by itself and leaves only the plot.
    """
    try:
        from ...reading.client import kafka_at
        from .run import run
        from .site import site, stop_kept
    except ExtraError as error:  # the demo needs both: one message saves a second attempt
        raise ExtraError(error.module, "local,plot") from error

    if stop is not None:
        if not stop_kept(stop.resolve()):
            raise click.UsageError(f"{stop} is not the folder of a kept demo")
        say("stopped, and removed its folder")
        return
    if not out.resolve().parent.is_dir():
        raise click.BadParameter(
            f"folder {out.resolve().parent} does not exist", param_hint="--out"
        )
    if bootstrap is not None:
        kafka_at(bootstrap)  # refuses a wrong address
    with site(bootstrap, keep) as place:
        run(place, users, workers, out.resolve(), Screen(highlight=False, markup=True))
