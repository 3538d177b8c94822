"""Waiting for what must still come after the last fault: triggers, then releases and views.

It ends when nothing is missing, or when nothing of it has come for a while in which workers served:
a busy machine takes long, and only what stands still is stuck. What is missing then is named.
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

TOLD = 15.0  # seconds between two lines on what is missing
STARTS = 900.0  # seconds of a wait in which workers may start: each may have to compile its loops
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
    """Wait until nothing is missing, or until that has not changed for ``patience`` seconds.

    Args:
        missing: says what is; where it asks in vain, it counts as unchanged.
        look: called each time, to start again what has ended.
        starting: whether workers are about to serve; that takes no patience, for `STARTS`.
        report: told how much is missing, now and then.

    Returns:
        What is still missing.
    """
    before, left = list[str](), [f"nothing is known of {what}"]
    begun = since = told = time.monotonic()
    while True:
        look()
        try:
            left = missing()
        except (KafkaException, OutageError):  # a leader that has just changed, a slow broker
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
    """Pipelines whose triggers have not all been fired that were asked for up to a time.

    Those of the wall clock never end, and epochs that are refused have none, so neither counts.
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
    """What pipelines and views have not released of some triggers; usually nothing."""
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
    """The first pipeline that lacks a proof of a release of ``triggers``; usually none.

    Workers go on until they are stopped: what began after these triggers may be there in part.

    Args:
        whole: number of each pipeline's last release that is proved whole.
        triggers: all that were waited for.
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
