"""``hush releases`` on a real broker: tables, CSV, JSON and Parquet of the same rows."""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from hushstream import read_releases
from hushstream.cli.options import Flags
from hushstream.cli.releases import _csv, _follow_csv, _header, cut_off, date, in_part, number
from hushstream.deploy.broker import Broker
from hushstream.errors import EngineError
from hushstream.topics.assembly import Assembly, Released
from hushstream.topics.releases import CutTold, Manifest, Value, decode_public
from pyarrow import parquet

from ..reading.test_client import Topic
from ..recorded.pipelines import COMMON, HEAD, SETTINGS, WINDOW
from ..recorded.pipelines import outs as recorded
from .bench import interrupted, typed
from .test_tables import fits

CASES = {"histogram-sums": "zone", "phdstream": "x_low", "tops": "slot"}


class Place:
    """A folder with a configuration, and a release topic with all releases of a case."""

    def __init__(self, broker: Broker, folder: Path, topic: str, case: str) -> None:
        self.case, self.bootstrap, self.folder = case, broker.bootstrap, folder
        self.topic = Topic(broker, topic)
        self.topic.send(recorded(case)[0])
        head = f'[kafka]\nbootstrap = "{broker.bootstrap}"\n' + HEAD.format(partitioner="none")
        named = SETTINGS[case].replace("{{", "{").replace("}}", "}")
        text = head + COMMON.format(name=case, window=WINDOW) + named
        (folder / "hush.toml").write_text(f'{text}\n[pipeline.release]\ntopic = "{topic}"\n')

    def typed(self, *words: str) -> str:
        code, out, err = typed("releases", "-c", str(self.folder / "hush.toml"), self.case, *words)
        assert code == 0, err
        return out


@pytest.fixture
def place(broker: Broker, tmp_path: Path, unique: Callable[[str], str], request: object) -> Place:
    case = getattr(request, "param", "histogram-sums")
    return Place(broker, tmp_path, unique("shown"), case)


@pytest.mark.spread(3)
@pytest.mark.parametrize("place", CASES, indirect=True)
@pytest.mark.parametrize("words", [[], ["--latest"], ["--final"], ["--window", "2019-03-01"]])
def test_csv_json_and_parquet_hold_what_the_client_reads(place: Place, words: list[str]) -> None:
    chosen = {"which": words[0][2:]} if words in (["--latest"], ["--final"]) else {}
    chosen |= {"window": words[1]} if words[:1] == ["--window"] else {}
    table = read_releases(place.bootstrap, place.case, topic=place.topic.name, **chosen)
    assert len(table) and CASES[place.case] in table.column_names
    lines = list(csv.DictReader(io.StringIO(place.typed(*words, "--csv"))))
    bodies = [json.loads(line) for line in place.typed(*words, "--json").splitlines()]
    place.typed(*words, "--parquet", str(place.folder / "f.parquet"))
    assert parquet.read_table(place.folder / "f.parquet").equals(table)
    assert len(lines) == len(bodies) == len(table)
    assert list(lines[0]) == list(bodies[0]) == table.column_names
    value = next(name for name in table.column_names if f"{name}_stddev" in table.column_names)
    assert [body[value] for body in bodies] == table[value].to_pylist()
    assert [float(line[value]) for line in lines] == table[value].to_pylist()
    assert bodies[0]["window_start"] == "2019-03-01T00:00:00Z"


