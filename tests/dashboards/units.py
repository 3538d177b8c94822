"""Values in the units of Grafana that the dashboards name, as a person reads them there."""

from __future__ import annotations

import math
from collections.abc import Callable

DURATIONS = ((86400.0, "days"), (3600.0, "hours"), (60.0, "mins"), (1.0, "s"), (1e-3, "ms"))


def _digits(value: float) -> str:
    """Three digits, none of them an idle zero.

    >>> [_digits(x) for x in (0.0, 0.1234, 12.345, 123.45, 7.0)]
    ['0', '0.123', '12.3', '123', '7']
    """
    text = f"{value:.{max(0, 2 - _order(value))}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _order(value: float) -> int:
    return math.floor(math.log10(abs(value))) if abs(value) >= 1e-9 else 0


def _scaled(base: float, names: tuple[str, ...], tail: str = "") -> Callable[[float], str]:
    def told(value: float) -> str:
        place = 0
        while abs(value) >= base and place + 1 < len(names):
            value /= base
            place += 1
        return f"{_digits(value)}{names[place]}{tail}"

    return told


def _seconds(value: float) -> str:
    """A length of time.

    >>> [_seconds(x) for x in (0.0, 0.0021, 5.0, 90.0, 7200.0)]
    ['0 s', '2.1 ms', '5 s', '1.5 mins', '2 hours']
    """
    if value == 0:
        return "0 s"
    size, name = next((one for one in DURATIONS if abs(value) >= one[0]), DURATIONS[-1])
    return f"{_digits(value / size)} {name}"


UNITS: dict[str, Callable[[float], str]] = {
    "short": _scaled(1000, ("", " K", " Mil", " Bil")),
    "ops": _scaled(1000, ("", " K", " Mil"), " ops/s"),
    "bytes": _scaled(1024, (" B", " KiB", " MiB", " GiB", " TiB")),
    "percentunit": lambda value: f"{_digits(value * 100)}%",
    "s": _seconds,
    "sci": lambda value: f"{value:.2e}".replace("e-0", "e-").replace("e+0", "e+"),
}
