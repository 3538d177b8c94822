"""What a row says of noisy values: names, error bars, and the texts of times."""

import math
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from statistics import NormalDist
from typing import Any

from .rules import Rules


def shown(rules: Rules, value: Mapping[str, int], variance: Mapping[str, Any]) -> dict[str, Any]:
    """Values with error bars under the names that the configuration gives them."""
    release, out = rules.config["release"], {}
    reach = NormalDist().inv_cdf((1 + float(Fraction(release["confidence_level"]))) / 2)

    bounds = {f"sum:{c.path}": c.low for c in rules.columns}
    deletes = rules.config["sign"] is not None

    def body(exact: Fraction, deviation: float, path: str | None) -> dict[str, Any]:
        rounded = six(deviation)
        half = Fraction(repr(six(reach * rounded)))
        said = exact.numerator if exact.denominator == 1 else float(exact)
        one = {"value": said, "stddev": rounded,
               "low": float(exact - half), "high": float(exact + half)}  # fmt: skip
        if not deletes and (path is None or bounds[path] >= 0):  # nothing of it is below zero
            one |= {end: max(one[end], 0.0) for end in ("low", "high")}
        return one | ({} if release["display"] == "raw" else {"display_value": max(said, 0)})

    grids = {"count": Fraction(1)} | {f"sum:{c.path}": c.grid for c in rules.columns}
    every = {name: body(value[name] * grids[name], math.sqrt(variance[name]) * float(grids[name]),
                        None if name == "count" else name)
             for name in value}  # fmt: skip
    for a in rules.config["aggregate"]:
        label = a["name"] or (a["kind"] if a["kind"] == "count"
                              else f"{a['kind']}_{a['field'].replace('.', '_')}")  # fmt: skip
        if a["kind"] != "mean":
            out[label] = every["count" if a["kind"] == "count" else f"sum:{a['field']}"]
            continue
        count, total = every["count"], every[f"sum:{a['field']}"]
        out[label] = None
        if count["value"] > 0:
            mean = total["value"] / count["value"]
            spread = math.hypot(total["stddev"], mean * count["stddev"]) / count["value"]
            ends = Fraction(a["low"]), Fraction(a["high"])
            exact = Fraction(mean).limit_denominator(1_000_000)
            one = body(exact, spread, None)
            # A mean of clipped values is one of them or lies between two.
            moved = ends[0] if exact < ends[0] else ends[1] if exact > ends[1] else exact
            one["value"] = moved.numerator if moved.denominator == 1 else float(moved)
            half = Fraction(repr(six(reach * six(spread))))
            either = [moved - half, moved + half]
            if not deletes:
                either = [sorted([*ends, end])[1] for end in either]
            one["low"], one["high"] = float(either[0]), float(either[1])
            if "display_value" in one:
                one["display_value"] = max(one["value"], 0)
            out[label] = one
    return out


def six(value: float) -> float:
    """Six significant digits."""
    return float(f"{value:.6g}")


def utc(microseconds: int) -> str:
    """ISO text of a time."""
    text = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)).isoformat()
    return text.replace("+00:00", "Z")
