"""Three ways to go, for people in 80 columns and for programs."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from .search import Alternative, Answer, written

HOPELESS = "HOPELESS: hardly anything true would be seen"
NOTHING_HELPS = (
    "Nothing that was tried helps. What would: more units in a window, a public list of few keys, "
    "or a coarser question."
)


def show_ways(console: Console, name: str, kind: str, answer: Answer) -> None:
    """Print an answer.

    Args:
        console: to print on.
        name: of the pipeline.
        kind: of its mechanism.
        answer: of the search.
    """
    console.print()
    number = f"{len(answer.ways)} ways" if len(answer.ways) > 1 else "one way"
    console.print(f"{name}: {number} to go", style="bold", highlight=False)
    for text in answer.assumed:
        console.print(_entry("assumed", text), highlight=False)
    for place, way in enumerate(answer.ways, 1):
        console.print()
        _show(console, place, way, answer.measure)
        console.print("   to write:", highlight=False)
        for line in written(kind, way):
            console.print(f"   {line}", soft_wrap=True, highlight=False, markup=False)
    console.print()
    for text in conclusions(answer):
        console.print(text, highlight=False, markup=False)


def _show(console: Console, place: int, way: Alternative, measure: str) -> None:
    title = f"{place}. {way.title}" + (f": {way.variant.words}" if way.variant.words else "")
    console.print(title, style="bold", highlight=False, markup=False)
    if way.best.hopeless:
        console.print(f"   {HOPELESS}", style="bold red", highlight=False)
    facts = way.window
    entries = [
        (
            "window",
            f"{facts['records']:,.0f} records of {facts['units']:,.0f} units (on average)",
        ),
        ("seen", way.best.seen),
        ("off", way.best.off),
        ("lost", way.best.lost),
        ("cost", way.cost),
        ("error", f"{_percent(way.best.score)}: {measure}"),
    ]
    if way.as_given is not None and way.as_given.score > way.best.score * 1.02:
        entries.append(("", f"with the settings as given it is {_percent(way.as_given.score)}"))
    for name, text in entries:
        console.print(_entry(name, text), highlight=False)
    for note in way.notes:
        console.print(_entry("note", note), highlight=False)


def _entry(name: str, text: str) -> Table:
    table = Table.grid(padding=(0, 1))
    table.add_column(width=10, no_wrap=True)
    table.add_column()
    table.add_row(f"   {name}", text)
    return table


def _percent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.1 else f"{share:.1%}"


def conclusions(answer: Answer) -> list[str]:
    """Conclusions from an answer.

    Args:
        answer: of the search.
    """
    found = []
    base, others = answer.ways[0], answer.ways[1:]
    if base.best.hopeless:
        helps = [place for place, way in enumerate(others, 2) if not way.best.hopeless]
        found.append(
            f"As it is asked for, this pipeline cannot work. What helps: {_listed(helps)}."
            if helps
            else f"As it is asked for, this pipeline cannot work. {NOTHING_HELPS}"
        )
    if answer.other:
        found.append(answer.other)
    found.append(
        "Figures are forecasts from a file that must be public or synthetic: settings that are "
        "tuned on the protected stream leak it."
    )
    return found


def _listed(places: list[int]) -> str:
    return " or ".join(str(one) for one in places)


def body_of(kind: str, answer: Answer) -> dict[str, Any]:
    """The answer as a JSON object.

    Args:
        kind: of the mechanism.
        answer: of the search.
    """
    return {
        "measure": answer.measure,
        "assumed": list(answer.assumed),
        "ways": [_way(kind, one) for one in answer.ways],
        "conclusions": conclusions(answer),
    }


def _way(kind: str, way: Alternative) -> dict[str, Any]:
    best = way.best
    return {
        "title": way.title,
        "changes": way.variant.changes,
        "toml": written(kind, way),
        "error": best.score,
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
