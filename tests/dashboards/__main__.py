"""`python -m tests.dashboards`: the shipped dashboards as pictures, drawn by Grafana's components.

Pictures that the documentation shows go to docs/images, others to .build.
"""

from __future__ import annotations

import argparse
import io
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from PIL import Image
from PIL.PngImagePlugin import PngInfo

from .. import chromium
from ..servers import prometheus as server
from ..servers.prometheus import Prometheus
from ..tree import ROOT
from . import answers, browser, infinity
from .scene import INTERVAL, load, scene

SHIPPED = ROOT / "deploy" / "grafana" / "dashboards"
NAMES = tuple(sorted(path.name for path in SHIPPED.glob("*.json")))
SHOWN = ("releases.json", "values.json")  # in the documentation
NEEDED = {"prometheus": server.PROGRAM, "chromium": chromium.found(), "npm": shutil.which("npm")}
COLOURS = 256


def picture(name: str, folder: Path | None = None) -> Path:
    """The path of a dashboard's picture, by default in docs or .build.

    >>> picture("releases.json").relative_to(ROOT).as_posix()
    'docs/images/dashboard-releases.png'
    """
    own = ROOT / ("docs/images" if name in SHOWN else ".build")
    return (folder or own) / f"dashboard-{Path(name).stem}.png"


def collect(
    prometheus: Prometheus, live: str, name: str, begin: float, end: float
) -> dict[str, Any]:
    """Everything that the page of one dashboard needs.

    Args:
        prometheus: server to query for metrics.
        live: address of the live page, for released values.
        name: file of the dashboard.
        begin: start of the time range, seconds since 1970.
        end: end of the time range, seconds since 1970.
    """
    board = json.loads((SHIPPED / name).read_text("utf-8"))
    found: Any
    if name == "values.json":
        found = infinity.answers(live, board)
    else:
        told = answers.answers(prometheus, board, begin, end, INTERVAL)
        found = {panel: [one._asdict() for one in series] for panel, series in told.items()}
    return {"board": board, "found": found, "from": begin, "to": end, "step": INTERVAL}


def main() -> int:
    """Run a deployment for some minutes and draw; return the exit code."""
    parser = argparse.ArgumentParser(prog="make dashboards", description=__doc__)
    parser.add_argument("--minutes", type=float, default=8.0, help="how long events come")
    parser.add_argument("--into", type=Path, help="folder of all pictures")
    given = parser.parse_args()
    minutes: float = given.minutes
    empty: list[str] = []
    if missing := [name for name, path in NEEDED.items() if path is None]:
        print(f"dashboards: missing: {', '.join(missing)}", file=sys.stderr)
        return 1
    with (
        tempfile.TemporaryDirectory() as folder,
        browser.Pages() as pages,
        scene(Path(folder)) as (run, prometheus, live),
    ):
        while prometheus.values("hush_ready") != [1, 1]:
            time.sleep(0.5)
        begin = time.time()
        load(run, minutes * 60)
        for name in NAMES:
            told = collect(prometheus, live, name, begin, time.time())
            pages.show(told | {"caption": caption(name, minutes)})
            path = picture(name, given.into)
            keep(pages.shot(), path, browser.digest((SHIPPED / name).read_text("utf-8")))
            print(path.name)
            empty += [f"{name}: {title}" for title in pages.empty()]
    if empty:
        print(f"dashboards: no data: {', '.join(empty)}", file=sys.stderr)
    return 1 if empty else 0


def keep(png: bytes, path: Path, digest: str) -> None:
    """Write a picture in few colours, with the digest of the dashboard that it shows."""
    mark = PngInfo()
    mark.add_text(browser.MARK, digest)
    with Image.open(io.BytesIO(png)) as image:
        small = image.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
        small.save(path, optimize=True, pnginfo=mark)


def caption(name: str, minutes: float) -> str:
    """The text below a picture: which program drew it, and from which data."""
    who = "hush live" if name == "values.json" else "a real Prometheus"
    return (
        f"Drawn by components of Grafana {browser.version()} without its server, from the queries "
        f"of {name}, as {who} answered them after {minutes:.0f} minutes of a deployment of two "
        "processes."
    )


if __name__ == "__main__":
    sys.exit(main())
