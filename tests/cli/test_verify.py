"""``hush verify``: findings about a deployment and exit codes; the broker is in memory."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path

import pytest
from hushstream.agents.clock.ledger import Ledger
from hushstream.cli import verify

from ..reading.signed import KEY, OTHER, TOPIC, World
from ..reading.signed import world as made
from .bench import typed

world = lru_cache(made)
WORDS = ("verify", "--bootstrap", "nowhere:1", "--deployment", "test", "--wait", "0")


@pytest.fixture
def shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[World]:
    """Contents of the topics; the last world is read."""
    worlds = [world()]

    class Reader:
        def __init__(self, kafka: object, deployment: str) -> None:
            assert deployment == "test"

        def ledger(self) -> Ledger:
            return Ledger.read(worlds[-1].ledger)

        def records(self, topic: str, partition: int) -> object:
            assert topic == TOPIC
            return worlds[-1].releases[partition]

        def partitions(self, topic: str) -> int:
            assert topic == TOPIC
            return len(worlds[-1].releases)

    monkeypatch.setattr(verify, "PublicTopics", Reader)
    monkeypatch.chdir(tmp_path)
    return worlds


def test_it_says_in_words_what_is_proved(shown: list[World]) -> None:
    code, out, _ = typed(*WORDS)
    assert code == 0
    for words in (
        f"signed by the public key {KEY.public}",
        "p: releases 1 to 8, complete",
        "none altered, missing, doubled or out of order",
        "each release was charged before it came",
        "is unbroken, head",
        "Hold the public key against the one that the operator publishes",
    ):
        assert words in out
    assert "Hold the public key" not in typed(*WORDS, "--public-key", KEY.public)[1]
    code, out, _ = typed(*WORDS, "--public-key", KEY.public, "--json")
    assert code == 0 and json.loads(out)["proved"] is True


def test_it_names_the_place_at_fault_and_ends_with_3(shown: list[World]) -> None:
    first = shown[0].releases[0]
    shown.append(World(shown[0].ledger, (first[1:], shown[0].releases[1])))
    code, out, _ = typed(*WORDS)
    assert code == 3 and out.startswith(f"NOT PROVED: {TOPIC}-0, offset ")
    shown.append(world(None))
    code, out, _ = typed(*WORDS, "--json")
    assert code == 3 and "without a signing key" in json.loads(out)["fault"]
    shown.append(World(shown[0].ledger, (first[:-1], shown[0].releases[1])))
    code, out, _ = typed(*WORDS)
    assert code == 3 and out.startswith("NOT COMPLETE: release 8 of p is there in part.")
    assert "takes engine.publish_delay and longer, run this again, or with a longer --wait" in out


def test_it_waits_for_what_is_just_being_published(
    shown: list[World], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown.append(World(shown[0].ledger, (shown[0].releases[0][:-1], shown[0].releases[1])))
    monkeypatch.setattr(verify.time, "sleep", lambda seconds: shown.append(world()))
    assert typed(*WORDS[:-1], "60")[0] == 0


def test_another_key_than_the_known_one_is_refused(shown: list[World]) -> None:
    code, out, _ = typed(*WORDS, "--public-key", OTHER.public)
    assert code == 3 and "names the public key" in out
    code, _, err = typed(*WORDS, "--public-key", "abc")
    assert code == 2 and "64 hexadecimal digits" in err


def test_a_checkpoint_is_written_once_proved_and_held_against_the_next_time(
    shown: list[World],
) -> None:
    file = Path("seen.json")
    shown.append(world(None))
    assert typed(*WORDS, "--checkpoint", str(file))[0] == 3 and not file.exists()
    shown.append(world())
    assert typed(*WORDS, "--checkpoint", str(file))[0] == 0
    assert json.loads(file.read_text())["releases"] == {"p": 8}
    before = file.read_text()
    shown.append(world(OTHER))
    code, out, _ = typed(*WORDS, "--checkpoint", str(file))
    assert code == 3 and "another one than when this was proved" in out
    assert file.read_text() == before
    code, out, err = typed(*WORDS, "--checkpoint", "absent/seen.json")
    assert code == 2 and "no folder absent" in err and not out  # refused before any topic is read
    file.write_text("{}")
    code, _, err = typed(*WORDS, "--checkpoint", str(file))
    assert code == 2 and "seen.json: not what" in err


@pytest.mark.parametrize("words", [(), WORDS[1:3], WORDS[3:5]])
def test_who_names_no_deployment_is_told_how(shown: list[World], words: tuple[str, ...]) -> None:
    code, _, err = typed("verify", *words)
    assert code == 2 and "--bootstrap HOST:PORT --deployment NAME" in err
