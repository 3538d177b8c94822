"""The releases of a view: a pure function of a complete release and of what is remembered."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import NormalDist
from typing import Any, NamedTuple

from ....formats.events.keys import encode_key
from ....topics.assembly import Released, in_order
from ....topics.config.pipelines.views import ViewValue
from ....topics.releases import Row, Scalar
from ...deployment.model import ReleaseView
from .columns import fulfilling
from .estimates import Noisy, difference, noisy, ratio, told, total
from .history import Lookback, Numbers


class Made(NamedTuple):
    """One row of a view.

    Attributes:
        key: the key's columns and their values.
        encoded: the key as bytes.
        values: released values by name.
    """

    key: dict[str, Scalar]
    encoded: bytes
    values: dict[str, dict[str, Any] | None]


class _Group(NamedTuple):
    """Rows of the source that become one row of the view: its key, and values of the source."""

    key: dict[str, Scalar]
    numbers: Numbers


class Arithmetic:
    """Computes the releases of one view."""

    def __init__(self, view: ReleaseView) -> None:
        self._view = view
        self._shown = view.source.non_negative

    def rows(
        self, release: Released, history: Lookback
    ) -> tuple[list[Made], Mapping[bytes, Numbers]]:
        """Compute a release.

        Args:
            history: history of its window.

        Returns:
            The rows of the view, in their order; and values of all keys, released or not, for the
            history.
        """
        groups = self._grouped(release)
        quantile = NormalDist().inv_cdf((1 + release.manifest.confidence_level) / 2)
        made = []
        for encoded, group in groups.items():
            values = {
                one.label: told(self._value(one, encoded, group, history, quantile), quantile,
                                self._shown)
                for one in self._view.values
            }  # fmt: skip
            made.append(Made(group.key, encoded, values))
        asked = {} if self._view.having is None and not self._view.order else self._asked(
            made, groups, quantile)  # fmt: skip
        kept = fulfilling(self._view.having, asked, len(made))
        found = [made[place] for place in self._sorted(kept, asked)]
        return found[: self._view.limit], {key: one.numbers for key, one in groups.items()}

    def _grouped(self, release: Released) -> dict[bytes, _Group]:
        view = self._view
        rows = sorted(release.rows, key=lambda row: in_order(row, view.key_names))
        if view.where is not None:
            rows = [rows[place] for place in fulfilling(view.where, _columns(rows), len(rows))]
        parts: dict[bytes, list[Row]] = {}
        for row in rows:
            key = encode_key([row.key[name] for name in view.key_names])
            parts.setdefault(key, []).append(row)
        found = {}
        for encoded, members in parts.items():
            shown = {name: members[0].key[name] for name in view.key_names}
            found[encoded] = _Group(shown, self._numbers(members))
        return found

    def _numbers(self, members: Sequence[Row]) -> Numbers:
        view, found = self._view, dict[str, Noisy | None]()
        for name in members[0].values if view.whole else view.additive:
            each = [one.values.get(name) for one in members]
            parts = [noisy(one, name in view.floored) for one in each if one is not None]
            found[name] = total(parts) if len(parts) == len(members) else None
        return found

    def _value(
        self, one: ViewValue, key: bytes, group: _Group, history: Lookback, quantile: float
    ) -> Noisy | None:
        now = group.numbers.get(one.of)
        if one.kind == "value":
            return now
        if one.kind == "lag":
            return history.before(one.of, key, one.windows or 1)
        if now is None:
            return None
        if one.kind == "change":
            before = history.before(one.of, key, one.windows or 1)
            return None if before is None else difference(now, before)
        if one.kind == "ratio":
            below = group.numbers.get(one.over or "")
            if below is None:
                return None
            return ratio(now, below, self._covariance(one, group.numbers), quantile)
        back = range(1, one.windows) if one.windows else ()
        earlier = [history.before(one.of, key, n) for n in back]
        earlier += [] if one.windows else [history.sum_before(one.of, key)]
        return total([now, *(one for one in earlier if one is not None)])

    def _covariance(self, one: ViewValue, numbers: Numbers) -> float | None:
        """Covariance of the noises of two values of one key; None: unknown."""
        leads = self._view.leads
        above, below = leads.get(one.of), leads.get(one.over or "")
        if above is None or below is None:
            return None
        if above.base != below.base or not above.times * below.times:
            return 0.0
        count = numbers.get(self._view.counts.get(above.base, ""))
        return None if count is None else float(above.times * below.times) * count.variance

    def _asked(
        self, made: Sequence[Made], groups: Mapping[bytes, _Group], quantile: float
    ) -> dict[str, list[Any]]:
        """Columns that conditions and orders may name: the view's win over the source's."""
        columns: dict[str, list[Any]] = {}
        names = dict.fromkeys(n for one in groups.values() for n in one.numbers)
        for name in names:
            each = (groups[one.encoded].numbers.get(name) for one in made)
            _put(columns, name, [told(one, quantile, False) for one in each])
        for one in self._view.values:
            _put(columns, one.label, [row.values[one.label] for row in made])
        for name in self._view.key_names:
            columns[name] = [row.key[name] for row in made]
        return columns

    def _sorted(self, places: list[int], columns: Mapping[str, Sequence[Any]]) -> list[int]:
        """Places in the view's order; they come in the order of keys, which ties keep."""
        for order in reversed(self._view.order):
            column = columns.get(order.by, ())
            there = [place for place in places if column[place] is not None]
            there.sort(key=_of(column), reverse=order.descending)
            places = there + [place for place in places if column[place] is None]
        return places


def _of(column: Sequence[Any]) -> Callable[[int], tuple[bool, bool, Any]]:
    """Truth values, numbers, then texts, as `in_order` has them."""

    def of(place: int) -> tuple[bool, bool, Any]:
        value = column[place]
        return (isinstance(value, str), not isinstance(value, bool), value)

    return of


def _put(columns: dict[str, list[Any]], name: str, each: Sequence[dict[str, Any] | None]) -> None:
    for part in ("value", "stddev", "low", "high"):
        column = name if part == "value" else f"{name}_{part}"
        columns[column] = [None if one is None else one[part] for one in each]


def _columns(rows: Sequence[Row]) -> dict[str, list[Any]]:
    """Columns of the source's rows."""
    columns: dict[str, list[Any]] = {}
    for name in rows[0].values if rows else ():
        each = [row.values.get(name) for row in rows]
        for part in ("value", "stddev", "low", "high"):
            column = name if part == "value" else f"{name}_{part}"
            columns[column] = [None if one is None else getattr(one, part) for one in each]
    for name in rows[0].key if rows else ():
        columns[name] = [row.key[name] for row in rows]
    return columns
