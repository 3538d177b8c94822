"""Records of every recorded pipeline, and the shapes that describe them."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from hushstream.agents.deployment.compile import compile_config
from hushstream.agents.deployment.model import Pipeline
from hushstream.agents.deployment.published.shapes import shapes
from hushstream.formats.values.shape import ValueShape
from hushstream.topics.config.load import loads

from ...recorded.pipelines import outs, text_of

Body = dict[str, Any]
RING = [[0, -1], [2, -1], [2, 1], [0, -1]]
REGION = json.dumps({"type": "MultiPolygon", "coordinates": [[RING]]})
CHANGES = {
    "plain": "",
    "full": '[pipeline.release]\nformat = "full"\ndisplay = "non-negative"\n',
    "region": f"region = '''{REGION}'''\n",
}


def pipeline(case: str, change: str = "plain") -> Pipeline:
    """The compiled pipeline of a case."""
    (one,) = compile_config(loads(text_of(case) + CHANGES[change], environ={})).pipelines
    return one


@cache
def bodies(case: str, change: str = "plain") -> list[tuple[str, Body]]:
    """Header and body of each record that a case releases."""
    released, _ = outs(case, CHANGES[change])
    return [(out.headers[0][0], json.loads(out.value or b"")) for out in released]


@cache
def described(case: str, change: str = "plain") -> dict[str, ValueShape]:
    """The shapes of a case's records, by header."""
    return dict(shapes(pipeline(case, change)))
