"""A signalled demo ends with the signal's code, even if a library swallows the exception."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hushstream.cli.demo.site import Site, site


def _swallowed() -> None:
    pass


def _replaced() -> None:
    raise OverflowError("of a library in C")


ENDS = [(signal.SIGINT, "KeyboardInterrupt()"), (signal.SIGTERM, "SystemExit(143)")]


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


@pytest.mark.parametrize("after", [_swallowed, _replaced])
@pytest.mark.parametrize(("number", "end"), ENDS)
def test_a_block_ends_by_the_signal_whatever_became_of_it(
    tmp_path: Path, number: signal.Signals, end: str, after: Callable[[], None]
) -> None:
    handlers = {one: signal.getsignal(one) for one, _ in ENDS}
    with pytest.raises((SystemExit, KeyboardInterrupt)) as caught, site("127.0.0.1:9", False):
        _signalled(number)
        after()
    assert repr(caught.value) == end
    assert list(tmp_path.iterdir()) == []
    assert {one: signal.getsignal(one) for one, _ in ENDS} == handlers


@pytest.mark.parametrize(("number", "end"), ENDS)
def test_a_demo_that_goes_on_after_a_swallowed_signal_ends_at_its_next_look(
    number: signal.Signals, end: str
) -> None:
    made: list[Site] = []
    looked: list[str] = []
    with pytest.raises((SystemExit, KeyboardInterrupt)), site("127.0.0.1:9", False) as place:
        made.append(place)
        place.check()
        _signalled(number)
        try:
            place.check()
        except BaseException as error:
            looked.append(repr(error))
    assert looked == [end]


@pytest.mark.parametrize("kept", [True, False])
def test_an_error_without_a_signal_stays_what_it_is(tmp_path: Path, kept: bool) -> None:
    with pytest.raises(OverflowError, match="of a library"), site("127.0.0.1:9", kept):
        _replaced()
    assert list(tmp_path.iterdir()) == []


def _signalled(number: signal.Signals) -> None:
    """Deliver a signal and swallow its exception, as some libraries do."""
    with pytest.raises((SystemExit, KeyboardInterrupt)):
        os.kill(os.getpid(), number)
