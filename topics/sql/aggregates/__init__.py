"""Aggregates of a query: counts, sums, cases, spreads, quantiles."""
