"""Sums of ledgers for people and for programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.table import Table

from ..agents.clock.ledger import Ledger
from ..reading.joint import Joint, PipelineSum, UnitSum
from .options import readable


def lines(one: UnitSum) -> Table:
    """Charges of one sum, pipeline by pipeline, as a table that fits into 80 columns."""
    table = Table(box=None, padding=(0, 1, 0, 0))
    for name in ("ledger", "pipeline", "epochs", "ε", "δ"):
        text = name in ("ledger", "pipeline")
        table.add_column(name, justify="left" if text else "right", no_wrap=not text)
    for line in one.lines:
        table.add_row(
            line.ledger,
            line.pipeline,
            str(line.epochs),
            f"{float(line.epsilon):.6g}",
            f"{float(line.delta):.6g}",
        )
    return readable(table)


def summed(one: UnitSum) -> str:
    """State what a unit pays by the charges of one sum, and where a cap keeps it below that."""
    said = (
        f"A {one.kind.unit} active in every epoch of all of these pays at most "
        f"ε={float(one.epsilon):g}, δ={float(one.delta):g}"
    )
    if one.kind.neighbouring == "replace_value":
        said += ", for replacing its values"
    if one.composed < one.epsilon:
        said += (
            f".\nComposed: ε={float(one.composed):.6g} at the same δ, if no budget was "
            "chosen after a look at releases"
        )
    return f"{said}.{''.join(_capped(one))}"


def _capped(one: UnitSum) -> Iterator[str]:
    """State each cap once, which its members share."""
    told = set[tuple[str, ...]]()
    for line in (line for line in one.lines if line.cap is not None):
        assert line.cap is not None
        whose = line.cap.members or (line.pipeline,)
        if (line.ledger, *whose) not in told:
            told.add((line.ledger, *whose))
            yield (
                f"\n{line.ledger}, {' and '.join(whose)}: by its cap a {one.kind.unit} loses at "
                f"most {line.cap.in_words}, however many epochs are charged."
            )


def plain_sum(found: Mapping[str, Ledger], whole: Joint) -> dict[str, Any]:
    """Make the JSON object of a sum."""
    return {
        "ledgers": {n: {"records": len(o.records), "head": o.head} for n, o in found.items()},
        "sums": [
            one.kind._asdict()
            | cost(one)
            | {
                "composed_epsilon": float(one.composed),
                "lines": [vars(line) | cost(line) | _cap(line) for line in one.lines],
            }
            for one in whole.sums
        ],
        "twice": whole.twice,
    }


def cost(one: Any) -> dict[str, float]:
    """ε and δ of whatever has them, as JSON."""
    return {"epsilon": float(one.epsilon), "delta": float(one.delta)}


def _cap(line: PipelineSum) -> dict[str, Any]:
    cap = line.cap
    if cap is None:
        return {"cap": None}
    return {"cap": cost(cap) | {"period": cap.time, "pipelines": list(cap.members)}}
