"""`hush plot` as typed.

Covers: cli/seeing.py
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hushstream.deploy.broker import Broker

from ..reading.live.showcase import send
from ..reading.live.test_tail import create
from ..recorded.pipelines import COMMON, HEAD, SETTINGS, WINDOW, outs
from .bench import typed

CASE = "histogram-sums"


@pytest.fixture
def folder(
    broker: Broker, unique: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    topic = unique("drawn")
    text = HEAD.format(partitioner="none") + COMMON.format(name=CASE, window=WINDOW)
    text += f'[pipeline.release]\ntopic = "{topic}"\n'
    text = text.replace("[deployment]", f'[kafka]\nbootstrap = "{broker.bootstrap}"\n[deployment]')
    settings = SETTINGS[CASE].replace("[pipeline.mechanism]", "", 1)
    lines = [line for line in settings.splitlines() if not line.startswith(("kind", "budget"))]
    head, tail = text.split("[pipeline.release]")
    body = head + "\n".join(lines) + '\nmechanism = { kind = "histogram", budget = 6 }\n'
    (tmp_path / "hush.toml").write_text(body + "[pipeline.release]" + tail)
    create(broker.bootstrap, topic)
    send(broker.bootstrap, ((topic, out) for out in outs(CASE)[0]))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_it_writes_the_picture_that_was_asked_for(folder: Path) -> None:
    code, out, err = typed("plot", CASE)
    assert (code, out) == (0, f"wrote {CASE}.png\n"), err
    assert (folder / f"{CASE}.png").read_bytes().startswith(b"\x89PNG")
    words = ["--window", "2019-03-01T01:00", "--value", "mean_fare", "--key", "z1"]
    code, _, err = typed("plot", CASE, *words, "--out", "out.svg")
    assert code == 0, err
    assert "<svg" in (folder / "out.svg").read_text()
    for wrong, said in (
        (["--out", "out.gif"], ".svg"),
        (["--out", "no/such/out.png"], "there is no folder no/such"),
        (["--value", "median"], "must be one of count"),
        (["--key", "nowhere"], "not released in this window"),
        (["--window", "whenever"], "ISO time"),
    ):
        code, _, err = typed("plot", CASE, *wrong)
        assert code == 2 and said in err, (wrong, err)
    code, _, err = typed("plot", CASE, "--window", "2020-01-01")
    assert code == 4 and err.endswith("no complete release in the window of 2020-01-01\n")
    code, _, err = typed("plot", "nobody")
    assert code == 2 and f"expected one of {CASE}" in err
