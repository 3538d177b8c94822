"""Topics of attributes as settings: what they must share with the records of units."""

from __future__ import annotations

import pytest
from hushstream.errors import ConfigError
from hushstream.topics.config.canonical import canonical, config_hash
from hushstream.topics.config.inputs.attributes import asked_of
from hushstream.topics.config.load import Config, loads

TEXT = """
[deployment]
name = "test"
[[input]]
name = "events"
topic = "events"
unit = "user"
partitioner = "murmur2"
time = { field = "t", format = "epoch_us" }
[[input]]
name = "users"
topic = "crm.users"
unit = "id"
partitioner = "murmur2"
attributes_of = "events"
time = { format = "record" }
[[pipeline]]
name = "p"
input = "events"
key = ["country", "page"]
window = { length = "1d" }
triggers = { every = "6h" }
budget = { epsilon = 1, delta = 1e-6 }
aggregate = [{ kind = "count" }]
derive.country = { attribute = "country", otherwise = "none" }
"""


COUNTRY = 'derive.country = { attribute = "country", otherwise = "none" }'
CHOICE = """derive.country = { of_unit = true, otherwise = "rest", cases = [
    { where = [{ field = "country", equals = "DE" }], then = "home" },
] }"""


def read(*changes: tuple[str, str]) -> Config:
    text = TEXT
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return loads(text, environ={})


def test_what_states_attributes_is_part_of_what_is_charged():
    config = read()
    (pipeline,) = config.pipeline
    assert b'"topic":"crm.users"' in canonical(config, pipeline)
    hashes = {config_hash(config, pipeline)}
    for change in (
        ("crm.users", "other"), ('unit = "id"', 'unit = "name"'), ('"none" }', '"?" }'),
        ('attribute = "country"', 'attribute = "home"'), (COUNTRY, CHOICE),
        (COUNTRY, CHOICE.replace('"DE"', '"FR"')),
    ):  # fmt: skip
        other = read(change)
        hashes.add(config_hash(other, other.pipeline[0]))
        assert b'"of":{' in canonical(other, other.pipeline[0])
    assert len(hashes) == 7


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (('attributes_of = "events"', 'attributes_of = "event"'), "is no input with records"),
        (('attributes_of = "events"', 'attributes_of = "users"'), "is no input with records"),
        (('attributes_of = "events"\n', ""), "needs a topic of attributes"),
        (('input = "events"', 'input = "users"'), "two protected streams are not joined"),
        (('"murmur2"', '"none"'), "must meet at one worker"),
        (('unit = "id"\npartitioner = "murmur2"', 'unit = "id"\npartitioner = "crc32"'),
         "must meet at one worker"),
        (('unit = "id"', 'unit = ["id", "more"]'), "must be one field"),
        (('key = ["country", "page"]', 'key = ["page"]'), "is no column of key"),
        (('otherwise = "none"', 'otherwise = ""'), "is an empty text"),
        ((', otherwise = "none"', ""), "it is the value of units without"),
        (('otherwise = "none"', 'otherwise = "none", field = "x"'), "no effect with attribute"),
        (('[[pipeline]]\nname = "p"', '[[pipeline]]\nname = "p"\nsession = "1h"\nlateness = "1h"'),
         "is not possible with session"),
    ],
)  # fmt: skip
def test_what_would_part_a_unit_from_its_attributes_is_refused(
    change: tuple[str, str], message: str
):
    with pytest.raises(ConfigError, match=message):
        read(change)


def test_conditions_look_at_any_number_that_no_key_holds():
    other = """derive.country = { attribute = "country", otherwise = "none" }
    derive.page = { of_unit = true, otherwise = 0, cases = [
        { where = [{ field = "score", above = 1 }, { field = "country", equals = 3 }], then = 1 }
    ] }"""
    config = read((COUNTRY, other))
    assert asked_of(config, config.input[0]) == {"country": "key", "score": "scalar"}
    assert asked_of(config, config.input[1]) == {}


@pytest.mark.parametrize(
    ("derive", "message"),
    [
        (COUNTRY.replace("attribute", "of_unit = true, attribute"), "an effect only with cases"),
        (CHOICE.replace('"home"', "1.5"), "are texts, whole numbers or truth values"),
        (CHOICE.replace("country =", "spent ="), "is no column of key"),
    ],
)
def test_cases_of_attributes_are_columns_of_the_key(derive: str, message: str):
    with pytest.raises(ConfigError, match=message):
        read((COUNTRY, derive))


def test_a_case_of_attributes_needs_a_topic_that_states_them():
    with pytest.raises(ConfigError, match=r"of_unit.* needs a topic of attributes"):
        read(('attributes_of = "events"\n', ""), (COUNTRY, CHOICE))


def test_a_number_that_is_chosen_by_the_unit_is_not_summed():
    chosen = CHOICE.replace('"home"', "1").replace('"rest"', "0").replace("country =", "n =")
    with pytest.raises(ConfigError, match="which only a column of key can be"):
        read(
            (COUNTRY, chosen), ('["country", "page"]', '["page"]'),
            ('[{ kind = "count" }]', '[{ kind = "sum", field = "n", low = 0, high = 1 }]'),
        )  # fmt: skip


def test_one_topic_states_all_attributes_of_an_input():
    begin, end = TEXT.index('[[input]]\nname = "users"'), TEXT.index("[[pipeline]]")
    second = TEXT[begin:end].replace('"users"', '"more"').replace("crm.users", "more")
    with pytest.raises(ConfigError, match="state all of them in one topic"):
        read(("[[pipeline]]", second + "[[pipeline]]"))


def test_an_attribute_is_no_value_whose_distinct_ones_are_counted():
    with pytest.raises(ConfigError, match="which only a column of key can be"):
        read(
            ('key = ["country", "page"]', 'key = ["page"]'),
            ('[{ kind = "count" }]', '[{ kind = "distinct", field = "country" }]'),
        )


def test_an_attribute_is_no_part_of_another_or_of_the_unit() -> None:
    choice = CHOICE.replace('"country"', '"home.country"')
    other = 'derive.town = { attribute = "home", otherwise = "none" }'
    for changes in (
        [('attribute = "country"', 'attribute = "id.country"')],
        [(COUNTRY, f"{choice}\n{other}"), ('["country", "page"]', '["country", "town"]')],
    ):
        with pytest.raises(ConfigError, match="one is a part of the other"):
            read(*changes)
    read(('attribute = "country"', 'attribute = "user.id"'))  # of other records than "user"
