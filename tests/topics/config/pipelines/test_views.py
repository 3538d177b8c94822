"""Views in a configuration: what is refused, and at which line."""

from __future__ import annotations

import pytest
from hushstream.errors import ConfigError
from hushstream.topics.config.canonical import canonical
from hushstream.topics.config.load import loads
from hushstream.topics.config.pipelines.views import ViewValue, additive

TEXT = """\
[[input]]
name = "trips"
topic = "trips"
unit = "car"
time = { field = "t", format = "iso" }
[[pipeline]]
name = "zones"
input = "trips"
key = ["zone", "kind"]
window = { length = "1d" }
triggers = { every = "12h" }
budget = { epsilon = 1, delta = 1e-6 }
aggregate = [{ kind = "count" }, { kind = "sum", field = "fare", low = 0, high = 50 },
             { kind = "mean", field = "fare", low = 0, high = 50 }]
"""
VIEW = """\
[[view]]
name = "busy"
source = "zones"
key = ["zone"]
values = [
  { of = "count" },
  { kind = "ratio", of = "sum_fare", over = "count" },
  { kind = "change", of = "count", windows = 2 },
]
where = [{ field = "kind", equals = "cab" }]
having = [{ field = "count_low", above = 10 }]
order = [{ by = "sum_fare_per_count", descending = true }]
limit = 10
"""
BEFORE = TEXT.count("\n")


def test_a_view_is_read() -> None:
    (view,) = loads(TEXT + VIEW, environ={}).view
    assert [one.label for one in view.values] == ["count", "sum_fare_per_count", "change_count"]
    assert [one.historic for one in view.values] == [False, False, True]
    assert view.release_topic == "hush.busy.releases.v1"
    assert ViewValue(of="count", name="n").label == "n"


def test_a_view_changes_no_charge() -> None:
    plain, viewed = loads(TEXT, environ={}), loads(TEXT + VIEW, environ={})
    assert canonical(plain, plain.pipeline[0]) == canonical(viewed, viewed.pipeline[0])


def test_values_that_add_up() -> None:
    (pipeline,) = loads(TEXT, environ={}).pipeline
    assert additive(pipeline) == {"count", "sum_fare"}


@pytest.mark.parametrize(
    "old,new,line,message",
    [
        ('name = "busy"', 'name = "zones"', 2, "is the name of another view or pipeline"),
        ('source = "zones"', 'source = "zone"', 3, "is not a pipeline; did you mean 'zones'?"),
        ('source = "zones"', 'source = "zones"\ntopic = "trips"', 4, "has another purpose here"),
        ('key = ["zone"]', 'key = ["zome"]', 4, "is not a column of zones's key; did you mean"),
        ('{ of = "count" }', '{ of = "cuont" }', 6, "is not released; did you mean 'count'?"),
        ('{ of = "count" }', '{ of = "mean_fare" }', 6, "is not a count or sum of a histogram"),
        ('over = "count"', 'over = "counts"', 7, '"counts" is not released'),
        (', over = "count"', "", 7, "needs over"),
        ('over = "count"', 'over = "sum_fare"', 7, "is the value itself: the ratio is 1"),
        ('over = "count"', 'over = "count", windows = 2', 7, 'no effect with kind = "ratio"'),
        ('of = "count", windows = 2', 'of = "count", name = "count"', 8, "exists already"),
        ('of = "count", windows = 2', 'of = "count", name = "count_low"', 8, "column count_low in"),
        ('field = "kind"', 'field = "kinds"', 10, "did you mean 'kind'?"),
        ('"count_low"', '"mean_fare"', 11, '"mean_fare" is not released'),
        ('by = "sum_fare_per_count"', 'by = "kind"', 12, '"kind" is not released'),
        ("limit = 10", "", 12, "needs limit"),
        ("limit = 10", "limit = 0", 13, "must lie between 1 and"),
    ],
)
def test_mistakes_are_refused_at_their_line(old: str, new: str, line: int, message: str) -> None:
    assert VIEW.count(old)
    with pytest.raises(ConfigError) as refused:
        loads(TEXT + VIEW.replace(old, new, 1), environ={})
    text = str(refused.value)
    assert message in text and f"hush.toml:{BEFORE + line}:" in text


@pytest.mark.parametrize("kind", ["change", "running"])
def test_nothing_is_added_up_over_windows_that_overlap(kind: str) -> None:
    hopping = TEXT.replace('length = "1d"', 'length = "1d", hop = "12h"')
    view = VIEW.replace(
        'kind = "change", of = "count", windows = 2', f'kind = "{kind}", of = "count"'
    )
    with pytest.raises(ConfigError, match="noises of windows that overlap depend"):
        loads(hopping + view, environ={})
    lag = view.replace(f'kind = "{kind}"', 'kind = "lag"')
    assert loads(hopping + lag, environ={}).view


def test_nothing_is_added_up_that_one_noisy_factor_has_scaled() -> None:
    scaled = TEXT + 'mechanism = { kind = "histogram", debias = true }\n'
    assert additive(loads(scaled, environ={}).pipeline[0]) == frozenset()
    with pytest.raises(ConfigError, match="is not a count or sum of a histogram without debias"):
        loads(scaled + VIEW, environ={})


def test_all_values_of_fewer_columns_must_add_up() -> None:
    view = '[[view]]\nname = "v"\nsource = "zones"\nkey = ["zone"]\n'
    with pytest.raises(ConfigError, match="leaves columns out, and mean_fare is not a count"):
        loads(TEXT + view, environ={})


def test_a_topic_of_several_partitions_has_no_order() -> None:
    with pytest.raises(ConfigError, match=r"needs engine\.release_partitions = 1"):
        loads("[engine]\nrelease_partitions = 2\n" + TEXT + VIEW, environ={})


def test_a_second_view_of_one_name_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"view\[1\].name"):
        loads(TEXT + VIEW + VIEW, environ={})
