"""The header of a record batch of format 2, as it is stored and sent."""

from __future__ import annotations

import struct
from typing import NamedTuple

_FIELDS = struct.Struct(">qiibIhiqqqhii")
_LENGTH, _LENGTH_AT = struct.Struct(">i"), 8  # also in earlier formats
SIZE = _FIELDS.size  # bytes of a batch before its records
OVERHEAD = _LENGTH_AT + _LENGTH.size  # bytes that the length does not count
CHECKED_FROM = 21  # the checksum is of all bytes from the attributes on
CODEC = 0x07  # of the attributes; 0: the records are not compressed
APPENDED = 0x08  # of the attributes: the broker's time counts, for all of the batch


class BatchHeader(NamedTuple):
    """The fields of a header, in their order."""

    base: int  # offset of the first record
    length: int  # of all that follows it
    leader_epoch: int
    magic: int
    checksum: int
    attributes: int
    last: int  # offset of the last record, relative to ``base``
    first_time: int  # milliseconds
    latest_time: int
    producer: int
    epoch: int
    sequence: int
    records: int  # number of them

    @classmethod
    def of(cls, batch: memoryview | bytes | bytearray) -> BatchHeader:
        """Read the header of a batch."""
        return cls(*_FIELDS.unpack_from(batch))

    def write(self, batch: bytearray, **changed: int) -> None:
        """Write it over the header of a batch, with some fields changed."""
        _FIELDS.pack_into(batch, 0, *self._replace(**changed))


def end_of(data: bytes, begin: int) -> int:
    """Find where a batch ends that begins at a place, whatever its format."""
    (length,) = _LENGTH.unpack_from(data, begin + _LENGTH_AT)
    return int(begin + OVERHEAD + length)
