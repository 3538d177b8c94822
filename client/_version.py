"""The version of both distributions, the product and its client: it stands here alone."""

__version__ = "0.1.0"
