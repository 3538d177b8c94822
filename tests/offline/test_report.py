"""The report in 80 columns: the computed figures, and words for what they omit."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import pytest
from hushstream.offline.judged import SimulationReport
from hushstream.offline.report import PRIVATE, show
from hushstream.reading.tables import table_of
from pyarrow import parquet
from rich.console import Console

from ..cli.bench import typed
from ..recorded.pipelines import COMMON, HEAD, SETTINGS, WINDOW, rows
from ..topics.test_assembly import complete, records
from .test_exact import run


def printed(report: SimulationReport) -> str:
    console = Console(width=80, record=True, file=StringIO())
    for part in show(report):
        console.print(part, highlight=False)
    return console.export_text()


@pytest.mark.parametrize("case", ["histogram-sums", "phdstream", "privhp", "pak", "tops"])
def test_every_mechanism_has_a_row_for_each_window_and_value(case: str) -> None:
    _, report, _ = run(case)
    text = printed(report)
    assert max(map(len, text.splitlines())) <= 80
    for name, told in report.windows[0]["figures"].items():
        lines = [line for line in text.splitlines() if f"│ {name} " in line]
        assert len(lines) == 2
        assert f"│ {told['rows']:>4,} │" in lines[0]
        percent = float(f"{100 * told['coverage']:.3g}")
        assert f"{percent:,g} %" in lines[0]
    assert "2019-03-01 08:00" in text and "cut off by the contribution bound: " in text


@pytest.mark.parametrize(
    ("counted", "word"),
    [("records", "records"), ("distinct units (user)", "distinct units"), ("sessions", "sessions")],
)
def test_what_the_bound_cuts_off_is_called_what_is_counted(counted: str, word: str) -> None:
    text = printed(SimulationReport("p", counts={"seen": 4}, cut=0.25, counted=counted))
    assert f"cut off by the contribution bound: 25 % of the {word}\n" in text


def test_the_zone_of_the_dates_is_said_once() -> None:
    """Windows of a calendar begin at another hour by UTC than by their zone."""
    text = printed(run("tops")[1])
    assert text.count("UTC") == 1 and "┃ window (UTC) " in text


def test_it_says_what_stays_hidden_and_from_where_keys_appear() -> None:
    _, report, _ = run("histogram-users")
    text = " ".join(printed(report).split())
    first = report.windows[0]
    assert f"{first['hidden']:,} of {first['keys']:,} keys stay hidden, with" in text
    assert "counts are of distinct units (user)" in text
    assert "a key appears from a noisy count of 32.33" in text
    assert "values count up to" in printed(run("tops")[1])


@pytest.mark.thorough
def test_the_command_writes_and_draws_and_says_where_the_report_belongs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    text = HEAD.format(partitioner="none")
    for case in ("histogram-sums", "privhp"):
        text += COMMON.format(name=case, window=WINDOW) + SETTINGS[case]
    Path("hush.toml").write_text(text)
    Path("trips.jsonl").write_text("\n".join(map(json.dumps, rows())))
    words = ["simulate", "trips.jsonl", "--seed", "s", "--out", "files", "--plot", "pictures"]
    code, out, err = typed(*words)
    assert code == 0, err
    assert " ".join(PRIVATE.split()) in " ".join(out.split())
    for case in ("histogram-sums", "privhp"):
        written = parquet.read_table(f"files/{case}.parquet")
        wanted = table_of(complete(records(case)[0], case))
        assert written.column_names == wanted.column_names  # noise has another key, so rows differ
        assert len(written) > 0 and set(written["trigger"].to_pylist()) >= {4}
        assert Path(f"pictures/{case}.png").read_bytes().startswith(b"\x89PNG")
    code, out, _ = typed("simulate", "trips.jsonl", "--seed", "s", "--json")
    body = json.loads(out)["privhp"]
    assert code == 0 and body["windows"][0]["figures"]["count"]["rows"] > 0
    assert 0 < body["cut"] < 1 and body["counted"] == "records"
