"""Numbers and times as the live page writes them, without meaningless digits."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

DAY = 86_400_000
MOST_DIGITS = 17


def fixed(value: float, places: int) -> str:
    """A number with ``places`` decimals.

    >>> fixed(-1234.5, 1), fixed(-0.04, 1)
    ('-1,234.5', '0.0')
    """
    text = f"{value:,.{places}f}"
    return text.lstrip("-") if not text.strip("-0.,") else text


def about(value: float, digits: int = 3) -> str:
    """A number in about ``digits`` significant digits.

    >>> about(0.0123456), about(12345.6), about(2.50), about(1e-6)
    ('0.0123', '12,346', '2.5', '1e-6')
    """
    if value == 0:
        return "0"
    size = math.floor(math.log10(abs(value)))
    if size < -4:
        mantissa, _, power = f"{value:.{digits - 1}e}".partition("e")
        return f"{_short(mantissa)}e{int(power)}"
    return _short(fixed(value, max(digits - 1 - size, 0)))


def _short(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text


def apart(values: Sequence[float], digits: int = 3) -> list[str]:
    """Numbers with just enough digits to tell them apart, at least ``digits``.

    >>> apart([40.81, 40.84, 40.9], 2)
    ['40.81', '40.84', '40.9']
    """
    for more in range(digits, MOST_DIGITS):
        texts = [about(one, more) for one in values]
        if len(set(texts)) == len(set(values)):
            return texts
    return [repr(float(one)) for one in values]


def estimate(parts: Sequence[float] | None) -> tuple[str, str]:
    """A value and its error, both rounded to two digits of the error.

    >>> estimate([1873.4, 98.9, 1679.2, 2066.8]), estimate([3, 4.5, 0.0, 11.8])
    (('1,873', '±194'), ('3.0', '±8.8'))
    """
    if parts is None:
        return "–", ""
    reach = max(parts[3] - parts[0], parts[0] - parts[2])
    places = 0
    if reach > 0:
        places = min(max(1 - math.floor(math.log10(reach)), 0), 9)
    return fixed(parts[0], places), f"±{fixed(reach, places)}"


def when(time: int) -> str:
    """A time in milliseconds since 1970, as short as possible.

    >>> when(1_551_398_400_000), when(1_551_398_460_000)
    ('2019-03-01', '2019-03-01 00:01')
    """
    at = datetime.fromtimestamp(time / 1000, UTC)
    if time % DAY == 0:
        return f"{at:%Y-%m-%d}"
    return f"{at:%Y-%m-%d %H:%M}" if time % 60_000 == 0 else f"{at:%Y-%m-%d %H:%M:%S}"


def count(number: int, what: str) -> str:
    """A number of things.

    >>> count(1, "key"), count(1200, "key")
    ('1 key', '1,200 keys')
    """
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def budget(told: Mapping[str, Any], unit: str) -> str:
    """State the charges and the remaining budget from `budget.spent`."""
    own = f"ε={about(told['epsilon'])}, δ={about(told['delta'])} per {unit} and epoch"
    charged = f"{count(told['charged'], 'epoch')} charged, ε={about(told['total'])} in all"
    limit, shared = told["limit"], told["shared"]
    # The first release states the limit.
    left = "no limit is set" if told["charged"] else "the limit is not known yet"
    if limit is not None:
        left = f"of at most {about(limit)}; ε={about(told['left'])} left"
    parts = [f"Budget: {own}."]
    if shared is None:
        parts.append(f"{charged}{', ' if limit is not None else '; '}{left}.")
    else:
        parts.append(
            f"{charged}. Shared budget {shared['name']}, of {' and '.join(shared['members'])} "
            f"together: ε={about(shared['total'])} in all, {left}."
        )
    if told["refused"]:
        parts.append(f"{count(told['refused'], 'epoch')} refused.")
    return " ".join(parts)
