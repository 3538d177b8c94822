"""The drills run the commands that the runbooks of docs/operations.md tell operators to run."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from hushstream.topics.config.load import loads

from ..tree import ROOT

PAGE = (ROOT / "docs/operations.md").read_text()


def commands(section: str) -> list[str]:
    """The text in backquotes in the numbered steps of a section."""
    text = PAGE.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    steps = "\n".join(line for line in text.splitlines() if re.match(r"\d\. |   ", line))
    return re.findall(r"`((?:hush|find) [^`]+)`", steps.replace("\n   ", " "))


def test_the_crash_loop_is_drilled_command_by_command() -> None:
    drill = (ROOT / "tests/integration/test_lost.py").read_text()
    named = commands("Out of a crash loop")
    assert {"hush accept-loss", "hush accept-loss --yes"} <= set(named)
    for one in named:
        words = one.removeprefix("hush ").replace(" --member NAME", "").split()
        assert ", ".join(f'"{word}"' for word in words) in drill, one


def test_the_setting_of_the_gap_after_an_outage_is_one() -> None:
    (said,) = [one for one in commands("A gap after an outage") if "--set" in one]
    name, _, value = said.partition("--set engine.")[2].partition("=")
    config = loads(f'[engine]\n{name} = "{value}"\n', environ={})
    assert config.engine.settle == 120_000_000


PACKAGE = """"$(python -c 'import hushstream; print(hushstream.__path__[0])')\""""


@pytest.mark.parametrize("step", [0, 1])
def test_the_cache_is_deleted_and_nothing_else(tmp_path: Path, step: int) -> None:
    named = [one for one in commands("A cache that ends the worker") if "find" in one]
    assert PACKAGE in named[1]
    command = named[step].replace(PACKAGE, str(tmp_path)).replace("DATA_DIR", str(tmp_path))
    kept = tmp_path / "w" / "5eed" / "table" / "0" / "CURRENT"
    cache = tmp_path / "w" / "compiled" / "sub"
    for folder in (kept.parent, cache):
        folder.mkdir(parents=True)
    kept.write_bytes(b"state")
    for name in ("scan.f-1.py311.nbi", "scan.f-1.py311.1.nbc"):
        (cache / name).write_bytes(b"damaged")
    subprocess.run(command, shell=True, check=True)
    assert kept.read_bytes() == b"state"
    assert list(cache.glob("*.nb*")) == []


def test_the_place_of_the_package_is_found_as_the_runbook_says() -> None:
    words = PACKAGE.partition("-c '")[2].partition("'")[0]
    done = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=True)
    assert Path(done.stdout.strip(), "agents", "worker").is_dir()
