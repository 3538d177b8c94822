"""Numbers of too many digits, or of too large an exponent."""

from __future__ import annotations

import pytest
from hushstream.topics.digits import MOST_DIGITS, huge


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("9" * MOST_DIGITS, False),
        ("9" * (MOST_DIGITS + 1), True),
        ("1e999", False),
        ("1E+1000", True),
        ("1e-1000", True),
    ],
)
def test_what_takes_long_to_read_or_cannot_be_written_is_huge(text, expected):
    assert huge(text) is expected
