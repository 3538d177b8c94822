"""The ledger: one chain, each epoch charged once, limits in exact rationals.

Covers: agents/clock/ends.py
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import msgspec
import pytest
from hushstream.agents.clock.ends import earliest_end, following, retirement
from hushstream.agents.clock.ledger import FORMAT, SHARED, ZERO, Ledger, cost_of, number, totals
from hushstream.agents.clock.ledger_record import Record
from hushstream.agents.deployment.published.statement import charge_body, limits, text
from hushstream.agents.worker.admission import check_format
from hushstream.errors import EngineError, LedgerError

from ...support import DAY, ORIGIN, deployment

P = deployment().pipelines[0]


def written(*epochs: int) -> list[bytes]:
    """A ledger with a genesis, the pipeline and charges, as encoded records."""
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


def test_a_record_of_a_later_version_is_not_passed_over():
    """Such a record may forbid a charge."""
    values = written(0)
    ledger = Ledger.read(values)
    later = ledger.next("unheard-of", 4, {"pipeline": "p"}).encode()
    with pytest.raises(LedgerError, match="a kind that this version does not know"):
        Ledger.read([*values, later])


def test_a_format_rises_and_one_of_a_later_version_is_refused(monkeypatch: pytest.MonkeyPatch):
    values = written(0)
    ledger = Ledger.read(values)
    begun = ledger.format
    values.append(ledger.next("format", 4, {"format": FORMAT}).encode())
    assert begun < FORMAT and Ledger.read(values).format == FORMAT
    later = Ledger.read(values).next("format", 5, {"format": SHARED + 1}).encode()
    both = (
        f"reached format {SHARED + 1}, but this version of Hushstream knows formats up to {SHARED}"
    )
    with pytest.raises(EngineError, match=both):
        Ledger.read([*values, later])
    first = Ledger().next("genesis", 1, {"format": SHARED + 1}).encode()
    with pytest.raises(EngineError, match=both):
        Ledger.read([first])
    monkeypatch.setattr("hushstream.agents.clock.ledger.FORMAT", SHARED + 1)
    assert Ledger.read([*values, later]).format == Ledger.read([first]).format == SHARED + 1


def test_a_worker_writes_no_format_that_its_ledger_does_not_name():
    for reached in (0, FORMAT - 1):
        with pytest.raises(EngineError, match=f"has format {reached}, and .* write {FORMAT}: stop"):
            check_format(Ledger(format=reached))
    check_format(Ledger(format=FORMAT))


@pytest.mark.parametrize("number", [FORMAT, FORMAT - 1, "3", None, True])
def test_a_format_that_does_not_rise_is_refused(number):
    ledger = Ledger.read([Ledger().next("genesis", 1, {"format": FORMAT}).encode()])
    with pytest.raises(LedgerError, match="it only rises"):
        ledger.take(ledger.next("format", 2, {"format": number}).encode())


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


def test_limits_are_on_what_was_charged_together():
    ledger = Ledger.read(written(*range(9)))
    assert ledger.spent("p").epsilon == 9 * P.epsilon
    composed = ledger.spent("p").composed()
    assert composed < 6 * P.epsilon
    assert not ledger.affordable(replace(P, limit_epsilon=composed), [9])
    one_more = ledger.spent("p").plus(cost_of(charge_body(P, 9, "1.0", "key"))).composed()
    assert ledger.affordable(replace(P, limit_epsilon=one_more), [9, 10]) == 1
    assert ledger.affordable(replace(P, limit_epsilon=None), range(9, 16)) == 7
    ten = replace(P, limit_delta=10 * P.delta)
    assert ledger.affordable(ten, range(9, 16)) == 1
    ledger.take(ledger.next("charge", 3, charge_body(P, 9, "1.0", "key")).encode())
    assert ledger.spent("p").epochs == 10 and ledger.affordable(ten, [10]) == 0


def test_a_charge_holds_everything_that_it_paid_for():
    body = charge_body(P, 7, "1.0", "key")
    assert body["config"] == P.config and body["config_hash"] == P.config_hash
    assert number(body["mu2"]) == P.mechanism.cost().mu2
    assert number(body["pure_epsilon"]) == P.mechanism.cost().epsilon
    assert number(body["coupling_delta"]) == P.mechanism.cost().delta
    assert number(body["epsilon"]) == P.epsilon
    assert number(body["delta"]) == P.delta > 0
    assert (body["pipeline"], body["unit"]) == (P.name, P.unit_name)
    assert body["neighbouring"] == P.mechanism.guarantee.neighbouring
    assert (body["epoch"], body["code_version"], body["key_fingerprint"]) == (7, "1.0", "key")


def test_totals_add_exactly():
    sums = totals(Ledger.read(written(0, 1, 2)), ["p"])
    assert sums["p"][:3] == (3, 3 * P.epsilon, 3 * P.delta)
    assert sums["p"].joint == tuple(3 * part for part in P.mechanism.cost())
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


WALL = replace(P, external=False)


def ended(*epochs: int, at: int) -> Ledger:
    ledger = Ledger.read(written(*epochs))
    body = {"pipeline": "p", "until": P.windows.begin(at), "epoch": at}
    ledger.take(ledger.next("retired", 4, body).encode())
    return ledger


def test_nothing_is_charged_beyond_the_end_of_a_pipeline():
    ledger = ended(0, at=2)
    ledger.take(ledger.next("charge", 9, charge_body(P, 1, "1.0", "key")).encode())
    for epoch in (2, 3):
        again = ledger.next("charge", 9, charge_body(P, epoch, "1.0", "key"))
        with pytest.raises(LedgerError, match="retired before epoch 2"):
            Ledger.read([*(r.encode() for r in ledger.records), again.encode()])
    assert (ledger.end(P), ledger.over("p", 1), ledger.over("p", 2)) == (2, False, True)


def test_an_end_is_written_once_and_never_before_what_was_charged():
    ledger = ended(0, at=2)
    body = {"pipeline": "p", "until": P.windows.begin(5), "epoch": 5}
    with pytest.raises(LedgerError, match="is retired already"):
        ledger.take(ledger.next("retired", 9, body).encode())
    with pytest.raises(LedgerError, match="never declared"):
        ledger = Ledger.read(written())
        ledger.take(ledger.next("retired", 9, body | {"pipeline": "q"}).encode())
    with pytest.raises(LedgerError, match="is charged already"):
        ended(0, 3, at=2)


@pytest.mark.parametrize("until, accepted", [(2, False), (3, True), (4, True)])
def test_an_end_lies_beyond_what_has_begun(until, accepted):
    """Two days and a second after the origin, epoch 2 has begun and epoch 3 has not."""
    now = ORIGIN + 2 * DAY + 1_000_000
    p, ledger = replace(WALL, until=P.windows.begin(until)), Ledger.read(written())
    if accepted:
        assert retirement(p, ledger, now) == {"pipeline": "p", "until": p.until, "epoch": until}
    else:
        with pytest.raises(LedgerError, match=r'the earliest is until = "2019-03-04T00:00:00Z"'):
            retirement(p, ledger, now)


def test_an_end_lies_beyond_what_was_charged_also_where_the_clock_decides_nothing():
    ledger = Ledger.read(written(0, 6))
    asked = replace(P, external=True)
    assert earliest_end(asked, ledger, ORIGIN) == P.windows.begin(7)
    with pytest.raises(LedgerError, match="was charged"):
        retirement(replace(asked, until=P.windows.begin(6)), ledger, ORIGIN + 99 * DAY)
    assert retirement(replace(asked, until=P.windows.begin(7)), ledger, ORIGIN + 99 * DAY)


def test_an_epoch_that_begins_now_has_begun():
    assert earliest_end(WALL, Ledger(), ORIGIN + 2 * DAY) == ORIGIN + 3 * DAY
    assert earliest_end(WALL, Ledger(), ORIGIN + 2 * DAY - 1) == ORIGIN + 2 * DAY


def follower(begin: int, other: str = "p") -> dict[str, object]:
    """The fields of a declaration that the ledger reads."""
    told = {"pipeline": other, "from": begin}
    config = {"window": {"origin": begin}, "follows": other}
    return {"pipeline": "q", "number": 1, "follows": told, "config": config}


def test_a_pipeline_follows_another_from_its_end_and_nowhere_else():
    end = P.windows.begin(2)
    ledger = ended(at=2)
    ledger.take(ledger.next("pipeline", 5, follower(end)).encode())
    assert ledger.follower("p") == "q" and ledger.follower("q") is None
    for body, held in (
        (follower(end + DAY), ended(at=2)),
        (follower(end - DAY), ended(at=2)),
        (follower(end) | {"config": {"window": {"origin": 0}}}, ended(at=2)),
        (follower(end), Ledger.read(written())),
        (follower(end, "r"), ended(at=2)),
    ):
        with pytest.raises(LedgerError, match="that one ends at"):
            held.take(held.next("pipeline", 5, body).encode())
    with pytest.raises(LedgerError, match="follows already"):
        second = follower(end) | {"pipeline": "r"}
        ledger.take(ledger.next("pipeline", 6, second).encode())


def test_a_follower_is_declared_before_the_other_one_ends():
    ledger, end = ended(at=2), P.windows.begin(2)
    q = replace(P, name="q", follows="p", windows=replace(P.windows, origin=end))
    assert following(q, ledger, end - 1) == {"follows": {"pipeline": "p", "from": end}}
    assert following(P, ledger, end) == {}
    with pytest.raises(LedgerError, match="ended at 2019-03-03"):
        following(q, ledger, end)
    with pytest.raises(LedgerError, match="'p' ends at 2019-03-04"):
        following(q, ended(at=3), end - 1)
    with pytest.raises(LedgerError, match="does not end"):
        following(q, Ledger.read(written()), end - 1)
