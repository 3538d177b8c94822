"""The two ways of a decoder, separately."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from hushstream.formats.events.decode import Decoded, Decoder, RawRecord
from hushstream.formats.events.views import merged
from hushstream.formats.schemas.schema import Pinned

NONE: Mapping[int, Pinned] = MappingProxyType({})


def one_by_one(
    decoder: Decoder, records: Sequence[RawRecord], known: Mapping[int, Pinned] = NONE
) -> Decoded:
    """All records, decoded by the readers of single records."""
    return decoder._each.decode(records, known)


def by_columns(
    decoder: Decoder, records: Sequence[RawRecord], known: Mapping[int, Pinned] = NONE
) -> Decoded:
    """Records decoded by compiled loops, however few, and by the readers where loops cannot."""
    assert decoder._columns is not None
    found, left = decoder._columns.decode(records, known)
    return merged(found, one_by_one(decoder, [records[n] for n in left.tolist()], known), left)
