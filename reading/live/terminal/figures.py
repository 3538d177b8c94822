"""Figures in characters: lists of lines, none wider than the given width."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
from rich.cells import cell_len, set_cell_size
from rich.text import Text

from ....agents.worker.lines.visible import visible
from ....mechanisms.columns import F64
from ..views import geographic, overlaps
from .words import apart, estimate

BAR, WHISKER, SOFT = "blue", "bold", "dim"
SPARKS = "▁▂▃▄▅▆▇█"
SHADES = "░▒▓█"
UNSURE = "·"
NEAR = 1 + 1e-9  # sums may differ by this factor with the order of summation
LEAST_BAR = 12  # columns; a narrower bar shows nothing
SPARK = 12  # columns of the sparkline beside a bar
WIDE = 110  # columns of a terminal with room for sparklines
LETTERS = 2  # characters per square of a map: a character is about twice as high as wide
Parts = Sequence[float]
"""Value, standard deviation and both ends of the interval."""


class BarRow(NamedTuple):
    """One bar."""

    label: str
    estimate: Parts | None
    spark: Sequence[float] = ()  # earlier values, the oldest first


def bars(rows: Sequence[BarRow], width: int) -> list[Text]:
    """Draw rows as bars over one common scale, each with its number and its interval."""
    told = [estimate(row.estimate) for row in rows]
    names = [visible(row.label) or "(no key)" for row in rows]
    name = min(max(map(cell_len, names), default=0), max(width // 3, 8))
    value, reach = (max((len(one[n]) for one in told), default=0) for n in (0, 1))
    spark = SPARK + 1 if width >= WIDE and any(len(row.spark) > 1 for row in rows) else 0
    room = width - name - value - reach - 5 - spark
    low, high = _range([row.estimate for row in rows if row.estimate])
    lines = []
    for row, label, (number, error) in zip(rows, names, told, strict=True):
        line = Text(f"{clipped(label, name)}  ")
        line.append(f"{number:>{value}} ")
        line.append(f"{error:>{reach}}", SOFT)
        if row.estimate is not None and room >= LEAST_BAR:
            line.append("  ").append_text(bar(row.estimate, low, high, room))
            if spark:
                line.append(" ").append(sparkline(row.spark[-SPARK:]), SOFT)
        line.truncate(width)
        line.rstrip()
        lines.append(line)
    return lines


def clipped(text: str, width: int) -> str:
    """A text in exactly ``width`` columns, with an ellipsis if it is longer."""
    if cell_len(text) <= width:
        return set_cell_size(text, width)
    return set_cell_size(set_cell_size(text, width - 1).rstrip() + "…", width)


def bar(parts: Parts, low: float, high: float, width: int) -> Text:
    """A bar from 0 to the value with its interval drawn over it, on a scale ``low`` to ``high``."""

    def column(value: float) -> int:
        return min(max(round((value - low) / (high - low) * (width - 1)), 0), width - 1)

    zero, at, begin, end = column(0), column(parts[0]), column(parts[2]), column(parts[3])
    cells = [" "] * width
    cells[min(zero, at) : max(zero, at) + 1] = "█" * (abs(at - zero) + 1)
    whiskers = [" "] * width
    if end > begin:
        whiskers[begin : end + 1] = "─" * (end - begin + 1)
        whiskers[begin], whiskers[end] = "├", "┤"
        whiskers[at] = "┼"
    both = zip(cells, whiskers, strict=True)
    return _coloured([(under, BAR) if over == " " else (over, WHISKER) for under, over in both])


def _coloured(letters: Iterable[tuple[str, str]]) -> Text:
    """Styled characters; runs of one style are merged."""
    drawn = Text()
    for style, run in groupby(letters, key=lambda one: one[1]):
        drawn.append("".join(letter for letter, _ in run), style)
    return drawn


def sparkline(values: Sequence[float]) -> str:
    """Values as a line of small blocks; empty for fewer than two."""
    if len(values) < 2:
        return ""
    low, high = min(values), max(values)
    steps = len(SPARKS) - 1
    return "".join(SPARKS[round((one - low) / ((high - low) or 1) * steps)] for one in values)


def _range(parts: Sequence[Parts]) -> tuple[float, float]:
    """Both ends of a scale that covers every value, its interval, and 0."""
    low = min((min(one[0], one[2], 0.0) for one in parts), default=0.0)
    high = max((max(one[0], one[3], 0.0) for one in parts), default=1.0)
    return (low, high) if high > low else (low, low + 1)


def curve(parts: Sequence[Parts], ends: tuple[str, str], width: int, height: int) -> list[Text]:
    """Draw values side by side as columns with intervals; only the newest if not all fit.

    Args:
        parts: the values, from left to right.
        ends: labels below the first and the last value.
        height: lines of the figure without its axis.
    """
    low, high = _range(parts)
    marks = apart([high, (low + high) / 2, low])
    left = max(map(len, marks)) + 2
    each = max((width - left) // max(len(parts), 1), 1)
    wide = min(each, 8)
    shown = parts[-(width - left) // wide :] if wide * len(parts) > width - left else parts
    grid = np.full((height, wide * len(shown)), " ", dtype="<U1")

    def line(value: float) -> float:
        return (value - low) / (high - low) * (height - 1)

    for place, one in enumerate(shown):
        first, last = place * wide, (place + 1) * wide - (wide > 2)
        zero, top = sorted((line(0.0), line(one[0])))
        grid[round(zero) : round(top) + 1, first:last] = "█"
        begin, end = round(line(one[2])), round(line(one[3]))
        if end > begin:
            middle = first + (last - first) // 2
            grid[begin : end + 1, middle] = "│"
            grid[round(line(one[0])), middle] = "┼"
    lines = []
    for row in range(height - 1, -1, -1):
        named = {height - 1: marks[0], (height - 1) // 2: marks[1], 0: marks[2]}.get(row, "")
        drawn = Text(f"{named:>{left - 2}} ").append("┤" if named else "│", SOFT)
        letters = ((one, BAR if one == "█" else WHISKER) for one in grid[row].tolist())
        drawn.append_text(_coloured(letters))
        drawn.rstrip()
        lines.append(drawn)
    return [*lines, _below(ends, left, min(wide * len(shown), width - left), width)]


def _below(ends: tuple[str, str], left: int, wide: int, width: int) -> Text:
    """Labels of both ends of an axis: below them if there is room, else side by side."""
    first, last = ends
    space = wide - cell_len(first) - cell_len(last)
    if space > 1:
        return Text(f"{' ' * left}{first}{' ' * space}{last}", SOFT)
    text = f"{first} to {last}"
    return Text(" " * max(min(left, width - cell_len(text)), 0) + text, SOFT)


class Plane(NamedTuple):
    """A map: its lines, and a legend with one text per symbol."""

    lines: list[Text]
    legend: list[str]


def plane(view: dict[str, Any], width: int, height: int) -> Plane:
    """Draw cells of two axes, shaded by density because they differ in size.

    Args:
        view: result of `views.view` with ``axes`` and at least one of ``cells``.
        height: lines, without the axis.
    """
    (_, west, east), (_, south, north) = view["axes"]
    cells = np.array(view["cells"], np.float64)
    marks = apart([north, (south + north) / 2, south])
    left = max(map(len, marks)) + 2
    ratio = (north - south) / (east - west) * _stretch(view["axes"])
    columns = max(min(width - left, round(height * LETTERS / ratio)), 4)
    rows = max(min(height, round(columns * ratio / LETTERS)), 3)
    x = overlaps(np.linspace(west, east, columns + 1), cells[:, 0:2])
    y = overlaps(np.linspace(south, north, rows + 1), cells[:, 2:4])
    held = y.T @ (x * cells[:, 4:5]) * columns * rows / 100  # in a hundredth of the area
    unsure = cells[:, 6] <= 0
    doubt, sure = (((y[of] > 0) * 1.0).T @ (x[of] > 0) > 0 for of in (unsure, ~unsure))
    said = [f"{UNSURE} may be empty"] if doubt.any() else []
    if not sure.any():  # all are doubtful: shades say more than dots
        sure, said = doubt, ["each may be empty"]
    ends = _classes(held[sure & (held > 0)])
    lines = []
    for row in range(rows - 1, -1, -1):
        named = {rows - 1: marks[0], (rows - 1) // 2: marks[1], 0: marks[2]}.get(row, "")
        drawn = Text(f"{named:>{left - 2}} ").append("┤" if named else "│", SOFT)
        squares = zip(held[row], sure[row], doubt[row], strict=True)
        drawn.append_text(_coloured(_letter(*one, ends) for one in squares))
        drawn.rstrip()
        lines.append(drawn)
    low, high = apart([west, east])
    lines.append(_below((low, high), left, columns, width))
    texts = apart(ends, 2)
    legend = [f"{shade} up to {text}" for shade, text in zip(_shades(ends), texts, strict=True)]
    return Plane(lines, legend + said)


def _stretch(axes: Sequence[Sequence[Any]]) -> float:
    """Length of a degree of latitude in degrees of longitude; 1 on other axes."""
    if not geographic(axes):
        return 1.0
    return 1 / max(math.cos(math.radians((axes[1][1] + axes[1][2]) / 2)), 0.2)


def _classes(held: F64) -> list[float]:
    """Upper ends of classes with about equally many squares each."""
    if not len(held):
        return []
    found = np.quantile(held, np.arange(1, len(SHADES) + 1) / len(SHADES), method="inverted_cdf")
    return sorted(set(found.tolist()))


def _shades(ends: Sequence[float]) -> str:
    """One character for each class, the darkest for the last."""
    return SHADES[len(SHADES) - len(ends) :]


def _letter(held: float, sure: bool, doubt: bool, ends: Sequence[float]) -> tuple[str, str]:
    if sure and held > 0 and ends:
        place = next((n for n, end in enumerate(ends) if held <= end * NEAR), len(ends) - 1)
        return _shades(ends)[place], BAR
    return (UNSURE, SOFT) if doubt else (" ", "")
