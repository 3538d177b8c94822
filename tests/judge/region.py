"""Public regions of maps: which points are inside, and which cells can contain one, exactly.

A point is inside if a ray from it to the left crosses an odd number of edges of all rings; the
lower end of an edge belongs to it, the upper one does not. A cell, with its boundary, can contain a
point if it meets an edge, or if a corner of the cell is inside. A double stands for its exact
fraction.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from .stream import Objection

Point = Sequence[float]
Edge = tuple[Point, Point]
Ends = Sequence[Sequence[float]]  # of a box: (low, high) for each coordinate


class Region:
    """Where records can be: inside polygons with holes, and below the listed cells.

    Args:
        rings: rings of all polygons, each without its first corner repeated; empty: no polygon.
        cells: nodes of the hierarchy; empty: all.
    """

    def __init__(self, rings: Iterable[Sequence[Point]], cells: Iterable[int]) -> None:
        self.edges: list[Edge] = [
            pair for ring in rings for pair in zip(ring, [*ring[1:], ring[0]], strict=True)
        ]
        self.cells = set(cells)

    def holds(self, point: Point, cell: int) -> bool:
        """Whether a point, in this finest cell, is in the region."""
        here = not self.cells or any(cell >> n in self.cells for n in range(cell.bit_length()))
        return here and (not self.edges or self._inside(point))

    def reaches(self, code: int, ends: Ends) -> bool:
        """Whether a node can hold a point of the region."""
        above = any(one >> n == code for one in self.cells for n in range(one.bit_length()))
        below = any(code >> n in self.cells for n in range(code.bit_length()))
        if self.cells and not above and not below:
            return False
        if not self.edges or self._inside([low for low, _ in ends]):
            return True
        return any(meets(edge, ends) for edge in self.edges)

    def _inside(self, point: Point) -> bool:
        crossed = False
        for (x1, y1), (x2, y2) in self.edges:
            if min(y1, y2) <= point[1] < max(y1, y2):
                x, y, a, b, c, d = map(Fraction, (*point[:2], x1, y1, x2, y2))
                crossed ^= x < a + (c - a) * (y - b) / (d - b)
        return crossed


def meets(edge: Edge, ends: Ends) -> bool:
    """Whether an edge and a box share a point: some part of the edge fits both coordinates."""
    first, last = Fraction(0), Fraction(1)
    for a, b, (low, high) in zip(*edge, ends, strict=True):
        if max(a, b) < low or min(a, b) > high:
            return False
        if a != b:
            run = Fraction(b) - Fraction(a)
            enter, leave = sorted((Fraction(end) - Fraction(a)) / run for end in (low, high))
            first, last = max(first, enter), min(last, leave)
    return first <= last


def region(domain: Mapping[str, Any], manifests: Iterable[Mapping[str, Any]]) -> Region | None:
    """The region of a domain. If it came from a file, the manifests have it, the charge a digest.

    Raises:
        Objection: another region was published than was charged.
    """
    rings, charged = [domain["polygon"]] if domain["polygon"] else [], domain.get("region")
    for body in manifests if charged else ():
        told = [[[[float(x) for x in corner] for corner in ring] for ring in polygon]
                for polygon in body["space"]["region"]["coordinates"]]  # fmt: skip
        text = json.dumps(told, separators=(",", ":"))
        if hashlib.sha256(text.encode()).hexdigest() != charged["sha256"]:
            raise Objection("another region was published than was charged")
        rings = [ring[:-1] for polygon in told for ring in polygon]
    return Region(rings, domain["cells"]) if rings or domain["cells"] else None
