"""Pipelines of every mechanism over one small stream, and the digests of what they release.

A recorded release is a promise to users who hold releases of an earlier version: the same logs, key
and configuration give the same bytes. Run ``python tests/recorded/pipelines.py`` only for
a change that the changelog marks **noise**, **topics** or **guarantee**.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
from hushstream.agents.stages.step import Out
from hushstream.offline.simulate import simulate
from hushstream.topics.config.load import loads

RECORDED = Path(__file__).with_name("releases.json")
SECRET = bytes(range(32))
TOPICS = ("hush.{}.releases.v1", "hush.{}.latest.v1")
HOUR = 3_600_000_000
ORIGIN = 17956 * 24 * HOUR  # 2019-03-01

HEAD = """
[deployment]
name = "recorded"
[engine]
units_partitions = 2
cells_partitions = 2
[[input]]
name = "trips"
topic = "trips"
unit = "user"
partitioner = "{partitioner}"
time = {{ field = "t", format = "epoch_us" }}
"""
COMMON = """
[[pipeline]]
name = "{name}"
input = "trips"
unit_name = "user"
{window}
budget = {{ epsilon = 4.0, delta = 1e-6 }}
"""
WINDOW = 'window = { length = "8h", origin = "2019-03-01T00:00:00Z" }\ntriggers = { every = "2h" }'
ONCE = WINDOW.replace("2h", "8h")
HOPS = WINDOW.replace('length = "8h"', 'length = "8h", hop = "2h"')
ARRIVAL = "window = { horizon = 4 }"
EVERY = 'triggers = { every = "2h" }'
KEYS = 'key = ["zone"]\n'
SUMS = """aggregate = [
  { kind = "count" }, { kind = "sum", field = "fare", low = 0, high = 100 },
  { kind = "mean", field = "fare", low = 0, high = 100 },
]
"""
SOME = """aggregate = [
  { kind = "count" }, { kind = "count", name = "cheap", where = [{ field = "fare", below = 9 }] },
  { kind = "sum", field = "fare", low = -5, high = 50, where = [{ field = "zone", like = "z1%" }] },
  { kind = "count", name = "dear", where = [{ field = "fare", at_least = 9 }] },
]
"""
SPREAD = """aggregate = [
  { kind = "variance", field = "fare", low = 0, high = 100 },
  { kind = "stddev", field = "fare", low = 0, high = 100, sample = true },
]
"""
CHEAP = 'field = "fare", low = 0, high = 9, grid = 0.5, where = [{ field = "fare", below = 9 }]'
DEAR = 'field = "fare", low = 9, high = 50, where = [{ field = "fare", at_least = 9 }]'
SPREADS = f"""aggregate = [
  {{ kind = "variance", name = "cheap", {CHEAP} }},
  {{ kind = "stddev", name = "dear", sample = true, {DEAR} }}, {{ kind = "sum", {DEAR} }},
]
"""
SPATIAL = """
inputs = {{ x = "at.x", y = "at.y" }}
{more}
[pipeline.mechanism]
kind = "{kind}"
{settings}
[pipeline.mechanism.domain]
depth = {depth}
split = "{split}"
axes = [{{ name = "x", low = 0, high = 2 }}, {{ name = "y", low = -1, high = 1 }}]
"""
VALUES = """
inputs = {{ value = "fare" }}
aggregate = [{{ kind = "sum", field = "fare", low = 0, high = 100 }}]
[pipeline.mechanism]
kind = "{kind}"
slot = 3_600_000_000
slots_per_trigger = 2
origin = 1_551_398_400_000_000
expected = 400
{settings}
"""
MECHANISM = "[pipeline.mechanism]\n"
LISTED = 'public_keys = [["z0"], ["z1"], ["z9"]]\n'
QUANTILE = KEYS + 'inputs = { value = "fare" }\n' + MECHANISM
QUANTILE += 'kind = "quantile"\nlow = 1\nhigh = 100\n'
HISTOGRAM = MECHANISM + 'kind = "histogram"\n'

# Lines after the pipeline's head, by case; `text_of` makes further cases from these.
SETTINGS: dict[str, str] = {
    "histogram-plain": KEYS + HISTOGRAM,
    "histogram-sums": KEYS + SUMS + HISTOGRAM + "budget = 6\n",
    "histogram-public": KEYS + LISTED + HISTOGRAM + "budget = 4\n",
    "histogram-tree": KEYS + HISTOGRAM + 'factorization = "tree"\nadaptive_weight = 0\n',
    "histogram-rounds": KEYS + HISTOGRAM + 'selection = "rounds"\n',
    "histogram-debiased": KEYS + HISTOGRAM + "debias = true\ndebias_cap = 8\n",
    "histogram-records": KEYS + HISTOGRAM + 'bound = "per-key"\nper_key = 2\nbudget = 6\n',
    "histogram-conditions": KEYS + SOME + HISTOGRAM + "budget = 6\n",
    "histogram-spread": KEYS + 'sign = "gone"\n' + LISTED + SPREAD + HISTOGRAM,
    "histogram-spread-conditions": KEYS + SPREADS + HISTOGRAM + "budget = 6\n",
    "histogram-users": KEYS + HISTOGRAM + "min_users = 3\n",
    "phdstream": SPATIAL.format(
        kind="phdstream", depth=3, split="all", more='sign = "gone"',
        settings='bound = 2\ndeletions = true\nfloor = 2\nstart = "as later"'),
    "phdstream-defaults": SPATIAL.format(
        kind="phdstream", depth=3, split="all", more="", settings=""),
    "phdstream-tree": SPATIAL.format(
        kind="phdstream", depth=3, split="all", more="", 
        settings='counter = "tree"\nstart = "as later"'),
    "phdstream-matrix": SPATIAL.format(
        kind="phdstream", depth=3, split="all", more="", settings='counter = "matrix"'),
    "phdstream-private": SPATIAL.format(
        kind="phdstream", depth=3, split="all", more="", settings='selection = "private"'),
    "privhp": SPATIAL.format(kind="privhp", depth=8, split="binary", more="", settings="k = 16"),
    "privhp-gauss": SPATIAL.format(
        kind="privhp", depth=8, split="binary", more="", settings='k = 16\nnoise = "gauss"'),
    "pak": VALUES.format(kind="pak", settings=""),
    "pak-ranks": VALUES.format(kind="pak", settings='threshold = "noisy-max"'),
    "pak-matrix": VALUES.format(kind="pak", settings='counter = "matrix"'),
    "pak-anew": VALUES.format(
        kind="pak", settings='relearn = 1\ncounter = "hierarchy"\nsliding = 3\ndecay = 0.75'
    ),
    "tops-anew": VALUES.format(kind="tops", settings="relearn = 1\nwatch = 0.1"),
    "pak-smooth": VALUES.format(kind="pak", settings='threshold = "smooth"'),
    "tops": VALUES.format(
        kind="tops", settings="fanout = 16\nheight = 1\nskip = 0\nexcess = 12.5"),
    "quantile": QUANTILE + 'at = [0.25, 0.5, 0.95]\nbudget = 6\nbands = 64\n',
    "quantile-public": QUANTILE.replace(KEYS, KEYS + 'sign = "gone"\n' + LISTED)
    + 'spacing = "log"\nbound = "per-key"\nper_key = 2\nbudget = 6\n',
    "tops-defaults": VALUES.format(kind="tops", settings=""),
    "activity": KEYS + 'sign = "gone"\n' + LISTED + MECHANISM + 'kind = "activity"\nmost = 16\n',
}  # fmt: skip

SURVEY = """
[deployment]
name = "recorded"
[[input]]
name = "trips"
topic = "trips"
unit = "user"
time = { field = "slot", format = "epoch_s" }
[[pipeline]]
name = "topl"
input = "trips"
unit_name = "user"
window = { length = "1d", origin = "2019-03-01T00:00:00Z" }
triggers = { every = "6h" }
epoch = "2d"
budget = { epsilon = 8.0 }
aggregate = [{ kind = "mean", field = "minutes", low = 0, high = 400, grid = 0.01 }]
mechanism = { kind = "topl", reports = 2, period = 172800, share = "1/4", buckets = 64 }
"""


SURVEYS = {
    "topl": "",
    "topl-hybrid": ', channel = "hybrid"',
    "topl-plain": ', beyond = false, guard = 1.0, channel = "hybrid"',
}


def rows(n: int = 4000, seed: int = 7) -> list[dict[str, Any]]:
    """Trips of two windows: Zipf users and zones, places in one corner, some of them deleted."""
    draw = np.random.default_rng(seed)
    user = np.minimum(draw.zipf(1.4, n), 300)
    zone = np.minimum(draw.zipf(1.5, n), 200)
    place = (draw.beta(1, 6, (n, 2)) * 2 - [0, 1]).round(6)
    time = np.sort(draw.integers(0, 16 * HOUR, n)) + ORIGIN
    fare = draw.exponential(12, n).round(2)
    return [
        {"user": f"u{u}", "zone": f"z{z}", "at": {"x": x, "y": y}, "t": t, "fare": f,
         "gone": i % 9 == 8}
        for i, (u, z, (x, y), t, f) in enumerate(
            zip(user.tolist(), zone.tolist(), place.tolist(), time.tolist(), fare.tolist(),
                strict=True))
    ]  # fmt: skip


def values(n: int = 3000, seed: int = 8) -> list[dict[str, Any]]:
    """One value of each device, in two windows."""
    draw = np.random.default_rng(seed)
    slot = ORIGIN // 1_000_000 + draw.integers(0, 2 * 86_400, n)
    minutes = draw.gamma(3, 4, n).round(3)
    return [
        {"user": f"u{i}", "slot": s, "minutes": m}
        for i, (s, m) in enumerate(zip(slot.tolist(), minutes.tolist(), strict=True))
    ]


def cases() -> list[str]:
    """Names of all recorded cases."""
    return [*SETTINGS, "histogram-direct", "histogram-arrival", "histogram-hopping", *SURVEYS]


def text_of(case: str) -> str:
    """The configuration of a case."""
    if case in SURVEYS:
        text = SURVEY.replace("64 }", f"64{SURVEYS[case]} }}")
    else:
        base = {
            "histogram-direct": "histogram-debiased", "histogram-arrival": "histogram-plain",
            "histogram-hopping": "histogram-sums",
        }  # fmt: skip
        windows = {
            "histogram-arrival": f"{ARRIVAL}\n{EVERY}", "histogram-hopping": HOPS, "activity": ONCE,
        }  # fmt: skip
        window = windows.get(case, WINDOW)
        partitioner = "crc32" if case == "histogram-direct" else "none"
        text = HEAD.format(partitioner=partitioner)
        text += COMMON.format(name=case, window=window) + SETTINGS[base.get(case, case)]
    return text


def outs(case: str, more: str = "") -> tuple[list[Out], list[Out]]:
    """Every record that a case publishes to its release topic and to its latest topic.

    Args:
        case: name of the case.
        more: further lines of the pipeline's configuration.
    """
    config = loads(text_of(case) + more, environ={})
    data = values() if case in SURVEYS else rows()
    _, engine = simulate(config, data, "trips", SECRET)
    name = "topl" if case in SURVEYS else case
    releases, latest = (engine.outs[topic.format(name)] for topic in TOPICS)
    return releases, latest


def released(case: str) -> list[bytes]:
    """The published records of a case, as one line each."""
    releases, latest = outs(case)
    return [_line(out) for out in (*releases, *latest)]


def _line(out: Out) -> bytes:
    """A record with everything that a reader can see."""
    headers = b",".join(b"%b=%b" % (name.encode(), value) for name, value in out.headers)
    place = b"%d|%d|%b" % (out.partition, out.timestamp or 0, headers)
    return b"%b|%b|%b" % (place, out.key or b"", out.value or b"")


def digests(case: str) -> dict[str, Any]:
    """Number of records that a case publishes, and the digest of each hundred of them."""
    lines = released(case)
    parts = [b"\n".join(lines[i : i + 100]) for i in range(0, len(lines), 100)]
    return {
        "records": len(lines),
        "manifests": sum(b"hush-manifest=" in line for line in lines),
        "sha256": [hashlib.sha256(part).hexdigest()[:16] for part in parts],
    }


def main() -> None:
    """Record all cases again."""
    made = {case: digests(case) for case in cases()}
    RECORDED.write_text(json.dumps(made, indent=1) + "\n")
    for case, found in made.items():
        print(f"{case:24} {found['records']:6} records")


if __name__ == "__main__":
    main()
