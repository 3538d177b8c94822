"""The records of `seen_keys.py`: each key once, and few users per key except public ones."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
try:
    import seen_keys
finally:
    sys.path.pop(0)


def counted(events: Iterator[tuple[int, bytes]]) -> tuple[Counter[bytes], Counter[int]]:
    listed = list(events)
    return Counter(key for _, key in listed), Counter(user for user, _ in listed)


def test_each_key_is_seen_once_and_a_public_one_by_its_crowd():
    keys, users = counted(seen_keys.first(1_000, 5))
    assert len(keys) == 1_005
    assert {n for key, n in keys.items() if key.startswith(b"seen-")} == {1}
    assert {n for key, n in keys.items() if key.startswith(b"public-")} == {seen_keys.CROWD}
    assert max(users.values()) <= seen_keys.EACH + 1


def test_later_records_are_of_new_users_and_of_keys_that_were_seen():
    before, first_users = counted(seen_keys.first(1_000, 5))
    one, two = (counted(seen_keys.later(1_000, 100, number)) for number in (0, 1))
    assert set(one[0]) <= set(before) and len(one[0]) == 100 == len(one[1])
    assert not set(one[1]) & set(first_users) and not set(one[1]) & set(two[1])
    assert one[0] != two[0]
