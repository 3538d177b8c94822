"""A cap for each unit: how much of its contribution bounds a unit may spend over many epochs.

The ledger charges what a unit *can* lose in an epoch. What a unit does lose depends on which of its
records were accepted. So a unit gets a budget of any multiple of one epoch's bound for a period of
any number of epochs; once it is used up, the unit's records are dropped without a visible sign.

A mechanism states as `Spending` what it costs a unit to spend its bound. The cost is linear: a unit
that spends s out of a bound of ``left`` in an epoch is exposed there to Gaussian releases whose
squared shifts, in units of their noise, sum to at most (s/left)·μ² on every path; to pure steps
whose losses sum to (s/left)·e; and to a coupling that fails with probability (s/left)·c.

*Theorem.* Let the neighbours differ by all records of one unit in all epochs of one period, which
is fixed and public, and let the unit spend at most f·left in all of them together, on every path.
However many epochs are run, even if earlier releases decide that, all their releases together are
(ε, δ) differentially private, with the ε that `costs.total` gives for one entry (fμ², fe, fc) and
any δ > fc. Several pipelines, in each of which the unit spends at most f·leftᵢ with the same f,
together satisfy the same for the entry (f Σμᵢ², f Σeᵢ, f Σcᵢ).

*Proof.* What is accepted of a unit follows from its own records, and from keys and statuses that
are public by then. So all other units are treated alike in both worlds as long as the outputs
agree, and the shift of the next release, its noise and the number of its draws that the unit
touches are functions of the past: they are predictable. On every path the squares of the shifts
add up to at most Σ sₑ μ²/left ≤ fμ² over all epochs e, hence the Gaussian parts are together at
least as hard to tell apart as N(0, 1) and N(√f μ, 1), stopping included (`composition`). Pure steps
and the slack of discrete noise are sums over what the unit touches, at most fe. The expected number
of coupling failures is a sum over epochs as well: what was released before a unit comes to a
hidden key makes no failure there more likely (`key_selection`), so an epoch adds at most
E[sₑ]·c/left, and all epochs at most fc by the bound on every path. The probability of any failure
is at most that expected number. ∎

*One epoch alone.* Let the neighbours differ by a unit's records of one epoch, the other epochs
being the same. What the unit does not spend there it may spend later, so releases of later epochs
differ too, and the cost of the one epoch does not cover them. Both streams are neighbours, as
above, of the one without the unit; hence all releases of the period together are (2ε, δ(1 + e^ε))
differentially private, with the ε and δ of the cap. Without deletions the squared shifts add up to
at most 2fμ², since (m - m')² ≤ m² + m'². A unit that never uses up its purse pays for its epoch.

The argument needs the bound on every path: a record is paid for before it counts, out of one purse
for all epochs of the period, in the transaction that also stores the unit's bound of the epoch. It
is the filter of Feldman and Zrnic (2021, "Individual privacy accounting via a Rényi filter") and
of Koskela, Tobaben and Honkela (2023, "Individual privacy accounting with Gaussian differential
privacy"), for μ² alone, where filters have the parameters of a fixed composition.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from functools import lru_cache

from ...errors import ParameterError
from ..contract import Cost, Spending
from .costs import add, fits

GRID = 4096
"""Parts into which a bound is divided."""
MOST = 1 << 20  # epochs' bounds: a larger count would not fit into a unit's row


@lru_cache(maxsize=256)
def portion(joint: Cost, epsilon: Fraction, delta: Fraction) -> Fraction:
    """The largest f ≤ `MOST`, a multiple of 1/`GRID`, for which the theorem gives (ε, δ); else 0.

    Args:
        joint: summed cost of all pipelines for a unit that spends its bound once.
        epsilon, delta: the most that a unit may lose in a period.
    """
    low, high = 0, MOST * GRID
    while low < high:
        # The first steps double: most answers are far below `MOST`.
        middle = min((low + high + 1) // 2, max(2 * low, GRID))
        if _holds(joint, Fraction(middle, GRID), epsilon, delta):
            low = middle
        else:
            high = middle - 1
    return Fraction(low, GRID)


def _holds(joint: Cost, part: Fraction, epsilon: Fraction, delta: Fraction) -> bool:
    spent = Cost(*(part * one for one in joint))
    return fits(spent, spent.epsilon**2, epsilon, delta)


def together(spendings: Iterable[Spending]) -> Cost:
    """Summed cost of several pipelines for a unit that spends its bound in each once."""
    return add(one.whole for one in spendings)


def purse(spending: Spending, left: int, part: Fraction) -> int:
    """The most that a unit may spend over a period, in the unit of its bound.

    Args:
        left: the bound of one epoch.
        part: f of the theorem.

    Raises:
        ParameterError: not even one record could ever be accepted.
    """
    most = int(part * left)
    if most < spending.opening + spending.least:
        raise ParameterError(
            "part", float(part), "of an epoch's bound is less than one record costs: raise either"
        )
    return most
