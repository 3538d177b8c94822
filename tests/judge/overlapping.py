"""The encoder for windows that overlap: each covers some hops of one epoch.

A window is a difference of two prefix sums. So a network of conductances holds the penalty: its
nodes are the prefix sums, node 0 is the ground, each window joins two nodes, and so does each hop,
with a conductance that depends on its weight. The diagonal of a root follows from the resistances
between both ends of each hop, and these from eliminating nodes. In the right order an eliminated
node has few neighbours: two if windows are as long as an epoch, and never more than about twice
the root of the number of hops. So a round takes time linear or at most quadratic in the hops.
"""

from decimal import Decimal, localcontext
from functools import lru_cache
from itertools import accumulate, combinations

from .optimal import PRECISION, dot, quadrature

ROUNDS = 100
TERMS = 40  # of the quadrature; its relative error is below 1e-15
NONE = Decimal(0)
SEARCHED = 128  # hops of an epoch; for more, C is a root in closed form

Edges = list[dict[int, Decimal]]
"""For each node its later neighbours, and what the edge weighs. The ground is the last node."""


def of_windows(horizon: int, hops: int) -> list[list[Decimal]]:
    """C, lower triangular with unit columns, for all windows of ``hops`` hops that hold some."""
    with localcontext(PRECISION):
        return optimum(horizon, hops) if horizon <= SEARCHED else series(horizon, hops)


def series(horizon: int, hops: int) -> list[list[Decimal]]:
    """Coefficients of (1 - x^hops)^½ · (1 - x)^-½, from the diagonal down in each column."""
    first, later = [Decimal(1)], [Decimal(1)]
    for k in range(1, horizon):
        first.append(first[-1] * (2 * k - 1) / (2 * k))
        later.append(later[-1] * (2 * k - 3) / (2 * k))
    column = [dot(later, first[k::-hops]) for k in range(horizon)]
    length = [x.sqrt() for x in accumulate(c * c for c in column)][::-1]
    return [[column[i - j] / length[j] if j <= i else NONE for j in range(horizon)]
            for i in range(horizon)]  # fmt: skip


def optimum(horizon: int, hops: int) -> list[list[Decimal]]:
    """C for the Gram matrix of the last round.

    No formula for v is known, so this repeats v ↦ diag((W·M·W)^½), W² = diag(v), from ones. After
    ROUNDS, entries for long epochs still move, so the number of rounds is part of the definition.
    The one Gram matrix is factored in the plain way: for at most SEARCHED hops, n³/6
    multiplications are fewer than a way by 2·TERMS generators needs, and few beside the rounds.
    """
    v, place = [Decimal(1)] * horizon, order(horizon, hops)
    for _ in range(ROUNDS - 1):
        gone = [NONE] * horizon
        for shift, weight in terms(v, hops):
            Z = inverse(*eliminated(network(v, hops, shift, place)), every=False)
            for i, x in enumerate(v):
                a, b = place[i], place[i + 1]
                across = Z[a][a] + Z[b][b] - 2 * Z[b][a]
                gone[i] += weight * (1 - shift * across / x)
        v = gone
    return factor(gram(v, hops, place))


def gram(v: list[Decimal], hops: int, place: list[int]) -> list[list[Decimal]]:
    """W⁻¹·(W·M·W)^½·W⁻¹, row i up to column i."""
    size, found = range(len(v)), [[NONE] * (i + 1) for i in range(len(v))]
    for shift, weight in terms(v, hops):
        Z = inverse(*eliminated(network(v, hops, shift, place)), every=True)
        full = [[Z[a][b] for b in place] for a in place]
        for i in size:
            above, below = full[i], full[i + 1]
            for j in range(i + 1):
                product = below[j + 1] - below[j] - above[j + 1] + above[j]
                found[i][j] += weight * ((i == j) - shift * product / v[i]) / v[j]
    return found


