"""Conditions as settings: mistakes with their lines, and one normal form for each wording.

Covers: topics/config/expressions/text_steps.py
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hushstream.errors import ConfigError
from hushstream.topics.config.canonical import canonical, config_hash
from hushstream.topics.config.load import Config, loads

TEXT = """\
[[input]]
name = "orders"
topic = "orders"
unit = "user"
time = { field = "t", format = "epoch_ms" }
[[pipeline]]
name = "p"
input = "orders"
key = "page"
window = { length = "1d" }
triggers = { every = "1d" }
budget = { epsilon = 1, delta = 1e-6 }
"""


def read(where: str) -> Config:
    return loads(f"{TEXT}where = [{where}]\n", environ={})


def told(where: str) -> Any:
    config = read(where)
    return json.loads(canonical(config, config.pipeline[0])).get("where")


def test_a_pipeline_without_conditions_has_the_charged_configuration_of_before() -> None:
    bare = loads(TEXT, environ={})
    assert config_hash(bare, bare.pipeline[0]) == config_hash(read(""), read("").pipeline[0])
    assert "where" not in json.loads(canonical(bare, bare.pipeline[0]))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{ field = "a", equals = "x" }', '{ field = "a", one_of = ["x"] }'),
        ('{ field = "a", one_of = ["x", "y"] }', '{ field = "a", one_of = ["y", "x", "y"] }'),
        ('{ field = "a", equals = true }', '{ field = "a", none_of = [false] }'),
        ('{ field = "a", text = [{ trim = "both" }], equals = "x" }',
         '{ field = "a", text = [{ trim = "both" }], one_of = ["x", "x"] }'),
        ('{ field = "a", equals = 1 }, { field = "b", present = true }',
         '{ all = [{ field = "b", present = true }, { field = "a", equals = 1.0 }] }'),
        ('{ any = [{ field = "a", above = 1 }] }', '{ field = "a", above = 1 }'),
    ],
)  # fmt: skip
def test_wordings_that_differ_in_form_alone_are_charged_alike(one: str, other: str) -> None:
    assert told(one) == told(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{ field = "a", equals = "1" }', '{ field = "a", equals = 1 }'),
        ('{ field = "a", above = 1 }', '{ field = "a", at_least = 1 }'),
        ('{ field = "a", one_of = ["x"] }', '{ field = "a", none_of = ["x"] }'),
        ('{ any = [{ field = "a", above = 1 }, { field = "b", above = 1 }] }',
         '{ all = [{ field = "a", above = 1 }, { field = "b", above = 1 }] }'),
        ('{ field = "a", present = true }', '{ field = "a", present = false }'),
        ('{ field = "a", like = "x" }', '{ field = "a", not_like = "x" }'),
        ('{ field = "a", like = "x" }', '{ field = "a", matches = "x" }'),
        ('{ field = "a", text = [{ start = 2 }], equals = "x" }',
         '{ field = "a", text = [{ start = 2, length = 1 }], equals = "x" }'),
        ('{ field = "a", text = [{ start = 2 }], equals = "x" }', '{ field = "a", equals = "x" }'),
    ],
)  # fmt: skip
def test_other_meanings_are_charged_otherwise(one: str, other: str) -> None:
    assert told(one) != told(other)


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("{}", "where[0]: needs field, any or all"),
        ('{ field = "a" }', "where[0]: says nothing about a"),
        ('{ field = "a", equals = 1, above = 2 }', "where[0].above: and equals exclude"),
        ('{ field = "a", above = 1, at_least = 2 }', "are both the same end"),
        ('{ field = "a", at_least = 3, below = 2 }', "where[0].below: is below at_least"),
        ('{ field = "a", one_of = [] }', "where[0].one_of: must be a list of at least one"),
        ('{ field = "a", one_of = ["x", 1] }', "all texts, numbers or truths"),
        ('{ field = "a", one_of = [true, 1] }', "all texts, numbers or truths"),
        ('{ field = "a", at_most = 1e400 }', "where[0].at_most: 1.00e+400 must be a number up"),
        ('{ field = "a", equals = -2e308 }', "where[0].equals: -2.00e+308 must be a number up"),
        ('{ field = "a", none_of = [1, 1e309] }', "where[0].none_of: 1.00e+309 must be a number"),
        ('{ field = "a", contains = "x" }', "unknown setting"),
        ('{ field = "a", matches = "(x" }', "where[0].matches: is no regular expression of RE2"),
        ('{ field = "a", like = "%s" }' % ("x" * 1001), "is longer than 1000 bytes"),
        ('{ field = "a", like = "x", not_like = "y" }', "where[0].not_like: and like exclude"),
        ('{ field = "a", text = [], equals = "x" }', "where[0].text: is empty"),
        ('{ field = "a", text = [{ case = "lower" }] }', "says nothing about a"),
        ('{ field = "a", text = [{ case = "lower" }], above = 1 }', "above: must be a text"),
        ('{ field = "a", text = [{ case = "lower" }], equals = 1 }', "equals: must be a text"),
        ('{ field = "a", text = [{ start = 0 }], equals = "x" }', "text[0].start: must not be 0"),
        ('{ field = "a", text = [{ length = 2 }], equals = "x" }', "text[0]: needs one of case"),
        ('{ field = "a", text = [{ start = 1, length = 0 }], equals = "x" }', "at least 1"),
        ('{ field = "a", text = [{ extract = "(a)(b)" }], equals = "x" }', "more than one group"),
        ('{ field = "a", equals = "x", any = [{ field = "b", above = 1 }] }', "must stand alone"),
        ("{ any = [] }", "at least one condition"),
        ('{ any = [{ all = [{ field = "a" }] }] }', "where[0].any[0].all[0]: says nothing"),
        ('{ field = "a..b", equals = 1 }', "must be a field name or a path"),
    ],
)
def test_mistakes_are_named_with_their_line(where: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(where)
    text = str(caught.value)
    assert message in text, text
    assert text.startswith("hush.toml:13: pipeline[0].where")


def test_conditions_that_never_end_are_refused() -> None:
    deep = '{ field = "a", above = 1 }'
    for _ in range(20):
        deep = f"{{ any = [{deep}] }}"
    with pytest.raises(ConfigError, match="nested more than 16 deep"):
        read(deep)
