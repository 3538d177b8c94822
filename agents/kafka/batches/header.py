"""The header of a record batch of format 2, as it is stored and sent."""

from __future__ import annotations

import struct
from typing import NamedTuple

_FIELDS = struct.Struct(">qiibIhiqqqhii")
_LENGTH, _LENGTH_AT = struct.Struct(">i"), 8  # also in earlier formats
SIZE = _FIELDS.size  # bytes of a batch before its records
OVERHEAD = _LENGTH_AT + _LENGTH.size  # bytes not included in the length
CHECKED_FROM = 21  # the checksum covers all bytes from the attributes on
CODEC = 0x07  # mask of the attributes; 0: the records are not compressed
APPENDED = 0x08  # bit of the attributes: the broker's time applies to the whole batch


class BatchHeader(NamedTuple):
    """The fields of a header, in their order."""

    base: int  # offset of the first record
    length: int  # bytes after this field
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
    records: int  # number of records

    @classmethod
    def of(cls, batch: memoryview | bytes | bytearray) -> BatchHeader:
        """Read the header of a batch."""
        return cls(*_FIELDS.unpack_from(batch))

    def write(self, batch: bytearray, **changed: int) -> None:
        """Overwrite the header of a batch with this one, with some fields changed."""
        _FIELDS.pack_into(batch, 0, *self._replace(**changed))


def end_of(data: bytes, begin: int) -> int:
    """Find the end of the batch, of any format, that begins at ``begin``."""
    (length,) = _LENGTH.unpack_from(data, begin + _LENGTH_AT)
    return int(begin + OVERHEAD + length)
