"""The commands that people and machines are told to run exist and are the same everywhere."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from .tree import ROOT

MAKEFILE = (ROOT / "Makefile").read_text("utf-8")
TARGETS = set(re.findall(r"^([a-z0-9]+):", MAKEFILE, re.MULTILINE))


def _yaml(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text("utf-8"))


def test_every_target_is_listed_and_explained() -> None:
    done = subprocess.run(["make", "-s", "help"], cwd=ROOT, capture_output=True, text=True)
    assert {line.split()[1] for line in done.stdout.splitlines()} == TARGETS
    phony = re.search(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)
    assert phony is not None
    assert set(phony[1].split()) == TARGETS


def test_one_gate_is_called_by_every_machine() -> None:
    assert (
        (ROOT / ".ci" / "run")
        .read_text("utf-8")
        .rstrip()
        .endswith("make --no-print-directory test")
    )
    steps = _yaml(".github/workflows/ci.yml")["jobs"]["test"]["steps"]
    assert [step["run"] for step in steps if "run" in step] == ["make test"]


def test_the_hosted_gate_runs_on_every_python_that_the_package_names() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    named = [line.split(" :: ")[2] for line in project["classifiers"] if " :: Python :: " in line]
    matrix = _yaml(".github/workflows/ci.yml")["jobs"]["test"]["strategy"]["matrix"]["python"]
    assert matrix == named
    assert project["requires-python"] == f">={named[0]}"


def test_hooks_are_local_and_call_what_the_gate_calls() -> None:
    (repository,) = _yaml(".pre-commit-config.yaml")["repos"]
    assert repository["repo"] == "local"
    entries = [hook["entry"] for hook in repository["hooks"]]
    assert all(hook["language"] == "system" for hook in repository["hooks"])
    tools = {re.sub(r"^\.venv/bin/", "$(BIN)/", entry).split(" --")[0] for entry in entries[:2]}
    assert all(f"@{tool}" in MAKEFILE for tool in tools)
    assert entries[2].split()[-1] in TARGETS


def test_commands_of_the_pages_are_targets() -> None:
    for name in ("CONTRIBUTING.md", "README.md", ".pre-commit-config.yaml"):
        text = (ROOT / name).read_text("utf-8")
        blocks = re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        said = re.findall(r"`(make [a-z0-9 ]+)", text)
        said += [line for block in blocks for line in block.splitlines() if line[:5] == "make "]
        for line in said:
            words = re.match(r"make ((?:[a-z0-9]+ ?)*)", line)
            assert words is not None
            assert set(words[1].split()) <= TARGETS, line


SHARED = """
import os, pytest
@pytest.fixture(scope="module")
def made(): ...
@pytest.mark.parametrize("n", range(12))
def test_it(made, n):
    open(os.environ["PIDS"], "a").write(f"{os.getpid()}\\n")
"""


@pytest.mark.thorough
def test_what_shares_a_fixture_stays_in_one_process(tmp_path: Path) -> None:
    """Otherwise each process would make the fixture, and dependent tests would be split up."""
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = broker\n slow\n")
    found = {}
    for name, text in (("shared", SHARED), ("single", SHARED.replace('(scope="module")', ""))):
        (tmp_path / "test_it.py").write_text(text)
        out = tmp_path / name
        command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadgroup"]
        command += ["-p", "tests.conftest", "-p", "no:cacheprovider", "-p", "no:randomly"]
        done = subprocess.run(
            [*command, "--rootdir", str(tmp_path), "-c", str(tmp_path / "pytest.ini"), tmp_path],
            cwd=ROOT, env=os.environ | {"PIDS": str(out)}, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        found[name] = out.read_text().split()
    assert [len(pids) for pids in found.values()] == [12, 12]
    assert (len(set(found["shared"])), len(set(found["single"]))) == (1, 2)


LONGEST_SLEEP = 3.0  # seconds; a test of the gate waits for a condition, or for less time


def _seconds(node: ast.expr) -> float:
    """The value of an expression of literals; 0.0 if it has names."""
    if isinstance(node, ast.IfExp):
        return max(_seconds(node.body), _seconds(node.orelse))
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return float(node.value)
    return 0.0


def _long_sleeps(node: ast.AST) -> Iterator[int]:
    """Lines with literal sleeps that are too long, outside tests that the gate leaves out."""
    if "pytest.mark.thorough" in map(ast.unparse, getattr(node, "decorator_list", ())):
        return
    if isinstance(node, ast.Call) and node.args:
        name = ast.unparse(node.func).rpartition(".")[2]
        if name == "sleep" and _seconds(node.args[0]) > LONGEST_SLEEP:
            yield node.lineno
    for child in ast.iter_child_nodes(node):
        yield from _long_sleeps(child)


def test_no_test_of_the_gate_sleeps_long() -> None:
    """Tests in `tests/cluster` run only after `make cluster` has built an API server."""
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        if "cluster" not in path.relative_to(ROOT).parts
        and "sleep" in (text := path.read_text("utf-8"))
        for line in _long_sleeps(ast.parse(text))
    ]
    assert found == []


def test_a_long_sleep_would_be_seen() -> None:
    text = """
def test_a():
    time.sleep(3.5)
async def test_b():
    await asyncio.sleep(2 if quick else 20)
@pytest.mark.thorough
def test_c():
    time.sleep(60)
def test_d():
    time.sleep(3.0)
    time.sleep(away)
"""
    assert list(_long_sleeps(ast.parse(text))) == [3, 5]
