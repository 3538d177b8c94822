"""The base of mechanisms over points: coordinates in, cells of the domain out."""

from __future__ import annotations

import numpy as np
from hushstream.mechanisms.catalogue import entries
from hushstream.mechanisms.contract import Traits
from hushstream.mechanisms.spatial.domain import Domain
from hushstream.mechanisms.spatial.stream import SpatialStream


class Frame(SpatialStream):
    """The base class alone, without what a family adds."""

    insertions = 1

    @property
    def traits(self) -> Traits:
        return self._traits(1, (), np.dtype([]))


Frame.__abstractmethods__ = frozenset()


def test_records_become_cells_and_what_lies_outside_is_dropped():
    domain = Domain.unit(2, 6)
    made = Frame(domain)
    columns = {name: np.array([0.1, 0.9, 7.0]) for name in made.traits.inputs}
    encoded = made.encode(columns)
    assert encoded.keep.tolist() == [True, True, False]
    codes, inside = domain.locate(columns)
    assert inside.tolist() == [True, True, False]
    assert [encoded.keys.codes()[k] for k in encoded.key[:2]] == codes[:2].tolist()


def test_one_shard_sees_all_points():
    made = Frame(Domain.unit(2, 6))
    assert (made.traits.routing, made.traits.columns, made.traits.lanes) == ("single", 0, 1)
    assert {"phdstream", "privhp"} <= set(entries())
