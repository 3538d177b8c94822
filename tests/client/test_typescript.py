"""The TypeScript client: its own tests, and its reports as the aggregator reads them.

From 22.18 on Node runs TypeScript itself; older versions need the compiler, which npm installs.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hushstream.agents.deployment.compile import compile_config
from hushstream.client import Survey, parse, published_threshold
from hushstream.client.survey import RANGE, STEP, VALUE
from hushstream.mechanisms.topl.estimate import Buckets, mean
from hushstream.offline.simulate import simulate
from hushstream.topics.config.load import loads

from ..support import ORIGIN, SECRET
from ..tree import ROOT

SOURCE = ROOT / "client" / "typescript"
STRIPS, OLDEST = (22, 18), (20, 0)
CONFIG = """
[deployment]
name = "test"
[[input]]
name = "events"
topic = "events"
unit = "user"
time = { field = "slot", format = "epoch_s" }
[[pipeline]]
name = "p"
input = "events"
unit_name = "user"
window = { length = "1d", origin = "2019-03-01T00:00:00Z" }
triggers = { every = "6h" }
epoch = "1d"
budget = { epsilon = 4.0 }
aggregate = [{ kind = "mean", field = "minutes", low = 0, high = 100, grid = 0.01 }]
mechanism = { kind = "topl", salt = "Grüße", share = "1/2", buckets = 64, rounds = 1 }
"""


class Built(NamedTuple):
    """The client in its own folder, ready to run."""

    folder: Path
    ending: str  # of the files that Node runs

    def run(self, *arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
        command = ["node", *arguments]
        return subprocess.run(
            command, cwd=self.folder, capture_output=True, text=True, encoding="utf-8",
            timeout=600, **more,
        )  # fmt: skip


def _version() -> tuple[int, ...]:
    if shutil.which("node") is None:
        pytest.skip("Node is not installed: the TypeScript client is not tested here")
    said = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout
    version = tuple(int(part) for part in said.strip().lstrip("v").split(".")[:2])
    if version < OLDEST:
        pytest.skip(f"Node {said.strip()} is older than 20: the TypeScript client is not tested")
    return version


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    version = _version()
    folder = tmp_path_factory.mktemp("typescript") / "odd näme"
    shutil.copytree(SOURCE, folder, ignore=shutil.ignore_patterns("node_modules", "dist"))
    shutil.copy(ROOT / "client" / "vectors.json", folder.parent)
    if version >= STRIPS:
        return Built(folder, "ts")
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is not installed, and this Node does not run TypeScript itself")
    got = subprocess.run([npm, "ci"], cwd=folder, capture_output=True, text=True, timeout=600)
    if got.returncode:
        pytest.skip(f"npm cannot install the TypeScript compiler here: {got.stderr[-300:]}")
    made = subprocess.run([npm, "run", "build"], cwd=folder, capture_output=True, text=True)
    assert made.returncode == 0, made.stdout + made.stderr
    return Built(folder / "dist", "js")


@pytest.mark.thorough
def test_its_own_tests_pass(built: Built) -> None:
    files = [path.as_posix() for path in (built.folder / "test").glob(f"*.test.{built.ending}")]
    assert len(files) == 2
    done = built.run("--test", "--test-reporter=tap", *files)
    assert done.returncode == 0, done.stdout + done.stderr
    counts = dict(line[2:].split() for line in done.stdout.splitlines() if line[:6] == "# pass")
    assert int(counts["pass"]) >= 17


def requests(survey: Survey, slot: int, group: int, theta: int, start: int) -> list[dict[str, Any]]:
    users = [f"Zoë {i}" for i in range(start, 9999) if survey.group(f"Zoë {i}") == group][:60]
    told = {"theta": theta} if group == VALUE else {}
    return [{"user": user, "slot": slot, "value": 20, **told} for user in users]


def reported(
    built: Built, store: Path, survey: Survey, asked: list[dict[str, Any]], budget: int
) -> list[dict[str, Any]]:
    """Reports of the example's device, each checked by the Python client's reader."""
    published = store.with_suffix(".json")
    published.write_text(survey.to_json(), "utf-8")
    script = str(built.folder / "examples" / f"report.{built.ending}")
    lines = "\n".join(json.dumps(one) for one in asked)
    done = built.run(script, str(store), str(published), str(budget), "0", input=lines, check=True)
    made = done.stdout.splitlines()
    for line, one in zip(made, asked, strict=True):
        report = parse(line.encode(), survey)
        assert (report.user, report.slot) == (one["user"], one["slot"])
    return [json.loads(line) for line in made]


def test_its_reports_are_accepted_and_counted(built: Built, tmp_path: Path) -> None:
    """The pipeline's decoder accepts both groups; a repeated request sends the same bytes."""
    config = loads(CONFIG, environ={})
    (source,) = compile_config(config).inputs
    survey = source.pipelines[0].mechanism.survey
    assert survey is not None
    early, late = ORIGIN // 1_000_000, ORIGIN // 1_000_000 + 8 * 3600
    ranged = requests(survey, early, RANGE, 0, 0)
    first = reported(built, tmp_path / "a", survey, ranged, 1000)
    assert reported(built, tmp_path / "a", survey, ranged, 1000) == first
    theta = _theta(survey, simulate(config, first, "events", SECRET)[1].outs)
    assert theta > STEP  # a channel other than Hybrid, which the device must know
    valued = requests(survey, late, VALUE, theta, 0)
    every = first + reported(built, tmp_path / "b", survey, valued, 1000)
    reports, engine = simulate(config, [*every, *first], "events", SECRET)
    assert reports["p"].counts["accepted"] == len(every) == 120
    columns = [np.array([one[name] for one in every]) for name in ("group", "theta", "code")]
    exact, _ = mean(survey, Buckets(*columns, np.ones(120, np.int64)))
    rows = [json.loads(out.value or b"{}") for out in engine.outs["hush.p.releases.v1"]]
    last = [row["values"]["mean"]["value"] for row in rows if "values" in row][-1]
    assert last == float(round((exact or 0) * 100) / Fraction(100))


def _theta(survey: Survey, outs: Any) -> int:
    told = [published_threshold(out.value or b"", survey) for out in outs["hush.p.releases.v1"]]
    return next(step for step in told if step)
