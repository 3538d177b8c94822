"""Pictures show released figures as bars, intervals, cells and dates, for every mechanism."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hushstream.reading.live import picture
from hushstream.reading.live.views import Wish, view
from hushstream.topics.cut_share import CutShare, in_words
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.figure import Figure

from .test_views import known

CASES = ["histogram-sums", "phdstream", "privhp", "pak", "tops", "topl"]


def made(case: str, **asked: Any) -> tuple[Figure, dict[str, Any]]:
    pipeline, history = known(case)
    told = {"unit": pipeline.unit, "mechanism": pipeline.mechanism, "measured": pipeline.measured}
    seen = view(pipeline, history, Wish(**asked))
    return picture._figure(case, told, seen), seen


def intervals(axes: Any, along: int) -> list[tuple[float, float]]:
    """Both ends of every error bar, along one axis."""
    found = []
    for one in axes.collections:
        if isinstance(one, LineCollection):
            found += [tuple(sorted(ends[:, along])) for ends in np.asarray(one.get_segments())]
    return found


@pytest.mark.spread(3)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("kind", [".png", ".svg"])
def test_every_mechanism_becomes_a_file(case: str, kind: str, tmp_path: Path) -> None:
    pipeline, history = known(case)
    told = {"unit": pipeline.unit, "mechanism": pipeline.mechanism, "measured": pipeline.measured}
    seen, file = view(pipeline, history, Wish(size=200)), tmp_path / f"out{kind}"
    picture.draw(case, told, seen, file)
    start = file.read_bytes()[:200]
    assert start.startswith(b"\x89PNG") if kind == ".png" else b"<?xml" in start


@pytest.mark.parametrize("value", ["count", "mean_fare"])
def test_keys_are_bars_with_their_intervals(value: str) -> None:
    figure, seen = made("histogram-sums", value=value)
    axes = figure.axes[0]
    estimates = [row["estimate"] for row in seen["rows"]]
    assert [bar.get_width() for bar in axes.patches] == [e[0] for e in estimates]
    assert [t.get_text() for t in axes.get_yticklabels()] == [r["key"] for r in seen["rows"]]
    for (low, high), wanted in zip(intervals(axes, 0), estimates, strict=True):
        assert (low, high) == pytest.approx((wanted[2], wanted[3]))


@pytest.mark.parametrize("case", ["phdstream", "privhp"])
def test_cells_are_drawn_where_they_lie_and_unsure_ones_are_hatched(case: str) -> None:
    figure, seen = made(case)
    drawn = [c for c in figure.axes[0].collections if isinstance(c, PolyCollection)]
    shaded, hatched = drawn[0], drawn[1]
    cells = [c for c in seen["cells"] if c[4] > 0]
    for path, cell in zip(shaded.get_paths(), cells, strict=True):
        corners = path.vertices
        assert (*corners.min(axis=0), *corners.max(axis=0)) == (cell[0], cell[2], cell[1], cell[3])
    share = [(c[1] - c[0]) * (c[3] - c[2]) / 4 for c in cells]  # of an area of 2 by 2
    wanted = [c[4] / (100 * part) for c, part in zip(cells, share, strict=True)]
    assert np.allclose(shaded.get_array(), wanted)
    assert len(hatched.get_paths()) == sum(c[6] <= 0 for c in seen["cells"])


@pytest.mark.parametrize("factor", [1.002, 1.3, 6, 400])
def test_marks_of_the_bar_of_colours_are_plain_numbers_that_differ(factor: float) -> None:
    pipeline, history = known("phdstream")
    seen = view(pipeline, history, Wish())
    cell = seen["cells"][0]
    seen["cells"] = [[*cell[:4], n, 1.0, n - 1, n + 1] for n in (40.8, 40.8 * factor)]
    told = {"unit": "u", "mechanism": "phdstream", "measured": ""}
    figure = picture._figure("p", told, seen)
    picture.FigureCanvasAgg(figure).draw()
    bar = figure.axes[-1]
    marks = [one.get_text() for one in bar.get_yticklabels()]
    assert len(set(marks)) == len(marks) >= 3
    assert [float(text.replace(",", "")) for text in marks] == pytest.approx(bar.get_yticks())


@pytest.mark.parametrize("case", ["pak", "tops"])
def test_slots_are_bars_at_their_times(case: str) -> None:
    figure, seen = made(case)
    axes = figure.axes[0]
    for bar, slot in zip(axes.patches, seen["slots"], strict=True):
        assert bar.get_height() == slot["estimate"][0]
        middle = (bar.get_x() + bar.get_width() / 2) * 86_400_000
        assert middle == pytest.approx((slot["begin"] + slot["end"]) / 2, abs=2)
    wanted = [(s["estimate"][2], s["estimate"][3]) for s in seen["slots"]]
    assert np.allclose(intervals(axes, 1), wanted)
    figure, _ = made(case, value="prefix")
    assert figure.axes[0].get_ylabel() == "running total of fare"


def test_a_stream_has_its_distribution_and_its_line_by_date() -> None:
    figure, seen = made("topl")
    upper, lower = figure.axes
    assert [bar.get_height() for bar in upper.patches] == [100 * b[2] for b in seen["bins"]]
    drawn = np.concatenate([line.get_ydata() for line in lower.lines if line.get_marker() == "o"])
    assert drawn.tolist() == [p["estimate"][0] for p in seen["trend"]["points"]]
    first = datetime.fromtimestamp(seen["trend"]["points"][0]["at"] / 1000, UTC)
    assert lower.lines[0].get_xdata()[0] == picture.DATES.date2num(first)


def test_the_title_says_what_it_is() -> None:
    figure, _ = made("histogram-sums")
    title = figure.get_suptitle()
    assert "release 4 of 4, the window's last, 2019-03-01 16:00 UTC" in title
    assert "unit: user" in title and "95%" in title


def test_a_key_is_no_formula(tmp_path: Path) -> None:
    pipeline, history = known("histogram-sums")
    seen = view(pipeline, history, Wish())
    seen["rows"][0]["key"] = seen["trend"]["key"] = r"$\frac{broken$" + "x" * 60
    told = {"unit": "u", "mechanism": "histogram", "measured": ""}
    picture.draw("p", told, seen, tmp_path / "out.png")
    assert (tmp_path / "out.png").stat().st_size > 1000


def test_what_the_bound_allows_and_cut_stands_above_the_picture() -> None:
    figure, _ = made("phdstream-defaults")
    title = figure.get_suptitle()
    assert "at most 1 of a user's records count in an epoch; the share" in title
    assert "is unknown" in title
    figure, seen = made("histogram-debiased")
    share = in_words(CutShare(**seen["cut"]))
    assert share in figure.get_suptitle() and "at most" not in figure.get_suptitle()
