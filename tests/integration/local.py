"""The benchmarks' helpers that run whole deployments, for tests."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from hushstream.deploy.process import Child

from .forked import Forked, started

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
if str(BENCHMARKS) not in sys.path:
    sys.path.append(str(BENCHMARKS))

import _cage  # noqa: E402
import _chaos  # noqa: E402
import _cluster  # noqa: E402
import _outage  # noqa: E402
import _trio  # noqa: E402
import _unwell  # noqa: E402
import chaos  # noqa: E402
import floods  # noqa: E402,F401

BROKER = _chaos.BROKER
cage = _cage
TOLD = _unwell.TOLD
Local = _cluster.Local
local = _cluster.local
Process = Child | Forked
process = started if os.environ.get("STARTED") == "forked" else Child  # starts a `hush` process
Local.process = staticmethod(process)
Pace = chaos.Pace
Trio = _trio.Trio
buffered = _outage.buffered
run_chaos = chaos.chaos
