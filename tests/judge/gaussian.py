"""The normal distribution in decimals: tails, quantiles, and the (ε, δ) of Gaussian DP."""

from collections.abc import Callable
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache

DIGITS = Context(prec=100, Emin=-(10**9), Emax=10**9)
PI = Decimal(
    "3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803"
    "482534211706798214808651"
)


def root(value: Fraction) -> Fraction:
    with localcontext(DIGITS):
        return Fraction((Decimal(value.numerator) / value.denominator).sqrt())


def tail(x: Fraction) -> Decimal:
    """P(N(0, 1) > x), by the series Φ(x) - 1/2 = φ(x) Σ x^(2k+1)/(1·3·…·(2k+1))."""
    with localcontext(DIGITS):
        point = Decimal(x.numerator) / x.denominator
        term, total, odd = point, point, 1
        while abs(term) > Decimal(10) ** -99:
            odd += 2
            term = term * point * point / odd
            total += term
        return Decimal("0.5") - (-point * point / 2).exp() / (2 * PI).sqrt() * total


def _last(holds: Callable[[Fraction], bool]) -> tuple[Fraction, Fraction]:
    """The greatest 40-bit number for which ``holds`` is true, and the step to the next number."""
    low = Fraction(1)
    while holds(low):
        low *= 2
    while not holds(low):
        low /= 2
    step = low
    for _ in range(39):
        step /= 2
        low += step * holds(low + step)
    return low, step


@lru_cache(None)
def normal_quantile(beta: Fraction) -> Fraction:
    """The least 40-bit number that N(0, 1) exceeds with probability at most beta."""
    if beta >= Fraction(1, 2):
        return Fraction(0)
    return sum(_last(lambda z: tail(z) > beta), Fraction(0))


def gdp(epsilon: Fraction, mu: Fraction) -> tuple[Decimal, Decimal]:
    """The two terms whose difference is δ(ε) of μ-GDP (Balle & Wang 2018, Theorem 8)."""
    with localcontext(DIGITS):
        grown = (Decimal(epsilon.numerator) / epsilon.denominator).exp()
        return tail(epsilon / mu - mu / 2), grown * tail(epsilon / mu + mu / 2)


@lru_cache(None)
def mu_of(epsilon: Fraction, delta: Fraction) -> Fraction:
    """The greatest 40-bit μ for which μ-GDP is (ε, δ)."""

    def holds(mu: Fraction) -> bool:
        first, second = gdp(epsilon, mu)
        return first - second <= delta

    return _last(holds)[0]


def epsilon_of(mu: Fraction, delta: Fraction) -> Fraction:
    """The least 40-bit ε for which μ-GDP is (ε, δ)."""

    def fails(epsilon: Fraction) -> bool:
        first, second = gdp(epsilon, mu)
        return first - second > delta

    return sum(_last(fails), Fraction(0))
