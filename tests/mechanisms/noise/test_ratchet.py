"""The ratchet: every state gives the same keys, and none gives the keys of earlier steps."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Collection

from hushstream.mechanisms.noise.ratchet import Charge, Ratchet, advanced, epoch_key
from hypothesis import given
from hypothesis import strategies as st

ROOT = bytes(range(32))
MOST = 24  # records in the ledger
charges = st.lists(
    st.builds(Charge, st.integers(1, MOST - 1), st.sampled_from(["p", "q"]), st.integers(-3, 40)),
    unique_by=lambda one: one.number,
)


def never(charge: Charge) -> bool:
    return False


def steps() -> list[bytes]:
    """The key of each step, computed independently."""
    found = [ROOT]
    for _ in range(2 * MOST):
        found.append(hmac.new(found[-1], b"hushstream ratchet: next step", hashlib.sha256).digest())
    return found


def held(ratchet: Ratchet) -> set[bytes]:
    return {bytes(ratchet.key), *map(bytes, ratchet.kept.values())}


@given(charges, st.lists(st.integers(0, MOST), max_size=4), st.data())
def test_nothing_is_held_but_the_step_and_open_epochs(
    every: list[Charge], stops: list[int], data: st.DataObject
) -> None:
    """Held keys reveal no earlier step: each is an HMAC under a key that is not held."""
    ratchet, gone, key = Ratchet.new(ROOT), set[Charge](), steps()
    assert advanced(ROOT, MOST) == key[MOST]
    for stop in stops:
        done = [one for one in every if one.number < max(stop, ratchet.step)]
        gone |= set(data.draw(st.lists(st.sampled_from(done)) if done else st.just([])))
        fresh = [one for one in every if one.number >= ratchet.step]
        ratchet = ratchet.forward(stop, fresh, gone.__contains__)
        open_ = {one for one in every if one.number < ratchet.step} - gone
        assert set(ratchet.kept) == open_
        assert held(ratchet) == {
            key[ratchet.step], *(epoch_key(key[one.number], one) for one in open_)
        }  # fmt: skip
        assert not held(ratchet) & set(key[: ratchet.step])
        for one in every:  # open and future epochs have keys, ended ones have none
            wanted = None if one in gone else epoch_key(key[one.number], one)
            assert ratchet.of(one) == wanted


@given(charges, st.integers(0, MOST), st.integers(0, MOST))
def test_two_machines_never_have_two_keys_for_one_epoch(
    every: list[Charge], one: int, other: int
) -> None:
    """The key does not depend on how far a ratchet has advanced, nor in which steps."""
    root = Ratchet.new(ROOT)
    at_once = root.forward(max(one, other), every, never)
    between = root.forward(one, every, never)
    later = between.forward(other, [c for c in every if c.number >= between.step], never)
    for charge in every:
        assert root.of(charge) == at_once.of(charge) == later.of(charge) is not None
    assert (at_once.step, at_once.kept, at_once.key) == (later.step, later.kept, later.key)


def test_it_never_goes_back() -> None:
    later = Ratchet.new(ROOT).forward(5, [], never)
    assert later.forward(3, [], never) == later and later.forward(5, [], never) == later


def test_keys_differ_by_step_pipeline_and_epoch() -> None:
    ratchet = Ratchet.new(ROOT)
    every: Collection[Charge] = [
        Charge(3, "p", 1), Charge(4, "p", 1), Charge(3, "q", 1), Charge(3, "p", 2),
        Charge(3, "p1", 2), Charge(3, "p", 12), Charge(3, "p", -1),
    ]  # fmt: skip
    assert len({ratchet.of(one) for one in every} | set(steps())) == len(every) + len(steps())


def test_its_name_leads_nowhere_and_its_secrets_are_not_shown() -> None:
    ratchet = Ratchet.new(ROOT).forward(3, [Charge(1, "p", 1)], never)
    assert ratchet.name == Ratchet.new(ROOT).name != Ratchet.new(bytes(32)).name
    assert len(ratchet.name) == 32 and bytes.fromhex(ratchet.name) not in ROOT
    assert "key" not in repr(ratchet) and "bytearray" not in repr(ratchet)


def test_wiped_secrets_are_zeros() -> None:
    ratchet = Ratchet.new(ROOT).forward(3, [Charge(1, "p", 1)], never)
    ratchet.wipe()
    assert held(ratchet) == {bytes(32)} and len(ratchet.kept) == 1
