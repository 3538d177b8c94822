"""Exact privacy accounting: costs of releases, and the noise that a budget affords.

It states costs as rationals, rounded to the safe side. It never sees data or noise.
"""

from .costs import (
    Real,
    add,
    gaussian_cost,
    gaussian_variance,
    gdp_delta,
    gdp_epsilon,
    gdp_mu,
    group_approximate,
    group_gdp,
    group_pure,
    group_zcdp,
    normal_quantile,
    pure_cost,
    sum_tail,
    total,
    tree_levels,
    zcdp_delta,
    zcdp_epsilon,
    zcdp_rho,
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
    "group_gdp",
    "group_pure",
    "group_zcdp",
    "normal_quantile",
    "pure_cost",
    "sum_tail",
    "total",
    "tree_levels",
    "zcdp_delta",
    "zcdp_epsilon",
    "zcdp_rho",
]
