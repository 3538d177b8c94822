"""One error tree: the drawing agrees with the code, and each kind has a documented exit code."""

from __future__ import annotations

import re
from importlib import import_module

import pytest
from hushstream import errors
from hushstream.cli.group import exit_code
from hushstream.errors import ExtraError, HushError, ParameterError, RecordError, needs

KINDS = {
    name: kind
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, HushError) and kind is not HushError
}


def test_the_tree_is_the_one_that_is_drawn() -> None:
    assert errors.__doc__ is not None
    drawn = re.findall(r"^([ │]*)[├└]── (\w+)", errors.__doc__, re.MULTILINE)
    assert [name for _, name in drawn] == list(KINDS)
    above: dict[int, str] = {}
    for indent, name in drawn:
        parent = above.get(len(indent) - 5, "HushError")
        assert KINDS[name].__bases__[0].__name__ == parent
        above[len(indent)] = name


def test_what_a_person_can_correct_ends_with_2() -> None:
    made = {name: kind.__new__(kind) for name, kind in KINDS.items()}
    codes = {name: exit_code(error) for name, error in made.items()}
    assert {name for name, code in codes.items() if code == 2} == {
        "ConfigError", "ExtraError", "ParameterError",
    }  # fmt: skip
    assert {name for name, code in codes.items() if code == 3} == {"LedgerError"}
    assert set(codes.values()) == {2, 3, 4}


def test_messages_name_parameter_and_value() -> None:
    error = ParameterError("epsilon", -1, "must be positive")
    assert str(error) == "epsilon = -1: must be positive"
    assert isinstance(error, ValueError)
    assert str(RecordError("malformed")) == "malformed"
    assert str(RecordError("malformed", "no JSON")) == "malformed: no JSON"


def test_a_missing_part_is_named_and_other_failures_pass() -> None:
    said = r"^nowhere is not installed: .*'hushstream\[plot\]'$"
    with pytest.raises(ExtraError, match=said), needs("plot"):
        import_module("nowhere.at_all")
    with pytest.raises(ZeroDivisionError), needs("plot"):
        _ = 1 / 0
