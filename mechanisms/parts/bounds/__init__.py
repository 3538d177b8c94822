"""Contribution bounds: applied, planned and stated; purses; what a bound cuts from a map."""
