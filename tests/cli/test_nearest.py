"""Misspelt commands."""

from __future__ import annotations

import pytest

from .bench import typed


@pytest.mark.parametrize(
    "words,near",
    [
        ("statsu", "Did you mean `status`?"),
        ("dead_letters", "Did you mean `dead-letters`?"),
        ("Plan", "Did you mean `plan`?"),
        ("ledger sho", "Did you mean `show`?"),
        ("broker strat", "Did you mean `start` or `status`?"),
        ("ratchet nwe", "Did you mean `new`?"),
        ("status --wtach", "Did you mean --watch?"),
    ],
)
def test_a_misspelt_word_names_the_nearest_right_one(words: str, near: str) -> None:
    code, _, err = typed(*words.split())
    assert code == 2 and near in err


def test_a_word_like_no_command_names_none() -> None:
    assert "Did you mean" not in typed("xyzzy")[2]
