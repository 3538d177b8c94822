"""Pictures of dashboards: they are of the dashboards that are shipped, and say what these say."""

from __future__ import annotations

import doctest
import json
import math
from pathlib import Path
from typing import Any

import pytest
from hushstream.deploy.dashboards import DASHBOARDS
from matplotlib.figure import Figure
from matplotlib.text import Text

from . import __main__ as program
from . import answers, draw, units
from .answers import Series

BOARDS = {name: (program.SHIPPED / name).read_text("utf-8") for name in DASHBOARDS}


@pytest.mark.parametrize("module", [answers, program, units], ids=lambda m: m.__name__)
def test_examples(module: Any) -> None:
    done = doctest.testmod(module)
    assert done.attempted and not done.failed


@pytest.mark.parametrize("name", sorted(DASHBOARDS))
def test_the_pictures_of_the_docs_show_the_shipped_dashboards(name: str) -> None:
    """After a change of a dashboard, `make dashboards` draws anew."""
    assert draw.shown(program.picture(name)) == draw.digest(BOARDS[name])


@pytest.mark.parametrize("name", sorted(DASHBOARDS))
def test_every_unit_of_a_panel_can_be_told(name: str) -> None:
    for panel in json.loads(BOARDS[name])["panels"]:
        assert panel["fieldConfig"]["defaults"]["unit"] in units.UNITS


@pytest.fixture
def texts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """All texts of the figures that are saved."""
    found: list[str] = []
    save = Figure.savefig

    def saved(figure: Figure, *words: Any, **options: Any) -> None:
        found.extend(one.get_text() for one in figure.findobj(Text))
        save(figure, *words, **options)

    monkeypatch.setattr(Figure, "savefig", saved)
    return found


@pytest.mark.parametrize("name", sorted(DASHBOARDS))
def test_a_picture_says_all_that_its_panels_say(
    name: str, tmp_path: Path, texts: list[str]
) -> None:
    board = json.loads(BOARDS[name])
    found = {
        p["id"]: [Series(f"series {p['id']}", [0.0, 5.0], [0.0, 0.5])] for p in board["panels"]
    }
    empty = board["panels"][0]["id"]
    found[empty] = [Series("unheard", [0.0, 5.0], [math.nan, math.nan])]
    path = tmp_path / "x.png"
    draw.draw(board, found, "whose it is", path, "some mark")
    assert draw.shown(path) == "some mark"
    told = {"whose it is", board["title"], *(panel["title"] for panel in board["panels"])}
    told |= {f"series {panel['id']}" for panel in board["panels"] if panel["id"] != empty}
    assert told <= set(texts)
    assert texts.count("No data") == 1 and "unheard" not in texts


def test_a_series_has_the_colour_that_the_dashboard_gives_it() -> None:
    board = json.loads(BOARDS["releases.json"])
    panels = {panel["title"]: panel for panel in board["panels"]}

    def hue(title: str, name: str, value: float) -> str:
        return draw.colour(draw.field(panels[title], name), value, 0)

    named = draw.NAMED
    assert hue("Releases", "zones published", 900) == named["text"]
    assert hue("Releases", "zones refused", 0) == named["green"]
    assert hue("Releases", "zones refused", 1) == named["red"]
    assert hue("Budget remaining", "zones", 0.05) == named["red"]
    assert hue("Budget remaining", "zones", 0.1) == named["orange"]
    assert hue("Budget remaining", "zones", 1) == named["green"]
    assert hue("Workers ready", "ready", 0) == named["red"]
    assert hue("Epsilon spent, per unit", "zones limit", 4) == draw.CLASSIC[0]
    limit = draw.field(panels["Epsilon spent, per unit"], "zones limit")
    assert limit["custom.lineStyle"]["fill"] == "dash"
    assert "custom.lineStyle" not in draw.field(panels["Releases"], "zones limited")


def test_the_last_value_is_the_last_number() -> None:
    assert Series("a", [0, 1, 2], [3.0, 4.0, math.nan]).last == 4
    assert Series("a", [0], [math.inf]).last is None


def test_a_legend_is_cut_where_it_would_overlap() -> None:
    assert len(draw.shortened("x" * 99)) == draw.LONGEST
    assert draw.shortened("x" * 99).endswith("…")
