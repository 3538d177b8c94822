"""Counts and sums per key of windows that overlap: each is the sum of the last n hops.

The windows of the schedule are hops, with one release each. A key's row is carried from hop to hop:
it holds the exact sums of the last n hops, and the noise of every hop of this epoch and of the K
previous epochs that a window may reach (`factorization.hopping`).

Model: x_1…x_H are what accepted records add to a key in the hops of one epoch. The private quantity
is y = Cx + z with z discrete Gaussian, one vector for each key and epoch. A window is a function of
the y of its epochs, and its variance is the sum of theirs.

*No draw covers two contents, and none is drawn twice.* z_i covers (Cx)_i, which is complete at hop
i. It is drawn there, under the label of that hop, and kept. A key without a row draws at once
everything that its window may hold: the hops of this epoch so far, and all released hops of the
previous epochs. A row is dropped only once no release can have depended on the noise that would
be drawn anew, see `_aged`.

Guarantee (add or remove all records of one unit in an epoch; all releases that depend on them: its
own hops, and the n - 1 after them that still hold some of its hops): the bound ensures Σ m² ≤ Q
surely, m being the records of a unit in a key over the whole epoch. They move y by at most m times
the largest column norm of C, so y of all keys is μ-GDP with μ = √Q·max ‖C_j‖/σ, up to the cost of
the grid. Releases are post-processing of y, except for keys.

*Keys.* A window shows a key if its exact count passes the gate S ≥ 1 and the noisy count reaches
the threshold of its ordinal. Each window decides separately, so a key may vanish. A unit's records
can decide at a gate of its epoch's H hops and of the n - 1 after them, at most H + n - 1 releases,
each with β = δ/(H + n - 1). *Statement.* Let a unit have m_e records in a key in epoch e, of the E
epochs that a window may hold. It decides at that window with probability at most Σ_e β·m_e²/Q.
*Proof.* As in `key_selection` with M = Σ m_e in place of m: the event lies in W ≥ K - M, and
K is the largest M + x(β·s/Q) over M up to E times the most records of one key, s being the least
Σ m_e² of such an M. ∎ Summed over windows and keys that is Σ_e δ·Σ m_e²/Q: at most δ for one epoch,
and for epochs together the sum of what each costs. With public keys there is no gate.

*A unit that reacts.* This holds for records of the unit that do not depend on releases; those of
others may. Windows share noise, so whoever knows others' records knows the noise of their keys from
earlier windows. A unit may wait until others' records have left a window, and then choose, of N
such keys, that with the highest noise. It decides with probability at most (N + 1)·δ: in keys that
others have touched only if W ≥ K - m at one of the N; and in all others at most δ, because until
one of these appears, what the unit sends there cannot depend on their noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....errors import ContractError
from ...columns import F64, I64, Batch, Closed, Hop, Part, Releases, Rows, Units
from ...contract import Noise, Traits
from ...factorization.hopping import earlier
from ...factorization.prefix_noise import STEPS
from ...keys import Keys
from ...parts.bounds.stated import stated_bound
from ...parts.by_key import MOST, of_keys
from ...ranges import Draws
from ..keyed_sums import KeyedSums, rows_of
from ..report import bound_of, bound_words, cost_of, grids_of
from .noise import HopNoise


@dataclass(frozen=True, kw_only=True)
class Hopping(KeyedSums):
    """The mechanism; `settings.build` makes one.

    Attributes:
        noises: noise of each quantity.
        threshold: (H,) least noisy count of a key by ordinal, in 1/STEPS records.
        hops: n, hops of a window.
        per_epoch: H, hops of an epoch.
    """

    noises: tuple[HopNoise, ...]
    hops: int
    per_epoch: int

    @property
    def epochs(self) -> int:
        """E = K + 1, the most epochs whose hops a window may hold."""
        return 1 + earlier(self.hops, self.per_epoch)

    @cached_property
    def traits(self) -> Traits:
        row = np.dtype([
            ("sums", np.int64, (self.hops, 1 + self._columns)),  # of the last hops, newest first
            ("noise", np.int64, (self.epochs, self.per_epoch, len(self.noises))),
            ("quiet", np.int32),  # epochs that began since the last record
            ("live", np.int32),
        ])  # fmt: skip
        return Traits(
            horizon=self.horizon, outputs=self._outputs, row_dtype=row, bound=self.bound.left,
            due=self._due, columns=self._columns, carries=True,
        )  # fmt: skip

    # Bound shard

    def absorb(self, units: Units, batch: Batch) -> tuple[Units, Part]:
        """Bound the slice: a key is the same in all hops of an epoch, which share one noise."""
        batch = of_keys(batch, self._listed(batch.keys))._replace(window=0)
        lane = np.zeros(len(batch.keys), np.intp)
        done = self.bound.apply(units, batch, lane)
        return done.units, self._part(batch, lane, np.flatnonzero(done.accepted))

    # Aggregate shard

    def release(self, closed: Closed, noise: Noise) -> tuple[Rows, Releases]:
        """Take the rows of the previous hop, add this hop and its noise, and release the window."""
        hop = closed.hop
        if closed.t != 1 or not 1 <= hop.ordinal <= self.per_epoch:
            raise ContractError(f"trigger {closed.t} of hop {hop.ordinal} is beyond the epoch")
        state = self._moved(closed)
        keys = closed.rows.key
        kept = np.flatnonzero(self._draw(state, keys, hop, noise))
        state, keys = state[kept], keys.take(kept)
        seen = self._window(state, hop)
        shown = self._shown(seen, hop)
        value, variance = self._values(seen[shown])
        out = Releases(
            keys.take(shown), value, variance, np.ones(len(shown), np.int32), self._told(hop)
        )
        return Rows(keys, state, np.zeros(len(kept), np.int32)), out

    def _moved(self, closed: Closed) -> NDArray[Any]:
        """Rows one hop later, with the sums of this hop."""
        state = closed.rows.state.copy()
        if closed.hop.ordinal == 1:
            self._aged(state)
        state["sums"][:, 1:] = state["sums"][:, :-1].copy()
        state["sums"][:, 0] = 0
        row = rows_of(closed.rows.key, closed.part.key)
        np.add.at(state["sums"][:, 0], row, closed.part.sums)
        state["quiet"][row] = 0
        # A row becomes live with its key's first record, or because its key is public.
        state["live"][row] = np.maximum(state["live"][row], 1)
        if self.public is not None:
            state["live"] = np.maximum(state["live"], 1)
        return state

    def _aged(self, state: NDArray[Any]) -> None:
        """Begin an epoch: move noise one epoch back, and drop rows that are done.

        A key's last record, in epoch e, opens gates up to epoch e + K. A row that is dropped as
        epoch e + 2K + 1 begins holds noise of epochs from e + K + 1 on, which no window with an
        open gate has used. Without the unit the row may be dropped earlier than with it: noise is
        then new in one world and old in the other, but no release has used either. A public key is
        always released, and its row kept.
        """
        state["noise"][:, 1:] = state["noise"][:, :-1].copy()
        state["noise"][:, 0] = 0
        state["quiet"] += 1
        if self.public is None:
            state[state["quiet"] > 2 * (self.epochs - 1)] = np.zeros(1, state.dtype)[0]

    def _draw(self, state: NDArray[Any], keys: Keys, hop: Hop, noise: Noise) -> NDArray[np.bool_]:
        """(r,) live rows, which get the noise of this hop; new rows also that of earlier hops."""
        fresh, known = np.flatnonzero(state["live"] == 1), np.flatnonzero(state["live"] == 2)
        self._put(state, keys, known, 0, range(hop.ordinal - 1, hop.ordinal), noise)
        self._put(state, keys, fresh, 0, range(hop.ordinal), noise)
        for back in range(1, self.epochs):
            if hop.chain > hop.ordinal + (back - 1) * self.per_epoch:
                self._put(state, keys, fresh, back, range(self.per_epoch), noise)
        state["live"][fresh] = 2
        return np.asarray(state["live"] == 2)

    def _put(
        self, state: NDArray[Any], keys: Keys, rows: NDArray[np.intp], back: int,
        places: range, noise: Noise,
    ) -> None:  # fmt: skip
        if not len(rows):
            return
        mine = keys.take(rows)
        for place, one in enumerate(self.noises):
            drawn = one.drawn(noise, mine, back, places)
            state["noise"][rows, back, places.start : places.stop, place] = drawn

    def _window(self, state: NDArray[Any], hop: Hop) -> NDArray[Any]:
        """Sums of each row's window, and the noise of every quantity in 1/STEPS."""
        seen = np.zeros(len(state), self._seen_dtype)
        seen["sums"] = state["sums"].sum(axis=1)
        for place, one in enumerate(self.noises):
            z = state["noise"][:, :, :, place]
            seen["steps"][:, place] = one.steps(z, hop.ordinal, hop.chain)
            seen["variance"][:, place] = one.variance_at(hop.ordinal, hop.chain)
        return seen

    @property
    def _seen_dtype(self) -> np.dtype[Any]:
        wide = (len(self.noises),)
        return np.dtype([
            ("sums", np.int64, (1 + self._columns,)), ("steps", np.int64, wide),
            ("variance", np.float64, wide),
        ])  # fmt: skip

    def _shown(self, seen: NDArray[Any], hop: Hop) -> NDArray[np.intp]:
        """Rows whose window is released."""
        if self.public is not None:
            return np.arange(len(seen))
        count = np.clip(seen["sums"][:, 0], -MOST, MOST)
        reached = count * STEPS + seen["steps"][:, 0] >= self.threshold[hop.ordinal - 1]
        return np.flatnonzero((count > 0) & reached)

    def _values(self, seen: NDArray[Any]) -> tuple[I64, F64]:
        """Values and noise variances of windows, in the order of outputs."""
        # Prefix sums were rounded down to 1/STEPS, and their differences are off by less than that.
        rounded = (seen["steps"] + STEPS // 2) // STEPS
        return self._finished([
            (seen["sums"][:, one.column] + rounded[:, place], seen["variance"][:, place])
            for place, one in enumerate(self.quantities)
        ])  # fmt: skip

    def _told(self, hop: Hop) -> dict[str, I64]:
        """Number of hops in the window (fewer after a start or a refused epoch), and n."""
        held = np.array([min(hop.chain, self.hops), self.hops], np.int64)
        return {"hops": held} | self._bar(hop.ordinal - 1)

    # Statements

    def error(self, t: int) -> F64:
        """(c',) largest standard deviation of each output in an epoch's windows, in grid units."""
        largest: F64 = self.deviations().max(axis=0)
        return largest

    def deviations(self) -> F64:
        """(H, c') standard deviation of the noise of each output, by the window's ordinal."""
        state = np.zeros(self.per_epoch, self._seen_dtype)
        for place, one in enumerate(self.noises):
            every = range(1, self.per_epoch + 1)
            state["variance"][:, place] = [one.variance_at(ordinal) for ordinal in every]
        found: F64 = np.sqrt(self._values(state)[1])
        return found

    def draws(self) -> tuple[Draws, ...]:
        pairs = zip(self.noises, self.quantities, strict=True)
        return tuple(one.draws(self._names[quantity.column]) for one, quantity in pairs)

    def bounds(self, unit: str) -> dict[str, Any]:
        """The contribution bound, which counts records of a key over the epoch."""
        return stated_bound(self.bound, unit, within="epoch")

    def digests(self) -> tuple[str, ...]:
        """Digest of the factorisation that all quantities share."""
        return (self.noises[0].factor.digest(),)

    def plan(self) -> dict[str, Any]:
        """Bounds, noise in each output's own unit, and thresholds by ordinal."""
        out: dict[str, Any] = {
            "hops": self.hops,
            "hops_per_epoch": self.per_epoch,
            "factorization_digest": self.digests()[0],
            "bound": bound_of(self.bound),
            "outputs": [output.name for output in self._outputs],
            "noise_stddev": (self.deviations() * grids_of(self._outputs)).tolist(),
            "cost": cost_of(self.loss),
        }
        if self.threshold:
            out["threshold"] = [bar / STEPS for bar in self.threshold]
        return {"hopping": out}

    def plan_rows(self, unit: str) -> list[tuple[str, str]]:
        body = self.plan()["hopping"]
        noise, bars = body["noise_stddev"], self.threshold
        hops = f"each the sum of {self.hops:,} hops, {self.per_epoch:,} an epoch"
        rows = [("windows", hops), ("contribution bound", bound_words(body["bound"], unit))]
        if least := min(noise):
            named = zip(body["outputs"], least, max(noise), strict=True)
            shown = (f"{name} ±{low:.4g} … {high:.4g}" for name, low, high in named)
            rows.append(("noise by place in the epoch", ", ".join(shown)))
        if bars:
            ends = f"{min(bars) / STEPS:.4g} … {max(bars) / STEPS:.4g}"
            rows.append(("threshold of a key", ends))
        return rows


def thresholds(
    noise: HopNoise, delta: Fraction, sensitivity2: Fraction, most: int
) -> Sequence[int]:
    """(H,) least noisy counts by ordinal, in 1/STEPS records, rounded up; see the module's text.

    Args:
        delta: the δ of key selection.
        sensitivity2: Q, bound of Σ m² of a unit in an epoch.
        most: largest m.
    """
    epochs = 1 + earlier(noise.hops, noise.per_epoch)
    beta = delta / (noise.per_epoch + noise.hops - 1)
    found = []
    for ordinal in range(1, noise.per_epoch + 1):
        worst = max(
            total + noise.quantile(ordinal, beta * _least_squares(total, epochs) / sensitivity2)
            for total in range(1, epochs * most + 1)
        )
        found.append(int(-(-worst * STEPS // 1)))
    return found


def _least_squares(total: int, parts: int) -> int:
    """The least Σ m_e² of ``parts`` integers that sum to ``total``."""
    each, more = divmod(total, parts)
    return more * (each + 1) ** 2 + (parts - more) * each**2
