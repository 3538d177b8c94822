"""A public file as a workload, with the engine's windows, micro-batches and numbers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hushstream.agents.deployment.compile import compile_config, parameters_of, setting_of
from hushstream.agents.deployment.model import Input, Pipeline
from hushstream.errors import ConfigError
from hushstream.mechanisms.histogram.mechanism import Histogram
from hushstream.mechanisms.histogram.planning.planner import HistogramPlanner
from hushstream.mechanisms.histogram.planning.play import Run, numbered, play
from hushstream.mechanisms.noise import zero
from hushstream.mechanisms.planner import Question
from hushstream.mechanisms.stated_shape import Shape
from hushstream.offline.simulate import simulate
from hushstream.planning.sample import WINDOWS, Sample, sample_of, shape_sample
from hushstream.topics.config.load import Config, loads

from ..support import DAY, HOUR, INPUT, ORIGIN, PIPELINE, SECRET


def config(more: str = "", mechanism: str = "") -> Config:
    text = INPUT.format(units=1, cells=1, partitioner="none", format="json")
    return loads(text + PIPELINE.format(name="p", mechanism=mechanism, more=more), environ={})


def compiled(more: str = "", mechanism: str = "") -> tuple[Pipeline, Input]:
    (source,) = compile_config(config(more, mechanism)).inputs
    return source.pipelines[0], source


def sampled(path: Path, rows: list[dict[str, Any]], more: str = "", mechanism: str = "") -> Sample:
    file = path / "sample.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    return sample_of(*compiled(more, mechanism), file)


def rows(n: int, days: float = 1.0, seed: int = 0) -> list[dict[str, Any]]:
    """Random records in random order of time."""
    rng = np.random.default_rng(seed)
    time = ORIGIN + rng.permutation(np.linspace(0, days * DAY - 1, n).astype(np.int64))
    return [
        {"user": f"u{rng.integers(40)}", "page": f"p{min(rng.geometric(0.4), 6)}", "t": int(t)}
        for t in time
    ]


def test_a_short_month_is_played_up_to_its_own_last_trigger(tmp_path: Path) -> None:
    given = 'window = { length = "1d", origin = "2019-03-01T00:00:00Z" }'
    months = 'window = { length = "1 month", origin = 2019-02-01T00:00:00Z }'
    text = INPUT.format(units=1, cells=1, partitioner="none", format="json")
    text += PIPELINE.format(name="p", mechanism="", more="").replace(given, months)
    config = loads(text.replace('every = "6h"', 'every = "1d"'), environ={})
    (source,) = compile_config(config).inputs
    file = tmp_path / "sample.jsonl"
    data = [row | {"t": row["t"] - 28 * DAY} for row in rows(400, days=28)]
    file.write_text("\n".join(map(json.dumps, data)))
    ((work,),) = sample_of(source.pipelines[0], source, file).epochs
    assert work.ends is not None and len(work.ends) == 28 and work.ends[-1] == 400


def test_records_fall_into_the_micro_batches_of_their_times(tmp_path: Path) -> None:
    data = rows(400)
    sample = sampled(tmp_path, data)
    ((work,),) = sample.epochs
    assert (sample.records, sample.windows, sample.notes) == (400, 1, ())
    assert sample.units == work.users == len({r["user"] for r in data})
    assert sample.keys == work.keys == len({r["page"] for r in data})
    edges = [sum(r["t"] <= ORIGIN + 6 * i * HOUR for r in data) for i in (1, 2, 3, 4)]
    assert work.ends == tuple(edges)
    ordered = sorted(data, key=lambda r: r["t"])
    pairs = {(r["user"], u) for r, u in zip(ordered, work.unit.tolist(), strict=True)}
    assert len(pairs) == work.users  # numbers and units correspond one to one
    pairs = {(r["page"], k) for r, k in zip(ordered, work.key.tolist(), strict=True)}
    assert len(pairs) == work.keys


def test_what_is_played_is_what_simulate_runs(tmp_path: Path) -> None:
    """With public keys and hardly any noise, both have the same error, that of the bound."""
    more = 'public_keys = ["p1", "p2", "p3", "p4", "p5", "p6", "p7"]'
    mechanism = ", factorization = 'honaker'"
    data = rows(900)
    pipeline, _ = compiled(more, mechanism)
    sample = sampled(tmp_path, data, more, mechanism)
    ((work,),) = sample.epochs
    assert work.keys == 7  # listed keys count even without records
    assert isinstance(pipeline.mechanism, Histogram)
    listed = replace(pipeline.mechanism, public=frozenset(numbered(np.arange(7))))
    errors = play(Run(listed, work, zero, pipeline.delay))
    cut = float(errors.last[0])
    (window,) = simulate(config(more, mechanism), data, "events", SECRET)[0]["p"].windows
    noise = 7 * 3 * float(pipeline.mechanism.error(4)[0])
    assert cut > 2 * noise and abs(window["l1"] - cut) < noise


def test_windows_of_an_epoch_number_units_alike(tmp_path: Path) -> None:
    sample = sampled(tmp_path, rows(1200, days=4), 'epoch = "2d"')
    assert [len(epoch) for epoch in sample.epochs] == [2, 2]
    assert [work.window for epoch in sample.epochs for work in epoch] == [0, 1, 0, 1]
    for first, second in sample.epochs:
        assert first.users == second.users == 40
        assert len(np.intersect1d(first.unit, second.unit)) > 35


def test_windows_in_part_are_left_out_or_told(tmp_path: Path) -> None:
    both = sampled(tmp_path, rows(600, days=1.5))
    assert both.windows == 1 and both.records == 400
    assert "left out" in both.notes[0]
    part = sampled(tmp_path, rows(100, days=0.25))
    assert part.windows == 1 and part.records == 100
    assert "do not shrink" in part.notes[0] and "of a window of 1d" in part.notes[0]
    many = sampled(tmp_path, rows(2000, days=WINDOWS + 3))
    assert many.windows == WINDOWS and f"first {WINDOWS} of {WINDOWS + 3}" in many.notes[-1]


def test_values_signs_and_bad_records(tmp_path: Path) -> None:
    more = (
        'sign = "gone"\naggregate = [{ kind = "count" }, '
        '{ kind = "sum", field = "x", low = 0, high = 5, grid = 0.5 }]'
    )
    data = [
        {"user": "a", "page": "p", "t": ORIGIN, "x": 1.25, "gone": False},
        {"user": "a", "page": "p", "t": ORIGIN + DAY - 1, "x": 99, "gone": True},
        {"user": "a", "page": "p", "t": ORIGIN + 1},
        {"user": "a", "page": "p", "x": 1},
    ]
    sample = sampled(tmp_path, data, more)
    ((work,),) = sample.epochs
    assert work.value is not None and work.value.tolist() == [[2], [10]]
    assert work.sign is not None and work.sign.tolist() == [1, -1]
    assert "2 of 4 records cannot be used" in sample.notes


def test_streams_without_times_of_their_own_are_spread_evenly(tmp_path: Path) -> None:
    text = INPUT.format(units=1, cells=1, partitioner="none", format="json").replace(
        'field = "t", format = "epoch_us"', 'format = "record"'
    ) + PIPELINE.format(name="p", mechanism="", more="")
    (source,) = compile_config(loads(text, environ={})).inputs
    file = tmp_path / "x.jsonl"
    file.write_text("\n".join(map(json.dumps, rows(80))))
    sample = sample_of(source.pipelines[0], source, file)
    assert sample.epochs[0][0].ends is None and "spread evenly" in sample.notes[0]


@pytest.mark.parametrize(
    "content,hint",
    [
        ("", "no record"),
        ('{"page": "x"}', "no record has the field 't'"),
        (
            '{"user": "u", "t": 5}\n{"user": "u", "t": 1551398400000000}\n{"page": ""}',
            "missing key",
        ),
    ],
)
def test_files_without_use_are_refused(tmp_path: Path, content: str, hint: str) -> None:
    file = tmp_path / "bad.jsonl"
    file.write_text(content)
    with pytest.raises(ConfigError, match=hint):
        sample_of(*compiled(), file)


def test_only_listed_keys_are_of_use(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no listed key"):
        sampled(tmp_path, rows(20), 'public_keys = ["elsewhere"]')


def test_a_file_with_other_columns_is_told_which_it_has(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no record has the field 'page'.*there is what, who"):
        sampled(tmp_path, [{"who": 1, "what": 2}] * 5)


DISTINCT = 'aggregate = [{ kind = "distinct", field = "device" }]'


def visits(n: int, seed: int) -> list[dict[str, Any]]:
    """Visits to few pages by users with many devices."""
    rng = np.random.default_rng(seed)
    return [
        row | {"user": f"u{rng.integers(n // 8)}", "device": int(rng.geometric(0.01))}
        for row in rows(n, seed=seed)
    ]


@pytest.mark.spread(4)
@pytest.mark.parametrize("listed", ["", 'public_keys = ["p1", "p2", "p3", "nobody"]'])
@pytest.mark.parametrize("bound", ["", ', bound = "records"'])
def test_a_forecast_of_distinct_values_is_what_another_half_releases(
    tmp_path: Path, listed: str, bound: str
) -> None:
    """Shown keys and the error, hidden keys included, agree with `hush simulate`."""
    more = f"{DISTINCT}\n{listed}"
    given, made = config(more, bound), sampled(tmp_path, visits(6_000, 1), more, bound)
    pipeline, (settings,) = compile_config(given).pipelines[0], given.pipeline
    setting = setting_of(settings, pipeline.windows, [], pipeline.public_keys, 1)
    asked = Question(
        "p", parameters_of(settings), setting, pipeline.mechanism, made, "", "last", None, None
    )
    forecast = HistogramPlanner().forecast(asked, asked.parameters, range(4))
    assert forecast.by == "simulation" and "distinct values" in forecast.seen + forecast.lost
    assert 0 < forecast.cut < 1
    for half, near in ((1, 0.1), (2, 0.25)):  # the sample's records, then others
        data = visits(6_000, half)
        pages = {"p1", "p2", "p3"} if listed else {row["page"] for row in data}
        pairs = {(row["page"], row["device"]) for row in data if row["page"] in pages}
        found = []
        for seed in range(3):
            (window,) = simulate(given, data, "events", bytes([seed]) * 32)[0]["p"].windows
            found.append((window["released"], window["l1"] / len(pairs)))
        shown, error = np.mean(found, axis=0)
        assert abs(forecast.figures["shown"] - min(shown, 3 if listed else shown)) < 1
        assert forecast.score == pytest.approx(error, rel=near)


def test_an_unlisted_key_has_no_distinct_values(tmp_path: Path) -> None:
    made = sampled(tmp_path, visits(500, 1), f'{DISTINCT}\npublic_keys = ["p1", "p9"]')
    ((work,),) = made.epochs
    assert work.keys == 2 and not work.key.any()
    assert made.records < 500 and work.item is not None


def test_a_shape_does_not_describe_distinct_values() -> None:
    with pytest.raises(ConfigError, match="counts distinct values, which a shape does not desc"):
        shape_sample(compiled(DISTINCT)[0], Shape(users=10, records=20, keys=3))
