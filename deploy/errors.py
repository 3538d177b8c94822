"""The one error of local servers; the base class is the product's."""

from __future__ import annotations

from hushstream.mechanisms.errors import HushError


class BrokerError(HushError):
    """The local broker cannot be fetched, started or stopped; the message says what to do."""
