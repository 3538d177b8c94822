"""How rows state noisy values: names, error bars, and times as texts."""

import hashlib
import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from statistics import NormalDist
from typing import Any

from .rules import Rules


def named(
    rules: Rules, trigger: Mapping[str, Any], key: bytes, columns: dict[str, Any],
    values: dict[str, Any],
) -> dict[str, Any]:  # fmt: skip
    """The record of a key, with a name that is unique to the row."""
    t, window, name = trigger["index"], trigger["window"], rules.config["name"]
    parts = [*map(str.encode, (trigger["charge"], name, str(window), str(t))), key]
    text = b"".join(b"%d:%b" % (len(part), part) for part in parts)
    return {
        "schema": "hush.release/2",
        "release_id": hashlib.sha256(text).hexdigest()[:32],
        "pipeline": name,
        "window": {"start": utc(rules.opens(window)), "end": utc(rules.start(window + 1))},
        "trigger": t,
        "final": t == rules.triggers(window),
        "key": columns,
        "values": values,
    }


def shown(rules: Rules, value: Mapping[str, int], variance: Mapping[str, Any]) -> dict[str, Any]:
    """Values with error bars under the names that the configuration gives them."""
    release, out = rules.config["release"], {}
    reach = NormalDist().inv_cdf((1 + float(Fraction(release["confidence_level"]))) / 2)

    bounds = {f"sum:{c.path}": c.low for c in rules.columns}
    deletes = rules.config["sign"] is not None

    def body(
        exact: Fraction, deviation: float, path: str | None, step: Fraction | None = None
    ) -> dict[str, Any]:
        rounded = six(deviation)
        half = Fraction(repr(six(reach * rounded)))
        if step is not None:
            half = widened(half, step)
        said = exact.numerator if exact.denominator == 1 else float(exact)
        one = {"value": said, "stddev": rounded,
               "low": float(exact - half), "high": float(exact + half)}  # fmt: skip
        if not deletes and (path is None or bounds[path] >= 0):  # the exact value is never negative
            one |= {end: max(one[end], 0.0) for end in ("low", "high")}
        return one | ({} if release["display"] == "raw" else {"display_value": max(said, 0)})

    grids = {"count": Fraction(1)} | {f"sum:{c.path}": c.grid for c in rules.columns}
    every = {name: body(value[name] * grids[name], math.sqrt(variance[name]) * float(grids[name]),
                        None if name == "count" else name, grids[name])
             for name in grids if name in value}  # fmt: skip
    for a in rules.config["aggregate"]:
        label = a["name"] or (a["kind"] if a["kind"] == "count"
                              else f"{a['kind']}_{a['field'].replace('.', '_')}")  # fmt: skip
        if a["kind"] in ("variance", "stddev"):
            out[label] = spread_of(rules, a, value, variance, body, reach)
            continue
        if a["kind"] != "mean":
            counts = a["kind"] in ("count", "distinct") and "where" not in a
            out[label] = every["count" if counts else f"sum:{a.get('column') or a['field']}"]
            continue
        count, total = every["count"], every[f"sum:{a['field']}"]
        out[label] = None
        if count["value"] > 0:
            mean = total["value"] / count["value"]
            spread = math.hypot(total["stddev"], mean * count["stddev"]) / count["value"]
            ends = Fraction(a["low"]), Fraction(a["high"])
            exact = near(mean, spread)
            one = body(exact, spread, None)
            # A mean of clipped values is between the smallest and the largest of them.
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


def spread_of(
    rules: Rules, a: Mapping[str, Any], value: Mapping[str, int], variance: Mapping[str, Any],
    body: Callable[..., dict[str, Any]], reach: float,
) -> dict[str, Any] | None:  # fmt: skip
    """A variance or its root: q/n + c - (s/n)², with sums around the middle of the interval."""
    name = a.get("column") or a["field"]
    place = next(n for n, c in enumerate(rules.columns) if c.path == name)
    grid, (step, top) = rules.columns[place].grid, rules.squares[place]
    of = rules.counter(place)
    count = value[of]
    if count <= a["sample"]:
        return None
    steps = {"square": step * grid**2, "centred": grid}
    given = {one: plain(value[f"{one}:{name}"] * size) for one, size in steps.items()}
    noise = {one: six(math.sqrt(variance[f"{one}:{name}"]) * float(size))
             for one, size in steps.items()}  # fmt: skip
    mean, square = given["centred"] / count, given["square"] / count
    bend = square - 2 * mean * mean
    error = math.hypot(noise["square"], 2 * mean * noise["centred"],
                       bend * six(math.sqrt(variance[of])))  # fmt: skip
    times = count / (count - 1) if a["sample"] else 1.0
    found = Fraction((square + float(step * top * grid**2) - mean * mean) * times)
    most = (Fraction(a["high"]) - Fraction(a["low"])) ** 2 / (2 if a["sample"] else 4)
    found, error = min(max(found, Fraction(0)), most), error / count * times
    half = Fraction(repr(six(reach * six(error))))
    ends = [found - half, found + half]
    if rules.config["sign"] is None:
        lowest = max(ends[0], Fraction(0)) if Fraction(a["low"]) >= 0 else ends[0]
        ends = [min(max(end, Fraction(0)), most) for end in (lowest, ends[1])]
    if a["kind"] == "variance":
        one = body(found, error, None)
        return one | {"low": float(ends[0]), "high": float(ends[1])}
    root = math.sqrt(found)
    error = min(error / (2 * root) if root else math.inf, math.sqrt(error))
    one = body(Fraction(root), error, None)
    return one | {"low": math.sqrt(max(ends[0], 0)), "high": math.sqrt(max(ends[1], 0))}


def plain(exact: Fraction) -> float:
    """The nearest double; an integer stays an integer."""
    return exact.numerator if exact.denominator == 1 else float(exact)


def widened(half: Fraction, step: Fraction) -> Fraction:
    """Half an interval whose noise was rounded to steps: a narrow one may hold half a step less."""
    steps = half / step
    return half if steps >= 16 else max(half, step * math.ceil(steps - Fraction(1, 2)))


def near(quotient: float, spread: float) -> Fraction:
    """A quotient by a fraction of a small denominator, finer than a thousandth of its noise."""
    fine = math.ceil(min(1000 / spread, 1e300)) if spread > 0 else 0
    return Fraction(quotient).limit_denominator(max(10**6, fine))


def six(value: float) -> float:
    """Round to six significant digits."""
    return float(f"{value:.6g}")


def utc(microseconds: int) -> str:
    """A time as ISO text."""
    text = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)).isoformat()
    return text.replace("+00:00", "Z")
