"""Health in words: on time, late and by how much, stopped and why."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hushstream.reading.live.health import Evidence, ago, health

from .test_declared import CRON, compiled, seen

MINUTE = 60_000_000
HOUR = 60 * MINUTE
BEGIN = 17956 * 24 * HOUR  # windows of 8 hours, a trigger every 2 hours
WALL = seen(compiled("histogram-plain"))
ASKED = seen(compiled("histogram-plain", CRON))
LAST = BEGIN + 4 * HOUR


def told(now: int, evidence: Evidence | None = None) -> tuple[str, str]:
    body = health(WALL, evidence or Evidence(last=LAST), now)
    return body["state"], body["words"]


@pytest.mark.parametrize(
    ("after", "state", "words"),
    [
        (2 * MINUTE, "good", "2 minutes ago. The next one is due at 2019-03-01 06:00 UTC."),
        (2 * HOUR, "good", "The one of 2019-03-01 06:00 UTC is being made."),
        (3 * HOUR, "good", "is being made"),
        (3 * HOUR + 1, "late", "the release of 2019-03-01 06:00 UTC is 1 hour late"),
        (50 * HOUR, "late", "is 2 days late. The newest release is of 2019-03-01 04:00 UTC"),
    ],
)
def test_a_release_is_late_once_half_a_step_has_passed(after: int, state: str, words: str) -> None:
    found = told(LAST + after)
    assert found[0] == state and words in found[1]


def test_before_the_first_release_it_says_when_that_is_due() -> None:
    assert told(BEGIN + MINUTE, Evidence()) == (
        "waiting", "Nothing has been released yet. The first release is due at 2019-03-01 02:00 "
        "UTC.")  # fmt: skip
    assert told(BEGIN, Evidence(read=False))[0] == "waiting"


def test_releases_on_request_are_never_late() -> None:
    body = health(ASKED, Evidence(last=LAST), LAST + 9000 * HOUR)
    assert body["state"] == "asked" and body["due"] is None
    assert body["words"].endswith("375 days ago. Releases come on request.")


def test_a_refused_epoch_stops_it_until_the_epoch_is_over() -> None:
    found = Evidence(last=LAST, refused=(1,))
    assert told(BEGIN + 9 * HOUR, found)[0] == "stopped"
    assert "epoch 1 was refused" in told(BEGIN + 9 * HOUR, found)[1]
    assert told(BEGIN + 17 * HOUR, found)[0] == "late"
    asked = replace(found, refused=(0,))
    assert health(ASKED, asked, LAST)["state"] == "stopped"
    later = replace(asked, last=BEGIN + 50 * HOUR)
    assert health(ASKED, later, BEGIN + 51 * HOUR)["state"] == "asked"


@pytest.mark.parametrize("seen", [Evidence(), Evidence(refused=(1,))], ids=["released", "refused"])
def test_a_retired_pipeline_has_ended_once_its_last_release_is_out(seen: Evidence) -> None:
    until = BEGIN + 16 * HOUR  # two windows
    found = replace(seen, last=BEGIN + (8 if seen.refused else 16) * HOUR, until=until)
    state, words = told(until + 900 * HOUR, found)
    assert state == "ended" and words.startswith("Ended: it was retired at 2019-03-01 16:00 UTC.")
    assert health(WALL, found, until + 900 * HOUR)["due"] is None
    before = replace(found, last=BEGIN + 14 * HOUR, refused=())
    assert told(until + 9 * HOUR, before)[0] == "late"  # one is missing


def test_what_cannot_be_read_is_said() -> None:
    assert told(LAST, Evidence(silent="there is no such topic")) == (
        "stopped", "Its topic cannot be read: there is no such topic.")  # fmt: skip
    state, words = told(LAST, Evidence(last=LAST, damaged=2, incomplete=1))
    assert state == "late" and "2 records of the topic are damaged" in words
    assert words.endswith("1 release not complete yet.")


def test_times_are_in_milliseconds_and_ages_in_words() -> None:
    body = health(WALL, Evidence(last=LAST), LAST)
    assert (body["last"], body["due"]) == (LAST // 1000, (LAST + 2 * HOUR) // 1000)
    assert ago(0) == "just now"
