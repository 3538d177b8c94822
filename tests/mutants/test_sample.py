"""A few fixed mutants in each run of the suite; `make mutants` runs all of them."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from ..tree import ROOT
from .catalogue import load

SOME = (  # each is found within a second or two
    "the-label-lacks-the-charge",
    "a-record-is-one-too-cheap",
    "the-limit-lets-one-epoch-more-pass",
)


def _run(*options: str) -> subprocess.CompletedProcess[str]:
    """Run on one core; the named tests belong to this suite, so they do not run first."""
    command = [sys.executable, "-m", "tests.mutants", "--trust", "--workers", "1", *options]
    command += ["--timeout", "1200"]  # for one mutant, since the machine may be busy
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=3600)


@pytest.mark.slow
def test_some_mutants_of_each_kind_are_killed() -> None:
    done = _run(*(word for name in SOME for word in ("--only", name)))
    assert done.returncode == 0, done.stdout
    said = json.loads(done.stdout.splitlines()[-1])
    assert said == {"mutants": len(SOME), "killed": len(SOME), "survived": 0}


@pytest.mark.thorough
@pytest.mark.slow
def test_a_mutant_that_no_test_finds_is_told(tmp_path) -> None:
    """With unrelated tests, a mutant survives, and the run fails."""
    one = load()[0]
    lists = tmp_path / "lists"
    lists.mkdir()
    text = (
        f'[[mutant]]\nname = "blind"\nfile = "{one.file}"\nold = {json.dumps(one.old)}\n'
        f'new = {json.dumps(one.new)}\nwhy = "."\ntests = ["tests/topics/test_names.py"]\n'
    )
    (lists / "blind.toml").write_text(text, "utf-8")
    done = _run("--lists", str(lists))
    assert done.returncode == 1
    assert json.loads(done.stdout.splitlines()[-1]) == {"mutants": 1, "killed": 0, "survived": 1}
    assert "survived: blind" in done.stdout
