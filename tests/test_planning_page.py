"""The page on planning, run from top to bottom on a real broker."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hushstream.deploy.broker import Broker

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "planning.md"
FENCE = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
PATIENCE = 900


@pytest.mark.thorough
@pytest.mark.broker
def test_an_unseen_csv_becomes_releases(
    broker: Broker, tmp_path: Path, unique: Callable[[str], str]
) -> None:
    raw, deployment, pipeline = unique("trips"), unique("taxis"), unique("zones")
    shutil.copy(ROOT / "examples" / "data" / "taxis.csv", tmp_path)

    def own(text: str) -> str:
        changed = text.replace("localhost:9092", broker.bootstrap).replace("taxi-trips", raw)
        changed = changed.replace('name = "taxis"', f'name = "{deployment}"')
        return changed.replace('name = "zones"', f'name = "{pipeline}"').replace(
            "releases zones", f"releases {pipeline}"
        )

    steps = [(kind, own(text)) for kind, text in FENCE.findall(PAGE.read_text("utf-8"))]
    script = ["set -eu", "set -m", 'trap "kill %1 2>/dev/null || true" EXIT']
    for kind, text in steps:
        if kind == "sh":
            script.append(text)
        elif kind == "toml":
            (tmp_path / "page.toml").write_text(text)
            script.append("mv page.toml hush.toml")
    bin_ = Path(sys.executable).parent
    environ = os.environ | {
        "PATH": f"{bin_}:{os.environ['PATH']}", "COLUMNS": "80", "HUSH_ENGINE__PUBLIC_PORT": "0",
        "HUSH_ENGINE__OPERATOR_PORT": "0",
    }  # fmt: skip
    done = subprocess.run(
        ["bash", "-c", "\n".join(script)], cwd=tmp_path, env=environ, capture_output=True,
        text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    first, second = done.stdout.split("ways to go")[1:3]
    assert "HOPELESS" in first and "What helps: 2" in first
    for text in ("one release of each window of 28d", "larger ε"):
        assert text in first
    assert "HOPELESS" not in second.split("2. ")[0]
    assert "6,433 records written, topic created" in done.stdout
    shown = done.stdout[done.stdout.index("records written") :]
    assert "Upper East Side" in shown and "Midtown" in shown
