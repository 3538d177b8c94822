"""Options of commands: an address is enough to read releases without a configuration.

Covers: cli/deployed.py
"""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from hushstream.cli.options import CONFIG, Flags, moment, release_topic
from hushstream.deploy.broker import Broker
from hushstream.errors import ConfigError
from hushstream.topics.config.access.secret import write_new_key

from .bench import CONFIG as SOURCE
from .bench import typed
from .test_releases import Place


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    "words",
    [("plot",), ("connect",), ("dead-letters",), ("watch",), ("ledger", "explain")],
    ids=" ".join,
)
def test_a_view_is_called_a_view_where_pipelines_are_expected(words: tuple[str, ...]) -> None:
    view = '[[view]]\nname = "top"\nsource = "pages"\nlimit = 3\n'
    Path(CONFIG).write_text(SOURCE + view)
    write_new_key(Path("hush.key"))
    code, _, err = typed(*words, "top", "--bootstrap", "127.0.0.1:1")
    said = " ".join(err.split())
    assert code == 2 and "'top' is a view of pipeline 'pages'" in said, err
    assert "take pages; `hush releases top` shows the view" in said
    with pytest.raises(ConfigError, match="expected one of pages, top"):
        release_topic(Flags(), "topp")


def test_without_a_configuration_the_topic_has_the_usual_name() -> None:
    found = release_topic(Flags(CONFIG, "b:1"), "shop")
    assert (found.kafka.bootstrap, found.topic) == ("b:1", "hush.shop.releases.v1")


@pytest.mark.parametrize(
    "words",
    [
        ("releases", "shop"),
        ("live", "--deployment", "hush"),
        ("verify", "--deployment", "hush"),
        ("ledger", "sum", "hush"),
    ],
)
def test_an_address_without_a_configuration_is_checked_too(words: tuple[str, ...]) -> None:
    for address, rule in (("b:0", "names port 0: write one from 1"), ("b", "must be host:port")):
        code, _, err = typed(*words, "--bootstrap", address)
        assert code == 2 and f"bootstrap = '{address}': {rule}" in err


@pytest.mark.parametrize(
    "given", [(CONFIG, None, ()), ("other.toml", "b:1", ()), (CONFIG, "b:1", ("kafka.x=1",))]
)
def test_a_configuration_that_was_asked_for_must_be_there(given: tuple[str, None, tuple]) -> None:  # type: ignore[type-arg]
    with pytest.raises(ConfigError, match="not found"):
        release_topic(Flags(*given), "shop")


def test_the_configuration_of_this_folder_counts_and_knows_its_pipelines(
    broker: Broker, tmp_path: Path
) -> None:
    Place(broker, tmp_path, "hush.privhp.releases.v1", "privhp")
    assert release_topic(Flags(CONFIG, "b:1"), "privhp").kafka.bootstrap == "b:1"
    with pytest.raises(ConfigError, match="'shop' is unknown; expected one of privhp"):
        release_topic(Flags(CONFIG, "b:1"), "shop")
    told = [typed(*words) for words in (("releases", "privhp", "--csv"), ("map", "privhp"))]
    (tmp_path / CONFIG).unlink()
    for words, (code, out, err) in zip((("releases", "privhp", "--csv"), ("map", "privhp")), told,
                                       strict=True):  # fmt: skip
        assert code == 0 and out, err
        assert typed(*words, "--bootstrap", broker.bootstrap) == (0, out, err)


def test_times_of_requests():
    assert moment("2019-03-01") == moment("2019-03-01T00:00Z") == 1_551_398_400_000_000
    assert moment("2019-03-01T01:00+01:00") == 1_551_398_400_000_000
    assert moment(None) > 1_551_398_400_000_000
    with pytest.raises(click.BadParameter, match="ISO time"):
        moment("tomorrow")
