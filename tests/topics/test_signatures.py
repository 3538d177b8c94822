"""Signatures, chains of rows, and the two headers that carry them."""

from __future__ import annotations

import pytest
from hushstream.topics.signatures import (
    START,
    RowPlace,
    Seal,
    Sealing,
    Signed,
    SigningKey,
    chained,
    is_public_key,
    record_statement,
    rows_digest,
    verified,
)

KEY = SigningKey(bytes(range(32)))
SEAL = Seal(1, 4, 7, 3, "ab" * 32, "cd" * 32)
RECORD = Signed("t", 1, b"k", b"v", 5, (("hush-manifest", b"hush.manifest/2"),))


def test_a_known_seed_gives_the_signature_of_the_standard() -> None:
    """RFC 8032, section 7.1, test 2."""
    seed = "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb"
    public = "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c"
    signature = (
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
        "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
    )
    key = SigningKey(bytes.fromhex(seed))
    assert (key.public, key.sign(b"\x72")) == (public, signature)
    assert verified(public, b"\x72", signature)


def test_what_is_no_signature_or_no_key_is_refused() -> None:
    good = KEY.sign(b"x")
    assert verified(KEY.public, b"x", good)
    for public, statement, signature in [
        (KEY.public, b"y", good),
        (KEY.public, b"x", good[:-2]),
        (KEY.public, b"x", "zz" * 64),
        (KEY.public, b"x", ""),
        ("zz" * 32, b"x", good),
        ("", b"x", good),
        (SigningKey(bytes(range(1, 33))).public, b"x", good),
    ]:
        assert not verified(public, statement, signature)
    assert is_public_key(KEY.public)
    assert not any(map(is_public_key, (None, 7, "", KEY.public[1:], KEY.public.upper(), "zz" * 32)))


def test_headers_have_one_encoding() -> None:
    sealed = SEAL._replace(signature=KEY.sign(b""))
    assert Seal.decode(sealed.encode()) == sealed
    assert RowPlace.decode(RowPlace(3, 17).encode()) == (3, 17)
    assert Seal.decode(SEAL.encode()) is None, "a record without its signature was accepted"
    told = sealed.encode()
    for wrong in (told.upper(), told + b"\n", b" " + told, told.replace(b"1 1", b"1 01", 1),
                  b"2" + told[1:], told.replace(b" ", b"  ", 1), b"", b"\xff"):  # fmt: skip
        assert Seal.decode(wrong) is None
    for wrong in (b"03 17", b"3  17", b"3 17 ", b"-3 17", b"3", b"", b"\xb2 1", b"3 17\n"):
        assert RowPlace.decode(wrong) is None


@pytest.mark.parametrize(
    "change",
    [{"topic": "u"}, {"partition": 2}, {"key": b"K"}, {"value": b"V"}, {"timestamp": 6},
     {"headers": (("hush-manifest", b"hush.manifest/3"),)}, {"headers": ()}],
    ids=str,
)  # fmt: skip
def test_a_seal_covers_all_of_its_record(change) -> None:
    sealing = Sealing("ee" * 32, KEY.public, KEY)
    seal = Seal.decode(sealing.seal(RECORD, SEAL)[1])
    assert seal is not None and sealing.holds(RECORD, seal)
    assert not sealing.holds(RECORD._replace(**change), seal)


@pytest.mark.parametrize("field", ["shard", "shards", "ordinal", "trigger", "charge", "rows"])
def test_a_seal_covers_all_of_itself(field) -> None:
    sealing = Sealing("ee" * 32, KEY.public, KEY)
    seal = Seal.decode(sealing.seal(RECORD, SEAL)[1])
    assert seal is not None
    other = 9 if isinstance(getattr(seal, field), int) else "ef" * 32
    assert not sealing.holds(RECORD, seal._replace(**{field: other}))
    assert not Sealing("ef" * 32, KEY.public).holds(RECORD, seal), "a seal of another ledger holds"


def test_whoever_has_no_key_seals_without_a_signature() -> None:
    name, told = Sealing("ee" * 32, KEY.public).seal(RECORD, SEAL)
    assert (name, told) == ("hush-signature", SEAL.encode())


def test_chains_depend_on_every_row_on_their_order_and_on_their_partition() -> None:
    rows = [(b"a", b"1", 5, (("n", b"x"),)), (b"b", b"2", 5, (("n", b"x"),))]

    def chain(every) -> bytes:
        end = START
        for row in every:
            end = chained(end, *row)
        return end

    whole = chain(rows)
    others = [
        chain(rows[:1]), chain(rows[::-1]), chain([*rows, rows[1]]),
        chain([rows[0], (b"b2", b"", 5, rows[1][3])]),
        chain([rows[0], (b"b", b"2", 6, rows[1][3])]),
        chain([rows[0], (b"b", b"2", 5, ())]), START,
    ]  # fmt: skip
    assert len({whole, *others}) == 1 + len(others)
    digests = [rows_digest(one) for one in ({0: whole}, {1: whole}, {}, {0: whole, 1: START})]
    assert len(set(digests)) == 4
    assert rows_digest({1: START, 0: whole}) == digests[3]


def test_a_signature_of_a_record_is_none_of_a_release() -> None:
    assert record_statement("ab") != RECORD.statement("ab", SEAL)
    assert record_statement("ab") == b"13:hush ledger 12:ab"
