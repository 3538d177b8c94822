"""Signed ledgers: the genesis names the key of every record, or no record is signed."""

from __future__ import annotations

import hashlib
import json

import msgspec
import pytest
from hushstream.agents.clock.ledger import FORMAT, SIGNED, Ledger
from hushstream.agents.clock.ledger_record import Record
from hushstream.agents.clock.pinned import signed, verify_signing
from hushstream.errors import LedgerError
from hushstream.topics.signatures import SigningKey

KEY, OTHER = SigningKey(bytes(range(32))), SigningKey(bytes(range(1, 33)))


def written(key: SigningKey | None = KEY) -> list[bytes]:
    """A genesis and two records."""
    body = {"format": SIGNED, "public_key": key.public} if key else {"format": FORMAT}
    ledger = Ledger(key=key)
    for kind, told in (
        ("genesis", body | {"genesis": "ab", "deployment": "d"}),
        ("pipeline", {"pipeline": "p", "number": 0}),
        ("charge", {"pipeline": "p", "epoch": 0}),
    ):
        ledger.take(ledger.next(kind, 1, told).encode())
    return [record.encode() for record in ledger.records]


def test_records_are_signed_and_the_chain_holds_their_signatures() -> None:
    values = written()
    ledger = Ledger.read(values)
    assert ledger.public_key == KEY.public and ledger.format == SIGNED
    for place, (value, record) in enumerate(zip(values, ledger.records, strict=True)):
        assert record.genuine(KEY.public) and not record.genuine(OTHER.public)
        ledger.check_signature(place)
        assert list(json.loads(value))[-1] == "signature"
        assert hashlib.sha256(value).hexdigest() == record.hash()
    assert ledger.records[2].prev_hash == ledger.records[1].hash()


def test_a_deployment_without_a_key_has_the_bytes_that_it_had() -> None:
    values = written(None)
    assert all(set(json.loads(v)) == {"seq", "prev_hash", "kind", "time", "body"} for v in values)
    ledger = Ledger.read(values)
    assert ledger.public_key is None and ledger.format == FORMAT
    assert not ledger.records[0].genuine(KEY.public)
    with pytest.raises(LedgerError, match="record 1 is not signed"):
        ledger.check_signature(1)
    assert Ledger.read(values, KEY).next("refused", 1, {}).signature is msgspec.UNSET


def test_whoever_has_no_key_reads_and_cannot_write() -> None:
    with pytest.raises(LedgerError, match="no signing key here"):
        Ledger.read(written()).next("refused", 1, {"pipeline": "p", "epoch": 1})


def test_a_record_with_another_signature_or_none_is_refused() -> None:
    values = written()
    last = msgspec.json.decode(values[-1], type=Record)
    bare = msgspec.structs.replace(last, signature=msgspec.UNSET)
    with pytest.raises(LedgerError, match="record 2 must be signed if"):
        Ledger.read([*values[:2], bare.encode()])
    with pytest.raises(LedgerError, match="record 2 is not signed by the key"):
        Ledger.read([*values[:2], bare.sign(OTHER).encode()])
    with pytest.raises(LedgerError, match="record 2 is not signed by the key"):
        Ledger.read([*values[:2], msgspec.structs.replace(last, signature="00" * 64).encode()])
    unsigned = written(None)
    with pytest.raises(LedgerError, match="record 1 must be signed if"):
        record = msgspec.json.decode(unsigned[1], type=Record)
        Ledger.read([unsigned[0], record.sign(KEY).encode()])


def test_a_record_in_the_middle_is_checked_where_all_are() -> None:
    """The chain covers signatures, so a forger without the key must also forge the last one."""
    values = written()
    made = Ledger.read(values[:1], KEY)
    forged = made.next("pipeline", 1, {"pipeline": "p", "number": 1})
    forged = msgspec.structs.replace(forged, signature="00" * 64)
    made.take(forged.encode())
    made.take(made.next("charge", 1, {"pipeline": "p", "epoch": 0}).encode())
    whole = Ledger.read([record.encode() for record in made.records])
    whole.check_signature(2)
    with pytest.raises(LedgerError, match="record 1 is not signed"):
        whole.check_signature(1)


@pytest.mark.parametrize("body", [
    {"format": FORMAT, "public_key": KEY.public}, {"format": SIGNED, "public_key": "ab"},
    {"format": SIGNED, "public_key": None},
])  # fmt: skip
def test_a_genesis_with_a_key_that_older_versions_would_ignore_is_refused(body) -> None:
    record = Record(0, "0" * 64, "genesis", 1, body).sign(KEY)
    with pytest.raises(LedgerError):
        Ledger.read([record.encode()])


def test_a_worker_needs_the_key_of_the_genesis() -> None:
    mine, bare = Ledger.read(written()), Ledger.read(written(None))
    verify_signing(mine, KEY)
    verify_signing(bare, KEY)  # the key is not used
    verify_signing(bare, None)
    with pytest.raises(LedgerError, match="no signing key is here: set secret"):
        verify_signing(mine, None)
    with pytest.raises(LedgerError, match="and this one's is"):
        verify_signing(mine, OTHER)
    assert KEY.public in signed(mine) and "not signed" in signed(bare)
