"""Settings that all maps share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

from ...errors import ParameterError
from ..contract import Setting
from ..parts.bounds.record_total import PrivateTotal
from ..validate import positive, without_unset
from .domain import Domain

_UNIT = Domain.unit(2, depth=8)


@dataclass(frozen=True)
class MapParameters:
    """Settings of a map.

    Attributes:
        domain: public geometry, also as plain JSON (`Domain.to_json`).
        bound: most records of one unit in an epoch, deletions included.
        deletions: whether records of sign -1 count.
        debias: scale counts up by a private total of all records; assumes that the bound cuts the
            same share everywhere. For insertions alone.
        debias_cap: most records of a unit that this total counts, in an epoch.
        debias_share: part of ε for this total.
    """

    domain: Domain | Mapping[str, Any] = _UNIT
    bound: int = 1
    deletions: bool = False
    debias: bool = False
    debias_cap: int = 100
    debias_share: Fraction | float = Fraction(1, 10)

    def pinned(self) -> dict[str, Any]:
        """The charged settings."""
        return without_unset(self, ("debias", "debias_cap", "debias_share"))

    @property
    def geometry(self) -> Domain:
        """The domain, given in either form."""
        given = self.domain
        return given if isinstance(given, Domain) else Domain.from_json(given)

    def total(self, epsilon: Fraction) -> PrivateTotal | None:
        """The private total of all records, paid from ``epsilon``; None without ``debias``.

        Raises:
            ParameterError: a setting is out of range.
        """
        part = Fraction(self.debias_share)
        if not 0 < part < 1:
            raise ParameterError("debias_share", self.debias_share, "must lie between 0 and 1")
        if not self.debias:
            return None
        return PrivateTotal(self.bound, self.debias_cap, part * epsilon)


def check_counts(kind: str, setting: Setting) -> None:
    """Check that a pipeline requests what maps release.

    Raises:
        ParameterError: it has value columns, a key list or no counts, or ε is not positive.
    """
    if setting.columns:
        raise ParameterError("columns", setting.columns, f"{kind} counts records, it sums nothing")
    if setting.keys is not None:
        raise ParameterError("keys", len(setting.keys), "cells of the domain are the keys")
    if not setting.count:
        raise ParameterError("count", setting.count, f"counts are what {kind} releases")
    positive("epsilon", setting.epsilon)


def map_of(settings: Mapping[str, Any]) -> str:
    """Say what a spatial mechanism publishes, from its declared settings.

    >>> map_of({"domain": {"axes": [{"name": "lon"}, {"name": "lat"}]}})
    'counts of cells over lon, lat'
    """
    return f"counts of cells over {', '.join(axis['name'] for axis in settings['domain']['axes'])}"


def adopting(
    split: Literal["all", "binary"], levels: int
) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Make the settings of one map from those of another.

    Args:
        split: the split of this map's nodes.
        levels: depth of this map per level of the other.
    """

    def adopted(settings: dict[str, Any]) -> dict[str, Any]:
        kept: dict[str, Any] = {n: settings[n] for n in ("domain", "bound") if n in settings}
        if isinstance(domain := kept.get("domain"), dict):
            kept["domain"] = domain | {"split": split, "depth": domain.get("depth", 8) * levels}
        return kept

    return adopted
