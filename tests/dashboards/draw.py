"""A dashboard as a picture: its own grid, units, legends and thresholds, drawn without Grafana."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from matplotlib import dates
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Wedge
from matplotlib.ticker import FuncFormatter, MaxNLocator, MultipleLocator
from PIL import Image

from .answers import Series
from .units import UNITS

COLUMNS = 24
WIDE, UNIT, HEAD, FOOT, GAP = 15.0, 0.36, 0.55, 0.45, 0.06  # inches
PAGE, CARD, EDGE, INK, SOFT = "#f4f5f5", "#ffffff", "#d8d9da", "#24292e", "#6e7277"
NAMED = {"text": INK, "green": "#37872d", "red": "#c4162a", "orange": "#e0661a"}
CLASSIC = (  # the palette that "palette-classic" means
    "#7eb26d", "#eab839", "#6ed0e0", "#ef843c", "#e24d42", "#1f78c1", "#ba43a9", "#705da0",
    "#508642", "#cca300", "#447ebc", "#c15c17", "#890f02", "#0a437c", "#6d1f62", "#584477",
)  # fmt: skip
MOST = 12  # lines of a legend
LINE = 0.165  # inches of one
LONGEST = 27  # characters of a name
MARK = "Dashboard"  # where a picture says which state of the dashboard it shows
DATES: Any = dates


def digest(text: str) -> str:
    """What a picture says of the dashboard that it shows."""
    return hashlib.sha256(text.encode()).hexdigest()


def shown(path: Path) -> str | None:
    """The digest in a picture; None: it has none."""
    with Image.open(path) as picture:
        told = picture.info.get(MARK)
    return str(told) if told else None


def draw(
    board: dict[str, Any], found: dict[int, list[Series]], caption: str, path: Path, mark: str
) -> None:
    """Draw a whole dashboard.

    Args:
        board: the dashboard.
        found: series of each panel, by its id.
        caption: what stands below it.
        path: file to write.
        mark: `digest` of the dashboard's text.
    """
    rows = max(p["gridPos"]["y"] + p["gridPos"]["h"] for p in board["panels"])
    high = HEAD + rows * UNIT + FOOT
    figure = Figure(figsize=(WIDE, high), facecolor=PAGE)
    FigureCanvasAgg(figure)
    top = 1 - 0.3 / high
    figure.text(0.008, top, board["title"], size=15, weight="bold", color=INK, va="center")
    figure.text(0.008, 0.2 / high, caption, size=10, color=SOFT, va="center", style="italic")
    for panel in board["panels"]:
        at = panel["gridPos"]
        left = at["x"] / COLUMNS * WIDE + GAP
        bottom = FOOT + (rows - at["y"] - at["h"]) * UNIT + GAP
        size = (at["w"] / COLUMNS * WIDE - 2 * GAP, at["h"] * UNIT - 2 * GAP)
        _panel(Card(figure, (left, bottom), size), panel, found[panel["id"]])
    times = [t for series in found.values() for one in series for t in one.times]
    for axes in figure.axes:
        if axes.axison and times:  # all panels show the same time
            axes.set_xlim(_day(min(times)), _day(max(times)))
    figure.savefig(path, dpi=100, metadata={MARK: mark}, facecolor=PAGE)


class Card:
    """The place of one panel.

    Args:
        figure: the whole picture.
        corner: lower left one, in inches.
        size: in inches.
    """

    def __init__(
        self, figure: Figure, corner: tuple[float, float], size: tuple[float, float]
    ) -> None:
        self._figure, self._corner, self.size = figure, corner, size
        width, height = figure.get_size_inches()
        self._whole = (float(width), float(height))
        figure.add_artist(
            FancyBboxPatch(
                (corner[0] / width, corner[1] / height), size[0] / width, size[1] / height,
                boxstyle="square,pad=0", zorder=-1, facecolor=CARD, edgecolor=EDGE, linewidth=1,
            )
        )  # fmt: skip

    def axes(self, left: float, bottom: float, right: float, top: float) -> Axes:
        """Room for a drawing, so many inches from each edge."""
        width, height = self._whole
        x, y = self._corner[0] + left, self._corner[1] + bottom
        wide, high = self.size[0] - left - right, self.size[1] - bottom - top
        return self._figure.add_axes((x / width, y / height, wide / width, high / height))

    def text(self, x: float, y: float, text: str, **how: Any) -> None:
        """A text, so many inches from the lower left corner."""
        width, height = self._whole
        at = ((self._corner[0] + x) / width, (self._corner[1] + y) / height)
        self._figure.text(*at, text, **{"color": INK, "va": "center", **how})


def _panel(card: Card, panel: dict[str, Any], series: list[Series]) -> None:
    card.text(0.12, card.size[1] - 0.2, panel["title"], size=12, weight="bold")
    if not any(one.last is not None for one in series):
        card.text(card.size[0] / 2, card.size[1] / 2, "No data", size=14, ha="center", color=SOFT)
        return
    {"timeseries": _lines, "stat": _values, "gauge": _gauges}[panel["type"]](card, panel, series)


def field(panel: dict[str, Any], name: str) -> dict[str, Any]:
    """Settings of one series: the panel's, and those for its name."""
    own = dict(panel["fieldConfig"]["defaults"])
    for override in panel["fieldConfig"]["overrides"]:
        if re.search(override["matcher"]["options"].strip("/"), name):
            own |= {one["id"]: one["value"] for one in override["properties"]}
    return own


