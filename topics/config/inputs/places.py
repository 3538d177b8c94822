"""Names of fields that are coordinates on the earth."""

from __future__ import annotations

import re
from collections.abc import Iterable

_LONGITUDE = re.compile(r"(?<![a-z])(lon|lng|long|longitude)(?![a-z])", re.IGNORECASE)
_LATITUDE = re.compile(r"(?<![a-z])(lat|latitude)(?![a-z])", re.IGNORECASE)


def place_of(names: Iterable[str]) -> tuple[str, str] | None:
    """Find longitude and latitude among names of fields; None if one of them is missing.

    >>> place_of(["shop", "pickup_lat", "pickup.lng"]), place_of(["belong", "lat"])
    (('pickup.lng', 'pickup_lat'), None)
    """
    every = list(names)
    x, y = (
        next((one for one in every if kind.search(one)), None) for kind in (_LONGITUDE, _LATITUDE)
    )
    return None if x is None or y is None else (x, y)
