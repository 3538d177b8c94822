"""A pipeline of every mechanism in a terminal: the numbers of its release, in lines that fit."""

from __future__ import annotations

from typing import Any

import pytest
from hushstream.reading.live.budget import spent
from hushstream.reading.live.health import Evidence, health
from hushstream.reading.live.history import History
from hushstream.reading.live.terminal.panel import panel
from hushstream.reading.live.terminal.words import estimate
from hushstream.reading.live.views import Wish, view
from hushstream.topics.cut_share import CutShare, in_words
from rich.cells import cell_len

from ..test_budget import sharing
from ..test_views import known

CASES = ["histogram-sums", "quantile", "phdstream", "privhp", "pak", "tops", "topl"]
GOOD = {"good": True, "words": "Connected."}


def drawn(
    case: str,
    columns: int = 80,
    lines: int = 40,
    empty: bool = False,
    times: int = 1,
    more: dict[str, Any] | None = None,
    **asked: Any,
) -> tuple[list[str], dict[str, Any]]:
    pipeline, history = known(case)
    seen = view(pipeline, History() if empty else history, Wish(size=200, **asked))
    if times > 1:
        seen |= {"rows": seen["rows"] * times, "number": seen["number"] * times}
    seen |= more or {}
    last = None if empty else (history.last or 0) * 1000
    told = {
        "name": pipeline.name, "mechanism": pipeline.mechanism, "unit": pipeline.unit,
        "measured": pipeline.measured, "budget": spent(sharing(""), pipeline, 10.0),
        "health": health(pipeline, Evidence(last=last), 1_551_398_400_000_000),
    }  # fmt: skip
    return [line.plain for line in panel(GOOD, told, seen, (columns, lines))], seen


@pytest.mark.spread(3)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("columns", "lines"), [(80, 24), (80, 50), (200, 60), (40, 30)])
def test_every_figure_fits_and_says_what_it_is(case: str, columns: int, lines: int) -> None:
    text, seen = drawn(case, columns, lines)
    assert max(map(cell_len, text)) <= columns
    assert len(text) < lines or lines == 24 or columns == 40
    whole = " ".join(" ".join(text).split())
    assert f"Release {seen['trigger']} of {seen['triggers']}, the window's last" in whole
    assert "Budget: ε=" in whole and "left." in whole and "yet" not in whole
    assert f"unit: {known(case)[0].unit}" in whole and "Intervals of 95 %" in whole


@pytest.mark.parametrize("value", ["count", "mean_fare"])
def test_keys_stand_with_their_numbers(value: str) -> None:
    text, seen = drawn("histogram-sums", lines=200, value=value)
    at = text.index(f"Largest values of {value}, {len(seen['rows'])} keys")
    for row, line in zip(seen["rows"], text[at + 1 :], strict=False):
        assert line.split()[:3] == [row["key"], *estimate(row["estimate"])]


def test_as_many_keys_as_there_is_room_for() -> None:
    for lines in (30, 60):
        text, seen = drawn("histogram-sums", lines=lines, times=100)
        shown = sum(" ±" in line for line in text)
        assert f"Largest values of count, {shown} of {seen['number']:,} keys" in text
        assert lines - 4 <= len(text) < lines


def test_a_curve_and_a_map_say_their_sum_and_last_value() -> None:
    text, seen = drawn("pak")
    assert f"{seen['slots'][-1]['estimate'][0]:,.0f}" in " ".join(text)
    text, seen = drawn("phdstream")
    assert f"{seen['number']} cells, {estimate(seen['total']['estimate'])[0]}" in " ".join(text)
    text, seen = drawn("topl")
    assert "mean of minutes:" in " ".join(text) and "Estimated distribution" in " ".join(text)


def test_the_share_that_the_bound_cut_stands_beside_the_intervals() -> None:
    cut = CutShare(0.25, 0.2, 0.3)
    text, _ = drawn("histogram-sums", more={"cut": cut._asdict()})
    assert f"of the noise alone; {in_words(cut)}" in " ".join(text)


def test_a_window_that_is_over_expects_no_key() -> None:
    for final, said in ((True, "No key was released in this window"), (False, "this window yet")):
        text, _ = drawn("histogram-sums", more={"rows": [], "final": final})
        assert said in " ".join(text) and ("yet" in " ".join(text[4:-3])) is not final


def test_before_the_first_release_it_says_when_that_is_due() -> None:
    text, _ = drawn("pak", empty=True)
    whole = " ".join(text)
    assert "Nothing has been released yet. The first release is due at" in whole
    assert "Budget" in whole and "Release" not in whole
