"""``hush learn``: the line to write, and the words while nothing is known."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hushstream.cli.planning import learn as command
from hushstream.reading.client import ReleaseTopic, Wanted
from hushstream.topics.assembly import Released
from hushstream.topics.config.load import loads

from ...planning.test_learnt import TEXT, of
from ..bench import typed


@pytest.fixture
def shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Released]]:
    """Releases of a deployment in this folder, as the topics would hold them."""
    told = dict(of(1))

    def read(source: ReleaseTopic, wanted: Wanted) -> list[Released]:
        assert wanted.final
        return told[source.pipeline]

    monkeypatch.setattr(command, "releases", read)
    monkeypatch.chdir(tmp_path)
    Path("hush.toml").write_text(TEXT)
    return told


def test_the_line_that_is_printed_is_what_the_configuration_takes(
    shown: dict[str, list[Released]],
) -> None:
    code, out, _ = typed("learn", "--json")
    told = json.loads(out)["pipelines"]["pages"]
    assert code == 0 and told["budget"] <= 2 and told["stated"] == 12
    config = loads(TEXT.replace("learn = {}", told["toml"]), environ={})
    assert [p.name for p in config.pipeline] == ["pages", "pages-learnt", "pages-activity"]
    code, out, _ = typed("learn", "pages")
    assert code == 0 and told["toml"] in out and "until now" in out and "hush topics" in out


def test_nothing_is_said_before_something_is_known(shown: dict[str, list[Released]]) -> None:
    shown["pages"] = []
    assert json.loads(typed("learn", "--json")[1]) == {"pipelines": {"pages": None}}
    assert "nothing is known yet" in typed("learn")[1]


def test_what_was_learnt_is_not_learnt_again(shown: dict[str, list[Released]]) -> None:
    line = json.loads(typed("learn", "--json")[1])["pipelines"]["pages"]["toml"]
    Path("hush.toml").write_text(TEXT.replace("learn = {}", line))
    assert "no bound is left to learn" in typed("learn")[1]
    Path("hush.toml").write_text(TEXT.replace("learn = {}\n", ""))
    code, _, err = typed("learn", "pages")
    assert code == 2 and "has no table learn" in err
