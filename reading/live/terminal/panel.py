"""One pipeline as lines of a terminal: the live page's content in the lines there are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from rich.text import Text

from ....agents.worker.lines.screen import Screen
from ....agents.worker.lines.visible import visible
from ..views import cut_off, held_hops
from .figures import BarRow, bars, curve, plane
from .words import about, budget, count, estimate, when

STATES = {
    "good": ("on time", "green"), "waiting": ("waiting", "yellow"), "asked": ("on request", "dim"),
    "ended": ("ended", "dim"), "late": ("stale", "yellow"), "stopped": ("stopped", "red"),
}  # fmt: skip
LEAST = 5  # lines of a figure, however small the terminal is
TALL = 16  # lines of a curve
PROFILE = 64  # columns for cells of one axis


def panel(
    link: Mapping[str, Any], told: Mapping[str, Any], seen: Mapping[str, Any], size: tuple[int, int]
) -> list[Text]:
    """Make the lines of one pipeline; they fit the terminal unless it is very low.

    Args:
        link: state of the connection, from `Board.summary`.
        told: the pipeline, from `Board.summary`.
        seen: result of `views.view`.
        size: columns and lines of the terminal.
    """
    width, height = size
    head = _head(link, told, seen, width)
    foot = wrapped(Text(visible(budget(told["budget"], told["unit"]))), width)
    if seen.get("empty"):
        return [*head, Text(), *foot]
    room = max(height - len(head) - len(foot) - 4, LEAST)
    return [*head, Text(), *_figure(told, dict(seen), width, room), Text(), *foot]


def wrapped(text: Text, width: int) -> list[Text]:
    """A text broken into lines between words."""
    lines = list(text.wrap(Screen(width=width), width))
    for line in lines:
        line.rstrip()
    return lines


def _head(
    link: Mapping[str, Any], told: Mapping[str, Any], seen: Mapping[str, Any], width: int
) -> list[Text]:
    word, style = STATES[told["health"]["state"]]
    parts = [
        Text.assemble(
            (visible(told["name"]), "bold"), "  ", (word, style),
            f"  {visible(told['mechanism'])}, unit: {visible(told['unit'])}",
        ),
        Text(visible(told["health"]["words"])),
    ]  # fmt: skip
    if not link["good"]:
        parts.append(Text(visible(link["words"]), "yellow"))
    if not seen.get("empty"):
        last = ", the window's last" if seen["final"] else ""
        parts += [
            Text(
                f"Release {seen['trigger']} of {seen['triggers']}{last}, {when(seen['released'])} "
                f"UTC; window {when(seen['start'])} to {when(seen['end'])}{held_hops(seen)}"
            ),
            Text(f"Intervals of {about(seen['confidence'] * 100)} %, of the noise alone; "
                 f"{cut_off(seen, visible(told['unit']))}", "dim"),
        ]  # fmt: skip
    return [line for part in parts for line in wrapped(part, width)]


def _figure(told: Mapping[str, Any], seen: dict[str, Any], width: int, room: int) -> list[Text]:
    if seen["form"] == "cells":
        return _cells(seen, width, room)
    if seen["form"] == "slots":
        return _slots(told, seen, width, room)
    if seen["form"] == "stream":
        return _stream(told, seen, width, room)
    return _keys(seen, width, room)


def _title(text: str, width: int) -> list[Text]:
    return wrapped(Text(visible(text), "bold"), width)


def _keys(seen: dict[str, Any], width: int, room: int) -> list[Text]:
    value, names = seen["value"], " / ".join(seen["key_names"])
    if not seen["rows"]:
        return wrapped(Text(_nothing(seen)), width)
    rows = seen["rows"][: max(room - 1, 1)]
    number = count(seen["number"], "key")
    of = number if len(rows) == seen["number"] else f"{len(rows)} of {number}"
    title = f"{value} by {names}" if seen["ordered"] else f"Largest values of {value}"
    drawn = [BarRow(r["key"], r["estimate"], [v for _, v in r["spark"]]) for r in rows]
    return [*_title(f"{title}, {of}", width), *bars(drawn, width)]


def _nothing(seen: Mapping[str, Any]) -> str:
    if seen["final"]:
        return "No key was released in this window: none had enough units."
    return "No key has been released in this window yet: one appears once enough units have it."


def _cells(seen: dict[str, Any], width: int, room: int) -> list[Text]:
    if not seen["cells"]:
        return [Text("No cell has a value.")]
    value, reach = estimate(seen["total"]["estimate"])
    note = f"{count(seen['number'], 'cell')}, {value} {reach} in all"
    note += "".join(f"; added up over {name}" for name in seen["hidden_axes"])
    if len(seen["axes"]) == 1:
        return _profile(seen, note, width, room)
    title = _title(f"Map of {seen['value']}: {note}", width)
    x, y = (axis[0] for axis in seen["axes"])
    drawn = plane(seen, width, max(room - len(title) - 3, LEAST))
    told = f"{y} up, {x} across; in a hundredth of the area:"
    return [*title, *drawn.lines, *_packed([told, *drawn.legend], width)]


def _packed(items: Sequence[str], width: int) -> list[Text]:
    """Items packed into lines; only an item wider than a line is broken."""
    lines = [""]
    for item in map(visible, items):
        if lines[-1] and len(lines[-1]) + 2 + len(item) > width:
            lines.append("")
        lines[-1] += f"{'  ' if lines[-1] else ''}{item}"
    return [line for text in lines for line in wrapped(Text(text, "dim"), width)]


def _profile(seen: dict[str, Any], note: str, width: int, room: int) -> list[Text]:
    """Cells of one axis, as densities because they differ in width."""
    name, low, high = seen["axes"][0]
    cells = np.array(sorted(seen["cells"]), np.float64)
    number = min(PROFILE, width - 20)
    middle = low + (np.arange(number) + 0.5) * (high - low) / number
    place = np.clip(np.searchsorted(cells[:, 0], middle, "right") - 1, 0, len(cells) - 1)
    size = (cells[:, 1] - cells[:, 0]) / (high - low) * 100
    inside = (middle >= cells[place, 0]) & (middle < cells[place, 1])
    parts = np.where(inside[:, None], (cells[:, 2:] / size[:, None])[place], 0.0)
    title = _title(f"{seen['value']} in a hundredth of the range of {name}: {note}", width)
    ends = (about(low, 6), about(high, 6))
    return [*title, *curve(parts.tolist(), ends, width, _tall(room, title))]


def _tall(room: int, title: Sequence[Text]) -> int:
    return max(min(room - len(title) - 2, TALL), LEAST)


def _slots(told: Mapping[str, Any], seen: dict[str, Any], width: int, room: int) -> list[Text]:
    found = seen["slots"]
    if not found:
        said = "was released in this window" if seen["final"] else "has been released yet"
        return [Text(f"No slot {said}.")]
    field = f" of {told['measured']}" if told["measured"] else ""
    running = seen["value"] == "prefix"
    title = f"Running total{field}" if running else f"Sum{field} in each slot"
    first, last = (_slot(found[place]) for place in (0, -1))
    value, reach = estimate(found[-1]["estimate"])
    heads = _title(
        f"{title}, {count(len(found), 'slot')}; the last, {last}: {value} {reach}", width
    )
    parts = [one["estimate"] for one in found]
    return [*heads, *curve(parts, (first, last), width, _tall(room, heads))]


def _slot(one: Mapping[str, Any]) -> str:
    return when(one["begin"]) if one["dated"] else f"slot {one['slot']}"


def _stream(told: Mapping[str, Any], seen: dict[str, Any], width: int, room: int) -> list[Text]:
    points = seen["trend"]["points"]
    value, reach = estimate(points[-1]["estimate"] if points else None)
    heads = _title(f"{seen['value']} of {told['measured'] or 'the values'}: {value} {reach}", width)
    if not seen["bins"]:
        if not points:
            return heads
        ends = (when(points[0]["at"]), when(points[-1]["at"]))
        parts = [one["estimate"] for one in points]
        return [*heads, *curve(parts, ends, width, _tall(room, heads))]
    shares = [[100 * part, 0.0, 100 * part, 100 * part] for _, _, part in seen["bins"]]
    ends = (about(seen["bins"][0][0]), about(seen["bins"][-1][1]))
    heads += _title(
        f"Estimated distribution in %, from the reports up to {when(seen['binned'])}", width
    )
    return [*heads, *curve(shares, ends, width, _tall(room, heads))]
