"""A proof of all public records: it succeeds, and any changed byte or order makes it fail."""

from __future__ import annotations

from functools import lru_cache

import pytest
from hushstream.agents.clock.ledger import Ledger
from hushstream.agents.stages.aggregate import stage
from hushstream.formats.events.decode import RawRecord
from hushstream.reading.proof import plain
from hushstream.topics.signatures import Sealing
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from .signed import KEY, OTHER, PARTITIONS, SHARDS, World, world

WORLD = lru_cache(world)
drawn = settings(max_examples=250, deadline=None)


def shard_of(record: RawRecord) -> bytes:
    """The shard that wrote a record, from its second header."""
    words = record.headers[1][1].split()
    return words[0] if record.headers[0][0] == "hush-row" else words[1]


def with_log(whole: World, partition: int, log: list[RawRecord]) -> World:
    releases = list(whole.releases)
    releases[partition] = tuple(log)
    return whole._replace(releases=tuple(releases))


def flipped(data: bytes, at: int, bit: int) -> bytes:
    at %= len(data)
    return data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]


def test_what_was_published_as_it_should_be_is_proved() -> None:
    whole = WORLD()
    proof = whole.prove(KEY.public)
    assert proof.proved, proof
    assert proof.releases == {"p": 8} and proof.until == "2019-03-03T00:00:00+00:00"
    assert proof.records == 4 and proof.charges == 2 and proof.head
    kinds = [r.headers[0][0] for log in whole.releases for r in log]
    assert kinds.count("hush-manifest") == 8 * SHARDS
    assert proof.rows == kinds.count("hush-row") > 20
    assert plain(proof)["proved"] is True


