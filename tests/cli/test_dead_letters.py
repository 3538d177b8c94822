"""Samples of dead letters for a person; the rest is tested on a broker, in `test_desk`."""

from __future__ import annotations

import pytest
from hushstream.agents.kafka.set_aside import Letter
from hushstream.cli.dead_letters import CHARACTERS, _samples


def letter(value: bytes) -> Letter:
    return Letter("malformed", "", "events", 0, 3, 0, None, value, (), 0)


def test_a_producer_forges_no_line_of_a_sample(capsys: pytest.CaptureFixture[str]) -> None:
    forged = b'{"user":\n\nbad_time of t:\r\n  events-0@17: {}\x1b[2J\xe2\x80\xa8\xff'
    _samples([letter(forged)], 1)
    lines = capsys.readouterr().out.split("\n")
    assert lines[:2] == ["", "malformed:"] and lines[3:] == [""]
    assert lines[2] == (
        r'  events-0@3: {"user":\n\nbad_time of t:\r\n  events-0@17: {}\u001b[2J\u2028\xff'
    )


def test_a_long_sample_is_cut(capsys: pytest.CaptureFixture[str]) -> None:
    _samples([letter(b"\n" * CHARACTERS), letter(b"x" * (CHARACTERS + 1))], 2)
    whole, cut = capsys.readouterr().out.splitlines()[2:]
    assert whole.endswith(r"\n") and whole.count(r"\n") == CHARACTERS and cut.endswith("xx…")
