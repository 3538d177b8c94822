"""How deep a record may be nested: by its bytes alone, whatever the stack and its neighbours."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hushstream.formats.events.decode import Decoded, RawRecord
from hushstream.formats.events.json_scan import DEPTH
from hushstream.formats.events.nesting import MOST_NESTED, deep, shallow
from hypothesis import given
from hypothesis import strategies as st

from .test_columns import made

JSON = st.recursive(
    st.one_of(st.integers(), st.text('[]{}"\\a\n', max_size=8)),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text('[{"\\', max_size=2), inner)
    ),
    max_leaves=12,
)


def levels(value: Any) -> int:
    if not isinstance(value, list | dict):
        return 0
    inner = value.values() if isinstance(value, dict) else value
    return 1 + max(map(levels, inner), default=0)


def nested(number: int, user: str = "u") -> bytes:
    """A record of ``number`` levels."""
    lists = "[" * (number - 1) + "]" * (number - 1)
    return f'{{"user":"{user}","page":"a","kind":1,"t":1,"fare":2,"deep":{lists}}}'.encode()


@given(JSON, st.integers(0, MOST_NESTED + 2), st.booleans())
def test_levels_are_counted_outside_texts(value: Any, more: int, plain: bool) -> None:
    for n in range(more):
        value = [value] if n % 2 else {'"[': value, "b": ["[" * 70, "\\"]}
    data = json.dumps([[[]] * 70, value], ensure_ascii=plain).encode()
    assert deep(data) == (levels(value) + 1 > MOST_NESTED)


@pytest.mark.parametrize("other", [b"{}", b"{" * 40, b"[" * 65 + b"]" * 65, b'{"a":"' + b"[" * 99])
def test_a_list_is_shallow_if_each_record_is(other: bytes) -> None:
    for many in (0, 1, 300):
        for number in (3, MOST_NESTED, MOST_NESTED + 1):
            braces = b'{"a":' * number + b"1" + b"}" * number
            for one in (braces, nested(number)):
                found = shallow([b"{}"] * many + [one] + [other] * many)
                assert found == (number <= MOST_NESTED and not (many and deep(other)))


def test_loops_read_nothing_that_the_other_way_refuses() -> None:
    assert DEPTH < MOST_NESTED


def refused(decoder: Any, values: list[bytes | None], below: int = 0) -> dict[int, str]:
    """The reasons, ``below`` calls further down the stack."""
    if below:
        return refused(decoder, values, below - 1)
    found: Decoded = decoder.decode([RawRecord(n, 5, None, v) for n, v in enumerate(values)])
    return {row: str(reason) for row, reason in found.bad.items()}


@pytest.mark.parametrize("bad", [b"{", nested(2000), nested(3).replace(b'"u"', b"5.5"), None])
def test_one_bad_record_does_not_decide_whether_others_count(bad: bytes | None) -> None:
    """In place of a limit stood what was left of the stack, two calls less after a bad record."""
    numbers = [3, MOST_NESTED, MOST_NESTED + 1, *range(700, 1000)]
    values: list[bytes | None] = [nested(number) for number in numbers]
    expected = dict.fromkeys(range(2, len(values)), "malformed")
    for below in (0, 400, 600):
        for how in ("epoch_ms", "iso"):
            decoder = made(how)
            crowd = [v and v.replace(b'"t":1', b'"t":"2020-01-01"') if how == "iso" else v
                     for v in values]  # fmt: skip
            assert refused(decoder, crowd, below) == expected
            with_bad = refused(decoder, [*crowd, bad], below)
            assert with_bad.pop(len(values)) in ("malformed", "wrong_type", "null")
            assert with_bad == expected


def test_a_stack_without_room_ends_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = made()

    def full(value: bytes) -> Any:
        raise RecursionError

    monkeypatch.setattr(decoder._each._reader._shared, "decode", full)  # type: ignore[union-attr]
    with pytest.raises(RecursionError):
        refused(decoder, [nested(3)])
