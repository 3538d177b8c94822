"""Local differential privacy on the user's own device, with nothing but the standard library.

The folder is one source with two names: ``hushstream.client`` inside the product, and
``hushstream_client`` as a distribution of its own (``pip install hushstream-client``), which needs
no broker, no NumPy, nothing. Device and aggregator therefore share the very same channel tables.

>>> from fractions import Fraction
>>> survey = Survey(epsilon=Fraction(1), bound=Fraction(100), salt="2031-spring")
>>> with ReportStore(":memory:", Budget(Fraction(10))) as store:
...     client = Client(survey, store)
...     first = client.report("alice", slot=1, value=40, theta=512)
...     first == client.report("alice", slot=1, value=41, theta=512)  # a retry: the same bytes
True
"""

from .channels import Hybrid, TwoPoint, Window, exp_above, exp_below
from .report import Client, Report, parse, published_threshold
from .sampling import below
from .store import Budget, ReportStore
from .survey import ReportError, Survey

__all__ = [
    "Budget",
    "Client",
    "Hybrid",
    "Report",
    "ReportError",
    "ReportStore",
    "Survey",
    "TwoPoint",
    "Window",
    "below",
    "exp_above",
    "exp_below",
    "parse",
    "published_threshold",
]
