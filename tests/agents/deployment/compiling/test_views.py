"""Compiled views: how noises depend on each other, what pins a view, and who may read what."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hushstream.agents.deployment.cluster.topic_specs import internal_topics, public_topics
from hushstream.agents.deployment.compile import compile_config
from hushstream.agents.deployment.model import ReleaseView
from hushstream.errors import ConfigError
from hushstream.topics.config.load import loads
from hushstream.topics.names import Names

TEXT = """\
[[input]]
name = "trips"
topic = "trips"
unit = "car"
time = { field = "t", format = "iso" }
[[pipeline]]
name = "zones"
input = "trips"
key = ["zone"]
window = { length = "1d" }
triggers = { every = "12h" }
budget = { epsilon = 1, delta = 1e-6 }
aggregate = [
  { kind = "count" },
  { kind = "count", name = "long", where = [{ field = "km", above = 10 }] },
  { kind = "sum", field = "fare", low = 10, high = 50 },
  { kind = "sum", field = "tip", low = 0, high = 5, where = [{ field = "km", above = 10 }] },
  { kind = "mean", field = "fare", low = 10, high = 50 },
]
[[view]]
name = "busy"
source = "zones"
"""


def view(text: str = TEXT) -> ReleaseView:
    (one,) = compile_config(loads(text, environ={})).views
    return one


def test_the_noise_of_the_count_is_in_sums_around_the_middle_of_their_interval() -> None:
    leads = view().leads
    fare, long, tip = leads["sum_fare"], leads["long"], leads["sum_tip"]
    assert fare is not None and abs(fare.times - 30) < Fraction(1, 10)
    assert leads["count"] == ("count", 1) and fare.base == "count"
    # A sum over some records has its own noise.
    assert long is not None and long.times == 1 and long.base.startswith("sum:where ")
    assert tip is not None and tip.times == 0
    assert leads["mean_fare"] is None


def test_a_sum_beside_a_variance_of_the_same_records_is_led_by_their_count() -> None:
    far = ', where = [{ field = "km", above = 10 }]'
    spread = f'{{ kind = "variance", name = "spread", field = "tip", low = 0, high = 5{far} }},'
    leads = view(TEXT.replace("aggregate = [", f"aggregate = [{spread}")).leads
    long, tip = leads["long"], leads["sum_tip"]
    assert long is not None and tip is not None
    assert tip.base == long.base and tip.times == 2  # times the middle, in whole steps
    assert leads["spread"] is None


def test_a_sum_around_one_is_not_the_count_and_its_quotient_has_another_digest() -> None:
    """An earlier version took it for the count; views that divide by it need another name."""
    head, tail = TEXT.split("aggregate = [")[0], TEXT.split("]\n[[view]]")[1]
    count = '{ kind = "count" }'
    around = '{ kind = "sum", field = "fare", low = 0, high = 2 }'

    def made(value: str, *aggregates: str) -> ReleaseView:
        listed = f"aggregate = [{', '.join(aggregates)}]\n[[view]]"
        return view(f"{head}{listed}{tail}values = [{value}]\n")

    quotient = '{ kind = "ratio", of = "sum_fare", over = "count" }'
    one, other = made(quotient, count, around), made(quotient, around, count)
    assert one.leads["sum_fare"] == one.leads["count"] and one.leads == other.leads
    assert list(one.counts.values()) == ["count"] and one.digest != other.digest
    assert one.counts == other.counts
    plain = '{ of = "sum_fare" }'
    assert made(plain, count, around).digest == made(plain, around, count).digest


def test_all_values_are_passed_on_where_none_is_named() -> None:
    assert [one.label for one in view().values] == [
        "count", "long", "sum_fare", "sum_tip", "mean_fare",
    ]  # fmt: skip


def test_the_digest_is_of_all_that_determines_a_view() -> None:
    first = view()
    changed = ("limit = 3\n", 'key = ["zone"]\nlimit = 3\norder = [{ by = "count" }]\n',
               'having = [{ field = "count", above = 1 }]\n', 'values = [{ of = "count" }]\n',
               'where = [{ field = "count", above = 1 }]\n')  # fmt: skip
    digests = {first.digest, *(view(TEXT + one).digest for one in changed)}
    assert len(digests) == 1 + len(changed)
    spelled = view(TEXT + 'key = ["zone"]\ntopic = "elsewhere"\n')
    assert spelled.digest == first.digest and spelled.release_topic == "elsewhere"


def test_a_view_has_a_release_topic_and_a_log_of_its_state() -> None:
    deployment = compile_config(loads(TEXT, environ={}))
    assert "hush.busy.releases.v1" in [spec.name for spec in public_topics(deployment)]
    names = Names(deployment.name, "g")
    log = names.changelog("view", "zones")
    assert log in [spec.name for spec in internal_topics(deployment, names)]


def test_a_pipeline_of_cells_has_no_view() -> None:
    maps = TEXT.replace('key = ["zone"]\n', "").replace(
        TEXT[TEXT.index("aggregate") : TEXT.index("[[view]]")],
        '[pipeline.mechanism]\nkind = "privhp"\n',
    )
    with pytest.raises(ConfigError, match="releases cells of a space"):
        view(maps)
