"""The judge checks signatures: it agrees with the product and objects to forgeries."""

from __future__ import annotations

from functools import lru_cache

from ..reading.signed import KEY, OTHER, TOPIC, World
from ..reading.signed import world as made
from .seals import Record, of_ledger, of_releases

world = lru_cache(made)


def objections(one: World) -> list[str]:
    logs = [
        [Record(r.offset, r.timestamp, r.key or b"", r.value or b"", r.headers) for r in log]
        for log in one.releases
    ]
    return [*of_ledger(one.ledger), *of_releases(one.ledger, TOPIC, "p", logs)]


def test_judge_and_product_agree_on_what_is_signed() -> None:
    assert objections(world()) == []
    assert objections(world(None)) == []


def test_the_judge_objects_to_another_key_and_to_none() -> None:
    mine, other, bare = world(KEY), world(OTHER), world(None)
    assert any("signature" in one for one in objections(World(mine.ledger, other.releases)))
    assert any("further headers" in one for one in objections(World(mine.ledger, bare.releases)))
    assert any("further headers" in one for one in objections(World(bare.ledger, mine.releases)))
    mixed = (*mine.ledger[:-1], other.ledger[-1])
    assert any("not signed by" in one for one in objections(World(mixed, mine.releases)))


def test_the_judge_objects_to_rows_and_charges_that_are_gone_or_changed() -> None:
    whole = world()
    log = list(whole.releases[0])
    row = next(n for n, r in enumerate(log) if r.headers[0][0] == "hush-row")
    for changed in (
        [*log[:row], *log[row + 1 :]],
        [*log[:row], log[row]._replace(value=log[row].value + b" "), *log[row + 1 :]],
        [*log[: row + 1], *log[row:]],
    ):
        wrong = objections(World(whole.ledger, (tuple(changed), whole.releases[1])))
        assert any("other rows" in one for one in wrong)
    wrong = objections(World(whole.ledger[:-1], whole.releases))
    assert any("has not charged" in one for one in wrong)
    later = [r for r in log if b" 0 3 2 " not in r.headers[1][1]]
    wrong = objections(World(whole.ledger, (tuple(later), whole.releases[1])))
    assert any("shard 0: releases [1, 3" in one for one in wrong)
