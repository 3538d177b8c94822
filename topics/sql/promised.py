"""Privacy options of a query, as in BigQuery, as budget and bound of a pipeline."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

from ...mechanisms.catalogue import DEFAULT
from .columns import QuerySource, plain_number
from .refusal import QueryError

_KNOWN = (
    "epsilon", "delta", "privacy_unit_column", "max_groups_contributed", "kappa",
    "max_rows_contributed", "min_privacy_units_per_group", "k_threshold",
    "group_selection_strategy",
)  # fmt: skip


class Promise:
    """The options of a query, and the bound of its counts.

    A unit that adds at most m records to each of at most n groups changes the counts by at most
    √n·m in the Euclidean norm. The bound "per-key" with m records per key and n·m in all has
    exactly that sensitivity, and lets a unit with fewer records per group reach more groups.
    Without m, n groups cost as much as the quadratic bound with budget n: one record in each of n
    groups, or √n records in one.
    """

    def __init__(self, options: Mapping[str, str], source: QuerySource) -> None:
        self._options, self._source = options, source
        self.per_group: int | None = None  # records of a unit in a group, from COUNT's bounds
        for name in options:
            if name not in _KNOWN:
                near = difflib.get_close_matches(name, _KNOWN, 1, 0.6)
                hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(_KNOWN)}"
                raise QueryError(f"OPTIONS: {name} is not known; {hint}")
        self._check_unit()
        strategy = options.get("group_selection_strategy", "LAPLACE_THRESHOLD").strip("'\"")
        if strategy.upper() not in ("LAPLACE_THRESHOLD", "PUBLIC_GROUPS"):
            raise QueryError(
                f"OPTIONS: group_selection_strategy = {strategy} is not known: leave it out, keys "
                "are found privately"
            )
        if strategy.upper() == "PUBLIC_GROUPS":
            raise QueryError(
                "OPTIONS: PUBLIC_GROUPS joins a table of groups: leave it out, and list the groups "
                "in public_keys or public_keys_file of the pipeline"
            )

    def _check_unit(self) -> None:
        given = self._options.get("privacy_unit_column")
        if given is None:
            return
        column = given.strip("`\"' ").split(".")
        names = [".".join(column[n:]) for n in range(len(column))]
        if not set(names) & set(self._source.unit) or len(self._source.unit) > 1:
            unit = ", ".join(self._source.unit)
            raise QueryError(
                f"OPTIONS: privacy_unit_column = {given}, and the privacy unit of input "
                f"{self._source.name} is {unit}: write privacy_unit_column = {unit}, or set unit "
                "of the input"
            )

    def _number(self, *names: str) -> int | Decimal | None:
        for name in names:
            text = self._options.get(name)
            if text is not None and text.strip("'\"").upper() != "NULL":
                try:
                    number = Decimal(text)
                except InvalidOperation:
                    raise QueryError(f"OPTIONS: {name} = {text} must be a number") from None
                if not number.is_finite():
                    raise QueryError(f"OPTIONS: {name} = {text} must be a finite number")
                return plain_number(number)
        return None

    def _whole(self, *names: str) -> int | None:
        number = self._number(*names)
        if number is None or (isinstance(number, int) and number >= 1):
            return number
        raise QueryError(f"OPTIONS: {names[0]} = {number} must be a whole number of at least 1")

    def settings(self) -> dict[str, Any]:
        """Settings ``budget`` and ``mechanism``, as far as the query states them."""
        budget = {
            name: number for name in ("epsilon", "delta")
            if (number := self._number(name)) is not None
        }  # fmt: skip
        bound = self._bound()
        if (least := self._whole("min_privacy_units_per_group", "k_threshold")) is not None:
            bound["min_users"] = least
        found: dict[str, Any] = {"budget": budget} if budget else {}
        return found | ({"mechanism": {"kind": DEFAULT, **bound}} if bound else {})

    def _bound(self) -> dict[str, Any]:
        groups = self._whole("max_groups_contributed", "kappa")
        rows = self._whole("max_rows_contributed")
        if rows is not None:
            if groups is not None or self.per_group is not None:
                raise QueryError(
                    "OPTIONS: max_rows_contributed bounds all records of a unit: leave out "
                    "max_groups_contributed and the bounds of COUNT"
                )
            return {"bound": "records", "budget": rows}
        if self.per_group is None:
            return {} if groups is None else {"bound": "quadratic", "budget": groups}
        return {"bound": "per-key", "per_key": self.per_group} | (
            {} if groups is None else {"budget": groups * self.per_group}
        )
