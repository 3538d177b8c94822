"""Genesis and keys: a deployment keeps the noise key and the signing key that it began with."""

from __future__ import annotations

import pytest
from hushstream.agents.clock import genesis as admin
from hushstream.agents.clock.ledger import SIGNED
from hushstream.agents.worker.admission import prepare
from hushstream.errors import EngineError, LedgerError
from hushstream.mechanisms.noise import fingerprint

from .deployed import SECOND, made, unbegun

__all__ = ["made"]  # a fixture


def test_another_noise_key_is_refused_from_the_beginning(made):
    """Another key routes units elsewhere, even if no epoch was charged yet."""
    (made.folder / "hush.key").write_text(bytes(range(32)).hex())
    assert "use that key" in made.refused(LedgerError)
    with pytest.raises(LedgerError, match="use that key"):
        made.begin()


def test_another_noise_key_is_refused_once_something_was_charged(made):
    made.charge("0123456789abcdef")
    said = made.refused(LedgerError)
    assert "0123456789abcdef" in said and "use that key" in said
    key = (made.folder / "hush.key").read_text()
    assert key[:16] not in said


def test_a_key_of_its_own_is_kept_and_no_other_is_taken(broker, unique, tmp_path):
    run = unbegun(broker, unique, tmp_path)
    plain = run.deployment
    own = {p.name: bytes(range(100, 132)) for p in plain.pipelines}
    other = {name: bytes(range(60, 92)) for name in own}
    made = plain.with_keys(own)
    admin.Beginning(run.cluster, made, 1, 1, run.secret).begin()
    ledger = admin.read_ledger(run.cluster, plain.name)
    assert {b["key_fingerprint"] for b in ledger.pipelines.values()} == {
        fingerprint(key) for key in own.values()
    }
    assert admin.Beginning(run.cluster, made, 1, 2, run.secret).begin() == []
    for wrong in (plain, plain.with_keys(other)):
        with pytest.raises(EngineError, match="its own noise key"):
            admin.Beginning(run.cluster, wrong, 1, 3, run.secret).begin()


def test_what_began_with_a_signing_key_needs_it_for_good_and_what_did_not_never_has_one(
    broker, unique, tmp_path
):
    signed, key, other = "hush-signing.key", "signing_key_file = ", bytes(range(32)).hex()
    run = unbegun(broker, unique, tmp_path / "signed")
    with_key = run.toml.read_text() + f'[secret]\n{key}"{signed}"\n'
    without = run.toml.read_text()
    run.toml.write_text(with_key)
    run.begin()
    ledger = admin.read_ledger(run.cluster, run.name)
    assert ledger.format == SIGNED and ledger.public_key is not None
    for place in range(len(ledger.records)):
        ledger.check_signature(place)
    setup = prepare(run.config())
    assert setup.sealing is not None and setup.sealing.public == ledger.public_key
    assert prepare(run.config(), role="auditor").signing is None
    run.toml.write_text(without + SECOND.format(name=run.name))
    assert "no signing key is here" in run.refused(LedgerError)
    with pytest.raises(LedgerError, match="no signing key is here"):
        run.begin()
    run.toml.write_text(with_key + SECOND.format(name=run.name))
    (run.folder / signed).write_text(other)
    assert "and this one's is" in run.refused(LedgerError)
    with pytest.raises(LedgerError, match="and this one's is"):
        run.begin()
    before = unbegun(broker, lambda word: unique("unsigned"), tmp_path / "before")
    before.begin()
    before.toml.write_text(before.toml.read_text() + f'[secret]\n{key}"{signed}"\n')
    before.begin()
    assert admin.read_ledger(before.cluster, before.name).public_key is None
    setup = prepare(before.config())
    assert setup.sealing is None and setup.signing is None
