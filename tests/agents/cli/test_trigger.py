"""``hush trigger --wait``: how far it is, and that nothing moves; the rest is in integration."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from hushstream.agents.cli import trigger as module
from hushstream.agents.cli.trigger import STILL_SECONDS, Asked
from hushstream.agents.clock.outlook import Outlook

ASKED = Outlook("orders", 5, 3, 1, 2, False, Fraction(1), Fraction(0))


class _Scripted(Asked):
    """A request whose triggers fire as a list says, one entry a look."""

    def __init__(self, left: list[int]) -> None:
        self._left = iter(left)

    def outlooks(self) -> list[Outlook]:
        return [replace(ASKED, due=next(self._left))]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that have passed; a sleep lets them pass."""
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(module.time, "sleep", sleep)
    return now


def test_each_step_is_told_once(clock, capsys):
    _Scripted([5, 5, 2, 0]).wait([ASKED])
    assert capsys.readouterr().err.splitlines() == [
        "0 of 5 triggers are done",
        "3 of 5 triggers are done",
        "3 triggers fired; 2 epochs are refused for good, since the budget's limit is reached",
    ]


def test_without_any_trigger_it_says_so_once_a_minute(clock, capsys):
    looks = int(2.5 * STILL_SECONDS / module.LOOK_SECONDS)
    _Scripted([5] * looks + [0]).wait([replace(ASKED, refused=0)])
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "0 of 5 triggers are done" and lines[-1] == "all triggers fired"
    assert len(lines) == 4
    assert all("nothing has fired for 60 s" in line and "cancelled" in line for line in lines[1:3])


def test_a_trigger_ends_the_silence(clock, capsys):
    """The minute counts from the last trigger, not from the request."""
    almost = int(STILL_SECONDS / module.LOOK_SECONDS) - 1
    _Scripted([5] * almost + [4] * almost + [0]).wait([replace(ASKED, refused=0)])
    assert "nothing has fired" not in capsys.readouterr().err