def colour(field: dict[str, Any], value: float | None, number: int) -> str:
    """The colour of a series, or of its last value where thresholds decide.

    Args:
        field: settings of the series.
        value: its last one.
        number: which of the panel's series it is.
    """
    mode = field["color"]["mode"]
    if mode == "fixed":
        return NAMED[field["color"]["fixedColor"]]
    if mode == "palette-classic":
        return CLASSIC[number % len(CLASSIC)]
    assert mode == "thresholds", mode
    steps = field["thresholds"]["steps"]
    reached = [
        s for s in steps if s["value"] is None or (value is not None and value >= s["value"])
    ]
    return NAMED[reached[-1]["color"]]


def shortened(name: str, longest: int = LONGEST) -> str:
    return name if len(name) <= longest else f"{name[: longest - 1]}…"


def _day(seconds: float) -> Any:
    return DATES.date2num(datetime.fromtimestamp(seconds, UTC))


def _lines(card: Card, panel: dict[str, Any], series: list[Series]) -> None:
    aside = card.size[0] * 0.44
    axes = card.axes(0.82, 0.32, aside + 0.1, 0.45)
    told = UNITS[panel["fieldConfig"]["defaults"]["unit"]]
    for number, one in enumerate(series):
        own = field(panel, one.name)
        dash = own.get("custom.lineStyle", {}).get("fill") == "dash"
        hue = colour(own, one.last, number)
        times = [_day(t) for t in one.times]
        values = [v if math.isfinite(v) else math.nan for v in one.values]
        axes.plot(times, values, color=hue, linewidth=1.4, linestyle="--" if dash else "-")
        if number < MOST:
            y = card.size[1] - 0.68 - number * LINE
            card.text(card.size[0] - aside + 0.1, y, "╌╌" if dash else "━━", size=8, color=hue)
            card.text(card.size[0] - aside + 0.42, y, shortened(one.name), size=9.5)
            last = "" if one.last is None else told(one.last)
            card.text(card.size[0] - 0.14, y, last, size=9.5, ha="right")
    card.text(card.size[0] - 0.14, card.size[1] - 0.5, "Last", size=9, ha="right", color=SOFT)
    if (more := len(series) - MOST) > 0:
        y = card.size[1] - 0.68 - MOST * LINE
        card.text(card.size[0] - aside + 0.42, y, f"… and {more} more", size=9, color=SOFT)
    _scales(axes, told, panel["fieldConfig"]["defaults"]["unit"] == "bytes")


