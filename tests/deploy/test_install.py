"""Installation of a lock file: uv is tried first, then pip."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STUB = """#!/bin/sh
echo "{name} $*" >> "{log}"
case "$*" in *{fails}*) exit 1;; esac
"""


@pytest.mark.parametrize(
    "broken,code,tools",
    [
        ("nothing", 0, ["python", "uv"]),
        ("uv pip", 0, ["python", "uv", "python"]),
        ("the.lock", 1, ["python", "uv", "python"]),
    ],
)
def test_pip_does_what_uv_cannot(tmp_path: Path, broken: str, code: int, tools: list[str]) -> None:
    log, folder = tmp_path / "log", tmp_path / "bin"
    folder.mkdir()
    for name in ("python", "uv"):
        fails = {"nothing": "%", "uv pip": "%" if name == "python" else "pip"}.get(broken, broken)
        (folder / name).write_text(STUB.format(name=name, log=log, fails=fails))
        (folder / name).chmod(0o755)
    command = ["sh", "deploy/install.sh", str(tmp_path), "the.lock"]
    assert subprocess.run(command, cwd=ROOT, check=False).returncode == code
    lines = log.read_text().splitlines()
    assert [line.split()[0] for line in lines] == tools
    assert all("--require-hashes" in line for line in lines)
    assert lines[-1].endswith("the.lock")
