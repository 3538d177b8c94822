"""Three ways to go, for people in 80 columns and for programs."""

from __future__ import annotations

import re
from collections.abc import Container
from typing import Any

from rich.console import Console
from rich.table import Table

from ..mechanisms.forecast import HOLDS, percent
from ..mechanisms.planner import HOPELESS as MOST_ERROR
from ..mechanisms.planner import Forecast, toml
from ..topics.config.toml.read import quoted
from ..topics.config.toml.values import counted
from .remedies import Needed, Trial
from .search import GOOD, Alternative, Answer

HOPELESS = "HOPELESS: most of the figures would be noise, or missing"


_WINDOWS = re.compile(r"\b(TUMBLE|HOP)\s*\(|\bWINDOW\s+(TUMBLING|HOPPING)\b", re.IGNORECASE)


def of_query(query: str | None) -> frozenset[str]:
    """Settings that the query of a pipeline states, and its other settings may not.

    >>> sorted(of_query("SELECT COUNT(*) FROM shop GROUP BY a, TUMBLE(t, INTERVAL '1' DAY)"))
    ['key', 'window.length']
    """
    if query is None:
        return frozenset()
    return frozenset({"key", "window.length"} if _WINDOWS.search(query) else {"key"})


def show_ways(
    console: Console, name: str, kind: str, answer: Answer, queried: Container[str] = ()
) -> None:
    """Print the answer of a search for a pipeline.

    Args:
        queried: settings that its query states.
    """
    console.print()
    console.print(f"{name}: {heading(answer)}", style="bold", highlight=False)
    for text in answer.assumed:
        console.print(_entry("assumed", text), highlight=False)
    for place, way in enumerate(answer.ways, 1):
        console.print()
        _show(console, place, way, answer.measure)
        if way.best.hopeless:
            continue  # these settings are not worth configuring
        lines = written(kind, way, queried)
        if not lines:
            console.print("   to write: nothing, it is best as it is", highlight=False)
            continue
        console.print("   to write, in place of what the pipeline has:", highlight=False)
        for line in lines:
            console.print(f"   {line}", soft_wrap=True, highlight=False, markup=False)
    console.print()
    for text in conclusions(answer):
        console.print(text, highlight=False, markup=False)


def heading(answer: Answer) -> str:
    """The number of ways, and how many of them are of use."""
    number, hopeless = len(answer.ways), sum(way.best.hopeless for way in answer.ways)
    ways = "one way to go" if number == 1 else f"{number} ways to go"
    if not hopeless:
        return ways
    if hopeless == number:
        return "no way to go: hopeless as it is asked for, and so is all that was tried"
    return f"{ways}, of which {hopeless} {'is' if hopeless == 1 else 'are'} hopeless"


def _show(console: Console, place: int, way: Alternative, measure: str) -> None:
    title = f"{place}. {way.title}" + (f": {way.variant.words}" if way.variant.words else "")
    console.print(title, style="bold", highlight=False, markup=False)
    if way.best.hopeless:
        console.print(f"   {HOPELESS}", style="bold red", highlight=False)
    facts = way.window
    records, units = counted(facts["records"], "record"), counted(facts["units"], "unit")
    entries = [
        ("window", f"{records} of {units} (on average)"),
        ("seen", way.best.seen),
        ("off", way.best.off),
        ("lost", way.best.lost),
        ("cost", way.cost),
        ("error", f"{percent(way.best.score)}{_likely(way)}: {measure}"),
    ]
    if way.as_given is not None and way.as_given.score > way.best.score * 1.02:
        entries.append(("", _given(way.as_given)))
    for name, text in entries:
        console.print(_entry(name, text), highlight=False)
    for note in way.notes:
        console.print(_entry("note", note), highlight=False)


def _likely(way: Alternative) -> str:
    """State the range of a single epoch's error, if it is not a single number."""
    low, high = map(percent, way.likely)
    return "" if low == high else f" ({low} to {high} in {HOLDS:.0%} of the epochs)"


def _given(found: Forecast) -> str:
    """State the result of the given settings."""
    cut = f", and the bound cuts off {found.cut:.1%}" if found.cut else ""
    return f"with the settings as given it is {percent(found.score)}{cut}"


