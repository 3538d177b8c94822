"""The report of a simulation for people: a table per pipeline, and what it leaves out."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, time
from typing import Any

from rich.table import Table

from .judged import SimulationReport

PRIVATE = (
    "error: median over the rows; relative: the same, relative to the truth; in all: sum of errors "
    "relative to the sum of truths; covered: share of the intervals that hold the truth.\n"
    "The report shows exact figures of the file beside the releases, so it stays inside the trust "
    "boundary. Error bars cover noise, but not what the bound cut off."
)


def show(report: SimulationReport) -> Iterator[Table | str]:
    """Yield the parts of a report, for a terminal of 80 columns."""
    title = f"{report.pipeline}: last release of each window"
    table = Table(title=title, title_justify="left")
    heads = ("window (UTC)", "value", "rows", "error", "relative", "in all", "covered")
    for place, head in enumerate(heads):
        table.add_column(head, justify="left" if place < 2 else "right", overflow="fold")
    for window in report.windows:
        figures = window.get("figures") or {"–": {"rows": window.get("released", 0)}}
        for place, (name, told) in enumerate(figures.items()):
            table.add_row(dates(window) if not place else "", name, *_row(told))
    yield table
    yield from _sentences(report)
    if report.unusable:
        yield f"records that could not be used: {report.unusable}"
    if report.counts:
        yield ", ".join(f"{name} {number:,}" for name, number in report.counts.items())
    if report.note:
        yield report.note


def _row(told: dict[str, Any]) -> tuple[str, ...]:
    return (
        f"{told['rows']:,}",
        _number(told.get("error")),
        *(_percent(told.get(name)) for name in ("relative", "total", "coverage")),
    )


def _sentences(report: SimulationReport) -> Iterator[str]:
    """Yield what is cut off, from which count keys appear, and what stays hidden."""
    if report.cut is not None:
        what = report.counted.partition(" (")[0]  # without the name of the unit
        yield f"cut off by the contribution bound: {_percent(report.cut)} of the {what}"
    if report.counted != "records":
        yield f"counts are of {report.counted}, and are compared with such"
    by_key = [w["threshold"] for w in report.windows if "threshold" in w and "hidden" in w]
    if by_key:
        yield f"threshold: a key appears from a noisy count of {_between(by_key)}"
    learnt = [w["threshold"] for w in report.windows if "threshold" in w and "hidden" not in w]
    if learnt:
        yield f"threshold: values count up to {_between(learnt)}, learnt from the warm-up"
    for window in report.windows:
        if window.get("hidden"):
            yield (
                f"{dates(window)}: {window['hidden']:,} of {window['keys']:,} keys stay hidden, "
                f"with {_percent(window['hidden_share'])} of what they count"
            )
        if "truth" in window and window["mean"] is not None:
            yield (
                f"{dates(window)}: mean {_number(window['mean'])} ±{_number(window['stddev'])} "
                f"(standard deviation), truth {_number(window['truth'])}"
            )


def dates(window: dict[str, Any]) -> str:
    """Write both ends of a window in the shortest form.

    >>> dates({"start": "2019-03-01T00:00:00Z", "end": "2019-03-02T00:00:00Z"})
    '2019-03-01'
    >>> dates({"start": "2019-03-01T00:00:00Z", "end": "2019-03-01T08:00:00Z"})
    '2019-03-01 00:00 to 08:00'
    >>> dates({"start": "2019-03-01T00:00:00Z", "end": "2019-03-08T00:00:00Z"})
    '2019-03-01 to 2019-03-08'
    >>> dates({"start": "2019-03-01T00:00:00Z", "end": None})
    'from 2019-03-01 on'
    """
    start = datetime.fromisoformat(window["start"])
    if window["end"] is None:
        midnight = start.time() == time()
        return f"from {start:%Y-%m-%d} on" if midnight else f"from {start:%Y-%m-%d %H:%M} on"
    end = datetime.fromisoformat(window["end"])
    if not any((start.hour, start.minute, start.second, end.hour, end.minute, end.second)):
        one = (end - start).days == 1
        return f"{start:%Y-%m-%d}" if one else f"{start:%Y-%m-%d} to {end:%Y-%m-%d}"
    last = f"{end:%H:%M}" if start.date() == end.date() else f"{end:%Y-%m-%d %H:%M}"
    return f"{start:%Y-%m-%d %H:%M} to {last}"


def _between(found: list[float]) -> str:
    """The least and the largest of some numbers.

    >>> _between([30.0, 30.0]), _between([33.0, 25.0, 28.0])
    ('30', '25 to 33')
    """
    low, high = _number(min(found)), _number(max(found))
    return low if low == high else f"{low} to {high}"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{float(f'{value:.4g}'):,g}"


def _percent(value: float | None) -> str:
    """A share in percent, with at most three digits.

    >>> _percent(0.123456), _percent(0.95), _percent(None)
    ('12.3 %', '95 %', '–')
    """
    return "–" if value is None else f"{float(f'{100 * value:.3g}'):,g} %"
