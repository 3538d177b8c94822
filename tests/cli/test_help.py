"""`hush help` shows what `--help` shows."""

from __future__ import annotations

import pytest

from .bench import typed


@pytest.mark.parametrize("words", [(), ("plan",), ("ledger",), ("ledger", "explain")])
def test_the_word_shows_what_the_option_shows(words: tuple[str, ...]) -> None:
    code, out, err = typed("help", *words)
    assert (code, out, err) == typed(*words, "--help") and code == 0
    assert out.startswith("Usage: ")


def test_a_command_that_does_not_exist_is_refused_with_the_nearest_one() -> None:
    code, _, err = typed("help", "plam")
    assert code == 2 and "Did you mean `plan`?" in err
    assert "No such option" in typed("help", "--nonsense")[2]
