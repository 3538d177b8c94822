"""``hush ledger page``: one page, and the same facts as JSON; the broker is in memory."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hushstream.agents.clock.ledger import Ledger
from hushstream.agents.deployment.compile import compile_config
from hushstream.cli import page
from hushstream.topics.config.load import load

from ..reading.live.test_public_page import ledger
from .bench import typed


@pytest.fixture
def made(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Ledger:
    found = ledger(list(compile_config(load("hush.toml")).pipelines), 3)
    monkeypatch.setattr(page, "ledger_of", lambda config: found)
    return found


def test_a_page_and_its_facts_are_written(made: Ledger) -> None:
    code, out, _ = typed("ledger", "page", "--out", "privacy.html")
    assert code == 0 and "privacy.html  for people" in out
    text, told = Path("privacy.html").read_text(), json.loads(Path("privacy.json").read_text())
    assert text.startswith("<!doctype html>") and made.head in text
    (one,) = told["pipelines"]
    assert one["limit"]["epsilon"] == 80.0 and one["epochs"]["charged"] == 3
    assert one["left"] == pytest.approx(80 - one["spent"]["epsilon"])


def test_it_needs_a_place_and_says_so(made: Ledger) -> None:
    code, _, err = typed("ledger", "page")
    assert code == 2 and "--out" in err
    code, _, err = typed("ledger", "page", "--out", "absent/privacy.html")
    assert code == 2 and "no folder absent" in err


@pytest.mark.parametrize("name", ["privacy.json", "privacy.JSON"])
def test_a_page_does_not_take_the_name_of_its_facts(made: Ledger, name: str) -> None:
    code, _, err = typed("ledger", "page", "--out", name)
    assert code == 2 and "privacy.html" in err and not Path(name).exists()
