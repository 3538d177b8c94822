"""The demo's results as tables and text."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console, JustifyMethod
from rich.table import Table

from ...agents.clock.ledger import Ledger, totals
from ...agents.deployment.model import Pipeline
from .watch import Rows, Seen

if TYPE_CHECKING:
    from .site import Site

TOP = 12


@dataclass(frozen=True)
class Result:
    """The last complete release of one pipeline, with the true values."""

    pipeline: Pipeline
    place: tuple[str, int]  # window start and trigger
    seen: Seen  # everything that the demo has seen of the pipeline
    truth: dict[str, float]  # key -> exact records of the window
    kept: dict[str, int]  # key -> records that the contribution bound accepted
    records: int  # number of records of the whole stream

    @property
    def rows(self) -> Rows:
        """Released rows by key, largest first."""
        rows = self.seen.rows[self.place]
        return dict(sorted(rows.items(), key=lambda item: -item[1]["values"]["count"]["value"]))

    @property
    def covered(self) -> float:
        """Share of the window's records whose key is released."""
        total = sum(self.truth.values())
        return sum(n for k, n in self.truth.items() if k in self.rows) / total if total else 0.0

    @property
    def cut(self) -> float:
        """Share of the window's records that the contribution bound cut off."""
        total = sum(self.truth.values())
        return 1 - sum(self.kept.values()) / total if total else 0.0


class Show:
    """Printer of steps, tables and closing lines."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def step(self, text: str, began: float) -> None:
        """Print one completed step, and the seconds since ``began``, a monotonic time."""
        self._console.print(f"[green]✓[/] {text} [dim]({time.monotonic() - began:.0f} s)[/]")

    def _title(self, text: str) -> None:
        self._console.print(f"\n[bold]{text}[/]", soft_wrap=True)

    def table(self, result: Result) -> None:
        """Print key, private value and error bar: at most twelve rows, and how many more."""
        p, rows = result.pipeline, result.rows
        day = result.place[0][:10]
        budget = f"ε={float(p.epsilon):g} δ={float(p.delta):g} per {p.unit_name}"
        table = Table()
        names = list(next(iter(rows.values()))["values"]) if rows else ["count"]
        table.add_column(" / ".join(p.key_names), overflow="fold")
        for name in names:
            table.add_column(name, justify="right", overflow="fold")
            table.add_column("±", justify="right", style="dim", overflow="fold")
        for key, row in list(rows.items())[:TOP]:
            columns = [one for name in names for one in _pair(row["values"][name])]
            table.add_row(key, *columns)
        head = f"{p.name}: window from {day}, trigger {result.place[1]} of {p.traits.horizon}"
        self._title(f"{head}; {budget}")
        self._console.print(table)
        more = f"and {len(rows) - TOP} more keys; " if len(rows) > TOP else ""
        self._console.print(
            f"{more}± covers only the noise, {p.confidence:.0%} of the time", style="dim"
        )
        hidden = len(result.truth) - len(set(result.truth) & set(rows))
        if hidden:
            self._console.print(
                f"{len(rows)} of {len(result.truth)} keys released, with {result.covered:.0%} of "
                f"the records; {hidden} stay hidden: they have too few units ({p.unit_name})"
            )

    def budget(self, ledger: Ledger, results: list[Result]) -> None:
        """Print the spent budget according to the ledger."""
        spent = totals(ledger, [r.pipeline.name for r in results])
        table = Table()
        for name in ("pipeline", "unit", "epochs charged", "ε per epoch", "δ per epoch"):
            justify: JustifyMethod = "left" if name in ("pipeline", "unit") else "right"
            table.add_column(name, justify=justify, overflow="fold")
        for result in results:
            p = result.pipeline
            epochs = spent[p.name].epochs
            table.add_row(
                p.name, p.unit_name, str(epochs), f"{float(p.epsilon):g}", f"{float(p.delta):g}"
            )
        self._title("Budget spent, from the ledger")
        self._console.print(table)
        trips = [r.pipeline for r in results if r.pipeline.unit_name == "trip"]
        if trips:
            most = float(sum(p.epsilon for p in trips))
            self._console.print(
                f"{' and '.join(p.name for p in trips)} read the same trips. A trip lies in one "
                f"epoch of each: together they charge it at most ε={most:g}."
            )
        self._console.print(
            f"The ledger's {len(ledger.records)} records form an unbroken hash chain.", style="dim"
        )

    def operator(self, results: list[Result]) -> None:
        """Print exact counts, which a real deployment shows only to its operators."""
        table = Table()
        for name in ("pipeline", "records", "dead letters", "late records", "cut off by the bound"):
            justify: JustifyMethod = "left" if name == "pipeline" else "right"
            table.add_column(name, justify=justify, overflow="fold")
        for r in results:
            cut = f"{r.cut:.1%}"
            table.add_row(
                r.pipeline.name, f"{r.records:,}", str(r.seen.dead), str(r.seen.late), cut
            )
        self._title("Operator's view: exact counts of raw data, never published")
        self._console.print(table)
        self._console.print(
            "Dead letters: trips without a pickup zone. Late: a trip from the month before. "
            "The share cut off refers to the window shown above.",
            style="dim",
        )

    def ending(self, picture: Path, results: list[Result], site: Site, seconds: float) -> None:
        """Print where the plot is, how to read the topics and how to stop."""
        say = self._console.print
        say()
        say(f"Plot: [bold]{picture}[/]", soft_wrap=True)
        say(
            "It shows the truth beside the releases, and the lines above how much stays hidden "
            "or is cut off: only because these data are public or synthetic.",
            style="dim",
        )
        say()
        kept = "Read the releases" if site.keep else "With `hush demo --keep` you can read them"
        say(f"{kept}; both lines work on any of the three topics:")
        topic, name = results[0].pipeline.release_topic, results[0].pipeline.name
        where = f"-C -b {site.bootstrap} -t {topic} -e -X isolation.level=read_committed"
        say(f"  kcat {where}", soft_wrap=True, highlight=False)
        say(f"  hush releases -c {site.config_path} {name}", soft_wrap=True, highlight=False)
        if site.keep:
            say("\nSee them in a browser, with error bars; the page follows the stream:")
            say(f"  {site.page}", soft_wrap=True)
            say("\nRecompute every release from the logs and compare it byte for byte with:")
            say(f"  hush replay -c {site.config_path}", soft_wrap=True, highlight=False)
            public, operator = site.scraped
            say("\nScrape metrics and health of the first worker at:")
            say(f"  http://127.0.0.1:{public}/metrics (and /live, /ready)", soft_wrap=True)
            say(f"  http://127.0.0.1:{operator}/internal/metrics", soft_wrap=True)
            say("\nEverything keeps running. Stop it and remove its folder with:")
            say(f"  hush demo --stop {site.folder}", soft_wrap=True, highlight=False)
            live = "The page above is that of `hush live`."
        else:
            live = "With --keep it also serves a page that follows the stream: `hush live`."
        say(f"\nDone in {seconds:.0f} s. {live}", soft_wrap=True)


def _pair(value: dict[str, Any] | None) -> tuple[str, str]:
    if value is None:
        return "–", ""
    reach = max(value["high"] - value["value"], value["value"] - value["low"])
    digits = 0 if isinstance(value["value"], int) else 2
    return f"{value['value']:,.{digits}f}", f"{reach:,.{digits}f}"