def _entry(name: str, text: str) -> Table:
    table = Table.grid(padding=(0, 1))
    table.add_column(width=10, no_wrap=True)
    table.add_column()
    table.add_row(f"   {name}", text)
    return table


def conclusions(answer: Answer) -> list[str]:
    """Conclusions from the answer of a search."""
    found = []
    base, others = answer.ways[0], answer.ways[1:]
    if base.best.hopeless:
        helps = [place for place, way in enumerate(others, 2) if not way.best.hopeless]
        what = f"What helps: {_listed(helps)}." if helps else "Nothing that was tried is enough."
        found.append(
            f"As it is asked for, this pipeline cannot work: its error is "
            f"{percent(base.best.score)}, and enough is less than {MOST_ERROR:.0%}. {what}"
        )
        found += [*map(_tried, answer.tried), *answer.untried]
        if answer.needed is not None:
            found.append(_more_units(answer.needed, base.window["units"]))
    else:
        found += answer.missing
    if answer.other:
        found.append(answer.other)
    found.append(
        "Figures are forecasts from a file that must be public or synthetic: settings that are "
        "tuned on the protected stream leak it."
    )
    return found


def _tried(one: Trial) -> str:
    judged = ", not enough" if one.score >= MOST_ERROR else ""
    if one.variants == 1:
        return f"Tried {one.group} ({one.best}): error {percent(one.score)}{judged}."
    best = "" if one.best == one.last else f", with {one.best}"
    up = f"Tried {one.group} (up to {one.last})"
    return f"{up}: error {percent(one.score)} at best{best}{judged}."


def _more_units(one: Needed, units: float) -> str:
    """The factor of units that is needed, in words."""
    if one.useful is None:
        return (
            f"More units in a window: {one.most:,} times as many, like those of the file, would "
            f"still have an error of {percent(one.score)}."
        )
    words = (
        f"More units in a window, like those of the file: about {one.useful:,} times as many "
        f"({counted(_roughly(units * one.useful), 'unit')} instead of {units:,.0f}) would bring "
        f"the error below {MOST_ERROR:.0%}"
    )
    if one.good is None:
        return f"{words}; {one.most:,} times as many still have {percent(one.score)}."
    if one.good == one.useful:
        return f"{words}, to {percent(one.score)}."
    return f"{words}, {one.good:,} times as many below {GOOD:.0%}."


def _roughly(number: float) -> float:
    """A number rounded to the two digits to which it is known."""
    return float(f"{number:.2g}")


def _listed(places: list[int]) -> str:
    return " or ".join(str(one) for one in places)


def body_of(kind: str, answer: Answer, queried: Container[str] = ()) -> dict[str, Any]:
    """The answer of a search for a mechanism of this kind, as a JSON object."""
    return {
        "measure": answer.measure,
        "assumed": list(answer.assumed),
        "ways": [_way(kind, one, queried) for one in answer.ways],
        "tried": [one._asdict() for one in answer.tried],
        "untried": list(answer.untried),
        "needed": None if answer.needed is None else answer.needed._asdict(),
        "conclusions": conclusions(answer),
    }


def _way(kind: str, way: Alternative, queried: Container[str]) -> dict[str, Any]:
    best = way.best
    return {
        "title": way.title,
        "changes": way.variant.changes,
        "toml": written(kind, way, queried),
        "error": best.score,
        "error_likely": list(way.likely),
        "error_as_given": None if way.as_given is None else way.as_given.score,
        "hopeless": best.hopeless,
        "by": best.by,
        "seen": best.seen,
        "off": best.off,
        "lost": best.lost,
        "cost": way.cost,
        "cut": best.cut,
        "hidden": best.hidden,
        "figures": best.figures,
        "window": way.window,
        "notes": list(way.notes),
    }


def written(kind: str, way: Alternative, queried: Container[str] = ()) -> list[str]:
    """The lines of the pipeline that a way changes, ready to paste; comments for its query."""
    lines = [
        f"# in the query: {name} = {value}" if name in queried else f"{name} = {value}"
        for name, value in way.variant.changes.items()
    ]
    plain = {n: v for n, v in way.settings.items() if isinstance(v, str | bool | int | float)}
    if len(plain) == len(way.settings):
        return [*lines, toml(kind, plain)]
    # A space or another table stays as written.
    return lines + [f"mechanism.{name} = {quoted(value)}" for name, value in plain.items()]
