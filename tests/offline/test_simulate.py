"""Simulation: the workers' stages on a file, and an honest comparison with the truth."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hushstream.errors import ConfigError
from hushstream.offline.report import show
from hushstream.offline.simulate import read_file, simulate
from hushstream.topics.config.load import Config, loads
from hypothesis import given, settings
from hypothesis import strategies as st

from ..support import DAY, HOUR, INPUT, ORIGIN, PIPELINE, SECRET


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


MONTHS = 'window = { length = "1 month", zone = "Europe/Berlin", origin = 2019-02-28T23:00:00Z }'


def monthly(more: str = "") -> Config:
    """Months from March 2019 on, with a trigger at each midnight in Berlin."""
    text = INPUT.format(units=2, cells=2, partitioner="none", format="json")
    pipeline = PIPELINE.format(name="p", mechanism="", more=more)
    given = 'window = { length = "1d", origin = "2019-03-01T00:00:00Z" }'
    pipeline = pipeline.replace(given, MONTHS).replace('every = "6h"', 'every = "1d"')
    return loads(text + pipeline, environ={})


def test_months_of_a_zone_end_at_its_midnight_and_have_as_many_triggers_as_days():
    data = rows(3000, days=61)  # March and April by UTC
    reports, engine = simulate(monthly(), data, "events", SECRET)
    ends = ["2019-02-28T23:00:00Z", "2019-03-31T22:00:00Z", "2019-04-30T22:00:00Z"]
    first, second = (np.datetime64(end[:-1], "us").astype(int) for end in ends[1:])
    inside = [sum(r["t"] < first for r in data), sum(first <= r["t"] < second for r in data)]
    windows = reports["p"].windows
    assert [w["records"] for w in windows[:2]] == inside and min(inside) > 1000
    assert [(w["start"], w["end"]) for w in windows[:2]] == [(ends[0], ends[1]), (ends[1], ends[2])]
    bodies = [json.loads(out.value or b"{}") for out in engine.outs["hush.p.releases.v1"]]
    manifests = [body for body in bodies if "triggers" in body]
    told = {(m["window"]["start"], m["trigger"], m["triggers"], m["final"]) for m in manifests}
    assert {one for one in told if one[0] in ends[:2]} == {
        (start, t, n, t == n) for start, n in zip(ends, (31, 30), strict=False)
        for t in range(1, n + 1)
    }  # fmt: skip


def test_what_precedes_a_window_without_an_end_is_late_and_no_invented_end_is_shown():
    text = INPUT.format(units=2, cells=2, partitioner="none", format="json")
    text += PIPELINE.format(name="p", mechanism=", adaptive_weight = 0", more="")
    text = text.replace('length = "1d"', "endless = true").replace('every = "6h"', 'every = "30d"')
    text = text.replace('schedule = "external"', "")
    data = [*rows(200), *({"user": f"u{n}", "page": "p1", "t": ORIGIN - DAY} for n in range(7))]
    report = simulate(loads(text, environ={}), data, "events", SECRET)[0]["p"]
    assert report.counts["late"] == 7 and report.counts["seen"] == 200
    assert report.counts["manifests"] == 2  # one trigger, and two partitions of cells
    (window,) = report.windows
    assert (window["window"], window["records"], window["end"]) == (0, 200, None)
    early = simulate(loads(text, environ={}), data[200:], "events", SECRET)[0]["p"]
    assert early.windows == [] and early.counts == {"late": 7}


def test_a_simulation_foretells_what_a_cap_leaves():
    """Users come each day, and their purse pays for two days, so a third of six days is kept."""
    data = [
        {"user": f"u{user}", "page": f"p{page}", "t": ORIGIN + day * DAY + user}
        for day in range(6) for user in range(60) for page in range(4)
    ]  # fmt: skip
    plain = simulate(config(mechanism=", adaptive_weight = 0"), data, "events", SECRET)[0]["p"]
    text = INPUT.format(units=2, cells=2, partitioner="none", format="json")
    text += PIPELINE.format(name="p", mechanism=", adaptive_weight = 0", more="").replace(
        "delta = 1e-4 }", "delta = 1e-4, per_unit = { epsilon = 12, delta = 2e-4 } }"
    )
    capped = simulate(loads(text, environ={}), data, "events", SECRET)[0]["p"]
    assert (plain.cut, capped.cut) == (0, pytest.approx(2 / 3))
    assert capped.counts["accepted"] == 60 * 8


def test_errors_are_those_of_the_released_values():
    data = rows(800, days=1)
    reports, engine = simulate(config('public_keys = ["p1", "p2"]'), data, "events", SECRET)
    (window,) = reports["p"].windows
    bodies = [json.loads(o.value or b"") for o in engine.outs["hush.p.releases.v1"]]
    last = {b["key"]["page"]: b["values"]["count"]["value"]
            for b in bodies if b["schema"] == "hush.release/2" and b["final"]}  # fmt: skip
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


def test_progress_counts_triggers_and_is_told_before_the_first_how_many_there_are():
    told: list[tuple[int, int, int]] = []

    def progress(done: int, triggers: int, windows: int) -> None:
        told.append((done, triggers, windows))

    simulate(config(names=("p", "q")), rows(100), "events", SECRET, progress)
    done, triggers, windows = zip(*told, strict=True)
    assert set(triggers) == {2 * 2 * 4} and set(windows) == {2 * 2}
    assert done[0] == 0 and done[-1] == 16 and list(done) == sorted(set(done))
    assert len(done) > 8  # the bar moves while it runs


def test_bad_records_are_counted_and_the_rest_is_used():
    data: list[dict[str, Any]] = [*rows(100), {"user": "u"}, {"x": float("nan")}, {"t": -1}]
    counts = simulate(config(names=("p", "q")), data, "events", SECRET)[0]["q"].counts
    assert counts["seen"] == 100
    assert sum(n for name, n in counts.items() if name.startswith("invalid:")) == 3


def test_records_that_could_not_be_used_are_told_with_field_and_types():
    data: list[dict[str, Any]] = [*rows(100), {"user": 1.5, "page": "p1", "t": ORIGIN}]
    data.append({"user": "u", "page": [1], "t": ORIGIN})
    reports = simulate(config(names=("p", "q")), data, "events", SECRET)[0]
    for name in ("p", "q"):
        assert set(reports[name].unusable.split(", ")) == {
            "1 wrong type (field user holds a number with a fraction and must hold text or a whole "
            "number)",
            "1 wrong type (field page holds a list and must hold text or a whole number or true or "
            "false)",
        }
        text = [part for part in show(reports[name]) if isinstance(part, str)]
        assert f"records that could not be used: {reports[name].unusable}" in text
    whole = simulate(config(), rows(100), "events", SECRET)[0]["p"]
    assert whole.unusable == "" and not any("not be used" in str(part) for part in show(whole))


def test_there_must_be_an_input_and_a_time():
    with pytest.raises(ConfigError, match="expected one of events"):
        simulate(config(), rows(3), "other", SECRET)
    with pytest.raises(ConfigError, match="the file holds no record"):
        simulate(config(), [], "events", SECRET)


@pytest.mark.parametrize(
    ("swap", "words"),
    [
        ({"t": None}, "no record of the file has a time: none has a value in the field 't'$"),
        ({"t": "13 May"}, "'t' of row 2 holds \"13 May\", which time.format = 'epoch_us' does not"),
        ({"t": -1}, "the field 't' of row 2 holds -1, which"),
        ({"t": "7" * 500}, f'holds "{"7" * 59}, which'),
        ({"user": 1.5}, r"no record of the file can be used: 1 wrong type \(field user holds a"),
    ],
)
def test_a_file_without_a_readable_time_is_told_the_field_and_a_value(swap, words):
    """The first row has no time, so the second one is quoted."""
    whole = {"user": "u", "page": "p", "t": ORIGIN}
    first = {**whole, "t": None} if "t" in swap else {**whole, "user": None}
    with pytest.raises(ConfigError, match=words):
        simulate(config(), [first, whole | swap], "events", SECRET)


def test_csv_cells_are_typed(tmp_path: Path):
    path = tmp_path / "d.csv"
    path.write_text('a,b,c,d\n1,2.5,x,\n"1,5",-3,1e3,"q""q"\n')
    assert read_file(path) == [
        {"a": 1, "b": 2.5, "c": "x", "d": None},
        {"a": "1,5", "b": -3, "c": 1000.0, "d": 'q"q'},
    ]


@pytest.mark.parametrize(
    "name,content,hint",
    [("a.jsonl", b'{"a": 1}\n{"a"\n', "line 2"),
     ("a.jsonl", b'{"a": 1}\n{"a": ' + b"9" * 5000 + b"}\n", "line 2"),
     ("a.jsonl", b'{"a": ' + b"[" * 200_000 + b"]" * 200_000 + b"}\n", "line 1"),
     ("a.json", b"[1]\n", "line 1"),
     ("a.csv", b"a\n\xff\xfe\n", "UTF-8"), ("a.arrow", b"nothing of the kind", "arrow"),
     ("a.feather", b"", "feather"), ("a.xlsx", b"", ".csv")],
)  # fmt: skip
def test_files_that_cannot_be_read(tmp_path: Path, name, content, hint):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError, match=hint):
        read_file(tmp_path / name)
