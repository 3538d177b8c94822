"""Exact privacy accounting: costs of releases, and the noise that a budget affords.

It states costs as rationals, rounded to the safe side. It never sees data or noise.
"""

from ._conversions import (
    Real,
    gdp_delta,
    gdp_epsilon,
    gdp_mu,
    group_approximate,
    zcdp_epsilon,
    zcdp_rho,
)
from .costs import (
    add,
    gaussian_cost,
    gaussian_variance,
    normal_quantile,
    sum_tail,
    total,
    tree_levels,
)

__all__ = [
    "Real",
    "add",
    "gaussian_cost",
    "gaussian_variance",
    "gdp_delta",
    "gdp_epsilon",
    "gdp_mu",
    "group_approximate",
    "normal_quantile",
    "sum_tail",
    "total",
    "tree_levels",
    "zcdp_epsilon",
    "zcdp_rho",
]
