"""Figures in characters: lengths show the numbers, and no line is too wide."""

from __future__ import annotations

from typing import Any

import pytest
from hushstream.reading.live.terminal.figures import BarRow, bar, bars, curve, plane, sparkline
from rich.cells import cell_len


def whole(value: float, reach: float = 0.0) -> list[float]:
    return [value, reach / 2, value - reach, value + reach]


def test_a_bar_is_as_long_as_its_value_and_shows_its_interval() -> None:
    assert bar(whole(50), 0, 100, 11).plain == "██████     "
    assert bar(whole(50, 20), 0, 100, 11).plain == "███├─┼─┤   "
    assert bar(whole(-60), -100, 100, 11).plain == "  ████     "  # from 0 in the middle


@pytest.mark.parametrize("width", [20, 40, 80, 200])
@pytest.mark.parametrize("letter", ["k", "鍵"])
def test_no_row_is_wider_than_the_terminal(width: int, letter: str) -> None:
    rows = [BarRow(letter * n, whole(10.0**n, 5), [1, 2, 3]) for n in range(9)] + [
        BarRow("z", None)
    ]
    for row, line in zip(rows, bars(rows, width), strict=True):
        assert cell_len(line.plain) <= width
        assert ("…" in line.plain) == (cell_len(row.label) > max(width // 3, 8))


def test_rows_share_a_scale_and_say_their_numbers() -> None:
    first, second, none = bars(
        [BarRow("a", whole(100)), BarRow("b", whole(50)), BarRow("c", None)], 60
    )
    assert first.plain.count("█") == pytest.approx(2 * second.plain.count("█"), abs=1)
    assert first.plain.startswith("a  100 ±0") and none.plain.split() == ["c", "–"]
    assert bars([], 80) == []


def test_a_small_line_moves_with_its_values() -> None:
    assert sparkline([0, 7, 3.5]) == "▁█▅" and sparkline([1]) == "" and sparkline([2, 2]) == "▁▁"


@pytest.mark.parametrize("width", [40, 80, 200])
@pytest.mark.parametrize("number", [1, 5, 70, 500])
def test_a_curve_has_the_heights_of_its_values(width: int, number: int) -> None:
    parts = [whole(float(n + 1)) for n in range(number)]
    lines = [line.plain for line in curve(parts, ("first", "last"), width, 9)]
    assert len(lines) == 10 and max(map(cell_len, lines)) <= width
    left = min(max(line.find("│"), line.find("┤")) for line in lines[:-1]) + 1
    columns = list(zip(*(line[left:].ljust(width) for line in lines[:-1]), strict=True))
    heights = [column.count("█") for column in columns if "█" in column]
    assert heights == sorted(heights) and heights[-1] == 9  # the newest, on the right, is largest
    assert lines[0].split()[0] == str(number) and lines[8].split()[0].startswith("0")
    assert lines[-1].split() in (["first", "last"], ["first", "to", "last"])


def test_a_curve_below_0_hangs_from_it_and_shows_intervals() -> None:
    lines = [line.plain for line in curve([whole(-4), whole(0, 4)], ("a", "b"), 30, 9)]
    assert sum("█" in line for line in lines) == 5  # from 0 in the middle down to -4
    assert sum("│" in line[5:] for line in lines) == 8 and sum("┼" in line for line in lines) == 1


def square(cells: list[list[float]], **more: Any) -> dict[str, Any]:
    return {"axes": [["x", 0.0, 10.0], ["y", 0.0, 10.0]], "cells": cells} | more


def test_a_map_is_shaded_by_density_with_north_on_top() -> None:
    quarters = [[x, x + 5, y, y + 5, n, 1.0, n - 1, n + 1]
                for n, (x, y) in enumerate([(0, 0), (5, 0), (0, 5), (5, 5)], 2)]  # fmt: skip
    drawn = plane(square(quarters), 80, 10)
    lines = [line.plain for line in drawn.lines]
    assert lines[0] == "10 ┤" + "▓" * 10 + "█" * 10 and lines[9] == " 0 ┤" + "░" * 10 + "▒" * 10
    # Each covers a quarter of the area: 25 hundredths of it.
    assert drawn.legend == ["░ up to 0.08", "▒ up to 0.12", "▓ up to 0.16", "█ up to 0.2"]
    assert lines[-1].split() == ["0", "10"]


def test_cells_that_may_be_empty_are_dots_unless_all_are() -> None:
    sure, unsure = [0, 5, 0, 10, 9.0, 1.0, 8.0, 10.0], [5, 10, 0, 10, 1.0, 9.0, -8.0, 10.0]
    drawn = plane(square([sure, unsure]), 80, 10)
    assert drawn.lines[1].plain == "   │" + "█" * 10 + "·" * 10
    assert drawn.legend[-1] == "· may be empty"
    drawn = plane(square([unsure]), 80, 10)
    assert drawn.lines[1].plain.endswith("█" * 10) and drawn.legend[-1] == "each may be empty"


@pytest.mark.parametrize("width", [30, 80, 200])
def test_a_map_keeps_its_shape_and_fits(width: int) -> None:
    cell = [-74.0, -73.9, 40.80, 40.9, 5.0, 1.0, 4.0, 6.0]
    axes = [["longitude", -74.0, -73.9], ["latitude", 40.8, 40.9]]
    drawn = plane({"axes": axes, "cells": [cell]}, width, 20)
    assert max(cell_len(line.plain) for line in drawn.lines) <= width
    assert len(drawn.lines) <= 21
    marks = [line.plain.split()[0] for line in drawn.lines if "┤" in line.plain]
    assert marks == ["40.9", "40.85", "40.8"]
