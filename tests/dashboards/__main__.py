"""`python -m tests.dashboards`: the shipped dashboards as pictures in docs/images."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

from hushstream.deploy.dashboards import DASHBOARDS

from ..servers.prometheus import PROGRAM
from ..tree import ROOT
from .answers import answers
from .draw import digest, draw
from .scene import INTERVAL, load, scene

SHIPPED = ROOT / "deploy" / "grafana" / "dashboards"
PICTURES = ROOT / "docs" / "images"


def picture(name: str) -> Path:
    """Where the picture of a dashboard lies.

    >>> picture("operator.json").name
    'dashboard-operator.png'
    """
    return PICTURES / f"dashboard-{Path(name).stem}.png"


def main() -> int:
    """Run a deployment for some minutes and draw; return the exit code."""
    parser = argparse.ArgumentParser(prog="make dashboards", description=__doc__)
    parser.add_argument("--minutes", type=float, default=8.0, help="how long events come")
    given = parser.parse_args()
    if PROGRAM is None:
        print("dashboards: no `prometheus`: Debian has a package of that name", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder, scene(Path(folder)) as (run, prometheus):
        while prometheus.values("hush_ready") != [1, 1]:
            time.sleep(0.5)
        begin = time.time()
        load(run, given.minutes * 60)
        for name in DASHBOARDS:
            text = (SHIPPED / name).read_text("utf-8")
            board = json.loads(text)
            found = answers(prometheus, board, begin, time.time(), INTERVAL)
            draw(board, found, caption(name, given.minutes), picture(name), digest(text))
            print(picture(name))
    return 0


def caption(name: str, minutes: float) -> str:
    """What stands below a picture: who has drawn it, and from what."""
    return (
        f"Drawn by Hushstream's own program, not by Grafana, from the queries of {name}, as a real "
        f"Prometheus answered them over {minutes:.0f} minutes of a deployment of two processes."
    )


if __name__ == "__main__":
    sys.exit(main())
