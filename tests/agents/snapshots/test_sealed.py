"""The seal of a snapshot: one that was changed, cut or belongs to another table does not open."""

from __future__ import annotations

import pytest
from hushstream.agents.snapshots.sealed import (
    MAGIC,
    PART,
    CopyHead,
    TableKeys,
    fingerprint_of,
    new_seal,
)
from hushstream.errors import SnapshotError

SECRET = bytes(range(32))
SEAL = "5" * 64
HEAD = CopyHead("n1", fingerprint_of(SEAL), 1.5, [b"p", None, b"m", None], [("a.sst", 3), ("b", 0)])


def test_a_head_opens_for_its_own_table_and_deployment_alone() -> None:
    keys = TableKeys(SECRET, "g/log/0")
    data = keys.seal_head(HEAD)
    assert keys.open_head(data) == HEAD
    assert b"a.sst" not in data and data != keys.seal_head(HEAD)
    for other in (TableKeys(SECRET, "g/log/1"), TableKeys(bytes(32), "g/log/0")):
        with pytest.raises(SnapshotError, match="another table"):
            other.open_head(data)


@pytest.mark.parametrize("at", [len(MAGIC), len(MAGIC) + 12, -1])
def test_a_head_that_was_changed_is_refused(at: int) -> None:
    keys = TableKeys(SECRET, "g/log/0")
    data = bytearray(keys.seal_head(HEAD))
    data[at] ^= 1
    with pytest.raises(SnapshotError, match="was changed"):
        keys.open_head(bytes(data))


@pytest.mark.parametrize("data", [b"", b"hush", MAGIC.replace(b"1", b"2") + bytes(99)])
def test_a_head_of_another_version_is_refused(data: bytes) -> None:
    with pytest.raises(SnapshotError, match="version"):
        TableKeys(SECRET, "g/log/0").open_head(data)


@pytest.mark.parametrize("length", [len(MAGIC), len(MAGIC) + 5, len(MAGIC) + 20, -1])
def test_a_head_that_was_cut_is_refused(length: int) -> None:
    keys = TableKeys(SECRET, "g/log/0")
    with pytest.raises(SnapshotError):
        keys.open_head(keys.seal_head(HEAD)[:length])


@pytest.mark.parametrize(
    "files", [[("../a", 1)], [("a", 1), ("a", 1)], [("", 1)], [(".", 1)], [("a", -1)]]
)
def test_a_head_names_no_file_elsewhere(files: list[tuple[str, int]]) -> None:
    keys = TableKeys(SECRET, "g/log/0")
    head = CopyHead("n1", "", 0.0, [], files)
    with pytest.raises(SnapshotError, match="names files"):
        keys.open_head(keys.seal_head(head))


def test_a_part_opens_in_its_place_with_its_seal_alone() -> None:
    keys = TableKeys(SECRET, "g/log/0")
    key = keys.parts(SEAL, "n1")
    data = key.seal(3, b"rows")
    assert key.open(3, data, 4) == b"rows" and b"rows" not in data
    changed = data[:-1] + bytes([data[-1] ^ 1])
    wrong = [
        (key, 2, data), (key, 3, changed), (key, 3, data[:-1]), (key, 3, b""),
        (keys.parts(SEAL, "n2"), 3, data), (keys.parts(new_seal(), "n1"), 3, data),
        (TableKeys(SECRET, "g/log/1").parts(SEAL, "n1"), 3, data),
        (TableKeys(bytes(32), "g/log/0").parts(SEAL, "n1"), 3, data),
    ]  # fmt: skip
    for other, part, bytes_ in wrong:
        with pytest.raises(SnapshotError, match="was changed"):
            other.open(part, bytes_, 4)
    with pytest.raises(SnapshotError, match="as long as"):
        key.open(3, data, 5)


def test_parts_divide_all_files() -> None:
    head = CopyHead("n", "", 0.0, [], [("a", PART), ("b", 5), ("c", 0)])
    assert (head.size, head.parts, head.length(0), head.length(1)) == (PART + 5, 2, PART, 5)
    assert CopyHead("n", "", 0.0, [], []).parts == 0


def test_a_seal_is_named_without_being_told() -> None:
    one, other = new_seal(), new_seal()
    assert one != other and len(one) == 64
    assert fingerprint_of(one) != fingerprint_of(other) and fingerprint_of(one) not in one
