"""Errors of RocksDB are told in words of the product."""

from __future__ import annotations

from pathlib import Path

import pytest
from hushstream.agents.state.rocks_errors import explained, told
from hushstream.errors import DamagedError, EngineError


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ("IO error: No space left on device: While appending", EngineError, "No space left on"),
        ("IO error: lock hold by current process", EngineError, "in use by another process"),
        ("Corruption: block checksum mismatch: stored = 31", DamagedError, "damaged"),
        ("Corruption: IO error: Too many open files", EngineError, "Too many open files"),
        ("Busy: secret", EngineError, "RocksDB refuses"),
    ],
)
def test_what_the_library_says_is_told_without_its_text(text, kind, words):
    error = told(Path("s"), "written", text)
    assert type(error) is kind and words in str(error)
    assert "31" not in str(error) and "secret" not in str(error)


def test_an_error_of_the_library_does_not_show_in_the_one_that_is_raised():
    with pytest.raises(DamagedError) as met, explained(Path("s"), "read"):
        raise RuntimeError("Corruption: secret")
    assert met.value.__cause__ is None and "secret" not in str(met.value)