@drawn
@given(st.data())
def test_every_changed_bit_of_a_release_is_refused(data: st.DataObject) -> None:
    whole = WORLD()
    partition = data.draw(st.integers(0, PARTITIONS - 1))
    log = list(whole.releases[partition])
    place, at = data.draw(st.integers(0, len(log) - 1)), data.draw(st.integers(0, 10_000))
    bit, record = data.draw(st.integers(0, 7)), log[place]
    part = data.draw(st.sampled_from(["key", "value", "timestamp", "name", "told"]))
    if part in ("key", "value"):
        changed = record._replace(**{part: flipped(getattr(record, part), at, bit)})
    elif part == "timestamp":
        changed = record._replace(timestamp=record.timestamp ^ 1 << bit)
    else:
        headers, one = list(record.headers), at % 2
        name, told = headers[one]
        if part == "told":
            told = flipped(told, at // 2, bit)
        else:
            name = flipped(name.encode(), at // 2, bit).decode("latin-1")
        headers[one] = (name, told)
        changed = record._replace(headers=tuple(headers))
    log[place] = changed
    proof = with_log(whole, partition, log).prove()
    assert proof.fault, (partition, place, part)
    assert not proof.proved


@drawn
@given(st.data())
def test_every_changed_bit_of_the_ledger_is_refused(data: st.DataObject) -> None:
    whole = WORLD()
    place = data.draw(st.integers(0, len(whole.ledger) - 1))
    at, bit = data.draw(st.integers(0, 10_000)), data.draw(st.integers(0, 7))
    ledger = list(whole.ledger)
    ledger[place] = flipped(ledger[place], at, bit)
    found = whole._replace(ledger=tuple(ledger)).prove().fault
    assert found


def test_every_record_that_is_left_out_is_missed() -> None:
    whole = WORLD()
    for partition, log in enumerate(whole.releases):
        for place in range(len(log)):
            proof = with_log(whole, partition, [*log[:place], *log[place + 1 :]]).prove()
            assert not proof.proved, (partition, place)


def test_every_record_that_is_there_twice_is_refused() -> None:
    whole = WORLD()
    for partition, log in enumerate(whole.releases):
        for place in range(len(log)):
            for at in (place, len(log)):
                twice = [*log[:at], log[place], *log[at:]]
                found = with_log(whole, partition, twice).prove().fault
                assert found, (partition, place, at)


def test_records_of_one_shard_that_changed_places_are_refused() -> None:
    """Records of different shards may change places: their order is only that of arrival."""
    whole, swapped = WORLD(), 0
    for partition, log in enumerate(whole.releases):
        for place in range(len(log)):
            same = (
                n for n in range(place + 1, len(log)) if shard_of(log[n]) == shard_of(log[place])
            )
            if (other := next(same, None)) is not None:
                made = list(log)
                made[place], made[other] = made[other], made[place]
                proof = with_log(whole, partition, made).prove()
                assert proof.fault, (partition, place, other)
                swapped += 1
    assert swapped > 40


def test_a_record_on_another_partition_is_refused() -> None:
    whole = WORLD()
    first, second = whole.releases
    for place, record in enumerate(first):
        moved = World(whole.ledger, ((*first[:place], *first[place + 1 :]), (*second, record)))
        found = moved.prove().proved
        assert not found, place


@pytest.mark.parametrize("there", [0, 1, 3])
def test_partitions_that_the_ledger_does_not_declare_are_refused(there: int) -> None:
    """Readers take what lies in a partition that was added; one without records is a fault, too."""
    whole = WORLD()
    forged = [whole.releases[0][-1]._replace(headers=whole.releases[0][-1].headers[:1])]
    logs = (*whole.releases, tuple(forged))[:there]
    proof = World(whole.ledger, logs).prove()
    assert f"has {there} partitions, and the ledger declares {PARTITIONS}" in proof.fault
    assert not World(whole.ledger, (*whole.releases, ())).prove().proved


def test_the_ledger_may_not_lose_swap_or_double_records() -> None:
    whole = WORLD()
    records = whole.ledger
    for place in range(len(records)):
        short = World((*records[:place], *records[place + 1 :]), whole.releases)
        twice = World((*records[: place + 1], *records[place:]), whole.releases)
        found = short.prove().fault
        assert place == 0 or found, place
        found = twice.prove().fault
        assert found, place
    found = World((*records[:2], records[3], records[2]), whole.releases).prove().fault
    assert found
    for length in range(1, len(records)):
        found = World(records[:length], whole.releases).prove().fault
        assert found, length


def test_a_release_that_nobody_has_charged_is_refused() -> None:
    """The ledger lacks its last charge, so its chain is still whole and signed."""
    whole = WORLD()
    proof = World(whole.ledger[:-1], whole.releases).prove()
    assert "was not paid for before" in proof.fault


def test_releases_that_are_there_in_part_are_not_finished() -> None:
    whole = WORLD()
    cut = [tuple(r for r in log if b" 8 " not in r.headers[1][1]) for log in whole.releases]
    proof = World(whole.ledger, tuple(cut)).prove()
    assert not proof.fault and proof.unfinished == "release 8 of p is there in part"
    assert not proof.proved and proof.releases == {"p": 7}


def test_a_charge_of_which_nothing_is_released_is_not_finished() -> None:
    whole = WORLD()
    first = [
        tuple(r for r in log if (r.key or b"").startswith(b"p|2019-03-01"))
        for log in whole.releases
    ]
    proof = World(whole.ledger, tuple(first)).prove()
    assert proof.unfinished == "epoch 1 of p was charged, and nothing of it is released"


def test_what_was_seen_before_may_not_be_gone() -> None:
    """If all shards lack the newest release, only an earlier checkpoint shows it."""
    whole = WORLD()
    known = whole.prove().checkpoint()
    found = whole.prove(known=known).proved
    assert found

    def last(record: RawRecord) -> bool:
        words = record.headers[1][1].split()
        return words[1 if record.headers[0][0] == "hush-row" else 3] == b"8"

    older = World(
        whole.ledger, tuple(tuple(r for r in log if not last(r)) for log in whole.releases)
    )
    found = older.prove().proved
    assert found
    found = older.prove(known=known).fault
    assert found == ("p has lost releases since: there were 8, and now there are 7")
    for change in ({"records": 9}, {"head": "0" * 64}, {"genesis": "0" * 64}):
        other = type(known)(
            **{name: getattr(known, name) for name in known.__struct_fields__} | change
        )
        found = whole.prove(known=other).fault
        assert found, change


def test_another_key_is_refused_where_the_right_one_is_known() -> None:
    whole = WORLD()
    forged = world(OTHER)
    found = forged.prove().proved
    assert found, "a world signed with another key does not prove itself"
    found = forged.prove(KEY.public).fault
    assert "public key" in found
    mixed = World(whole.ledger, forged.releases)
    found = mixed.prove().fault
    assert "signature" in found
    genesis = Ledger.read(whole.ledger).records[0].hash()
    alien = world(KEY, Sealing(genesis, KEY.public, OTHER))
    found = alien.prove().fault
    assert "signature" in found


def test_a_deployment_of_another_genesis_does_not_lend_its_signatures() -> None:
    """One key signed both deployments; a release belongs to the ledger that charged it."""
    elsewhere = world(KEY, Sealing("0" * 64, KEY.public, KEY))
    found = elsewhere.prove().fault
    assert "signature" in found


def test_a_deployment_that_signs_nothing_says_so() -> None:
    unsigned = world(None)
    assert all(len(r.headers) == 1 for log in unsigned.releases for r in log)
    proof = unsigned.prove()
    assert not proof.proved and "without a signing key" in proof.fault


def test_a_release_that_another_epoch_has_paid_for_is_refused() -> None:
    proof = world(paid=(0, 0, 0, 0, 1, 0, 1, 1)).prove()
    assert "has no charge of epoch 1 of p with the hash that this release names" in proof.fault


def test_windows_that_hop_are_charged_in_the_epoch_of_their_end() -> None:
    proof = world(hop=True).prove(KEY.public)
    assert proof.proved and proof.releases == {"p": 8}, proof
    early = world(hop=True, paid=(0, 0, 0, 1, 1, 1, 1, 1)).prove()
    assert "no charge of epoch 0" in early.fault


def test_a_shard_that_is_missing_altogether_is_missed() -> None:
    """The ledger, not manifests, states the number of shards."""
    whole = WORLD()
    for shard in (b"0", b"1", b"2"):
        rest = [tuple(r for r in log if shard_of(r) != shard) for log in whole.releases]
        proof = World(whole.ledger, tuple(rest)).prove()
        assert proof.unfinished == "release 1 of p is there in part", shard


def test_a_record_of_the_ledger_whose_signature_was_forged_is_found_wherever_it_is() -> None:
    """The chain continues over the forged signature, so each record must be checked."""
    made = Ledger.read(WORLD().ledger[:1], KEY)
    body = Ledger.read(WORLD().ledger).records[1].body
    forged = structs.replace(made.next("pipeline", 2, body), signature="0" * 128)
    made.take(forged.encode())
    made.take(made.next("refused", 3, {"pipeline": "p", "epoch": 9}).encode())
    proof = World(tuple(r.encode() for r in made.records), ((), ())).prove()
    assert proof.fault.startswith("ledger record 1 is not signed by the key")


def test_large_releases_that_are_published_in_pieces_have_the_same_signatures(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Between two pieces the chains are in the shard's state, so a crash changes nothing."""
    monkeypatch.setattr(stage, "RELEASED", 1)
    pieces = world()
    found = pieces.prove().proved
    assert found

    def by_shard(log: tuple[RawRecord, ...]) -> list[RawRecord]:
        return [r._replace(offset=0) for r in sorted(log, key=shard_of)]

    for mine, others in zip(pieces.releases, WORLD().releases, strict=True):
        assert by_shard(mine) == by_shard(others)
