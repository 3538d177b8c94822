"""The example of five pipelines fits into twenty topics, and shares none that outsiders read.

On a broker it runs in `integration/test_shared_topics.py`.
"""

from __future__ import annotations

import json
from pathlib import Path

from .cli.bench import typed

EXAMPLE = Path(__file__).parents[1] / "examples" / "taxis" / "hush.toml"


def test_five_pipelines_fit_into_twenty_topics() -> None:
    code, out, _ = typed("topics", "--print", "--json", "-c", str(EXAMPLE))
    topics = json.loads(out)["topics"]
    assert code == 0 and len(topics) <= 20
    own = [one for one in topics if one["pipeline"]]
    assert len({one["pipeline"] for one in own}) == 5
    assert not any(one["internal"] for one in own)  # outsiders read no shared topic
    planned = json.loads(typed("plan", "--json", "-c", str(EXAMPLE))[1])
    assert planned["topics"] == len(topics)
    assert planned["partitions"] == sum(one["partitions"] for one in topics)
    apart = ["--set", "deployment.shared_topics=false"]
    each = json.loads(typed("topics", "--print", "--json", "-c", str(EXAMPLE), *apart)[1])["topics"]
    assert len(each) == 42
