"""``hush accept-loss``: record in the ledger that releases go on without deleted records."""

from __future__ import annotations

import time
from collections import defaultdict
from typing import Any

import click

from ..agents.clock.loss.accept import Acceptance, lacking, resumed
from ..agents.clock.loss.found import Loss
from ..agents.worker.admission import lost, prepare
from ..agents.worker.lines.screen import say
from ..errors import EngineError
from .deployed import cluster_of
from .options import Flags, config_options, emit, json_option, read_config


@click.command("accept-loss")
@config_options
@json_option
@click.option("--yes", is_flag=True, help="Write it to the ledger; this cannot be undone.")
def accept_loss(flags: Flags, as_json: bool, yes: bool) -> None:
    """Accept that raw records were deleted before they were used, and go on without them.

    Releases of the epochs that are named may lack records; the ledger says so from then on.
    Without --yes nothing is written. Where nothing is lost it is refused.
    """
    config = read_config(flags)
    setup = prepare(config, role="administrator")
    cluster = cluster_of(config, "administrator")
    by_topic: dict[str, list[Loss]] = defaultdict(list)
    for one in lost(cluster, setup):
        by_topic[one.topic].append(one)
    if not by_topic:
        raise EngineError("nothing is lost: raw topics have all that was not used, or accepted")
    now = int(time.time() * 1e6)
    accepting = Acceptance(
        cluster, setup.deployment, setup.names, now, setup.secret, resumed(setup.accepted),
        setup.signing,
    )  # fmt: skip
    told: list[dict[str, Any]] = []
    for topic, losses in sorted(by_topic.items()):
        epochs = lacking(config.kafka, setup.names, setup.deployment, losses, now)
        places = [f"{topic}-{one.partition}" for one in losses]
        if yes:
            accepting.write(losses, epochs)
        told.append({"topic": topic, "partitions": places, "epochs": epochs, "accepted": yes})
    if as_json:
        emit({"losses": told})
        return
    for said in told:
        say(f"{', '.join(said['partitions'])}: records were deleted before they were used")
        for name, (first, last) in said["epochs"].items():
            say(f"  {name}: releases of epochs {first} to {last} may lack some")
    say(
        "accepted: the ledger says so; start the workers"
        if yes
        else "nothing was written: restore the records, or repeat this with --yes"
    )
