"""`hush watch` in a terminal, and with its output in a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hushstream import read_releases
from hushstream.deploy.broker import Broker
from rich.cells import cell_len

from ..reading.live.showcase import Made, send, showcase, write
from ..terminal import HUSH, Terminal
from .bench import typed

HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"  # the cursor


@pytest.fixture(scope="module")
def made(broker: Broker) -> Made:
    found = showcase("watched", ("histogram", "phdstream"), scale=1)
    write(broker.bootstrap, found)
    return found


@pytest.mark.parametrize("columns", [80, pytest.param(200, marks=pytest.mark.thorough)])
def test_a_terminal_shows_it_until_it_is_interrupted(
    broker: Broker, made: Made, columns: int, tmp_path: Path
) -> None:
    words = [*HUSH, "watch", made.pipelines["histogram"], "--bootstrap", broker.bootstrap]
    terminal = Terminal([*words, "--deployment", made.deployment], columns, tmp_path)
    terminal.until("left.")
    shown = terminal.text
    terminal.interrupt()
    assert terminal.end() == 130
    assert "├" in shown and "The next one is due at" in " ".join(shown.split())
    assert max(cell_len(line) for line in shown.split("\n")) <= columns
    assert "interrupted" in terminal.text and "Traceback" not in terminal.text
    assert terminal.raw.rfind(SHOW) > terminal.raw.rfind(HIDE) >= 0
    assert list(tmp_path.iterdir()) == []


def test_a_script_gets_it_once_as_text(
    broker: Broker, made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    source = ["--bootstrap", broker.bootstrap, "--deployment", made.deployment]
    name = made.pipelines["histogram"]
    code, out, err = typed("watch", name, *source, "--once")
    assert code == 0 and "\x1b" not in out, err
    rows = read_releases(broker.bootstrap, name, which="latest").to_pylist()
    last = max(row["window_start"] for row in rows)
    best = max((r for r in rows if r["window_start"] == last), key=lambda r: float(r["count"]))
    assert f"{best['count']:,.0f} ±" in out
    code, out, err = typed("watch", made.pipelines["phdstream"], *source, "--once")
    assert code == 0 and "Map of count" in out and "░ up to" in out, err
    for words, wrong, said in (
        (["nope", *source], 4, f"The ledger has no pipeline nope; it has {name}, "),
        ([name, *source, "--value", "nope"], 2, "must be one of count"),
        ([name, *source[:2], "--deployment", "nope"], 4, "has no deployment 'nope'"),
        ([name], 2, "hush.toml"),
    ):
        code, _, err = typed("watch", *words, "--once")
        assert (code, said in err) == (wrong, True), err


@pytest.mark.thorough
def test_each_new_release_is_printed_where_there_is_no_terminal(
    broker: Broker, unique: Callable[[str], str], tmp_path: Path
) -> None:
    fresh = showcase(unique("watched"), ("histogram",), scale=1)
    topic = fresh.topics["histogram"]
    outs = fresh.releases[topic]
    last = max(out.timestamp or 0 for out in outs)
    ledger = {"releases": {topic: [o for o in outs if o.timestamp != last]}}
    write(broker.bootstrap, Made(**(vars(fresh) | ledger)))
    words = [*HUSH, "watch", fresh.pipelines["histogram"], "--bootstrap", broker.bootstrap]
    piped = ["sh", "-c", '"$@" | cat', "sh", *words, "--deployment", fresh.deployment]
    terminal = Terminal(piped, 80, tmp_path)
    terminal.until("left.")
    send(broker.bootstrap, ((topic, out) for out in outs if out.timestamp == last))
    while terminal.text.count("left.") < 2:
        assert terminal.read(1)
    terminal.interrupt()
    terminal.end()
    assert "\x1b" not in terminal.raw and "Traceback" not in terminal.raw
