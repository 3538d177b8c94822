"""The examples in docstrings run; each module is imported under its one name."""

from __future__ import annotations

import doctest
import importlib

import pytest

from .tree import modules


@pytest.mark.parametrize("name", modules())
def test_examples_are_true(name: str) -> None:
    module = importlib.import_module(name)
    flags = doctest.NORMALIZE_WHITESPACE
    assert doctest.testmod(module, optionflags=flags).failed == 0
