"""The sum of several ledgers: what a unit pays if its data are in all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

from ..agents.clock.ledger import Ledger, number
from ..agents.clock.ledger_record import Record
from ..agents.deployment.compiling.lifetime import ChargedCap, cap_of
from ..errors import LedgerError, ParameterError
from ..mechanisms.accounting import total
from ..mechanisms.contract import Cost


class Kind(NamedTuple):
    """Charges that may be added: the same privacy unit and neighbouring relation."""

    unit: str
    neighbouring: str


@dataclass(frozen=True)
class PipelineSum:
    """The charges of one pipeline in one ledger; ``epsilon`` and ``delta`` are their sums."""

    ledger: str
    pipeline: str
    epochs: int
    epsilon: Fraction
    delta: Fraction
    # the most that a unit loses over many epochs; None: no cap, or not the same in all charges
    cap: ChargedCap | None = None


@dataclass(frozen=True)
class UnitSum:
    """Cost of a unit that is active in every epoch of every line."""

    kind: Kind  # of all these charges
    lines: tuple[PipelineSum, ...]  # pipelines, ledger by ledger
    # sums of all charges; valid however budgets were chosen
    epsilon: Fraction
    delta: Fraction
    # ε at the same δ from composing the mechanisms; valid if no budget was chosen after a look at
    # releases. Never above ``epsilon``
    composed: Fraction


@dataclass(frozen=True)
class Joint:
    """Several ledgers, added up."""

    sums: tuple[UnitSum, ...]  # one for each kind; different kinds must not be added
    twice: int  # charges in more than one ledger, counted once


def joint(ledgers: Mapping[str, Ledger]) -> Joint:
    """Add up the charges of several ledgers, given by display name.

    A charge in two of them, such as two copies of one ledger, counts once. Charges of copies that
    diverged are different: a unit pays for both.

    Raises:
        LedgerError: a charge has no valid cost.
    """
    seen: set[str] = set()
    twice = 0
    found: dict[Kind, dict[tuple[str, str], list[Record]]] = {}
    for name, ledger in ledgers.items():
        for (pipeline, _), record in ledger.charges.items():
            if (identity := record.hash()) in seen:
                twice += 1
                continue
            seen.add(identity)
            lines = found.setdefault(_kind(record), {})
            lines.setdefault((name, pipeline), []).append(record)
    return Joint(tuple(_sum(kind, found[kind]) for kind in sorted(found)), twice)


def _kind(record: Record) -> Kind:
    body = record.body
    try:
        return Kind(*(str(body[name]) for name in Kind._fields))
    except KeyError as error:
        raise LedgerError(f"ledger record {record.seq} does not state its {error}") from None


def _sum(kind: Kind, lines: Mapping[tuple[str, str], list[Record]]) -> UnitSum:
    shown = tuple(
        PipelineSum(
            ledger, name, len(found), _added(found, "epsilon"), _added(found, "delta"), _cap(found)
        )
        for (ledger, name), found in lines.items()
    )
    epsilon = sum((line.epsilon for line in shown), Fraction(0))
    delta = sum((line.delta for line in shown), Fraction(0))
    costs = [_cost(record.body) for charges in lines.values() for record in charges]
    return UnitSum(kind, shown, epsilon, delta, _composed(costs, epsilon, delta))


def _cap(charges: list[Record]) -> ChargedCap | None:
    caps = {cap_of(record.body) for record in charges}
    return caps.pop() if len(caps) == 1 else None


def _added(charges: list[Record], name: str) -> Fraction:
    return sum((number(record.body.get(name)) for record in charges), Fraction(0))


def _cost(body: Mapping[str, Any]) -> Cost:
    parts = ("mu2", "pure_epsilon", "coupling_delta")
    return Cost(*(number(body.get(part)) for part in parts))


def _composed(costs: list[Cost], epsilon: Fraction, delta: Fraction) -> Fraction:
    """ε of the composition at the summed δ; the plain sum if composing gains nothing."""
    try:
        return min(epsilon, total(costs, delta)[0])
    except ParameterError:  # no δ is left for the Gaussian part, or δ ≥ 1
        return epsilon
