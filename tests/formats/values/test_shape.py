"""Shapes of public constants, and names that registries allow."""

from __future__ import annotations

import msgspec
import pytest
from hushstream.formats.values.shape import (
    NUMBER,
    TEXT,
    TRUTH,
    WHOLE,
    ValueShape,
    listed,
    maybe,
    namespace,
    plain_names,
    record,
    shape_of,
)


def test_constants_have_shapes() -> None:
    value = {"n": 1, "x": 0.5, "s": "", "t": True, "of": {"l": [1, 2.5]}, "e": [], "no": None}
    assert shape_of(value, "B") == record(
        "B",
        [
            ("n", WHOLE), ("x", NUMBER), ("s", TEXT), ("t", TRUTH),
            ("of", record("BOf", [("l", listed(NUMBER))])), ("e", listed(NUMBER)),
            ("no", maybe(TEXT)),
        ],
    )  # fmt: skip
    assert shape_of([1, 2], "L") == listed(WHOLE)
    assert shape_of([["a"]], "L") == listed(listed(TEXT))
    for wrong in ([1, "a"], object(), [1.5, True]):
        with pytest.raises(TypeError):
            shape_of(wrong, "W")


def test_allowed_names_are_distinct_and_distinct_in_generated_code() -> None:
    assert plain_names(["é", "e\n", "", "a-b", "aB", "A_b"]) == [
        "x_", "e_", "x_2", "a_b", "aB_2", "A_b_3",
    ]  # fmt: skip
    assert namespace("a-1") == "hush.a_1"


def test_a_shape_is_itself_again_after_json() -> None:
    made = record("R", [("a", maybe(listed(TEXT))), ("b", record("S", []))], "Words.")
    assert msgspec.json.decode(msgspec.json.encode(made), type=ValueShape) == made
