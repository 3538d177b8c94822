"""Redirects what libraries print after a test into a file, so that a green run is silent.

librdkafka's threads outlive the tests that made them and write straight to standard error. In a
process of a parallel run, that is a file in the folder ``.build``. A test's own output is captured
and shown with its failure. pytest imports this module before it captures anything.
"""

from __future__ import annotations

import os
import sys

from .tree import ROOT

# jsonschema would compile 38 grammars of addresses, for 5 s, although no test checks addresses.
sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]

if process := os.environ.get("PYTEST_XDIST_WORKER"):
    folder = ROOT / ".build"
    folder.mkdir(exist_ok=True)
    file = os.open(folder / f"stderr-{process}.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(file, 2)
    os.close(file)
