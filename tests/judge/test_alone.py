"""The judge shares no code with the product, and each of its modules is short enough to read."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
BOTH = {"worlds", "outcomes"}  # modules that run the product and the judge
JUDGE = {
    p.stem: p.read_text("utf-8") for p in sorted(HERE.glob("*.py"))
    if not p.stem.startswith("test_") and p.stem not in BOTH
}  # fmt: skip
ALLOWED = {"cryptography", "confluent_kafka", "pyarrow", "fastavro", "google", "jsonschema"}
MOST = 300  # lines


@pytest.mark.parametrize("name", JUDGE)
def test_the_judge_imports_nothing_of_the_product(name: str) -> None:
    for node in ast.walk(ast.parse(JUDGE[name])):
        roots = []
        if isinstance(node, ast.ImportFrom) and node.level == 0:
            roots = [(node.module or "").split(".")[0]]
        elif isinstance(node, ast.ImportFrom):
            own = [node.module] if node.module else [alias.name for alias in node.names]
            assert node.level == 1 and JUDGE.keys() >= set(own)
        elif isinstance(node, ast.Import):
            roots = [alias.name.split(".")[0] for alias in node.names]
        assert ALLOWED | set(sys.stdlib_module_names) >= set(roots)


def test_each_module_can_be_read_at_one_sitting() -> None:
    long = {p.name: n for p in HERE.glob("*.py")
            if (n := len(p.read_text("utf-8").splitlines())) > MOST}  # fmt: skip
    assert long == {}
