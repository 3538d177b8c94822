"""Exact answers of a window, against cells and slots counted by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hushstream.mechanisms.keys import Keys
from hushstream.mechanisms.slots.slots import BUCKETS
from hushstream.mechanisms.truth import Truth, WindowRecords

from .test_contract import CASES


def mechanism(name: str) -> Any:
    """The mechanism of the first case of a kind."""
    return next(case.mechanism for case in CASES if case.name.split("-")[0] == name)


def seen(keys: Keys, value: list[int], sign: list[int]) -> WindowRecords:
    """One record for each key."""
    wide = np.array(value, np.int64)[:, None]
    row = np.arange(len(keys))
    return WindowRecords(keys, row, wide, np.array(sign, np.int8), row)


def code(number: int) -> bytes:
    return number.to_bytes(8, "big")


@pytest.mark.parametrize("name", ["phdstream", "privhp"])
def test_cells_of_any_size_hold_the_records_below_them(name: str) -> None:
    made = mechanism(name)
    finest = 1 << made.domain.bits  # its first cell
    records = seen(Keys.of_codes(np.array([finest, finest + 1, 2 * finest - 1], np.uint64)),
                   [0, 0, 0], [1, 1, -1])  # fmt: skip
    truth = made.truth(records, [code(1), code(2), code(finest)])
    assert truth.held == {code(1): 1, code(2): 2, code(finest): 1} and truth.records == 3
    assert truth.values["count"][code(2)] == 2.0 and not truth.every


@pytest.mark.parametrize(("name", "whole"), [("pak", True), ("tops", False)])
def test_the_first_slot_of_pak_stands_for_its_warmup(name: str, whole: bool) -> None:
    made = mechanism(name)
    last, grid = made.slots.warmup_slots - 1, float(made.slots.grid)
    slot = np.array([0, last, last + 1], np.int64)
    codes = slot * BUCKETS + np.array([0, 1, 1])
    records = seen(Keys.of_codes(codes.astype(np.uint64)), [2, 3, 5], [1, 1, 1])
    truth = made.truth(records, [code(last), code(last + 1)])
    first = (2 + 3 if whole else 3) * grid
    assert truth.values["sum"] == {code(last): first, code(last + 1): 5 * grid}
    assert truth.values["prefix"][code(last + 1)] == first + 5 * grid
    assert truth.held == {code(last): 1, code(last + 1): 1}
    assert made.truth(records, []).held == {}


def test_without_a_rule_nothing_but_the_number_is_known() -> None:
    made = mechanism("topl")
    assert made.truth(seen(Keys.of([b"x"]), [1], [1]), [b""]) == Truth(1, {}, {})