@pytest.mark.parametrize("place", CASES, indirect=True)
def test_tables_for_people_have_dates_and_one_line_of_cost_a_release(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text, latest = place.typed(), place.typed("--latest")
    fits(text)
    fits(latest)
    assert text.count("a user pays ε=4 δ=1e-06 per epoch, added up ε=") == 8
    assert "2019-03-01 to 2019-03-01 08:00: release 4 of 4, the last one, 2019-03-01 08:00" in text
    assert latest.count("a user pays") == 2
    assert "2019-03-01 08:00 to 2019-03-01 16:00: newest values, release 4 of 4" in latest
    assert "shard" not in text


def test_an_empty_topic_ends_at_once_and_says_so(place: Place, broker: Broker) -> None:
    assert place.typed("--since", "2100-01-01") == "nothing yet\n"
    assert place.typed("--since", "2100-01-01", "--json") == ""
    assert place.typed("--window", "2001-01-01") == "nothing in the window of 2001-01-01\n"


@pytest.mark.parametrize("place", CASES, indirect=True)
def test_a_header_without_rows_has_the_columns_of_later_rows(
    place: Place,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:
    (header,) = csv.reader(io.StringIO(place.typed("--since", "2100-01-01", "--csv")))
    assert header == next(csv.reader(io.StringIO(place.typed("--csv"))))
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    _header(Flags(bootstrap="b:1"), place.case)  # without a configuration nobody knows the columns
    assert capsysbinary.readouterr().out == b""


def test_csv_for_a_terminal_shows_what_would_act_on_it(
    capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = pa.table({"zone": ["tea\u202egpj\x1b[2J", "äpfel"]})
    _csv(table, True)
    assert capsysbinary.readouterr().out == '"zone"\n"tea\u202egpj\x1b[2J"\n"äpfel"\n'.encode()
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    _csv(table, True)
    shown = capsysbinary.readouterr().out.decode()
    assert shown == '"zone"\n"tea\\u202egpj\\u001b[2J"\n"äpfel"\n'


def test_it_follows_until_it_is_interrupted(place: Place) -> None:
    config = str(place.folder / "hush.toml")
    rows = recorded(place.case)[0]
    wanted = 1 + sum(out.headers[0][0] == "hush-row" for out in rows)
    with interruptible("releases", "-c", config, place.case, "--follow", "--csv") as follower:
        assert follower.stdout is not None
        lines = [follower.stdout.readline() for _ in range(wanted)]
        assert lines[0].startswith('"window_start"') and all(lines)
        assert sum("window_start" in line for line in lines) == 1  # one header
        assert follower.poll() is None
        assert interrupted(follower) == 130


def test_a_follower_of_csv_writes_one_header_and_no_row_below_a_wrong_one(
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:
    """A map's first release may have no cells, keys may have any type, and values may be others."""

    def lines() -> list[list[str]]:
        return list(csv.reader(io.StringIO(capsysbinary.readouterr().out.decode())))

    some = whole("phdstream")[0]
    _follow_csv([Released((), some.manifests), some])
    header, *rows = lines()
    assert "x_low" in header and len(rows) == len(some.rows)
    assert {len(row) for row in rows} == {len(header)}
    plain = next(one for one in whole("histogram-plain") if one.rows)
    keys = [{"zone": 5}, {"zone": "5"}]
    mixed = tuple(msgspec.structs.replace(plain.rows[0], key=key) for key in keys)
    _follow_csv([plain, Released(mixed, plain.manifests)])
    header, *rows = lines()
    assert "hush_key" not in header and {len(row) for row in rows} == {len(header)}
    other = whole("histogram-sums")[-1]
    with pytest.raises(
        EngineError, match=r"histogram-sums have other columns: .*sum_fare.*--since"
    ):
        _follow_csv([plain, other])
    assert len(lines()) == 1 + len(plain.rows)


def whole(case: str) -> list[Released]:
    assembly = Assembly(case)
    found = (assembly.take(decode_public(o.headers, o.value)) for o in recorded(case)[0])
    return [one for one in found if one is not None]


@contextmanager
def interruptible(*words: str) -> Iterator[subprocess.Popen[str]]:
    """``hush`` in a process that takes SIGINT, even where this one does not.

    A process that a shell started in the background ignores it, and so do its children.
    """
    begin = "import runpy, signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    begin += "runpy.run_module('hushstream', run_name='__main__', alter_sys=True)"
    command = [sys.executable, "-c", begin, *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as started:
        try:
            yield started
        finally:
            started.kill()  # else leaving would wait forever


@pytest.mark.parametrize(
    "words,hint",
    [
        (["--csv", "--json"], "one of"),
        (["--latest", "--final"], "not both"),
        (["--follow", "--latest"], "--follow"),
        (["--since", "soon"], "ISO time"),
    ],
)
def test_what_does_not_go_together_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], hint: str
) -> None:
    text = HEAD.format(partitioner="none") + COMMON.format(name="p", window=WINDOW)
    (tmp_path / "hush.toml").write_text(text + SETTINGS["histogram-plain"])
    monkeypatch.chdir(tmp_path)
    code, _, err = typed("releases", "p", *words)
    assert code == 2 and hint in err


def test_numbers_and_dates_for_people() -> None:
    assert number(None) == "–"
    assert number(Value(-3, 1.0, -4.96, -1.04)) == "-3 ±1.96"
    assert number(Value(1234567, 20000.0, 1195367, 1273767)) == "1,234,567 ±39,200"
    assert number(Value(12.3456789, 0.1, 12.1456789, 12.5456789)) == "12.3457 ±0.2"
    assert number(Value(3, 2.0, 0.0, 6.92)) == "3 ±3.92"  # low is cut at 0
    from datetime import UTC, datetime

    assert date(datetime(2026, 3, 1, 12, 30, 5, 70, UTC)) == "2026-03-01 12:30:05.000070"


def test_what_the_bound_cut_stands_below_each_release_or_is_unknown() -> None:
    def said(case: str) -> list[str]:
        return [cut_off(one) for one in whole(case)]

    unknown = "intervals: noise alone; the share of records that the bound cut is unknown"
    assert set(said("histogram-sums")) == {unknown}
    hidden = "intervals: noise alone; noise hides what share of the records the bound cut"
    few = said("histogram-debiased")
    assert all(one == hidden or "the bound cut" in one for one in few) and unknown not in few
    manifest = recorded_cut(200_000, 150_000)
    text = cut_off(Released((), (manifest,)))
    assert text.startswith("intervals: noise alone; the bound cut 25.0% of the records (24.")
    assert max(map(len, (text, hidden, unknown))) <= 80
    lines = [one.split("\n") for one in said("topl")]
    assert all(one[0] == unknown for one in lines) and [unknown] in lines
    told = [one[1] for one in lines if len(one) > 1]
    words = r"values from the threshold on count as it: [\d.]+% of all \([\d.]+% to [\d.]+%\)"
    assert told and all(re.fullmatch(words, one) and len(one) <= 80 for one in told)


def test_a_window_that_is_not_full_says_so() -> None:
    found = (decode_public(out.headers, out.value) for out in recorded("histogram-hopping")[0])
    told = [in_part(one) for one in found if isinstance(one, Manifest)]
    assert told[0] == "; it holds only the last 1 of its 4 hops" and told[-1] == ""


def recorded_cut(arrived: int, accepted: int) -> Manifest:
    """The first manifest of a recorded case, with other counts."""
    found = (decode_public(out.headers, out.value) for out in recorded("histogram-debiased")[0])
    first = next(one for one in found if isinstance(one, Manifest))
    cut = CutTold(arrived, 500.0, accepted, 500.0, 20, 0.25, 0.2, 0.3)
    return msgspec.structs.replace(first, cut=cut)
