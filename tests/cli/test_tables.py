"""Every table of every command in 80 columns: no line is longer, no text is cut."""

from __future__ import annotations

import json
import re
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from hushstream.agents.clock.ledger import Ledger
from hushstream.cli import replay
from hushstream.cli.demo.report import Result, Show
from hushstream.cli.demo.watch import Seen
from hushstream.cli.ledger import records
from hushstream.cli.options import readable
from hushstream.mechanisms.catalogue import entries
from hushstream.offline.compare import ReplayOutcome
from hushstream.topics.config.access.secret import write_new_key
from rich.console import Console
from rich.table import Table

from ..recorded.pipelines import COMMON, HEAD, SETTINGS, WINDOW, rows
from ..support import deployment
from .bench import typed

WIDTH = 80
LONG = "a-pipeline-with-a-name-of-forty-letters-"


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(WIDTH))


def fits(text: str) -> None:
    """Check that lines of tables fit and that no folded text is cut with an ellipsis."""
    assert text.strip()
    assert re.search(r"\S…", text) is None
    drawn = [line for line in text.splitlines() if not line.startswith(("mechanism =", "•"))]
    assert [line for line in drawn if len(line) > WIDTH] == []


def shown(text: str) -> str:
    """The text without white space and frames, so that folded text is contiguous."""
    return re.sub(r"[\s│┃]", "", text)


def whole(table: Table) -> str:
    console = Console(width=WIDTH, record=True, file=StringIO())
    console.print(table)
    return console.export_text()


CASES = ["histogram-sums", "histogram-debiased", "phdstream", "privhp", "pak", "quantile", "tops"]


@pytest.mark.parametrize("case", CASES)
def test_plan_and_simulate_of_every_mechanism(case: str, tmp_path: Path, monkeypatch: Any) -> None:
    text = HEAD.format(partitioner="none") + COMMON.format(name=LONG, window=WINDOW)
    (tmp_path / "hush.toml").write_text(text + SETTINGS[case])
    write_new_key(tmp_path / "hush.key")
    (tmp_path / "trips.jsonl").write_text("\n".join(map(json.dumps, rows(400))))
    monkeypatch.chdir(tmp_path)
    for words in (["plan"], ["simulate", "trips.jsonl", "--seed", "s"]):
        code, out, err = typed(*words)
        assert code == 0, err
        fits(out)
        assert LONG in shown(out)


def test_the_mechanisms_above_are_all_that_release_tables_of_figures() -> None:
    kinds = {case.split("-")[0] for case in CASES}
    assert kinds | {"topl", "activity"} == set(entries())


def test_the_ledger_is_not_cut() -> None:
    ledger = Ledger()
    ledger.take(ledger.next("genesis", 1_772_366_400_000_000, {"genesis": "ab"}).encode())
    body = {"pipeline": LONG, "number": 0}
    ledger.take(ledger.next("pipeline", 1_772_366_400_000_000, body).encode())
    for epoch in (20_513, 20_514):
        paid = {"pipeline": LONG, "epoch": epoch, "unit": "customer and day", "epsilon": "123/1000",
                "delta": "1/1000000000"}  # fmt: skip
        ledger.take(ledger.next("charge", 1_772_366_400_000_000, paid).encode())
    text = whole(records(ledger.records))
    fits(text)
    for record in ledger.records:
        assert record.hash()[:12] in text
    assert text.count("2026-03-01 12:00:00") == 4
    assert "20513" in text and "0.123" in text and "1e-09" in text
    assert LONG in shown(_column(text, "pipeline"))


def _column(text: str, name: str) -> str:
    """The cells below a heading of a table without a frame, joined."""
    head, *lines = text.splitlines()
    begin = head.index(name)
    following = re.search(r"\S", head[begin + len(name) :])
    assert following is not None
    end = begin + len(name) + following.start()
    return "".join(line[begin : end - 1] for line in lines)


def test_a_replay_is_not_cut(capsys: pytest.CaptureFixture[str]) -> None:
    replay._show(ReplayOutcome(compared=10**12, aborted=10**9))
    out = capsys.readouterr().out
    fits(out)
    assert "1,000,000,000,000" in out and "identicalcopiesinabortedtransactions" in shown(out)


def test_the_demos_tables_are_not_cut() -> None:
    (p,) = deployment(more='aggregate = [{ kind = "count" }, { kind = "sum", field = "fare", '
                      'low = 0, high = 50 }, { kind = "mean", field = "fare", low = 0, high = 50 }]'
                      ).pipelines  # fmt: skip
    place = ("2019-03-01T00:00:00Z", 4)
    value = {"value": 1_234_567, "low": 1.0, "high": 2.0, "stddev": 1.0}
    seen = Seen()
    seen.rows[place][LONG] = {"values": dict.fromkeys(("count", "sum_fare", "mean_fare"), value)}
    result = Result(p, place, seen, {LONG: 5.0}, {LONG: 5}, 5)
    console = Console(width=WIDTH, record=True, file=StringIO())
    ledger = Ledger()
    show = Show(console)
    show.table(result)
    show.budget(ledger, [result])
    show.operator([result])
    tables = [line for line in console.export_text().splitlines() if line and line[0] in "┏┃┡│└"]
    assert len(tables) > 12
    fits("\n".join(tables))
    assert LONG in shown(_cells(tables, 1)) and tables[0].startswith("┏")


def _cells(lines: list[str], place: int) -> str:
    return "".join(line.split("│")[place] for line in lines if line.startswith("│"))


def test_a_table_that_would_be_cut_is_noticed() -> None:
    table = Table("a", "b")
    table.add_row("x" * 70, "y" * 70)
    with pytest.raises(AssertionError):
        fits(whole(table))
    fits(whole(readable(table)))
