"""The tests' judge for a deployment on a broker; it shares no code with the product."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from _cluster import Local
from _forget import FIRST

TESTS = Path(__file__).resolve().parents[1] / "tests"
if str(TESTS) not in sys.path:
    sys.path.append(str(TESTS))

from judge.topics import deployment  # noqa: E402


def judge(run: Local) -> dict[str, Any]:
    """Figures of the judge's comparison, and its first objections."""
    first = run.folder / FIRST
    state = first if first.exists() else None
    found = deployment(run.bootstrap, run.toml, run.secret, state=state)
    objections = [f"{name}: {one}" for name, j in found.items() for one in j.objections]
    return {
        "judged": sum(j.rows for j in found.values()),
        "judged_triggers": sum(j.triggers for j in found.values()),
        "judged_pipelines": {name: j.rows for name, j in found.items()},
        "objected": len(objections),
        "objections": objections[:20],
    }
