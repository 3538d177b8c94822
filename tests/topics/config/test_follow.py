"""Followers: where they begin, which topics they take over, and contradictions.

Covers: topics/config/load.py
"""

from __future__ import annotations

import re

import pytest
from hushstream.errors import ConfigError
from hushstream.topics.config.canonical import config_hash, privacy_settings
from hushstream.topics.config.load import Config, loads
from hushstream.topics.config.toml.values import parse_instant

HEAD = """
[[input]]
name = "events"
topic = "raw"
unit = "user"
time = { field = "t", format = "iso" }
"""
ONE = """
[[pipeline]]
name = "{name}"
input = "events"
key = ["page"]
window = {{ length = "1d" }}
triggers = {{ every = "6h" }}
budget = {{ epsilon = 1.0, delta = 1e-6 }}
{more}
"""
END = parse_instant("2031-01-05T00:00:00Z")


def made(first: str = "until = 2031-01-05", second: str = 'follows = "a"', *more: str) -> Config:
    blocks = [
        ONE.format(name=n, more=m) for n, m in zip("abc", (first, second, *more), strict=False)
    ]
    return loads(HEAD + "".join(blocks), environ={})


def refused(first: str = "until = 2031-01-05", second: str = 'follows = "a"', *more: str) -> str:
    with pytest.raises(ConfigError) as caught:
        made(first, second, *more)
    return str(caught.value)


def test_a_follower_begins_at_the_end_and_goes_on_with_the_topics() -> None:
    old, new, last = made(
        "until = 2031-01-05", 'follows = "a"\nuntil = 2031-01-09', 'follows = "b"'
    ).pipeline
    assert new.window.origin == END and last.window.origin == parse_instant("2031-01-09")
    for one in (old, new, last):
        assert (one.release_topic, one.latest_topic) == ("hush.a.releases.v1", "hush.a.latest.v1")


def test_topics_that_were_named_are_handed_over_as_well_and_a_follower_may_have_its_own() -> None:
    named = 'until = 2031-01-05\nrelease = { topic = "out" }'
    new = made(named).pipeline[1]
    assert (new.release_topic, new.latest_topic) == ("out", "out.latest")
    own = made(second='follows = "a"\nrelease = { topic = "mine" }').pipeline[1]
    assert (own.release_topic, own.latest_topic) == ("mine", "mine.latest")
    assert own.window.origin == END


def test_the_order_in_the_file_means_nothing() -> None:
    turned = HEAD + ONE.format(name="b", more='follows = "a"')
    turned += ONE.format(name="a", more="until = 2031-01-05")
    assert loads(turned, environ={}).pipeline[0] == made().pipeline[1]


def test_the_charged_hash_holds_whom_it_follows_and_from_when() -> None:
    config = made()
    settings = privacy_settings(config, config.pipeline[1])
    assert settings["follows"] == "a" and settings["window"]["origin"] == END
    later = made("until = 2031-01-06")
    assert config_hash(config, config.pipeline[1]) != config_hash(later, later.pipeline[1])
    assert config_hash(config, config.pipeline[0]) == config_hash(later, later.pipeline[0])
    assert "follows" not in privacy_settings(config, config.pipeline[0])


def test_a_generation_that_left_the_file_is_as_it_was_declared() -> None:
    whole = made()
    more = 'follows = "a"\nrelease = { topic = "hush.a.releases.v1" }'
    text = HEAD + ONE.format(name="b", more=more)
    text = text.replace('length = "1d"', 'length = "1d", origin = 2031-01-05')
    alone = loads(text, environ={})
    assert config_hash(alone, alone.pipeline[0]) == config_hash(whole, whole.pipeline[1])
    assert alone.pipeline[0].latest_topic == "hush.a.latest.v1"
    with pytest.raises(ConfigError, match=r":15: .*follows: \"a\" is not in this file"):
        loads(HEAD + ONE.format(name="b", more='follows = "a"'), environ={})


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        ("", 'follows = "a"', r'"a" has no until'),
        ("until = 2031-01-05", 'follows = "b"', "in a circle"),
        ("until = 2031-01-05", 'follows = "a"\nunit_name = "trip"', r'unit_name: "trip" is not'),
        (
            'until = 2031-01-05\nrelease = { encoding = "avro" }',
            'follows = "a"',
            "needs a release.topic of its own",
        ),
        ("until = 2031-01-05", 'follows = "a"\nschedule = "external"', "follow the clock"),
        ("until = 2031-01-05T01:00:00Z", 'follows = "a"', "until: is no boundary"),
    ],
)
def test_what_contradicts_is_refused(first: str, second: str, said: str) -> None:
    found = refused(first, second)
    assert re.search(said, found), found


def test_one_pipeline_has_one_follower() -> None:
    assert "is followed by another" in refused(
        "until = 2031-01-05", 'follows = "a"', 'follows = "a"'
    )


def test_another_origin_and_arrival_are_refused() -> None:
    text = HEAD + ONE.format(name="a", more="until = 2031-01-05")
    other = ONE.format(name="b", more='follows = "a"')
    for old, new, said in (
        ('length = "1d"', 'length = "1d", origin = 2031-01-06', "is not where a ends"),
        ('length = "1d"', "horizon = 4", "needs window.length"),
    ):
        with pytest.raises(ConfigError, match=said):
            loads(text + other.replace(old, new), environ={})
