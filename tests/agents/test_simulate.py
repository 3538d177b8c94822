"""Simulation: the workers' stages on a file, and an honest comparison with the truth."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hushstream.agents.simulate import read_file, simulate
from hushstream.mechanisms.errors import ConfigError
from hushstream.topics.config import Config, loads
from hypothesis import given, settings
from hypothesis import strategies as st

from .support import DAY, HOUR, INPUT, ORIGIN, PIPELINE, SECRET


def config(more: str = "", mechanism: str = "", names: tuple[str, ...] = ("p",)) -> Config:
    text = INPUT.format(units=2, cells=2, partitioner="none", format="json")
    for name in names:
        text += PIPELINE.format(name=name, mechanism=mechanism, more=more)
    return loads(text, environ={})


def rows(n: int, seed: int = 0, days: int = 2) -> list[dict[str, Any]]:
    rng = np.random.default_rng(seed)
    return [
        {"user": f"u{rng.integers(90)}", "page": f"p{min(rng.geometric(0.4), 6)}",
         "t": int(ORIGIN + rng.integers(days * DAY))}
        for _ in range(n)
    ]  # fmt: skip


def test_truth_errors_and_counts_add_up():
    data = rows(3000)
    reports, engine = simulate(config(), data, "events", SECRET)
    report = reports["p"]
    assert [w["window"] for w in report.windows] == [0, 1]
    for window in report.windows:
        mine = [r for r in data if (r["t"] - ORIGIN) // DAY == window["window"]]
        assert window["records"] == len(mine)
        assert window["keys"] == len({r["page"] for r in mine})
        assert 0 < window["released"] <= window["keys"]
        assert window["covered"] <= window["records"]
        assert window["linf"] <= window["l2"] <= window["l1"]
    assert report.counts["seen"] == len(data) and report.counts["accepted"] <= len(data)
    assert engine.outs["hush.p.releases.v1"]


def test_errors_are_those_of_the_released_values():
    data = rows(800, days=1)
    reports, engine = simulate(config('public_keys = ["p1", "p2"]'), data, "events", SECRET)
    (window,) = reports["p"].windows
    bodies = [json.loads(o.value or b"") for o in engine.outs["hush.p.releases.v1"]]
    last = {b["key"]["page"]: b["values"]["count"]["value"]
            for b in bodies if b["schema"] == "hush.release/1" and b["final"]}  # fmt: skip
    errors = [n - sum(r["page"] == page for r in data) for page, n in last.items()]
    assert window["l1"] == sum(map(abs, errors)) and window["linf"] == max(map(abs, errors))
    assert set(last) == {"p1", "p2"} and window["covered"] == window["records"]


@settings(max_examples=8)
@given(st.randoms(use_true_random=False))
def test_the_order_of_a_file_does_not_matter_where_times_differ(random):
    data = [r | {"t": ORIGIN + i * HOUR // 10} for i, r in enumerate(rows(120))]
    first, _ = simulate(config(), data, "events", SECRET)
    random.shuffle(data)
    again, _ = simulate(config(), data, "events", SECRET)
    assert first["p"].windows == again["p"].windows


def test_the_same_secret_gives_the_same_noise_and_another_another():
    one, same, other = (
        simulate(config('public_keys = ["p1"]'), rows(300), "events", s)[1].outs
        for s in (SECRET, SECRET, bytes(32))
    )
    assert one == same and one != other


def test_bad_records_are_counted_and_the_rest_is_used():
    data: list[dict[str, Any]] = [*rows(100), {"user": "u"}, {"x": float("nan")}, {"t": -1}]
    counts = simulate(config(names=("p", "q")), data, "events", SECRET)[0]["q"].counts
    assert counts["seen"] == 100
    assert sum(n for name, n in counts.items() if name.startswith("invalid:")) == 3


def test_there_must_be_an_input_and_a_time():
    with pytest.raises(ConfigError, match="there is events"):
        simulate(config(), rows(3), "other", SECRET)
    for data in ([], [{"user": "u"}]):
        with pytest.raises(ConfigError, match="no record of the file has a time"):
            simulate(config(), data, "events", SECRET)


def test_csv_cells_are_typed(tmp_path: Path):
    path = tmp_path / "d.csv"
    path.write_text('a,b,c,d\n1,2.5,x,\n"1,5",-3,1e3,"q""q"\n')
    assert read_file(path) == [
        {"a": 1, "b": 2.5, "c": "x", "d": None},
        {"a": "1,5", "b": -3, "c": 1000.0, "d": 'q"q'},
    ]


@pytest.mark.parametrize(
    "name,content,hint",
    [("a.jsonl", b'{"a": 1}\n{"a"\n', "line 2"), ("a.json", b"[1]\n", "line 1"),
     ("a.csv", b"a\n\xff\xfe\n", "UTF-8"), ("a.arrow", b"nothing of the kind", "arrow"),
     ("a.feather", b"", "feather"), ("a.xlsx", b"", ".csv")],
)  # fmt: skip
def test_files_that_cannot_be_read(tmp_path: Path, name, content, hint):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError, match=hint):
        read_file(tmp_path / name)
