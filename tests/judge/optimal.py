"""The optimal encoder for prefix sums, in time quadratic in the triggers.

The penalty W·AᵀΩA·W has a tridiagonal inverse S, so its square root is a short sum of inverses of
tridiagonal matrices (Hale, Higham & Trefethen 2008, method 3). Entry (a, b), a ≥ b, of the root is
P_a·Q_b for vectors with one number for each term. Such a matrix has a triangular factor of the same
shape.
"""

from collections.abc import Iterable, Sequence
from decimal import Context, Decimal, localcontext
from operator import mul

PRECISION = Context(prec=60, Emin=-(10**9), Emax=10**9)
TERMS = 64
PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459230781640628621")


def factor(weights: Sequence[int], last: int) -> list[list[Decimal]]:
    """C, lower triangular with unit columns, for W = diag(weights), Ω = diag(1, …, 1, last·T)."""
    with localcontext(PRECISION):
        size = len(weights)
        diagonal, beside = inverse([Decimal(w) for w in weights], last * size + 1)
        trace = sum(w * w * ((last + 1) * size - 1 - n) for n, w in enumerate(weights))
        rows = [abs(x) for x in [0, *beside, 0]]
        most = max(d + a + b for d, a, b in zip(diagonal, rows, rows[1:], strict=False))
        terms = [
            (weight, *generators(diagonal, beside, shift))
            for shift, weight in quadrature(1 / Decimal(trace), most)
        ]
        P = [[ratio[n] for _, ratio, _ in terms] for n in range(size)]
        Q = [[weight * middle[n] / ratio[n] for weight, ratio, middle in terms]
             for n in range(size)]  # fmt: skip
        length = [dot(p, q).sqrt() for p, q in zip(P, Q, strict=True)]
        F: list[list[Decimal]] = [[]] * size
        known = [[Decimal(0)] * len(terms) for _ in terms]  # Σ g gᵀ of the finished rows
        for n in reversed(range(size)):
            rest = [p - dot(row, Q[n]) for p, row in zip(P[n], known, strict=True)]
            top = dot(rest, Q[n]).sqrt()
            g = [x / top for x in rest]
            F[n] = [dot(g, Q[j]) / length[j] for j in range(n + 1)] + [Decimal(0)] * (size - n - 1)
            known = [[k + x * y for k, y in zip(row, g, strict=True)]
                     for row, x in zip(known, g, strict=True)]  # fmt: skip
        return F


def dot(a: Iterable[Decimal], b: Iterable[Decimal]) -> Decimal:
    return sum(map(mul, a, b), Decimal(0))


def inverse(w: Sequence[Decimal], end: int) -> tuple[list[Decimal], list[Decimal]]:
    """Diagonals of (W·M·W)⁻¹, M_ij the number of steps from max(i, j) on, the last one ``end``."""
    size = len(w)
    steps = [Decimal(1)] * (size - 1) + [Decimal(end - 1)]
    diagonal = [(1 / steps[n] + (1 / steps[n - 1] if n else 0)) / w[n] ** 2 for n in range(size)]
    return diagonal, [-1 / steps[n] / w[n] / w[n + 1] for n in range(size - 1)]


def generators(
    diagonal: Sequence[Decimal], beside: Sequence[Decimal], shift: Decimal
) -> tuple[list[Decimal], list[Decimal]]:
    """For the inverse G of a shifted tridiagonal matrix: r with G_ij = G_ii·r_j/r_i, and G_ii."""
    size, a = len(diagonal), [d + shift for d in diagonal]
    down, up = [a[0]], [a[-1]]
    for n in range(1, size):
        down.append(a[n] - beside[n - 1] ** 2 / down[-1])
        up.append(a[size - 1 - n] - beside[size - 1 - n] ** 2 / up[-1])
    up.reverse()
    ratio = [Decimal(1)]
    for n in range(1, size):
        ratio.append(ratio[-1] * -beside[n - 1] / up[n])
    return ratio, [1 / (d + u - x) for d, u, x in zip(down, up, a, strict=True)]


def quadrature(low: Decimal, high: Decimal, terms: int = TERMS) -> list[tuple[Decimal, Decimal]]:
    """Shifts ν and weights with S^-½ ≈ Σ weight·(S + ν)⁻¹, for a spectrum between both ends.

    They are values of Jacobi's functions on the imaginary axis, by theta series.
    """
    k = (low / high).sqrt()
    real, imaginary = (PI / 2 / mean(x) for x in ((1 - k * k).sqrt(), k))
    q = (-PI * imaginary / real).exp()
    powers = [q ** ((2 * n + 1) ** 2) for n in range(12)]
    quarter = [p.sqrt().sqrt() for p in powers]  # q^((n + ½)²)
    whole = [q ** (n * n) for n in range(1, 12)]
    two, three = 2 * sum(quarter), 1 + 2 * sum(whole)
    four = 1 + 2 * sum((-1) ** n * p for n, p in enumerate(whole, 1))
    found = []
    for place in range(terms):
        y = PI / 2 * (place + Decimal("0.5")) / terms * imaginary / real
        e = [(m * y).exp() for m in range(25)]
        theta1 = sum(
            (-1) ** n * p * (e[2 * n + 1] - 1 / e[2 * n + 1]) for n, p in enumerate(quarter)
        )
        theta2 = sum(p * (e[2 * n + 1] + 1 / e[2 * n + 1]) for n, p in enumerate(quarter))
        theta3 = 1 + sum(p * (e[2 * n] + 1 / e[2 * n]) for n, p in enumerate(whole, 1))
        theta4 = 1 + sum((-1) ** n * p * (e[2 * n] + 1 / e[2 * n]) for n, p in enumerate(whole, 1))
        sn, cn = three / two * theta1 / theta4, four / two * theta2 / theta4
        dn = four / three * theta3 / theta4
        found.append((low * sn * sn, 2 * imaginary * low.sqrt() / (PI * terms) * cn * dn))
    return found


def mean(x: Decimal) -> Decimal:
    """The arithmetic-geometric mean of 1 and x."""
    one = Decimal(1)
    for _ in range(12):
        one, x = (one + x) / 2, (one * x).sqrt()
    return one
