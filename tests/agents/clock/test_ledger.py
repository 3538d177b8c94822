"""The ledger: one chain, each epoch charged once, limits in exact rationals."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import msgspec
import pytest
from hushstream.agents.clock.ledger import (
    ZERO,
    Ledger,
    Record,
    charge_body,
    limits,
    number,
    text,
    totals,
)
from hushstream.errors import LedgerError

from ...support import deployment

P = deployment().pipelines[0]


def written(*epochs: int) -> list[bytes]:
    """A ledger with a genesis, the pipeline and charges, as bytes."""
    ledger = Ledger()
    values = [ledger.next("genesis", 1, {"genesis": "abcdef"})]
    ledger.take(values[-1].encode())
    values.append(ledger.next("pipeline", 2, {"pipeline": "p", "number": 0}))
    ledger.take(values[-1].encode())
    for epoch in epochs:
        values.append(ledger.next("charge", 3, charge_body(P, epoch, "1.0", "key")))
        ledger.take(values[-1].encode())
    return [v.encode() for v in values]


def test_a_ledger_is_read_back_as_it_was_written():
    ledger = Ledger.read(written(0, 1))
    assert ledger.genesis["genesis"] == "abcdef"
    assert set(ledger.charges) == {("p", 0), ("p", 1)}
    assert ledger.epochs("p") == 2 and ledger.epochs("other") == 0
    assert ledger.records[0].prev_hash == ZERO
    assert ledger.head == ledger.records[-1].hash()


@pytest.mark.parametrize("place", range(4))
def test_any_change_of_any_record_but_the_last_breaks_the_chain(place):
    values = written(0, 1, 2)
    record = msgspec.json.decode(values[place], type=Record)
    changed = msgspec.structs.replace(record, time=record.time + 1).encode()
    with pytest.raises(LedgerError, match=f"chain is broken at record {place + 1}"):
        Ledger.read([*values[:place], changed, *values[place + 1 :]])


@pytest.mark.parametrize("place", range(4))
def test_a_missing_record_breaks_the_chain(place):
    values = written(0, 1, 2)
    with pytest.raises(LedgerError, match=r"chain is broken|genesis must be first"):
        Ledger.read(values[:place] + values[place + 1 :])


def test_a_record_must_be_canonical_and_a_record():
    values = written()
    with pytest.raises(LedgerError, match="canonical"):
        Ledger.read([values[0].replace(b":", b": ", 1)])
    with pytest.raises(LedgerError, match="is not a ledger record"):
        Ledger.read([b"{}"])


def test_an_epoch_cannot_be_charged_twice():
    ledger = Ledger.read(written(0))
    again = ledger.next("charge", 9, charge_body(P, 0, "1.0", "key"))
    with pytest.raises(LedgerError, match="second time"):
        ledger.take(again.encode())


def test_limits_are_exact():
    ledger = Ledger.read(written(*range(9)))
    tenth = Fraction(1, 10)  # as doubles, ten tenths are not one
    limited = replace(P, epsilon=tenth, limit_epsilon=Fraction(1))
    assert ledger.affordable(limited)
    assert not ledger.affordable(replace(limited, limit_epsilon=Fraction(999, 1000)))
    full = Ledger.read(written(*range(10)))
    assert not full.affordable(limited)
    assert full.affordable(replace(P, limit_epsilon=None))
    assert not full.affordable(replace(P, delta=tenth, limit_delta=Fraction(1)))


def test_a_charge_holds_everything_that_it_paid_for():
    body = charge_body(P, 7, "1.0", "key")
    assert body["config"] == P.config and body["config_hash"] == P.config_hash
    assert number(body["mu2"]) == P.mechanism.cost().mu2
    assert number(body["pure_epsilon"]) == P.mechanism.cost().epsilon
    assert number(body["coupling_delta"]) == P.mechanism.cost().delta
    assert number(body["epsilon"]) == P.epsilon
    assert number(body["delta"]) == P.delta > 0
    assert (body["pipeline"], body["unit"]) == (P.name, P.unit_name)
    assert body["neighbouring"] == P.mechanism.neighbouring
    assert (body["epoch"], body["code_version"], body["key_fingerprint"]) == (7, "1.0", "key")


def test_totals_add_exactly():
    sums = totals(Ledger.read(written(0, 1, 2)), ["p"])
    assert sums["p"] == (3 * P.epsilon, 3 * P.delta, 3)
    assert number(text(Fraction(1, 3))) == Fraction(1, 3) and text(Fraction(4)) == "4"


def test_pipelines_do_not_spend_for_each_other():
    ledger = Ledger()
    ledger.take(ledger.next("genesis", 1, {}).encode())
    for name in ("a", "a", "z"):
        body = {"pipeline": name, "epoch": len(ledger.records)}
        ledger.take(ledger.next("charge", 1, body).encode())
    assert [ledger.epochs(name) for name in ("a", "b", "z")] == [2, 0, 1]


def test_limits_are_stated_where_there_are_any():
    some = replace(P, limit_epsilon=Fraction(1, 3), limit_delta=None)
    assert limits(some) == ("1/3", "")
    assert limits(replace(P, limit_epsilon=None, limit_delta=Fraction(2))) == ("", "2")
