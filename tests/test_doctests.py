"""The examples in docstrings run; each module is imported under one name."""

from __future__ import annotations

import doctest
import importlib

import pytest

from .tree import modules, name_of, paths

EXAMPLES = [name_of(path) for path in paths() if ">>> " in path.read_text("utf-8")]


@pytest.mark.parametrize("folder", sorted({name.rpartition(".")[0] for name in modules()}))
def test_each_module_can_be_imported(folder: str) -> None:
    for name in modules():
        if name.rpartition(".")[0] == folder:
            assert importlib.import_module(name).__name__ == name


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_are_true(name: str) -> None:
    module = importlib.import_module(name)
    assert doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE).failed == 0
