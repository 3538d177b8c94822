"""Inflates compressed batches a portion at a time, with a limit on the whole.

A hundred kilobytes may inflate to gigabytes. aiokafka inflates a batch at once, in the thread that
also sends the group's heartbeats: such a batch would exhaust the worker's memory and cost its
membership. So a batch is first inflated up to `MOST` without keeping anything. A larger batch
yields a single `Unread` record in place of its records. Any other batch is inflated again in
portions of `PORTION` bytes, and a record larger than the partition allows is replaced in the same
way. Both decisions depend only on the stored batch and the pinned configuration, so a replay
repeats them.

A batch beyond `MOST` is lost whole, so records of one unit may take those of others with them, as
a malformed batch would. The contribution bound does not cover that: neighbours' streams are in
batches on the same side of the limit. A producer with its usual limits sends none beyond it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import cramjam
import pyarrow as pa
from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import DefaultRecord
from aiokafka.record.util import decode_varint

from ....formats.events.reasons import Unread
from .header import CODEC, OVERHEAD, SIZE, BatchHeader

MOST = 128 << 20  # bytes of one batch; no input allows larger records
PORTION = 1 << 20
_PREFIX = 32  # first bytes of a record, which contain its offset
_STREAMS = {1: "gzip", 3: "lz4", 4: "zstd"}
_SNAPPY = 2
_SNAPPY_RATIO = 24  # a copy of 64 bytes takes 3
_XERIAL = b"\x82SNAPPY\0"
_XERIAL_HEADER = 16
_SIZE = struct.Struct(">i")  # a block's size, which precedes it


@dataclass
class Allowed:
    """The limits for reading batches of one partition."""

    largest: int = MOST  # bytes of a record in a compressed batch; larger ones are `Unread`
    # whether whole batches are read into arrays, without an object per record
    columns: bool = False


def pieces(codec: int, data: memoryview) -> Iterator[bytes]:
    """Yield the inflated bytes of a batch's records, about `PORTION` at a time.

    Raises:
        CorruptRecordException: the bytes do not fit the codec.
    """
    try:
        if codec == _SNAPPY:
            yield from _snappy(data)
            return
        stream = pa.CompressedInputStream(pa.BufferReader(data), _STREAMS[codec])
        while piece := stream.read(PORTION):
            yield piece
    except (KeyError, OSError, ValueError, struct.error, cramjam.DecompressionError) as error:
        raise CorruptRecordException(f"a compressed batch: {type(error).__name__}") from error


def _snappy(data: memoryview) -> Iterator[bytes]:
    if bytes(data[: len(_XERIAL)]) != _XERIAL:
        yield _block(data)
        return
    at = _XERIAL_HEADER
    while at < len(data):
        (size,) = _SIZE.unpack_from(data, at)
        at += _SIZE.size
        yield _block(data[at : at + size])
        at += size


def _block(data: memoryview) -> bytes:
    # The library allocates the length that a block states, so check that first.
    if cramjam.snappy.decompress_raw_len(data) > _SNAPPY_RATIO * len(data):
        raise ValueError("a block that states another length")
    return bytes(cramjam.snappy.decompress_raw(data))


def within(codec: int, data: memoryview, most: int = MOST) -> bool:
    """Whether the records of a batch inflate to ``most`` bytes or fewer; nothing is kept."""
    total = 0
    for piece in pieces(codec, data):
        total += len(piece)
        if total > most:
            return False
    return True


def portions(batch: memoryview, codec: int, reading: Allowed) -> Iterator[Any]:
    """Split a compressed batch into smaller uncompressed ones, with `Unread` records in between.

    Args:
        batch: bytes of the batch, from the base offset on.

    Yields:
        Bytes of an uncompressed batch with the next records, or an `Unread` record.

    Raises:
        CorruptRecordException: the batch contradicts its header.
    """
    data, made = batch[SIZE:], _Portions(BatchHeader.of(batch), reading)
    source = pieces(codec, data)
    piece, following = next(source, b""), next(source, b"")
    if not following and len(piece) <= reading.largest:  # one portion holds most batches
        yield made.whole(piece, made.left)
        return
    if not within(codec, data):
        yield made.unread("huge_batch", made.last)
        return
    while piece:
        yield from made.take(piece)
        piece, following = following, next(source, b"")
    if made.left:
        raise CorruptRecordException("a batch with fewer records than its header says")


class _Portions:
    """Cuts inflated bytes at the ends of records."""

    def __init__(self, header: BatchHeader, reading: Allowed) -> None:
        self._header = header
        self._largest = reading.largest
        self._held = bytearray()
        self._skip = 0
        self.left = header.records
        self.last = header.base + header.last

    def take(self, piece: bytes) -> Iterator[Any]:
        """Yield portions and records that end in ``piece``, or begin in it and are too large."""
        piece = piece[self._skip :] if len(piece) > self._skip else self._passed(piece)
        if not piece:
            return
        self._skip = 0
        self._held += piece
        while self.left:
            end, number = self._complete()
            if number:
                yield self.whole(bytes(self._held[:end]), number)
                del self._held[:end]
                self.left -= number
            if self.left == 0 or not self._too_large():
                return
            yield self._pass_over()

    def _passed(self, piece: bytes) -> bytes:
        self._skip -= len(piece)
        return b""

    def _complete(self) -> tuple[int, int]:
        """Find the end of the last whole record held, and count the whole records."""
        held, end, number = self._held, 0, 0
        while number < self.left:
            try:
                length, begin = decode_varint(held, end)
            except IndexError:  # the length itself is incomplete
                break
            if length < 0:
                raise CorruptRecordException("a record of a negative length")
            if length > self._largest or begin + length > len(held):
                break
            end, number = begin + length, number + 1
        return end, number

    def _too_large(self) -> bool:
        """Whether the next record is too large, and enough of it is held to replace it."""
        held = self._held
        return len(held) >= _PREFIX and int(decode_varint(held, 0)[0]) > self._largest

    def _pass_over(self) -> Any:
        """Replace the next record by an unread one; the rest of its bytes is dropped."""
        length, begin = decode_varint(self._held, 0)
        _, place = decode_varint(self._held, begin)  # attributes, unused
        _, place = decode_varint(self._held, place)  # time
        offset, _ = decode_varint(self._held, place)
        whole = begin + length
        self._skip = max(whole - len(self._held), 0)
        del self._held[:whole]
        self.left -= 1
        place = self._header.base + offset
        return self.unread("oversized", place, place)

    def unread(self, reason: str, offset: int, first: int | None = None) -> Any:
        """Make the record that replaces unread ones, with the batch's first time."""
        value = Unread.of(reason, self._header.base if first is None else first)
        return DefaultRecord(offset, self._header.first_time, 0, None, value, [])

    def whole(self, records: bytes, number: int) -> bytes:
        """Make an uncompressed batch with the same header and other records."""
        made = bytearray(SIZE) + records
        plain = self._header.attributes & ~CODEC
        self._header.write(made, length=len(made) - OVERHEAD, attributes=plain, records=number)
        return bytes(made)
