"""The version of both distributions, product and client: defined only here."""

__version__ = "0.1.0"
