"""ToPL: values under local differential privacy, aggregated from reports that devices perturbed.

Devices run `hushstream.client`. A public salted hash puts each user into one of two
groups. The *range* group reports by Square Wave. At the public trigger ``warmup`` expectation
maximisation turns its reports into a distribution, which gives a threshold theta; theta is released
together with the channel whose reports about such values vary least. The *value* group is told both
and reports within [0, theta] (by Hybrid if the survey says so). Means and sums combine both groups
by inverse variance. No noise is added here: every result of this mechanism is post-processing of
reports.

A survey in two rounds releases a range at ``warmup``, from a range group that reports on a scale
of octaves. A third group, the *narrow* group, reports by Square Wave within that range, and at
twice ``warmup`` theta follows from its reports. A device still reports once per slot, in one group.

Anyone can send a report, so its claims are checked: its group must be the one that the salted hash
gives its unit, and its theta and channel must have been published for its window before it came.
Two reports of one group therefore always have equal weight.

Paper: Wang, Chen, Zhang, Su, Cheng, Li, Li, Jha ("Continuous Release of Data Streams under both
Centralized and Local Differential Privacy", CCS 2021), section 5.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ...client.survey import CHANNELS, NARROW, RANGE, STEP, VALUE, Survey, octave_end
from ...errors import ContractError, ParameterError
from ..columns import (
    F64,
    I64,
    Batch,
    Closed,
    Encoded,
    Part,
    Releases,
    Rows,
    Units,
    no_releases,
)
from ..contract import INSERTING, UNIT, Cost, Guarantee, Mechanism, Noise, Output, Stated, Traits
from ..key_form import ONE_ROW
from ..keys import Keys, concat
from ..parts.bounds.stated import stated_records
from ..ranges import Draws
from ..validate import at_least, between, positive
from .beyond import beyond
from .channels import variances
from .estimate import (
    CHOSEN,
    FOUND,
    Buckets,
    Steps,
    counted,
    density,
    integers,
    mean,
    pack,
    threshold,
    unpack,
)
from .groups import Groups
from .rounds import GUARD, found_range, found_threshold
from .spread import difference, division
from .units import accept

_PPM = 1_000_000
INPUTS = ("slot", "group", "theta", "code", "survey", UNIT)
RULES = "topl/3"
"""Version of the rules by which reports count. It changes with them, so no charge covers both."""


def _numbers(column: NDArray[Any]) -> NDArray[Any]:
    wide = np.asarray(column)
    if wide.dtype.kind not in "iuf":
        raise ContractError("report columns must be numeric")
    return wide


def _whole(column: NDArray[Any]) -> I64:
    """Convert to integers; a number that is not whole or too large becomes -1, as in no report."""
    wide = _numbers(column)
    good = (wide >= 0) & (wide < 2**32) & (wide == np.floor(wide))
    return np.where(good, wide, -1).astype(np.int64)


@dataclass(frozen=True)
class ToPL(Mechanism):
    """The aggregator of one survey.

    Guarantee: *local* differential privacy, ``survey.epsilon`` per report and ``survey.reports``
    times that per unit, against everybody, including this aggregator. Neighbours are two values
    of a report. That a unit reported, and how many reports it sent, is not hidden, so the implied
    central relation is "replace a value", not "add or remove a unit".

    Ignored are a unit's second report about one slot (a retry), reports beyond its number, reports
    of another group, and value reports whose theta is not the one published for the window.

    Attributes:
        survey: the public parameters that devices share.
        grid: size of one step of the released mean and sum, in the user's own units.
        horizon: triggers per window, at least 2.
        warmup: trigger (1..horizon-1) at which theta is chosen, from the range group alone.
        expected: reports expected per trigger; only `error` uses it, for a forecast.
        smooth: whether expectation maximisation filters its rounds.
        beyond: whether releases state the share of values at or above theta, see `beyond`.
        guard: mass of the estimated distribution outside a range, in units of its noise.
    """

    guarantee: ClassVar[Guarantee] = Guarantee("local_randomizer", "local", "replace_value")

    survey: Survey = field()  # without the contract's default
    grid: Fraction = Fraction(1)
    horizon: int = 24
    warmup: int = 1
    expected: int = 1000
    smooth: bool = True
    beyond: bool = True
    guard: float = GUARD

    def __post_init__(self) -> None:
        positive("grid", self.grid)
        if at_least("horizon", self.horizon, 1) == 1:
            why = "topl needs two triggers per window: values are reported once theta is published"
            raise ParameterError("horizon", self.horizon, why)
        at_least("expected", self.expected, 1)
        positive("guard", self.guard)
        most = (self.horizon - 1) // self.survey.rounds
        if not most:
            why = "topl in two rounds needs three triggers per window: set more, or rounds = 1"
            raise ParameterError("horizon", self.horizon, why)
        between("warmup", at_least("warmup", self.warmup, 1), 1, most)

    @cached_property
    def traits(self) -> Traits:
        """``mean`` of all values so far in the window; ``sum`` of this micro-batch's values."""
        whole = Output("mean", self.grid, INSERTING, self.survey.bound)
        return Traits(
            horizon=self.horizon,
            outputs=(whole, Output("sum", self.grid, INSERTING)),
            row_dtype=np.dtype([("count", np.int64)]),
            bound=self.survey.reports,
            keys=ONE_ROW,
            inputs=INPUTS,
            routing="single",
            load="all",
        )

    @property
    def chosen_at(self) -> int:
        """The trigger that releases theta."""
        return self.warmup * self.survey.rounds

    @cached_property
    def _groups(self) -> Groups:
        return Groups(self.survey)

    # Bound shard

    def encode(self, columns: Mapping[str, NDArray[Any]]) -> Encoded:
        """Reports as eight-byte keys: slot, group, theta, output.

        Reports that no client of this survey can have made for their unit are dropped.
        """
        slot, group, theta, code = (_whole(columns[name]) for name in INPUTS[:4])
        own = _numbers(columns["survey"]) == self.survey.number
        ranged = (group == RANGE) & (theta == 0) & (code < self.survey.square_wave.outputs)
        valued = (group == VALUE) & self._possible(theta, code)
        narrow = (group == NARROW) & (theta >= 1) & (theta <= self.survey.buckets)
        narrow &= code < self.survey.square_wave.outputs
        keep = own & (slot >= 0) & (code >= 0) & (ranged | valued | narrow)
        keep &= group == self._groups.of(columns[UNIT])
        codes = np.where(keep, slot << 32 | pack(group, theta, code), 0).view(np.uint64)
        keys, key = Keys.of_codes(codes).unique()
        return Encoded(keys, key, np.empty((len(key), 0), np.int64), keep)

    def _possible(self, step: I64, code: I64) -> NDArray[np.bool_]:
        """Whether a device that was told ``step`` can have answered with this output."""
        channel, theta = np.divmod(step, STEP)
        known = np.zeros(len(step), bool)
        for one in range(CHANNELS if self.survey.channel == "told" else 1):
            codes = self.survey.outputs(one)
            known |= (channel == one) & (code >= codes.start) & (code < codes.stop)
        return known & (theta >= 1) & (theta <= self.survey.buckets)

    def absorb(self, units: Units, batch: Batch) -> tuple[Units, Part]:
        """Accept each unit's first report about a slot, up to its number of reports."""
        return accept(units, batch)

    # Aggregate shard

    def release(self, closed: Closed, noise: Noise) -> tuple[Rows, Releases]:
        """Mean so far and sum of this micro-batch; theta from the warm-up on."""
        rows = _added(closed)
        told = self._told(closed)
        seen = counted(unpack(rows.key, rows.state["count"]), told)
        public = {"survey": np.array([self.survey.number], np.int64)}
        exact, theta, within = np.zeros(0), told.theta, told.within
        stated = closed.t in (self.chosen_at, self.horizon)
        if stated or (self.beyond and closed.t > self.chosen_at):
            group = NARROW if self.survey.rounds > 1 else RANGE
            exact = density(self.survey, seen, self.smooth, group)
        if stated:
            public["distribution"] = np.rint(exact * _PPM).astype(np.int64)
        if self.survey.rounds > 1 and closed.t == self.warmup:
            within = found_range(self.survey, seen, self.smooth, self.guard)
            rows = self._with(rows, FOUND, within)
        if closed.t == self.chosen_at:
            theta = self._threshold(seen, exact, within)
            rows = self._with(rows, CHOSEN, theta)
        public |= self._published(Steps(theta, within))
        if self.beyond and theta:
            share = beyond(self.survey, seen, Steps(theta % STEP, within), exact)
            public["beyond"] = np.array(share, np.int64)
        batch = counted(unpack(closed.part.key, closed.part.sums[:, 0]), told)
        return _changed(rows, closed, batch), self._estimates(seen, batch, public)

    def _published(self, told: Steps) -> dict[str, I64]:
        """Public columns that tell devices a range, and a threshold with its channel."""
        steps = {"range": told.within, "theta": told.theta % STEP}
        found = {name: np.array([step], np.int64) for name, step in steps.items() if step}
        if told.theta and self.survey.channel == "told":
            found["channel"] = np.array([told.theta // STEP], np.int64)
        return found

    def _threshold(self, seen: Buckets, exact: F64, within: int) -> int:
        if self.survey.rounds > 1:
            return found_threshold(self.survey, seen, exact, within)
        return threshold(self.survey, seen, exact)

    def _told(self, closed: Closed) -> Steps:
        """Steps that the window published before this micro-batch.

        Raises:
            ContractError: a published step is missing; the counts already have later reports.
        """
        codes = integers(closed.rows.key)
        stored = dict(zip(codes.tolist(), closed.rows.state["count"].tolist(), strict=True))
        theta, within = stored.get(CHOSEN, 0), stored.get(FOUND, 0)
        if closed.t > self.chosen_at and not theta:
            raise ContractError("the threshold of the warm-up is missing from the state")
        if self.survey.rounds > 1 and closed.t > self.warmup and not within:
            raise ContractError("the range of the warm-up is missing from the state")
        return Steps(theta, within)

    def _with(self, rows: Rows, name: int, step: int) -> Rows:
        """The rows plus one that stores a step for the window."""
        added = self.traits.rows(Keys.of_codes(np.array([name], np.uint64)))
        added.state["count"] = step
        keys = concat([rows.key, added.key])
        order = np.argsort(integers(keys), kind="stable")
        state, due = np.append(rows.state, added.state), np.append(rows.due, added.due)
        return Rows(keys.take(order), state[order], due[order])

    def _estimates(self, seen: Buckets, batch: Buckets, public: dict[str, I64]) -> Releases:
        so_far, variance = mean(self.survey, seen)
        if so_far is None:
            return no_releases(2, public)
        now, spread = mean(self.survey, batch)
        differing = difference(self.survey, seen)
        variance += division(self.survey, seen, differing)
        spread += division(self.survey, batch, differing)
        reports = int(batch.reports.sum())
        values = [so_far, (now or Fraction(0)) * reports]
        square = float(self.grid) ** 2
        return Releases(
            Keys.of([b""]),
            np.array([[_fitting(round(value / self.grid)) for value in values]]),
            np.array([[variance / square, spread * reports**2 / square]]),
            np.ones(1, np.int32),
            public,
        )

    # Accounting

    def stated(self, unit: str) -> Stated:
        """The cost of one report, and the number of reports per unit and epoch."""
        one, most = self.survey.epsilon, self.survey.reports
        words = f"ε={float(one):g} per report, at most {most} reports of one {unit} and epoch"
        return Stated({"epsilon_report": one, "reports": Fraction(most)}, words)

    def bounds(self, unit: str) -> dict[str, Any]:
        """Reports of one unit that count in an epoch."""
        return stated_records(self.survey.reports, unit)

    def digests(self) -> tuple[str, ...]:
        """The version of the rules by which reports count, the aggregator's only computation."""
        return (RULES,)

    def plan(self) -> dict[str, Any]:
        """The survey, for devices."""
        return {"survey": json.loads(self.survey.to_json())}

    def plan_rows(self, unit: str) -> list[tuple[str, str]]:
        """The survey, for devices."""
        return [("survey for devices", json.dumps(self.plan()["survey"]))]

    def cost(self) -> Cost:
        """Pure: epsilon per report times reports per unit, for replaced values."""
        return Cost(epsilon=self.survey.epsilon * self.survey.reports)

    def draws(self) -> tuple[Draws, ...]:
        """None: devices perturb their reports before sending them."""
        return ()

    def error(self, t: int) -> F64:
        """Worst-case standard deviations, with theta at the whole range and expected reports.

        Triggers without a release count as the first one that has one.
        """
        square = self.survey.bound**2 / (4 * self.grid**2)
        worst, share, two = variances(self.survey), self.survey.share, self.survey.rounds > 1
        early = self.expected * share / (square * worst[RANGE] * (2 if two else 1))  # per trigger
        late = self.expected * (1 - share) / (square * worst[VALUE])
        t, begins = (max(t, self.warmup + 1), self.warmup) if two else (t, 0)
        so_far = early * (t - begins) + late * max(t - self.chosen_at, 0)
        now = early + (late if t > self.chosen_at else 0)
        return np.sqrt([float(1 / so_far), float(self.expected**2 / now)])


def _fitting(steps: int) -> np.int64:
    """A number of grid steps, clamped to 64 bits: hostile reports must not stop a release."""
    return np.int64(max(-(1 << 63), min(steps, (1 << 63) - 1)))


def _added(closed: Closed) -> Rows:
    """The stored rows with this micro-batch's reports in them."""
    state = closed.rows.state.copy()
    place = np.searchsorted(integers(closed.rows.key), integers(closed.part.key))
    np.add.at(state["count"], place, closed.part.sums[:, 0])
    return closed.rows._replace(state=state)


def _changed(rows: Rows, closed: Closed, batch: Buckets) -> Rows:
    """The rows that differ from the stored ones: counted buckets and a newly chosen theta.

    Other rows are not kept, because lying devices could fill a window's state with them.
    """
    codes = integers(rows.key)
    changed = np.isin(codes, pack(batch.group, batch.theta, batch.code))
    changed |= np.isin(codes, [CHOSEN, FOUND]) & ~np.isin(codes, integers(closed.rows.key))
    where = np.flatnonzero(changed)
    return Rows(rows.key.take(where), rows.state[where], rows.due[where])


def bins(public: Mapping[str, Any], reach: tuple[float, float]) -> list[list[float]]:
    """Both ends and the share of each bucket of a released distribution; empty without one.

    Args:
        public: public columns of a release.
    """
    shares = public.get("distribution", [])
    if not (whole := sum(shares)):
        return []
    within = public.get("range")  # of a survey in two rounds; it begins at 0
    high = reach[1] * float(octave_end(within[0], len(shares))) if within else reach[1]
    low, width = reach[0], (high - reach[0]) / len(shares)
    return [[low + i * width, low + (i + 1) * width, s / whole] for i, s in enumerate(shares)]
