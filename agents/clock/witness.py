"""The witness: a small file on other storage that records the clock's progress.

Logs that are restored from an earlier moment look as they did then, and nothing inside the cluster
shows that they were longer. The witness does. The clock's owner writes it after a trigger and its
charge are appended and acknowledged, and *before* their transaction commits. So the witness has
seen the trigger of every release.

It notes one place of the clock log and a keyed hash of the record there. A crash between note and
commit raises no false alarm: an aborted record stays in the log, and the check reads the record at
the place whether or not it was committed. A log that ends at or before the place, or has another
record there, is not the log that was seen. An old ledger with the current clock log is found
without a witness, because triggers name charges that it lacks; for a ledger that is restored
together with the clock log, the witness also notes the ledger's head.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from ...errors import EngineError, LedgerError, OutageError, RewoundError
from ...mechanisms.noise import derive
from ...topics.config.model import Kafka
from ...topics.names import Names
from ...topics.records import encode
from ..kafka.logs import PATIENCE_SECONDS, consumer, failed
from .ledger import Ledger

SCHEMA = "hush.witness/1"
SETTLE_SECONDS = 5.0  # a new leader may answer with an older end for a moment


class Sighting(msgspec.Struct, frozen=True):
    """The content of a witness file."""

    genesis: str
    offset: int  # offset of the last trigger in the clock topic
    seal: str  # keyed hash of that record
    records: int  # number of ledger records committed before
    head: str  # hash of the last of them
    schema: str = SCHEMA


class Witness:
    """A witness file, inside the trust boundary but not on the brokers' storage.

    Args:
        path: path of the file, in an existing folder.
        secret: the noise key, under which records are sealed.
    """

    def __init__(self, path: Path, names: Names, secret: bytes) -> None:
        self._path = path
        self._names = names
        self._key = derive(secret, "witness")

    def read(self) -> Sighting | None:
        """Read the file; None if it does not exist yet.

        Raises:
            EngineError: its folder is missing, for example because storage is not mounted.
            LedgerError: it holds something else, or has witnessed another deployment.
        """
        if not self._path.parent.is_dir():
            raise EngineError(
                f"engine.witness: there is no folder {self._path.parent}: mount the storage that "
                "holds the witness, or make the folder"
            )
        try:
            seen = msgspec.json.decode(self._path.read_bytes(), type=Sighting)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise LedgerError(
                f"engine.witness: {self._path} cannot be read ({error.strerror}): mend its storage "
                "or its rights"
            ) from error
        except msgspec.MsgspecError:
            seen = None
        if seen is None or seen.schema != SCHEMA:
            raise LedgerError(
                f"engine.witness: {self._path} is damaged: if `hush check` finds nothing else on "
                "any worker, remove it, and a new one begins; never restore an old one"
            )
        if seen.genesis != self._names.genesis:
            raise LedgerError(
                f"engine.witness: {self._path} has witnessed genesis {seen.genesis}, this cluster "
                f"has {self._names.genesis}: give each deployment a witness of its own; if it is "
                "this one's, the cluster holds another history than the witness has seen"
            )
        return seen

    def note(self, offset: int, value: bytes, ledger: Ledger) -> None:
        """Durably note that a trigger's record (``value``) is at an offset of the clock log.

        Raises:
            EngineError: it cannot be written, so the trigger must not be committed.
            LedgerError: it cannot be read, or has witnessed another deployment.
            RewoundError: it has seen a later trigger, another trigger there, or a longer ledger.
        """
        seal, records = self._seal(value), len(ledger.records)
        self._refuse_older(offset, seal, records)
        seen = Sighting(self._names.genesis, offset, seal, records, ledger.head)
        try:
            _replace(self._path, encode(seen))
        except OSError as error:
            raise EngineError(
                f"engine.witness: {self._path} cannot be written ({error.strerror}): nothing is "
                "fired without it; mend the storage, then start again"
            ) from None

    def _refuse_older(self, offset: int, seal: str, records: int) -> None:
        """Refuse to go back, which would vouch for a log restored from an earlier moment."""
        seen = self.read()
        if seen is None:
            return
        another = offset == seen.offset and not hmac.compare_digest(seal, seen.seal)
        if offset < seen.offset or records < seen.records or another:
            # Do not name offsets: how many beats there were depends on when records came.
            raise RewoundError(
                f"engine.witness: {self._path} has seen another or a later trigger of "
                f"{self._names.clock}, and {seen.records} ledger records; one after {records} "
                "records is older: nothing is fired on it"
            )

    def check(self, kafka: Kafka, ledger: Callable[[], Ledger]) -> None:
        """Check the cluster against the file.

        Args:
            ledger: reads the ledger; called after the file is read, since a running clock writes
                both.

        Raises:
            RewoundError: the clock log is shorter than the one seen, or differs from it.
            LedgerError: the ledger is shorter than the one seen, or differs from it.
        """
        seen = self.read()
        if seen is None:
            return
        self._check_ledger(seen, ledger())
        value = _record(kafka, self._names.clock, seen.offset)
        if value is None or not hmac.compare_digest(self._seal(value), seen.seal):
            raise RewoundError(f"{self._names.clock} lacks a trigger that {self._path} has seen")

    def _check_ledger(self, seen: Sighting, ledger: Ledger) -> None:
        there = 0 < seen.records <= len(ledger.records)
        if not there or ledger.records[seen.records - 1].hash() != seen.head:
            raise LedgerError(
                f"the ledger {self._names.ledger!r} is not the one that {self._path} has seen, or "
                "an older copy of it: restore the newest one; if it is lost for good, begin a new "
                "deployment (another deployment.name), and count what both have spent"
            )

    def _seal(self, value: bytes) -> str:
        return hmac.new(self._key, value, hashlib.sha256).hexdigest()


def _replace(path: Path, data: bytes) -> None:
    """Replace a file atomically: after any failure, it has all of the old or the new content."""
    number, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")  # mode 0600
    try:
        with os.fdopen(number, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # make the name durable, too
    finally:
        os.close(folder)


def _record(kafka: Kafka, topic: str, offset: int) -> bytes | None:
    """Read the record at an offset, committed or not; None if the log ends before it."""
    began = time.monotonic()
    while True:
        waited = time.monotonic() - began
        client = consumer(kafka, committed=False)
        try:
            value = _read(client, topic, offset)
            if value is not None or waited > SETTLE_SECONDS:
                return value
        except KafkaException as error:  # a partition may briefly have no leader after a start
            if waited > PATIENCE_SECONDS:
                raise failed(error.args[0], f"{topic} could not be read") from None
        finally:
            client.close()
        time.sleep(0.2)


def _read(client: Consumer, topic: str, offset: int) -> bytes | None:
    begin, end = client.get_watermark_offsets(TopicPartition(topic, 0), timeout=PATIENCE_SECONDS)
    if begin < 0 or end < 0:  # librdkafka got no offsets, but reports no error
        raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))
    if end <= offset:
        return None
    if offset < begin:  # the last trigger is never trimmed
        raise RewoundError(
            f"{topic} no longer holds the trigger that engine.witness has seen: the file is older "
            "than the clock log, as after a restore, or has seen another history. If you know that "
            "it is the former, remove it: a new one begins at the next trigger"
        )
    client.assign([TopicPartition(topic, 0, offset)])
    message = client.poll(PATIENCE_SECONDS)
    if message is None:
        raise OutageError(f"{topic} could not be read: the broker is silent")
    if (error := message.error()) is not None and error.retriable():
        raise KafkaException(error)
    value: bytes | None = message.value()
    return None if error is not None or message.offset() != offset else value
