"""For `topl`: the share of values above a threshold, estimated from reports by Square Wave.

A sharp step would drown in noise, so the interval uses two ramps: one ends at the threshold, the
other begins there.
"""

import math
from collections import Counter
from statistics import NormalDist
from typing import Any

from .between import Between
from .survey import LOW, NARROW, RANGE, Report, Survey, Window

PPM = 1_000_000


def ramp(first: int, width: int, bucket: int) -> float:
    """A ramp over the buckets: 0 below ``first``, 1 from its last bucket on."""
    return min(max((bucket - first + 1) / width, 0.0), 1.0)


def weights(wave: Window, first: int, width: int) -> list[float]:
    """Weights of the outputs under which the mean answer about each bucket is the ramp's value.

    The weights of two outputs one window apart differ in proportion to the rise of the ramp. Up to
    a constant, they have the least squares.
    """
    w, d, high, low = wave.width, wave.inputs, wave.high / wave.total, LOW / wave.total
    g = [0.0] * wave.outputs
    for j in range(w, wave.outputs):
        rise = ramp(first, width, j - w + 1) - ramp(first, width, j - w)
        g[j] = g[j - w] + rise / (high - low)
    for place in range(w):
        mine = g[place::w]
        g[place::w] = [one - math.fsum(mine) / len(mine) for one in mine]
    said = low * math.fsum(g) + (high - low) * math.fsum(g[d - 1 :])  # about the last bucket
    return [one + ramp(first, width, d - 1) - said for one in g]


def told(wave: Window, counts: dict[int, int], first: int, width: int) -> tuple[float, float]:
    """Mean answer and its error.

    The error counts one more report, at the output furthest from the middle.
    """
    g, n = weights(wave, first, width), sum(counts.values())
    middle = math.fsum(g) / len(g)
    away = [one - middle for one in g]
    mean = math.fsum(many * away[code] for code, many in counts.items()) / n
    two = math.fsum(many * away[code] ** 2 for code, many in counts.items())
    two += max(one**2 for one in away)
    return mean + middle, math.sqrt((two / n - mean**2) / n)


def width_of(wave: Window, outer: int, reports: int, z: float) -> int:
    """The ramp's width: the power of two, up to d/4, that is best for evenly spread values."""
    d, best = wave.inputs, (math.inf, 1)
    width = 1
    while width == 1 or 4 * width <= d:
        g = weights(wave, outer, width)
        middle = math.fsum(g) / len(g)
        square = math.fsum((one - middle) ** 2 for one in g) / len(g)
        best = min(best, (z * math.sqrt(square / reports) + width / (2 * d), width))
        width *= 2
    return best[1]


def beyond(
    survey: Survey, seen: Counter[Report], steps: dict[int, int], exact: list[float], theta: int
) -> list[Any]:
    """The estimated share and the two ends of its interval, in parts per million."""
    d = survey.buckets
    if theta == d:
        return [0, 0, 0]
    places = {RANGE: (theta, theta)}
    if NARROW in steps:
        place = survey.top(theta) * d / survey.top(steps[NARROW])
        places[NARROW] = (min(math.floor(place), d - 1), math.ceil(place))
    counts = {group: _codes(seen, group) for group in places}
    used = [group for group in places if counts[group]]
    if not used:
        return [0, 0, PPM]
    z = NormalDist().inv_cdf(1 - 0.025 / len(used))
    lows, highs = [], []
    for group in used:
        inner, outer = places[group]
        width = width_of(survey.wave, outer, sum(counts[group].values()), z)
        mean, error = told(survey.wave, counts[group], outer, width)
        lows.append(mean - z * error)
        mean, error = told(survey.wave, counts[group], inner - width + 1, width)
        highs.append(mean + z * error)
    low, high = sorted(min(max(end, 0.0), 1.0) for end in (max(lows), min(highs)))
    share = sum(exact[places[max(places)][0] :])  # by the narrow reports, if there are any
    share = min(max(share, low), high)
    found = [round(share * PPM), math.floor(low * PPM), math.ceil(high * PPM)]
    return [Between(one - 1, one + 1) for one in found]


def _codes(seen: Counter[Report], group: int) -> dict[int, int]:
    found: Counter[int] = Counter()
    for (mine, _, code), many in seen.items():
        found[code] += many * (mine == group)
    return {code: many for code, many in found.items() if many}
