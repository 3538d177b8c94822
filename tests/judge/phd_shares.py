"""How far a map's leaves may be off by what was counted before they existed.

Where those records lie is unknown. The interval has to hold for records, not for leaves: a child is
met as often as records lie in it.
"""

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass
class Node:
    """What the state keeps of a node; counts are whole records."""

    out: int = 0  # its counter, as last released
    below: int = 0  # sum of all counters below it
    spread: float = 0.0  # variance of `below`
    carried: float = 0.0  # variance that `out` starts from, in single precision
    first: int = 0  # state of the counter
    second: int = 0
    steps: int = 0
    start: int = 0


@dataclass
class Live:
    """A node of one trigger's tree."""

    node: Node
    above: int  # its share of what its ancestors counted, in 1/GRID records
    estimate: int  # not negative; children add up to their parent
    children: list[int] = field(default_factory=list)
    variance: float = 0.0
    error: float = 0.0  # squared error of `above`, in squared records, as records meet it
    low: float = 0.0  # records by which `above` is too small, as they meet it
    age: int = 0  # triggers since its first count, and those of its oldest child


def unlike(before: float, children: list[Live], root: Live) -> float:
    """The doubt whether records since a split lie as those before it, by their rates."""
    since = max((one.age for one in children), default=0)
    later = max(sum(one.node.out + one.node.below for one in children), 0)
    slow, fast = sorted([before * since, later * max(root.age - since, 1)])
    return math.sqrt(1 - slow / fast) if fast else 0.0


def crowded(tree: Mapping[int, Live], beta: int) -> dict[int, float]:
    """By a code's bits, the concentration of a part: how records lie in split nodes of that depth.

    Two records of a node are in the same child with the chance q: nodes whose count is clearly
    above its noise tell it. The least is that of a curve in the plane, 1/sqrt(beta).
    """
    least, told = beta**-0.5, defaultdict[int, list[tuple[float, float]]](list)
    for code, live in tree.items():
        if not live.children:
            continue
        mine, seen = [tree[one] for one in live.children], told[code.bit_length()]
        counts = [one.node.out + one.node.below for one in mine]
        n, noise = sum(counts), sum(one.variance + one.node.spread for one in mine)
        if n > 1 and n > 3 * math.sqrt(noise):
            seen.append(((sum(x * x for x in counts) - noise) / n - 1, n - 1))
    found = {}
    for bits, seen in told.items():
        pairs = 50 + sum(every for _, every in seen)
        q = (50 * least + sum(same for same, _ in seen)) / pairs
        q = min(max(q, least), 1)
        found[bits] = (1 - q) / (beta * q - 1)
    return found


def divided(
    child: Live, parent: Live, w: float, whole: float, doubt: float, beta: int, each: float
) -> None:
    """Set the error of one of beta shares: of D(A + e) - wA, where records see the part D.

    They see D with the weight D: its Dirichlet law with the mean m, beta times ``each`` in sum,
    has E[D^2]/E[D] and E[D^3]/E[D] as its first two moments.
    """
    total = beta * each
    first, second = 0.0, 0.0
    for chance, m in ((1 - doubt, w), (doubt, 1 / beta)):
        once = (total * m + 1) / (total + 1)
        first += chance * once
        second += chance * once * (total * m + 2) / (total + 2)
    e, square = parent.low, parent.error + parent.variance
    child.low = first * e + whole * (first - w)
    child.error = second * square + 2 * whole * e * (second - w * first)
    child.error += whole**2 * (second - 2 * w * first + w**2)
