"""Gap in releases after a worker is killed, with and without `engine.standbys`.

    python benchmarks/standby.py [--units N] [--session SECONDS] [--quick] [--json]

Two workers share a deployment whose tables hold the rows of many privacy units. One is killed, a
trigger is requested at once, and the time runs from the kill to the manifest of the last shard. The
group notices a death after `engine.session_timeout`, which is part of the time and reported
separately. The other worker has never owned the shards of the killed one: without standbys it
restores them from nothing.

- ``takeover_s``, ``cold_s``: seconds with a standby, and without.
- ``session_s``: the session timeout, in both.
- ``exact``: a replay finds all releases identical.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import recovery
from _chaos import BROKER, SLOW
from _cluster import Local, local
from hushstream.deploy.broker import Broker
from hushstream.offline.replay import replay
from rich.console import Console
from rich.table import Table

UNITS, SESSION = 2_000_000, 1.0
READY = re.compile(r"ready: (\d+) shards")
SHARDS = 2 * recovery.PARTITIONS  # of ingest, which bounds as well, and of aggregate
SETTLED = 3.0  # seconds until a copy is up to date: it polls twice a second


def takeover(
    run: Local, topic: str, units: int, report: Callable[[str], None]
) -> tuple[float, bool]:
    """Seconds from a kill to the next release of all shards, and whether a replay agrees."""
    for member in ("a", "b"):
        run.start(member)
    wait(lambda: sum(shards(run, member) for member in "ab") == SHARDS, run)
    report(f"{units} units come")
    recovery.feed(run, 0, units, topic)
    recovery.used(run, 1)
    wait(lambda: shards(run, "b") == SHARDS // 2, run)
    time.sleep(SETTLED)
    report("a worker is killed")
    begun = time.monotonic()
    run.kill("a")
    run.trigger(recovery.ORIGIN + 2 * 6 * 3_600_000_000)
    run.wait_released(run.wait_triggers(2, SLOW), SLOW)
    seconds = time.monotonic() - begun
    report("replay")
    outcome = replay(run.config())
    exact = outcome.agrees and outcome.compared > 0
    if run.stop("b", SLOW) != 0:
        raise AssertionError(run.errors("b"))
    return seconds, exact


def shards(run: Local, member: str) -> int:
    """Number of shards of a worker when it was last ready."""
    found = READY.findall(run.log(member).read_text(errors="replace"))
    return int(found[-1]) if found else 0


def wait(true: Callable[[], bool], run: Local) -> None:
    """Wait until a condition is true.

    Raises:
        AssertionError: it did not become true in time.
    """
    until = time.monotonic() + SLOW
    while not true():
        if time.monotonic() > until:
            raise AssertionError(f"the workers do not share their work:\n{run.errors('b')}")
        time.sleep(0.1)


def measure(units: int, session: float, report: Callable[[str], None]) -> dict[str, Any]:
    """Both cases, each with its own deployment on one broker."""
    found: dict[str, tuple[float, bool]] = {}
    with tempfile.TemporaryDirectory(prefix="hush-standby-") as name:
        folder = Path(name)
        with Broker(folder / "broker", quiet=True, overrides=BROKER) as broker:
            for case, standbys in (("takeover_s", 1), ("cold_s", 0)):
                toml = recovery.TOML.replace('"recovery"', f'"standby{standbys}"')
                toml = toml.replace('"events"', f'"events{standbys}"')
                toml = toml.replace('"pages"', f'"pages{standbys}"')
                toml = toml.replace('"6s"', f'"{round(1000 * session)}ms"\nstandbys = {standbys}')
                (own := folder / case).mkdir()
                raw = {f"events{standbys}": recovery.PARTITIONS}
                with local(own, broker.bootstrap, toml, raw) as run:
                    found[case] = takeover(run, f"events{standbys}", units, report)
    times = {case: round(seconds, 2) for case, (seconds, _) in found.items()}
    exact = all(agrees for _, agrees in found.values())
    return {"units": units, **times, "session_s": session, "exact": exact}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--units", type=int, help=f"default {UNITS:,}")
    parser.add_argument("--session", type=float, default=SESSION, help=f"default {SESSION:g}")
    parser.add_argument("--quick", action="store_true", help="20,000 units")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    units = options.units or (20_000 if options.quick else UNITS)
    console = Console(stderr=True)
    found = measure(units, options.session, lambda what: console.print(what))
    if options.json:
        print(json.dumps(found))
        return
    table = Table("", "", show_header=False)
    for name, value in found.items():
        table.add_row(name, str(value))
    Console().print(table)


if __name__ == "__main__":
    main()
