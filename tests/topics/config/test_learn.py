"""Learnt bounds: the settings that a table ``learn`` implies, and those that it excludes."""

from __future__ import annotations

import re
from fractions import Fraction

import pytest
from hushstream.agents.deployment.compile import compile_config
from hushstream.agents.deployment.model import Pipeline
from hushstream.errors import ConfigError
from hushstream.mechanisms.accounting import add, total
from hushstream.topics.config.canonical import config_hash
from hushstream.topics.config.learn import SEEN, activity_of, count_of, learnt_of
from hushstream.topics.config.load import Config, loads
from hushstream.topics.config.pipelines.budgets import Learn
from hushstream.topics.config.pipelines.pipeline import PipelineSettings
from hushstream.topics.config.toml.values import parse_instant

HEAD = """
[deployment]
name = "d"
[[input]]
name = "events"
topic = "raw"
unit = "user"
time = { field = "t", format = "iso" }
"""
BLOCK = """
[[pipeline]]
name = "pages"
input = "events"
key = ["page"]
unit_name = "user"
window = { length = "1d", origin = 2020-01-01T00:00:00Z }
triggers = { every = "6h" }
budget = { epsilon = 1.0, delta = 1e-6 }
where = [{ field = "robot", equals = false }]
lateness = "5m"
"""
END = parse_instant("2031-01-05T00:00:00Z")
LEARNT = "learn = { budget = 24, at = 2031-01-05T00:00:00Z }\n"


def read(more: str = "learn = {}\n", block: str = BLOCK) -> Config:
    return loads(HEAD + block + more, environ={})


def settings(config: Config) -> dict[str, PipelineSettings]:
    return {p.name: p for p in config.pipeline}


def made(config: Config) -> dict[str, Pipeline]:
    return {p.name: p for p in compile_config(config).pipelines}


def test_while_a_bound_is_learnt_two_pipelines_share_one_charge() -> None:
    found = made(read())
    assert set(found) == {"pages", "pages-activity"}
    purses = {p.purse for p in found.values()}
    (purse,) = purses
    assert purse is not None and purse.limit_epsilon is None
    assert (purse.one.epsilon, purse.one.delta) == (1, Fraction(1, 10**6))
    costs = [p.mechanism.cost() for p in found.values()]
    assert total(costs, Fraction(1, 10**6))[0] <= 1
    share = found["pages-activity"].mechanism.cost().mu2 / add(costs).mu2
    assert float(share) == pytest.approx(0.05, rel=0.1)


def test_the_share_is_what_the_file_says() -> None:
    found = made(read("learn = { share = 0.2 }\n"))
    costs = [p.mechanism.cost().mu2 for p in found.values()]
    share = found["pages-activity"].mechanism.cost().mu2 / sum(costs)
    assert float(share) == pytest.approx(0.2, rel=0.1)


def test_the_activity_is_of_the_same_records_and_units() -> None:
    mine, other = settings(read()).values()
    assert [getattr(mine, name) for name in SEEN] == [getattr(other, name) for name in SEEN]
    assert (mine.epoch_length, mine.window) == (other.epoch_length, other.window)
    assert other.triggers.every == other.window.length


def test_every_setting_of_a_pipeline_is_copied_or_its_own() -> None:
    own = {"name", "window", "triggers", "budget", "mechanism", "release", "learn"}
    sums = {"aggregate", "inputs", "feedback_delay", "query", "clip", "epoch", "follows"}
    assert set(PipelineSettings.__dataclass_fields__) == own | sums | set(SEEN)


def test_from_the_boundary_on_one_pipeline_has_the_whole_charge_and_the_learnt_bound() -> None:
    config = read(LEARNT)
    found, given = made(config), settings(config)
    assert set(found) == {"pages", "pages-activity", "pages-learnt"}
    assert (found["pages"].until, found["pages-activity"].until) == (END, END)
    last = found["pages-learnt"]
    assert (last.follows, last.windows.origin, last.until) == ("pages", END, None)
    assert (last.purse, last.epsilon, last.limit_epsilon) == (None, 1, None)
    assert last.release_topic == found["pages"].release_topic
    assert last.mechanism.bounds("user")["budget"] == 24
    assert given["pages-learnt"].where == given["pages"].where


def test_what_was_declared_before_stays_as_it_was_charged() -> None:
    before, after = read(), read(LEARNT)
    for p in before.pipeline:
        assert config_hash(before, p) == config_hash(after, settings(after)[p.name])


def test_without_the_table_nothing_changes() -> None:
    plain = read("")
    assert [p.name for p in plain.pipeline] == ["pages"] and not plain.budget
    assert plain.pipeline[0].learn is None


