"""The witness: written before a trigger commits, and never misled by a trigger that failed."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import hushstream.agents.clock.witness as module
import pytest
from aiokafka.errors import KafkaError
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from hushstream.agents.clock.ledger import Ledger
from hushstream.agents.clock.witness import Witness
from hushstream.errors import EngineError, HushError, LedgerError, RewoundError
from hushstream.topics.config.model import Kafka
from hushstream.topics.names import Names
from hushstream.topics.records import encode

from ...support import HOUR, NAMES, ORIGIN, SECRET, beat
from .bench import Recorder, begun, owner, with_pipeline


def ledger_of(records: int) -> Ledger:
    ledger = Ledger()
    for n in range(records):
        kind = "pipeline" if n else "genesis"
        ledger.take(ledger.next(kind, n, {"pipeline": f"p{n}"}).encode())
    return ledger


@pytest.fixture
def witness(tmp_path: Path) -> Witness:
    return Witness(tmp_path / "seen", NAMES, SECRET)


def test_there_is_nothing_to_see_before_the_first_trigger(witness):
    assert witness.read() is None
    witness.check(Kafka(), lambda: pytest.fail("nothing is read"))


def test_what_was_noted_is_read_again_and_tells_nobody_the_record(witness, tmp_path):
    value = b'{"type":"trigger","offsets":{"raw":[41]}}'
    witness.note(7, value, ledger_of(2))
    seen = witness.read()
    assert (seen.offset, seen.records, seen.head) == (7, 2, ledger_of(2).head)
    file = tmp_path / "seen"
    assert os.listdir(tmp_path) == ["seen"] and file.stat().st_mode & 0o777 == 0o600
    other = Witness(tmp_path / "seen", NAMES, bytes(32))
    assert other._seal(value) != seen.seal  # without the key, guesses of a record cannot be tested
    witness.note(9, value, ledger_of(3))
    assert witness.read().offset == 9


@pytest.mark.parametrize("text", ["", "{}", '{"schema": "hush.witness/9"}', "\xff"])
def test_a_file_that_says_nothing_is_refused(witness, tmp_path, text):
    (tmp_path / "seen").write_text(text)
    with pytest.raises(LedgerError, match="never restore an old one"):
        witness.read()


def test_a_file_that_may_not_be_read_is_not_called_damaged(witness, tmp_path):
    (tmp_path / "seen").mkdir()  # also root may not read a folder
    with pytest.raises(LedgerError, match=r"cannot be read \(Is a directory\): mend"):
        witness.read()


def test_a_schema_of_a_later_version_is_refused(witness, tmp_path):
    witness.note(7, b"x", ledger_of(1))
    body = json.loads((tmp_path / "seen").read_text())
    (tmp_path / "seen").write_text(json.dumps(body | {"schema": "hush.witness/2"}))
    with pytest.raises(LedgerError, match="never restore an old one"):
        witness.read()


def test_a_witness_of_another_genesis_is_refused(witness, tmp_path):
    Witness(tmp_path / "seen", Names("test", "0123456789"), SECRET).note(7, b"x", ledger_of(1))
    with pytest.raises(LedgerError, match="has witnessed genesis 0123456789"):
        witness.read()


def test_storage_that_is_not_there_is_refused(tmp_path):
    witness = Witness(tmp_path / "unmounted" / "seen", NAMES, SECRET)
    with pytest.raises(EngineError, match="mount the storage"):
        witness.read()
    with pytest.raises(EngineError, match="mount the storage"):
        witness.note(7, b"x", ledger_of(1))


def test_a_note_that_fails_leaves_the_earlier_one(witness, tmp_path, monkeypatch):
    witness.note(7, b"x", ledger_of(1))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module.os, "fsync", full)
    with pytest.raises(EngineError, match="No space left"):
        witness.note(8, b"y", ledger_of(2))
    assert witness.read().offset == 7 and os.listdir(tmp_path) == ["seen"]


@pytest.mark.parametrize(
    ("offset", "value", "records"), [(6, b"x", 2), (7, b"y", 2), (8, b"x", 1), (0, b"x", 9)]
)
def test_the_file_never_goes_back(witness, offset, value, records):
    witness.note(7, b"x", ledger_of(2))
    witness.note(7, b"x", ledger_of(2))  # the same record again is no step back
    with pytest.raises(RewoundError, match="is older: nothing is fired on it") as raised:
        witness.note(offset, value, ledger_of(records))
    assert "offset" not in str(raised.value)  # it counts beats, which come with records
    assert witness.read().offset == 7 and witness.read().records == 2


@pytest.mark.parametrize("short", [0, 1, 2])
def test_a_ledger_that_is_shorter_than_what_was_seen_is_refused(witness, short, monkeypatch):
    monkeypatch.setattr(module, "_record", lambda *_: b"x")
    witness.note(7, b"x", ledger_of(3))
    witness.check(Kafka(), lambda: ledger_of(3))
    witness.check(Kafka(), lambda: ledger_of(4))
    with pytest.raises(LedgerError, match="is not the one"):
        witness.check(Kafka(), lambda: ledger_of(short))


# -- the owner ------------------------------------------------------------------------------------


class Noted(Witness):
    """A witness that appends to a list of events."""

    def __init__(self, done: list[str], error: Exception | None = None) -> None:
        self._done, self._error = done, error

    def note(self, offset: int, value: bytes, ledger: Ledger) -> None:
        self._done.append(f"note {offset} after {len(ledger.records)}")
        if self._error is not None:
            raise self._error


def fired(error: Exception | None = None, fails_to_commit: bool = False) -> list[str]:
    clock, ledger = begun(with_pipeline(external=False))
    ((pipeline, due),) = clock.due(ORIGIN + 6 * HOUR)
    charges, record = clock.fire(pipeline, due, ORIGIN + 6 * HOUR)
    producer = Recorder(fails_to_commit)
    run = owner(clock, ledger, producer)
    run._witness = Noted(producer.done, error)
    try:
        asyncio.run(run._commit(charges, [record]))
    except (HushError, KafkaError):
        producer.done.append("failed")
    assert bool(ledger.charges) == (producer.done[-1] == "commit")
    return producer.done


def test_a_trigger_is_noted_when_it_was_acknowledged_and_before_it_commits():
    assert fired() == ["begin", "ledger", "clock", "note 7 after 1", "commit"]


@pytest.mark.parametrize("error", [EngineError("no storage"), LedgerError("is damaged")])
def test_what_cannot_be_noted_is_not_fired(error):
    assert fired(error)[-3:] == ["note 7 after 1", "abort", "failed"]


def test_beats_are_not_noted():
    clock, ledger = begun()
    producer = Recorder()
    run = owner(clock, ledger, producer)
    run._witness = Noted(producer.done)
    asyncio.run(run._commit([], [beat([9], ORIGIN)]))
    assert producer.done == ["begin", "clock", "commit"]


# -- the log --------------------------------------------------------------------------------------


@pytest.mark.broker
def test_an_aborted_trigger_raises_no_alarm_and_a_log_without_it_does(
    broker, unique, tmp_path, monkeypatch
):
    monkeypatch.setattr(module, "SETTLE_SECONDS", 0.3)
    names = Names(unique("w"), "abcdef")
    kafka = Kafka(bootstrap=broker.bootstrap)
    settings = {"bootstrap.servers": broker.bootstrap}
    admin = AdminClient(settings)
    admin.create_topics([NewTopic(names.clock, 1, 1)])[names.clock].result(120)
    producer = Producer(settings | {"transactional.id": names.clock})
    producer.init_transactions(120)
    for n, end in enumerate(("commit_transaction", "abort_transaction")):
        producer.begin_transaction()
        producer.produce(names.clock, encode({"trigger": n}), partition=0)
        producer.flush(120)
        getattr(producer, end)(120)
    ledger = ledger_of(2)
    witness = Witness(tmp_path / "seen", names, SECRET)
    places = [(0, {"trigger": 0}), (2, {"trigger": 1})]  # the commit marker is between them
    for offset, record in places:
        witness.note(offset, encode(record), ledger)
        witness.check(kafka, lambda: ledger)
    for offset, record in [(2, {"trigger": 0}), (1, {"trigger": 0}), (4, {}), (900, {})]:
        witness = Witness(tmp_path / f"seen at {offset}", names, SECRET)
        witness.note(offset, encode(record), ledger)
        with pytest.raises(RewoundError, match="lacks a trigger"):
            witness.check(kafka, lambda: ledger)
