"""Public numbers of a window without a stated end: its matrix, and the thresholds of its keys.

The matrix is Toeplitz and infinite; trigger t needs t of its rows. The first n entries of its
column add up to the sum of binom(2k, k)/4^k/√(1 + 5λ/32) over k < n, rounded to a multiple of
2^-16, where λ is log₂ k at powers of two and linear between them.
"""

from decimal import ROUND_HALF_EVEN, Context, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from math import ceil

from .matrices import Shifted
from .numbers import STEPS

MOST, CENTURY = 2**24, 36_525 * 86_400_000_000
SUMMED = 2**14  # entries whose squares are added one by one


class Endless(Shifted):
    """A = BC for any number of rows; ``every`` is the time between triggers in microseconds."""

    bits = 16

    def __init__(self, every: int) -> None:
        super().__init__(_core(), min(MOST, CENTURY // every))
        self.sensitivity2 = _squares(self.core)

    def terms(self, t: int) -> int:
        """The number of draws in the table for trigger t: tables double from 1024 on."""
        return max(1024, 1 << (t - 1).bit_length())


class Bars:
    """Thresholds at index t - 1; trigger t may fail with δ/(2^j (j+1)(j+2)), j = ⌊log₂ t⌋."""

    def __init__(
        self, factors: Endless, noise: tuple[Fraction, Fraction], unit: tuple[Fraction, int, int]
    ) -> None:
        self.factors, self.noise, self.unit = factors, noise, unit

    def __getitem__(self, place: int) -> int:
        (variance, delta), (budget, most, least) = self.noise, self.unit
        j = (place + 1).bit_length() - 1
        beta = delta / (2**j * (j + 1) * (j + 2))
        worst = max(
            m + self.factors.quantile(place + 1, beta * m * m / budget, variance)
            for m in range(1, most + 1)
        )
        return ceil((worst + least - 1) * STEPS)


@lru_cache(None)
def _core() -> list[int]:
    with localcontext(Context(prec=50)):
        binomial, total, before, out = Decimal(1), Decimal(0), 0, []
        for k in range(SUMMED):
            if k:
                binomial = binomial * (2 * k - 1) / (2 * k)
            j = k.bit_length() - 1
            between = Decimal(k - 2**j) / 2**j if k else Decimal(1)
            total += binomial / (1 + (j + between) * 5 / 32).sqrt()
            now = int((total * 2**16).to_integral_value(ROUND_HALF_EVEN))
            out.append(now - before)
            before = now
        return out


def _squares(core: list[int]) -> Fraction:
    """A bound on the squared norm of any column; by octaves beyond the first SUMMED entries."""
    found = Fraction(sum(one * one for one in core))
    for j in range(14, 24):
        far = (Fraction("0.693148") + Fraction(1, 2**j)) / Fraction("3.14159")
        found += far / (1 + Fraction(5, 32) * j) * 2**32 + 2**18 + 2 ** (j + 2)
    return found / 2**32
