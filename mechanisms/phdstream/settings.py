"""Settings of PHDStream, and its construction from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

from ...errors import ParameterError
from ..contract import Setting
from ..spatial.domain import Domain
from ..spatial.privtree import Selection
from ..spatial.settings import MapParameters, check_counts
from ..validate import at_least, between, non_negative, one_of
from .matrix_counter import MatrixCounter
from .mechanism import PHDStream, ReleasedSelection
from .node_counters import BlockCounter, NodeCounter, SimpleCounter, TreeCounter
from .opening import WindowStart, floor_for
from .tree import LARGEST_COUNT

_UNIT = Domain.unit(2, depth=8, split="all")
MOST = 2**16 - 1  # events of a unit that its pairs can hold


@dataclass(frozen=True)
class PHDStreamParameters(MapParameters):
    """A user's settings in addition to those of `MapParameters`.

    Attributes:
        selection: "released" splits by released counts, at no cost; "private" by noisy scores
            that see the trigger's own insertions, as in the paper.
        share: part of ε for private selection ("private").
        start: "private" splits by noisy scores at the first trigger that counts, which pays for
            them; "as later" splits as at other triggers. None = "private" wherever it is possible:
            with selection "released" and a counter of pure ε.
        start_share: part of the cost of an event of the first trigger that pays for these scores.
        expected: public guess of the number of records that the first trigger counts, never taken
            from the data: cells that hold ENOUGH/ε of them or more always split there ("private"
            start); 0 = none.
        theta: least estimate, in records, that a node needs beyond the rule's own margin.
        resolution: that margin in standard deviations of a counter ("released").
        floor: depth above which nodes always split.
        counter: "simple", "block" or "tree" (pure ε), or "matrix" (Gaussian, needs δ).
        block: steps of a block.
        factorization: factorization of the matrix counter, as for histograms.
        smoothing: records added to a child's estimate before shares are proportional to it;
            None = ⌈10/ε_count⌉, 0 = equal shares.
        forget: whether a leaf absorbs the counts below it, which limits state to the live tree;
            None = wherever the counter allows it ("simple", "block").
        first: hold-back: everything up to this trigger is counted at it.
        lifetime: triggers after which an insertion is deleted; 0 = never.
    """

    domain: Domain | Mapping[str, Any] = _UNIT
    selection: Literal["released", "private"] = "released"
    share: Fraction | float = Fraction(1, 4)
    start: Literal["private", "as later"] | None = None
    start_share: Fraction | float = Fraction(1, 2)
    expected: int = 0
    theta: int = 0
    resolution: Fraction | float = Fraction(3)
    floor: int = 0
    counter: Literal["simple", "block", "tree", "matrix"] = "simple"
    block: int = 8
    factorization: str = "auto"
    smoothing: int | None = None
    forget: bool | None = None
    first: int = 1
    lifetime: int = 0


def build(parameters: PHDStreamParameters, setting: Setting) -> PHDStream:
    """The mechanism.

    Raises:
        ParameterError: a parameter is out of range, or they clash with the setting.
    """
    _check(parameters, setting)
    domain, total = parameters.geometry, parameters.total(setting.epsilon)
    left = setting.epsilon - (Fraction(0) if total is None else total.epsilon)
    split, count = budget(parameters, left)
    smoothing = parameters.smoothing
    if smoothing is None:
        smoothing = min(int(-(-10 // count)), LARGEST_COUNT)
    between("smoothing", at_least("smoothing", smoothing, 0), 0, LARGEST_COUNT)
    counter = _counter(parameters, setting, count)
    forget = counter.by_trigger if parameters.forget is None else parameters.forget
    if forget and not counter.by_trigger:
        raise ParameterError("forget", forget, f"needs another counter than {counter.name}")
    return PHDStream(
        domain,
        setting.horizon,
        parameters.bound,
        counter,
        _selection(parameters, split, domain),
        parameters.first,
        parameters.lifetime,
        parameters.deletions,
        smoothing,
        forget,
        _opening(parameters, count, domain),
        total=total,
    )


def budget(parameters: PHDStreamParameters, epsilon: Fraction) -> tuple[Fraction, Fraction]:
    """ε_split and ε_count of one event, so that all events of a unit cost ``epsilon``.

    A matrix counter is calibrated for the joint share of the counts of all events.

    >>> budget(PHDStreamParameters(bound=2, selection="private"), Fraction(1))
    (Fraction(1, 8), Fraction(3, 8))
    """
    share = Fraction(0)
    if parameters.selection == "private":
        share = Fraction(parameters.share)
        if not 0 < share < 1:
            raise ParameterError("share", parameters.share, "must lie between 0 and 1")
    inserts = parameters.bound // 2 if parameters.lifetime else parameters.bound
    each = epsilon / inserts / (2 - share if parameters.lifetime else 1)
    return share * each, (1 - share) * each


def _check(parameters: PHDStreamParameters, setting: Setting) -> None:
    check_counts("phdstream", setting)
    one_of("selection", parameters.selection, ("released", "private"))
    one_of("counter", parameters.counter, ("simple", "block", "tree", "matrix"))
    if parameters.start is not None:
        one_of("start", parameters.start, ("private", "as later"))
    between("bound", at_least("bound", parameters.bound, 1), 1, MOST)
    between("first", at_least("first", parameters.first, 1), 1, setting.horizon)
    if at_least("lifetime", parameters.lifetime, 0) and parameters.bound < 2:
        raise ParameterError("bound", parameters.bound, "a lifetime makes two events of a record")
    if parameters.lifetime and parameters.deletions:
        raise ParameterError("deletions", True, "records with a lifetime delete themselves")
    if parameters.debias and (parameters.deletions or parameters.lifetime):
        raise ParameterError("debias", True, "needs deletions = false and no lifetime")


def _opens(parameters: PHDStreamParameters) -> bool:
    possible = parameters.selection == "released" and parameters.counter != "matrix"
    if parameters.start == "private" and not possible:
        rule = 'needs selection = "released" and another counter than "matrix"'
        raise ParameterError("start", parameters.start, rule)
    return possible and parameters.start != "as later"


def _opening(
    parameters: PHDStreamParameters, epsilon: Fraction, domain: Domain
) -> WindowStart | None:
    share = Fraction(parameters.start_share)
    if not 0 < share < 1:
        raise ParameterError("start_share", parameters.start_share, "must lie between 0 and 1")
    expected = at_least("expected", parameters.expected, 0)
    if not _opens(parameters):
        return None
    floor = max(parameters.floor, floor_for(domain, epsilon, expected))
    return WindowStart.of(domain, epsilon, share, floor)


def _counter(parameters: PHDStreamParameters, setting: Setting, epsilon: Fraction) -> NodeCounter:
    opened = 1 if _opens(parameters) else 0  # the first trigger has its own counter
    horizon = max(setting.horizon - parameters.first + 1 - opened, 1)
    if parameters.counter == "simple":
        return SimpleCounter(epsilon)
    if parameters.counter == "block":
        return BlockCounter(epsilon, parameters.block)
    if parameters.counter == "tree":
        return TreeCounter(epsilon, horizon)
    events = parameters.bound - parameters.bound % 2 if parameters.lifetime else parameters.bound
    name = parameters.factorization
    return MatrixCounter.calibrated(name, horizon, events, events * epsilon, setting.delta)


def _selection(
    parameters: PHDStreamParameters, epsilon: Fraction, domain: Domain
) -> Selection | ReleasedSelection:
    between("floor", at_least("floor", parameters.floor, 0), 0, domain.depth)
    if parameters.selection == "private":
        return Selection(domain.step, epsilon, domain.depth, parameters.theta, parameters.floor)
    resolution = non_negative("resolution", Fraction(parameters.resolution))
    theta = between("theta", at_least("theta", parameters.theta, 0), 0, LARGEST_COUNT)
    return ReleasedSelection(domain.depth, theta, resolution, parameters.floor)
