"""`hush sink` stores what the release topic holds, also after it is killed midway."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hushstream import read_releases
from hushstream.cli.sink import _drain, _Drained
from hushstream.deploy.broker import Broker
from hushstream.errors import OutageError
from hushstream.reading.sinks.feed import SinkBatch
from hushstream.reading.sinks.layout import SinkLayout
from pyarrow import parquet

from ..reading.live.showcase import Made, showcase, write
from ..reading.sinks.samples import BEGIN, layout, text, with_keys
from .bench import typed

# Each release with rows ends a batch and each commit is reported, so the kill is after a known one.
SLOWLY = (
    "import sys; from hushstream.reading.sinks import feed; feed.MANY = 1;"
    "from hushstream.cli.group import main; main(sys.argv[1:])"
)
CASES = ("histogram", "pak")


@pytest.fixture(scope="module")
def place(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> tuple[Broker, Made, Path]:
    made = showcase(f"sunk{os.getpid()}", CASES, scale=1)
    write(broker.bootstrap, made)
    folder = tmp_path_factory.mktemp("sink")
    for case in CASES:
        head = f'[kafka]\nbootstrap = "{broker.bootstrap}"\n'
        (folder / f"{case}.toml").write_text(head + text(made, case))
    return broker, made, folder


def _killed(words: list[str], after: int) -> None:
    """Run a sink and kill it once it has reported ``after`` commits."""
    running = subprocess.Popen(
        [sys.executable, "-u", "-c", SLOWLY, *words], stdout=subprocess.PIPE, text=True
    )
    assert running.stdout is not None
    for _ in range(after):
        assert json.loads(running.stdout.readline())["releases"]
    running.send_signal(signal.SIGKILL)
    running.communicate(timeout=120)
    assert running.returncode == -signal.SIGKILL


def _duck(url: str, name: str) -> Any:
    with duckdb.connect(url.removeprefix("duckdb:"), read_only=True) as client:
        client.execute("SET TimeZone = 'UTC'")
        return client.sql(f'SELECT * FROM "{name}"').to_arrow_table()


def _parquet(url: str, name: str) -> Any:
    folder = Path(url.removeprefix("parquet:"))
    path = folder / f"{name}.parquet"
    return parquet.read_table(path if path.exists() else folder / name)


@pytest.mark.spread(2)
@pytest.mark.parametrize(("kind", "read"), [("duckdb", _duck), ("parquet", _parquet)])
def test_a_sink_that_was_killed_goes_on_with_each_row_once(
    place: tuple[Broker, Made, Path], kind: str, read: Callable[[str, str], Any]
) -> None:
    broker, made, folder = place
    name, url = made.pipelines["histogram"], f"{kind}:{folder}/out-{kind}"
    words = ["sink", url, "-c", str(folder / "histogram.toml"), "--once", "--json"]
    _killed(words, 3)
    before = read(url, name).num_rows
    code, out, err = typed(*words)
    assert code == 0, err
    told = [json.loads(line) for line in out.splitlines()]
    wanted = read_releases(broker.bootstrap, name)
    assert before > 0 and 0 < sum(one["rows"] for one in told) == wanted.num_rows - before
    found = read(url, name)
    assert len(set(found["release_id"].to_pylist())) == found.num_rows == wanted.num_rows
    order = [(column, "ascending") for column in ("window_start", "trigger", "zone")]
    names = wanted.column_names
    assert found.select(names).sort_by(order).equals(wanted.sort_by(order))
    newest = read_releases(broker.bootstrap, name, which="latest")
    assert read(url, f"{name}_newest").select(names).sort_by(order).equals(newest.sort_by(order))
    assert typed(*words)[1] == ""  # nothing is written again


def test_what_it_does_is_said(place: tuple[Broker, Made, Path]) -> None:
    _, _, folder = place
    words = ["sink", f"parquet:{folder}/said", "-c", str(folder / "histogram.toml")]
    code, out, err = typed(*words, "--once", "--table", "t")
    assert code == 0 and "rows into t" in out and (folder / "said" / "t").is_dir()
    assert "taken as text: zone" in err and "--integer zone" in err
    code, out, err = typed(*words, "--once", "--table", "t")
    assert code == 0 and out == f"{folder}/said: nothing new for t\n", err
    assert typed(*words, "--pipeline", "other")[0] == 2
    code, _, err = typed("sink", "f.db", "-c", str(folder / "pak.toml"))
    assert code == 2 and "is no target" in err


def test_a_text_in_a_column_of_integers_is_told_once_and_stops_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    left = [
        SinkBatch([with_keys(keys, n)], BEGIN) for n, keys in enumerate([[5], ["x"], [6], [True]])
    ]

    class Fed:
        silent = False

        @property
        def ended(self) -> bool:
            return not left

        def read(self, seconds: float) -> SinkBatch | None:
            return left.pop(0) if left else None

    written: list[object] = []

    class Target:
        name = "here"

        def write(self, layout_: SinkLayout, batch: SinkBatch) -> None:
            written.extend(layout_.rows(batch.releases)["zone"].to_pylist())

    _drain(Target(), [_Drained(layout("histogram", integers=["zone"]), Fed())], True, False)
    assert written == [5, None, 6, None]
    err = capsys.readouterr().err
    assert err.count("where zone is no whole number, its column is null; hush_key has the key") == 1


def test_a_silent_broker_ends_a_sink_that_is_to_end_and_is_told_of_else(
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Fed:
        ended, silent, asked = False, True, 0

        def read(self, seconds: float) -> None:
            self.asked += 1
            if self.asked > 3:
                raise TimeoutError

    flow = [_Drained(layout("histogram"), Fed())]
    with pytest.raises(OutageError, match="read to its end: the broker is silent"):
        _drain(object(), flow, True, False)
    with pytest.raises(TimeoutError):
        _drain(object(), flow, False, False)
    assert capsys.readouterr().err.count("the broker is silent; waiting for it") == 1
