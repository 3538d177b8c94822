"""Exact privacy accounting: Gaussian (GDP), zero-concentrated and pure differential privacy.

Every function takes rationals (or floats, which are rationals), computes with the guaranteed
bounds of `accounting.normal`, rounds to the safe side and returns a `Fraction` for which the claim
has been verified. No result depends on a mathematical library, so every machine calibrates the
same noise.

Gaussian differential privacy
    A mechanism is μ-GDP if attacking it is at least as hard as telling N(0,1) from N(μ,1). Adaptive
    compositions of Gaussian releases with predictable shifts d_t and Σ d_t²/σ² ≤ μ² are μ-GDP,
    and δ(ε) = Φ(-ε/μ+μ/2) - e^ε Φ(-ε/μ-μ/2) (Balle & Wang 2018, Theorem 8; Dong, Roth & Su 2019,
    Corollary 1 and Theorem 4).

Discrete Gaussians
    Noise is drawn on a grid: z integer, P(z) ∝ exp(-z²/2s²) (Canonne, Kamath & Steinke 2020).
    Such a release is exactly Δ²/(2s²)-zCDP, but not exactly GDP. The difference is bounded here.

    *Lemma.* Let s² > 1/24, X ~ N(0, s²) and R = round(X). For every integer z,
    P(z) ≤ e^κ P(R = z) with κ = -ln(1 - 1/(24s²)).
    *Proof.* Poisson summation gives Σ_k exp(-k²/2s²) = s√(2π)·(1 + 2Σ_{k≥1} exp(-2π²s²k²)), so
    P(z) ≤ exp(-z²/2s²)/(s√(2π)). And P(R = z)·s√(2π)·exp(z²/2s²) is the integral over |u| ≤ ½ of
    exp(-u²/2s²)·cosh(zu/s²) ≥ 1 - u²/2s², which is at least 1 - 1/(24s²). ∎

    *Theorem.* Take adaptive releases y_t = x_t + z_t whose integer inputs differ by predictable
    d_t between neighbours, non-zero for at most n of the t, with Σ d_t² ≤ Δ². Let μ = Δ/s,
    θ = (14√n μ + μ²)/(4s²) and s ≥ 1. Then
    δ_discrete(ε) ≤ e^(nκ)·(δ_GDP(ε - θ, μ) + n·2^-131).
    *Proof.* The privacy loss is L(z) = Σ (d_t² - 2 z_t d_t)/2s² and δ_discrete(ε) =
    E[(1 - exp(ε - L(z)))₊]. Terms with d_t = 0 are the same public randomness in both worlds.
    Replacing each of the others by R_t = round(X_t) costs e^κ by the Lemma, conditionally on the
    past. The rounded continuous mechanism is post-processing of the continuous one, so it obeys
    δ_GDP; its loss is L(R) - Σ (ψ((R_t-d_t)/s²) - ψ(R_t/s²)), where ψ(y) is the logarithm of the
    integral of exp(-u²/2s² + uy) over |u| ≤ ½. There ψ'(0) = 0 by symmetry and 0 ≤ ψ'' ≤ ¼, a
    variance on an interval of length 1; so the sum is at most Σ |d_t|(|R_t|+|d_t|)/4s⁴. Unless some
    |R_t| > 14s, of probability ≤ n·exp(-13.5²/2) < n·2^-131, that is at most θ (Cauchy-Schwarz),
    and then (1 - exp(ε - L))₊ is at most what it is for the rounded mechanism at ε - θ. ∎

    Where Φ(-ε/μ+μ/2) ≤ 5e^ε Φ(-ε/μ-μ/2), d ln δ_GDP/dε ≤ -¼, so the factor e^(nκ) is paid for by
    a further 4nκ of ε. Hence a discrete mechanism is entered as μ², a pure part θ + 4nκ and
    δ = n·2^-129, and such entries add up: the proof carries over to several mechanisms at once.
    For n = 12,000 touched releases and s = 2^12 the pure part is 1.4·10^-4 at μ = 1.

Composition with pure mechanisms
    If P = P_G·P_P factors into the Gaussian steps and steps of pure privacy loss ≤ E, however
    interleaved, then (P - e^(ε+E)P')₊ ≤ P_P·(P_G - e^ε P'_G)₊, whose sum is at most δ_GDP(ε): pure
    parts add to ε. Coupling failures add to δ. Alternatively everything is zCDP (ρ = μ²/2 and
    ε²/2; Bun & Steinke 2016, Propositions 1.3, 1.4 and 1.7) and ε = ρ + 2√(ρ ln(1/δ)).
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from ...errors import ParameterError
from ..contract import Cost
from ..validate import at_least
from . import normal
from ._conversions import (
    DIGITS,
    Real,
    epsilon_of,
    exact,
    gdp_delta,
    gdp_epsilon,
    gdp_mu,
    positive,
    probability,
    tails,
    zcdp_epsilon,
)


def tree_levels(horizon: int) -> int:
    """H(T) = ⌊log2 T⌋ + 1, the number of released nodes a step of a binary tree lies in.

    >>> [tree_levels(t) for t in (1, 2, 7, 8, 100, 1024)]
    [1, 2, 3, 4, 7, 11]
    """
    return at_least("horizon", horizon, 1).bit_length()


def gaussian_cost(sensitivity2: Real, variance: Real, touched: int) -> Cost:
    """The cost of adaptive discrete Gaussian releases: μ², the pure part θ + 4nκ and δ = n·2^-129.

    Args:
        sensitivity2: bound of Σ d_t², in squared grid steps.
        variance: the parameter s², in squared grid steps.
        touched: bound n of the number of releases that one privacy unit can shift.

    Raises:
        ParameterError: an argument is not positive, or the grid is too coarse (s² < 1 + n/24).
    """
    shift, noise = positive("sensitivity2", sensitivity2), positive("variance", variance)
    count = at_least("touched", touched, 1)
    if noise < 1 + Fraction(count, 24):
        raise ParameterError("variance", variance, f"the grid is too coarse for {count} releases")
    mu2 = shift / noise
    rounding = (14 * normal.sqrt_up(count * mu2) + mu2) / (4 * noise)
    # -ln(1-x) ≤ x/(1-x) with x = 1/(24s²); nκ < 1, so e^(nκ) < 4.
    return Cost(mu2, rounding + 4 * count / (24 * noise - 1), Fraction(count, 2**129))


def gaussian_variance(epsilon: Real, delta: Real, sensitivity2: Real, touched: int) -> Fraction:
    """The noise parameter s² (squared grid steps, 40 bits) whose cost fits into (ε, δ).

    Arguments as for `gaussian_cost`. The result satisfies
    ``total([gaussian_cost(sensitivity2, s2, touched)], delta)[0] <= epsilon``.

    Raises:
        ParameterError: an argument is out of range, or the grid is too coarse for ε.
    """
    eps, shift = (
        positive("epsilon", epsilon_of(epsilon)),
        positive("sensitivity2", sensitivity2),
    )
    pure = gaussian_cost(shift, _variance(eps, delta, shift), touched).epsilon
    # More noise has a smaller pure part, so what is set aside here suffices.
    if 2 * pure > eps:
        raise ParameterError(
            "sensitivity2", sensitivity2, "the noise grid is too coarse for epsilon"
        )
    variance = _variance(eps - pure, delta, shift)
    # The searches inside `total` round up by 2^-40 of their own.
    extra = Fraction(1, 2**36)
    while total([gaussian_cost(shift, variance, touched)], delta)[0] > eps:
        variance = normal.round_up(variance * (1 + extra), 40)
        extra *= 16
    return variance


def _variance(epsilon: Fraction, delta: Real, shift: Fraction) -> Fraction:
    return max(Fraction(1), normal.round_up(shift / gdp_mu(epsilon, delta) ** 2, 40))


def add(costs: Iterable[Cost]) -> Cost:
    """The entry-wise sum of ``costs``: the cost of their adaptive composition."""
    parts = [Cost(), *costs]
    return Cost(*(sum(column, Fraction(0)) for column in zip(*parts, strict=True)))


def total(costs: Iterable[Cost], delta: Real) -> tuple[Fraction, Fraction]:
    """The smaller of the proved bounds (ε, rounded up, and ``delta``) of a composition.

    Args:
        costs: one entry per mechanism.
        delta: the δ to be claimed, in [0, 1); the entries' own δ are taken from it.

    Raises:
        ParameterError: the entries' own δ leave nothing of ``delta`` for the Gaussian part.
    """
    parts = list(costs)
    joint, limit = add(parts), exact("delta", delta, 1)
    left = limit - joint.delta
    if limit == 1 or left < 0 or (left == 0 and joint.mu2 > 0):
        raise ParameterError(
            "delta", delta, "must be below 1 and exceed the sum of the entries' own delta"
        )
    if joint.mu2 == 0:
        pure = joint.epsilon
        rho = sum((part.epsilon**2 for part in parts), Fraction(0)) / 2
        return (min(pure, zcdp_epsilon(rho, left)) if left else pure), limit
    rho = (joint.mu2 + sum((part.epsilon**2 for part in parts), Fraction(0))) / 2
    gaussian = _absorbing_epsilon(normal.sqrt_up(joint.mu2), left)
    return min(joint.epsilon + gaussian, zcdp_epsilon(rho, left)), limit


def fits(joint: Cost, squares: Fraction, epsilon: Fraction, delta: Fraction) -> bool:
    """Whether `total` of entries that have been added up is at most ``epsilon``.

    Much faster than computing the total. False where `total` raises.

    Args:
        joint: the sum of the entries, as `add` makes it.
        squares: the sum of the squares of their pure parts.
    """
    left, gaussian = delta - joint.delta, epsilon - joint.epsilon
    if delta >= 1 or left < 0 or (left == 0 and joint.mu2 > 0):
        return False
    if joint.mu2 == 0 and gaussian >= 0:
        return True
    if left > 0 and zcdp_epsilon((joint.mu2 + squares) / 2, left) <= epsilon:
        return True
    if joint.mu2 == 0 or gaussian <= 0:
        return False
    mu = normal.sqrt_up(joint.mu2)
    return gdp_delta(gaussian, mu) <= left and _steep(gaussian, mu)


def _absorbing_epsilon(mu: Fraction, delta: Fraction) -> Fraction:
    """`gdp_epsilon`, but large enough for d ln δ/dε ≤ -¼ from there on (see the module text)."""
    epsilon = gdp_epsilon(mu, delta)
    return (
        epsilon if _steep(epsilon, mu) else normal.least(lambda x: x >= epsilon and _steep(x, mu))
    )


def _steep(epsilon: Fraction, mu: Fraction) -> bool:
    # With x = ε/μ the quotient of the terms is m(x-μ/2)/m(x+μ/2). Mills' ratio m is log-convex,
    # being a Laplace transform, so the quotient falls as ε grows: steep once, steep ever after.
    first, second = tails(epsilon, mu, DIGITS[0])
    return first.high <= 5 * second.low


def normal_quantile(beta: Real) -> Fraction:
    """z(β): a rational with P(N(0,1) > z) ≤ β, within 2^-39 of the least.

    >>> round(float(normal_quantile(0.025)), 4)
    1.96
    """
    return normal.quantile_up(probability("beta", beta))


def sum_tail(beta: Real, variance: Real, norm2: Real, norm1: Real, terms: int) -> Fraction:
    """x with P(Σ b_i z_i ≥ x) ≤ β for independent discrete Gaussians z_i of parameter s².

    By the Lemma above the probability is at most e^(nκ)·P(Σ b_i round(X_i) ≥ x), and rounding
    moves the sum by at most ½Σ|b_i|. Hence x = s‖b‖₂·z(β·e^(-nκ)) + ½‖b‖₁: for a fine grid the
    normal quantile itself, which is smaller than the sub-Gaussian √(2 ln(1/β)).

    Args:
        beta: the probability, in (0, 1).
        variance: s², in squared grid steps, at least 1.
        norm2: an upper bound of Σ b_i².
        norm1: an upper bound of Σ |b_i|.
        terms: the number n of non-zero b_i.

    Raises:
        ParameterError: an argument is out of range, or the grid is too coarse.
    """
    limit, noise = probability("beta", beta), positive("variance", variance)
    if noise < 1:
        raise ParameterError("variance", variance, "must be at least one squared grid step")
    # (1 - 1/(24s²))^n ≥ 1 - n/(24s²).
    kept = 1 - at_least("terms", terms, 0) / (24 * noise)
    if kept <= Fraction(1, 2):
        raise ParameterError("variance", variance, f"the grid is too coarse for {terms} terms")
    spread = normal.sqrt_up(noise * exact("norm2", norm2))
    return spread * normal_quantile(limit * kept) + exact("norm1", norm1) / 2
