"""Mass loss: an alarm in words for the operator, and no word of it for anyone else."""

from __future__ import annotations

import logging
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import hushstream.agents.worker.health.losses as module
import pytest
from hushstream.agents.worker.health.losses import LossWatch

from ....support import messages

SHARE = Fraction(1, 10)


@pytest.fixture
def made(tmp_path: Path) -> tuple[LossWatch, Path, dict[str, bool]]:
    shown: dict[str, bool] = {}
    path = tmp_path / "alarms.log"
    watch = LossWatch(SHARE, path, lambda _, cause, alarm: shown.update({cause: alarm}))
    return watch, path, shown


def counts(**numbers: int) -> Counter[tuple[str, str]]:
    return Counter({("p", name.replace("__", ":")): n for name, n in numbers.items()})


@pytest.mark.parametrize(
    ("lost", "cause", "words"),
    [
        ({"invalid__malformed": 150}, "dead", "dead-letter topic"),
        ({"invalid__wrong_partition": 150}, "misplaced", 'librdkafka use "crc32"'),
        ({"late": 100, "future": 50}, "late", "producers' clocks"),
        ({"seen": 1500, "accepted": 1000}, "cut", "cut off"),
    ],
)
def test_each_cause_is_told_in_words_once_in_a_while(made, lost, cause, words, caplog):
    watch, path, shown = made
    caplog.set_level(logging.DEBUG)
    for _ in range(3):
        watch.count(counts(**({"seen": 1000} | lost)))
        watch.look()
    (line,) = path.read_text().splitlines()
    assert "pipeline p: more than 0.1 of its records" in line and words in line
    assert "150" not in line and "1000" not in line and "500" not in line
    assert [name for name, alarm in shown.items() if alarm] == [cause]
    assert path.stat().st_mode & 0o077 == 0
    assert messages(caplog.records) == []  # people outside the trust boundary read the log


def test_a_smaller_share_and_few_records_are_no_alarm(made):
    watch, path, shown = made
    watch.count(counts(routed=901, invalid__null=99))
    watch.look()
    assert not path.exists() and not any(shown.values())
    watch.count(counts(invalid__null=99))  # too few, so they wait for more
    watch.look()
    assert not any(shown.values())
    watch.count(counts(invalid__null=1))
    watch.look()
    assert shown["dead"]
    watch.count(counts(routed=500))
    watch.look()
    assert not shown["dead"]  # the alarm is over


def test_an_alarm_ends_where_records_no_longer_come(made):
    watch, _, shown = made
    watch.count(counts(late=150))
    watch.look()
    assert shown["late"]
    watch.count(counts(late=1))  # too few to judge, but still lost
    watch.look()
    assert shown["late"]
    watch.look()
    assert not any(shown.values())


def test_zero_turns_it_off_and_the_file_does_not_grow_for_ever(tmp_path, monkeypatch):
    off = LossWatch(Fraction(0), tmp_path / "off", lambda *_: None)
    off.count(counts(late=10_000))
    off.look()
    assert not (tmp_path / "off").exists()
    monkeypatch.setattr(module, "FILE_BYTES", 2000)
    monkeypatch.setattr(module, "REPEAT_SECONDS", 0.0)
    path = tmp_path / "on"
    on = LossWatch(SHARE, path, lambda *_: None)
    for _ in range(50):
        on.count(counts(late=10_000))
        on.look()
    assert path.stat().st_size < 3000
    assert all(line.startswith("20") for line in path.read_text().splitlines())


def test_a_disk_without_room_stops_nothing(tmp_path):
    shown: list[Any] = []
    watch = LossWatch(SHARE, tmp_path / "none" / "alarms", lambda *one: shown.append(one))
    watch.count(counts(late=10_000))
    watch.look()
    assert ("p", "late", True) in shown
