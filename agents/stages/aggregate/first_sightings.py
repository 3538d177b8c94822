"""Pairs of key and value seen in a window: each counts in the first micro-batch that has it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ....mechanisms.columns import Part
from ....mechanisms.pairs import PAIR, pairs_of, settled
from ....topics.frames import take_part
from ...state.layout import pairs_of as rows_of_pairs
from ...state.store import Changes, StateReader


class Sighted(NamedTuple):
    """Pairs of some rows, looked up."""

    part: Part  # sums of new pairs by key
    rows: Changes  # changes that mark them as known


def sighted(reader: StateReader, window: int, part: Part) -> Sighted:
    """Look up the pairs among merged rows of a closed micro-batch, or of a range of its names."""
    pairs = take_part(part, pairs_of(part))
    prefix = rows_of_pairs(window)
    names = [prefix + name for name in pairs.key]
    known = reader.get_many(names)
    new = np.fromiter((value is None for value in known), np.bool_, len(names))
    rows: Changes = {name: b"" for name, fresh in zip(names, new.tolist(), strict=True) if fresh}
    return Sighted(settled(pairs, new), rows)


def of_keys(part: Part) -> Part:
    """Leave out rows that name pairs."""
    return take_part(part, np.flatnonzero(part.lane < PAIR))
