"""Waiting after the last fault until triggers, then releases and views, are complete.

It ends when nothing is missing, or when nothing has arrived for a while although workers were
ready: a busy machine is slow, and only a lack of progress means stuck. Then it names what is
missing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from _cluster import Local
from confluent_kafka import KafkaException
from hushstream.agents.clock.genesis import read_ledger
from hushstream.errors import OutageError
from hushstream.topics.records import Trigger

TOLD = 15.0  # seconds between two reports of what is missing
STARTS = 900.0  # seconds of a wait during which workers may start: each may compile its loops
Report = Callable[[str], None]


def patiently(
    missing: Callable[[], list[str]],
    patience: float,
    *,
    look: Callable[[], Any] = lambda: None,
    starting: Callable[[], bool] = lambda: False,
    report: Report = lambda said: None,
    what: str = "things",
    pause: float = 1.0,
) -> list[str]:
    """Wait until nothing is missing, or for ``patience`` seconds without any change.

    Args:
        missing: lists what is missing; a failed query counts as no change.
        look: called each time, to restart whatever has ended.
        starting: whether workers are starting; up to `STARTS`, that time does not count.
        report: called from time to time with the amount missing.

    Returns:
        Everything that is still missing.
    """
    before, left = list[str](), [f"nothing is known of {what}"]
    begun = since = told = time.monotonic()
    while True:
        look()
        try:
            left = missing()
        except (KafkaException, OutageError):  # a recent change of leader, or a slow broker
            pass
        else:
            if not left:
                return left
            if left != before:
                since, before = time.monotonic(), left
        now = time.monotonic()
        if now - begun < STARTS and starting():
            since = now
        if now - since > patience:
            return left
        if now - told > TOLD:
            report(f"waiting for {len(left)} {what}")
            told = now
        time.sleep(pause)


def behind(run: Local, at: int) -> list[str]:
    """Pipelines that have not fired all triggers requested up to a time.

    Pipelines that follow the wall clock, and refused epochs, do not count.
    """
    gaps = {p.name: p.windows.longest_gap() for p in run.deployment.pipelines}
    asked = {p.name for p in run.config().pipeline if p.schedule == "external"}
    asked -= {name for name, _ in read_ledger(run.cluster, run.deployment.name).refused}
    last = dict.fromkeys(asked, 0) | {t.pipeline: t.scheduled for t in run.triggers()}
    return [
        f"{name}: its last trigger is that of {last[name]}, asked for are those up to {at}"
        for name in sorted(asked) if last[name] <= at - gaps[name]
    ]  # fmt: skip


def unreleased(run: Local, triggers: Sequence[Trigger], **more: Any) -> list[str]:
    """Manifests that pipelines and views have not released for some triggers; usually none."""
    wanted = run.wanted(triggers)
    with run.coming() as coming:

        def missing() -> list[str]:
            wanted.difference_update(coming(0.3))
            return [
                f"{name}: window {start}, trigger {index} is not released by shard {shard}"
                for name, start, index, shard in sorted(wanted)
            ]

        return patiently(missing, what="manifests", **more)


def unproved(whole: Mapping[str, int], triggers: Iterable[Trigger]) -> str:
    """The first pipeline without a proof of a release of ``triggers``; usually none.

    Workers run until they are stopped, so releases begun after these triggers may be incomplete.

    Args:
        whole: number of each pipeline's last release that was proved complete.
        triggers: all triggers that were awaited.
    """
    due: dict[str, int] = {}
    for trigger in triggers:
        due[trigger.pipeline] = max(trigger.ordinal, due.get(trigger.pipeline, 0))
    return next(
        (
            f"{name}: release {last} is due, and the last one proved whole is {whole.get(name, 0)}"
            for name, last in sorted(due.items())
            if whole.get(name, 0) < last
        ),
        "",
    )
