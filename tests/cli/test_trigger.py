"""``hush trigger --wait``: progress, silence, and a request that cannot be completed.

The rest is in integration.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from hushstream.agents.clock.forecast import TriggerForecast
from hushstream.cli import trigger as module
from hushstream.cli.group import exit_code
from hushstream.cli.trigger import STILL_SECONDS, Asked
from hushstream.errors import EngineError

ASKED = TriggerForecast("orders", 5, 3, 1, 2, False, Fraction(1), Fraction(0))


class _Scripted(Asked):
    """A request with scripted numbers of due triggers, one per look and pipeline.

    ``holds`` has the number of looks for which a pipeline is in force.
    """

    def __init__(self, left: list[int], *more: list[int], holds: dict[str, int] | None = None):
        self._due = {"orders": iter(left)} | {f"p{i}": iter(one) for i, one in enumerate(more)}
        self._holds, self._looks = holds or {}, 0

    def forecasts(self) -> list[TriggerForecast]:
        return [replace(ASKED, pipeline=name, due=next(d)) for name, d in self._due.items()]

    def in_force(self) -> set[str]:
        self._looks += 1
        return {name for name in self._due if self._looks <= self._holds.get(name, self._looks)}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock in seconds that only sleeping advances."""
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
    assert all("nothing has fired for 60 s: does a worker run?" in line for line in lines[1:3])


def test_a_trigger_ends_the_silence(clock, capsys):
    """The minute counts from the last trigger, not from the request."""
    almost = int(STILL_SECONDS / module.LOOK_SECONDS) - 1
    _Scripted([5] * almost + [4] * almost + [0]).wait([replace(ASKED, refused=0)])
    assert "nothing has fired" not in capsys.readouterr().err


def test_a_cancelled_request_ends_the_waiting_with_what_is_done(clock, capsys):
    with pytest.raises(EngineError) as ended:
        _Scripted([5, 2, 2, 2], holds={"orders": 1}).wait([ASKED])
    assert str(ended.value) == (
        "the request was cancelled for orders: 3 of 5 triggers are done, and what is left fires "
        "only if it is requested again"
    )
    assert exit_code(ended.value) == 4
    assert capsys.readouterr().err.splitlines() == ["0 of 5 triggers are done"]


def test_what_was_cancelled_after_its_last_trigger_is_done(clock, capsys):
    _Scripted([5, 1, 0, 0], holds={"orders": 1}).wait([replace(ASKED, refused=0)])
    assert capsys.readouterr().err.splitlines()[-1] == "all triggers fired"


def test_pipelines_that_are_not_cancelled_are_waited_for(clock):
    with pytest.raises(EngineError, match="cancelled for orders: 3 of 5"):
        _Scripted([2] * 6, [3, 3, 1, 0, 0, 0], holds={"orders": 1}).wait([ASKED])