def test_the_end_of_the_block_is_that_of_its_last_generation() -> None:
    end = "until = 2032-01-01T00:00:00Z\n"
    first = settings(read("learn = {}\n" + end))
    assert {p.until for p in first.values()} == {parse_instant("2032-01-01T00:00:00Z")}
    later = settings(read(LEARNT + end))
    ends = {name: p.until for name, p in later.items()}
    assert ends == {"pages": END, "pages-activity": END,
                    "pages-learnt": parse_instant("2032-01-01T00:00:00Z")}  # fmt: skip


def test_a_variable_may_say_what_was_learnt() -> None:
    told = {"HUSH_PIPELINE__PAGES__LEARN__BUDGET": "24",
            "HUSH_PIPELINE__PAGES__LEARN__AT": "2031-01-05T00:00:00Z"}  # fmt: skip
    by_variable = loads(HEAD + BLOCK + "learn = {}\n", environ=told)
    for p in read(LEARNT).pipeline:
        assert config_hash(by_variable, settings(by_variable)[p.name]) == config_hash(
            read(LEARNT), p
        )


def test_a_query_may_have_one() -> None:
    block = BLOCK.replace('key = ["page"]\n', "").replace('input = "events"\n', "")
    block = block.replace('where = [{ field = "robot", equals = false }]\n', "")
    query = (
        "query = '''SELECT page, COUNT(*) AS visits FROM raw "
        "GROUP BY page, TUMBLE(t, INTERVAL '1' DAY)'''\n"
    )
    found = settings(read(query + LEARNT, block))
    assert found["pages-activity"].key == ("page",)
    assert count_of(found["pages-learnt"]) == "visits"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("learn = { budget = 24 }", "budget and at together"),
        ("learn = { at = 2031-01-05T00:00:00Z }", "budget and at together"),
        ("learn = { share = 0.7 }", "learn.share: 0.7 must lie between"),
        ('learn = { share = "much" }', "learn.share"),
        (
            "learn = { budget = 24, at = 2031-01-05T01:00:00Z }",
            r"pipeline\[0\].learn.at: is no boundary of two epochs: [^\n]*\Z",
        ),
        ('learn = {}\nsession = "30m"', "learn: is not possible with session"),
        ('learn = {}\nepoch = "2d"', "learn: needs windows that are epochs"),
        ('learn = {}\nschedule = "external"', "learn: needs triggers that follow the clock"),
        ('learn = {}\naggregate = "keys"', "learn: needs an aggregate"),
        (
            'learn = {}\naggregate = [{ kind = "distinct", field = "x" }]',
            "learn: needs an aggregate",
        ),
        (
            'learn = {}\nmechanism = { bound = "per-key", per_key = 2, budget = 6 }',
            "learn: bound",
        ),
        ('learn = {}\nmechanism = { selection = "rounds" }', "learn: selection"),
        (
            'learn = {}\nmechanism = { kind = "quantile", low = 0, high = 9, at = [0.5] }\n'
            'inputs = { value = "x" }',
            "learn: is not possible with quantile",
        ),
    ],
)
def test_what_contradicts_is_refused_with_its_line(more: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(more + "\n")
    assert re.search(rf"hush.toml:\d+: .*{said}", str(caught.value)), caught.value


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('length = "1d", origin = 2020-01-01T00:00:00Z', "horizon = 4", "needs window.length"),
        ("budget = {", "#", "needs a budget"),
        (
            "delta = 1e-6",
            "delta = 1e-6, per_unit = { epsilon = 8, delta = 1e-4 }",
            "not possible with budget.per_unit",
        ),
        (
            "delta = 1e-6",
            "delta = 1e-6, limit_epsilon = 30",
            "budget.limit_epsilon = 30: 'pages-learnt' would have the whole limit anew; leave it",
        ),
        (
            "delta = 1e-6",
            "delta = 1e-6, limit_delta = 1e-4",
            "not possible with budget.limit_delta = 0.0001: ",
        ),
    ],
)
def test_a_block_that_cannot_learn_is_refused(old: str, new: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        read(block=BLOCK.replace(old, new))


def test_a_name_that_is_taken_is_refused() -> None:
    other = BLOCK.replace('"pages"', '"pages-activity"')
    with pytest.raises(ConfigError, match="needs the name 'pages-activity'"):
        read(block=BLOCK + "learn = {}\n" + other, more="")


def test_names_and_the_default_share() -> None:
    assert (activity_of("a"), learnt_of("a")) == ("a-activity", "a-learnt")
    assert Learn().share == Fraction(1, 20)