def terms(v: list[Decimal], hops: int) -> list[tuple[Decimal, Decimal]]:
    """Shifts ν and weights with A^-½ ≈ Σ weight·(A + ν)⁻¹, A = W·M·W.

    The trace bounds the spectrum from above. From below: a hop's sum is a sum of differences of
    windows, two for each length of a window that fits into the epoch.
    """
    low = min(v) / (4 * (-(-len(v) // hops)) ** 2)
    bits = 0
    while low * 2**bits < hops * sum(v):
        bits += 1
    return [(low * shift, low.sqrt() * weight) for shift, weight in scaled(bits)]


@lru_cache(None)
def scaled(bits: int) -> list[tuple[Decimal, Decimal]]:
    """The quadrature for a spectrum between 1 and a power of two."""
    return quadrature(Decimal(1), Decimal(2**bits), TERMS)


def order(horizon: int, hops: int) -> list[int]:
    """For each prefix sum, from the empty one on, when its node is eliminated; 0 is the ground.

    Nodes whose distance is ``hops`` are neighbours, and so are nodes whose distance is 1. They
    are eliminated row by row or column by column. The whole sum, which many windows hold, is last.
    """
    inner, wide = range(1, horizon), -(-horizon // hops)
    if 2 * wide < hops:
        inner = sorted(inner, key=lambda node: ((node - 1) % hops, node))  # type: ignore[assignment]
    place = [horizon] * (horizon + 1)
    for now, node in enumerate([*inner, horizon]):
        place[node] = now
    return place


def network(v: list[Decimal], hops: int, shift: Decimal, place: list[int]) -> Edges:
    """Edges of 1 for windows and of ν/v for hops: xᵀ(M + νW⁻²)x for the hops x is their energy."""
    horizon = len(v)
    edges: Edges = [{} for _ in v]
    joined = [(min(end, horizon), max(end - hops, 0), Decimal(1))
              for end in range(1, horizon + hops)]  # fmt: skip
    joined += [(i, i + 1, shift / x) for i, x in enumerate(v)]
    for one, other, size in joined:
        a, b = sorted((place[one], place[other]))
        edges[a][b] = edges[a].get(b, NONE) + size
    return edges


def eliminated(edges: Edges) -> tuple[list[Decimal], Edges]:
    """Total conductance of each node when its turn comes, and the shares of its neighbours."""
    ground, total, shares = len(edges), [], []
    for later in edges:
        whole = sum(later.values())
        share = {j: size / whole for j, size in later.items()}
        for i, j in combinations(sorted(later), 2):
            if i < ground:
                edges[i][j] = edges[i].get(j, NONE) + share[i] * later[j]
        share.pop(ground, None)
        total.append(whole)
        shares.append(share)
    return total, shares


def inverse(total: list[Decimal], shares: Edges, every: bool) -> Edges:
    """Entries of the inverse of the network's matrix: those beside edges, or every one."""
    size = len(total)
    Z: Edges = [{size: NONE} for _ in range(size + 1)]
    for k in reversed(range(size)):
        near, share = shares[k].keys(), shares[k].values()
        for i in range(k + 1, size) if every else near:
            Z[k][i] = Z[i][k] = dot(share, map(Z[i].__getitem__, near))
        Z[k][k] = 1 / total[k] + dot(share, map(Z[k].__getitem__, near))
    Z[size] = dict.fromkeys(range(size + 1), NONE)
    return Z


def factor(square: list[list[Decimal]]) -> list[list[Decimal]]:
    """C with unit columns; CᵀC is ``square`` up to the lengths of the columns."""
    horizon = len(square)
    columns: list[list[Decimal]] = [[] for _ in square]  # from the last row up
    for i in reversed(range(horizon)):
        own = list(columns[i])
        top = (square[i][i] - dot(own, own)).sqrt()
        for j in range(i):
            columns[j].append((square[i][j] - dot(own, columns[j])) / top)
        columns[i].append(top)
    length = [square[j][j].sqrt() for j in range(horizon)]
    return [[columns[j][-1 - (i - j)] / length[j] if j <= i else NONE
             for j in range(horizon)] for i in range(horizon)]  # fmt: skip