def _scales(axes: Axes, told: Callable[[float], str], binary: bool) -> None:
    high = axes.get_ylim()[1] if axes.dataLim.y1 > 0 else 1.0
    axes.set_ylim(0, high)
    round_one = 2 ** math.ceil(math.log2(high / 5)) if binary else None
    axes.yaxis.set_major_locator(MultipleLocator(round_one) if round_one else MaxNLocator(4))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: told(value)))
    axes.xaxis.set_major_locator(DATES.AutoDateLocator(minticks=4, maxticks=7))
    axes.xaxis.set_major_formatter(DATES.DateFormatter("%H:%M", tz=UTC))
    axes.grid(color=EDGE, linewidth=0.6)
    axes.tick_params(labelsize=9, length=0, colors=SOFT)
    axes.set_facecolor(CARD)
    for side in axes.spines.values():
        side.set_visible(False)


def _cells(card: Card, count: int) -> list[tuple[float, float, float, float]]:
    """Centres and sizes of so many equal places below the title."""
    high = card.size[1] - 0.45
    rows = math.ceil(count / 3)
    columns = math.ceil(count / rows)
    wide, tall = card.size[0] / columns, high / rows
    return [
        ((n % columns + 0.5) * wide, high - (n // columns + 0.5) * tall, wide, tall)
        for n in range(count)
    ]


def _values(card: Card, panel: dict[str, Any], series: list[Series]) -> None:
    for number, (one, (x, y, wide, tall)) in enumerate(
        zip(series, _cells(card, len(series)), strict=True)
    ):
        own = field(panel, one.name)
        text = "" if one.last is None else UNITS[own["unit"]](one.last)
        size = max(13.0, min(34.0, wide * 9, tall * 20))
        name = shortened(one.name, int(wide * 11))
        card.text(x, y + size / 90, name, size=11, ha="center", color=SOFT)
        hue = colour(own, one.last, number)
        card.text(x, y - size / 150, text, size=size, weight="bold", ha="center", color=hue)


def _gauges(card: Card, panel: dict[str, Any], series: list[Series]) -> None:
    cells = zip(series, _cells(card, len(series)), strict=True)
    for number, (one, (x, y, wide, tall)) in enumerate(cells):
        own = field(panel, one.name)
        hue = colour(own, one.last, number)
        high = min(wide / 1.5, tall) * 0.9  # of a box that is half as wide again
        left, bottom = x - high * 0.75, y - high / 2
        axes = card.axes(left, bottom, card.size[0] - left - high * 1.5,
                         card.size[1] - bottom - high)  # fmt: skip
        axes.set(xlim=(-1.05, 1.05), ylim=(-0.35, 1.05))
        axes.axis("off")
        _ring(axes, own, one.last or 0.0, hue)
        text = "" if one.last is None else UNITS[own["unit"]](one.last)
        axes.text(0, 0.1, text, size=20, weight="bold", ha="center", color=hue)
        axes.text(0, -0.28, one.name, size=11, ha="center", color=SOFT)


def _ring(axes: Axes, field: dict[str, Any], value: float, hue: str) -> None:
    low, high = field["min"], field["max"]

    def angle(at: float) -> float:
        return 180 * (1 - min(1.0, max(0.0, (at - low) / (high - low))))

    steps = field["thresholds"]["steps"]
    ends = [*(s["value"] for s in steps[1:]), high]
    begin = low
    for step, end in zip(steps, ends, strict=True):
        hue_of_step = NAMED[step["color"]]
        ring = Wedge((0, 0), 1.0, angle(end), angle(begin), width=0.05, color=hue_of_step)
        axes.add_patch(ring)
        begin = end
    axes.add_patch(Wedge((0, 0), 0.92, 0, 180, width=0.24, color="#e9eaeb"))
    axes.add_patch(Wedge((0, 0), 0.92, angle(value), 180, width=0.24, color=hue))
