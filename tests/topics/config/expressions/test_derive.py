"""Derived columns as settings."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hushstream.errors import ConfigError
from hushstream.topics.config.canonical import canonical
from hushstream.topics.config.load import Config, loads

from .test_conditions import TEXT


def read(derive: str, key: str = '["page", "d"]') -> Config:
    text = TEXT.replace('key = "page"', f"key = {key}")
    return loads(f"{text}derive = {{ d = {{ {derive} }} }}\n", environ={})


def told(derive: str) -> Any:
    config = read(derive)
    return json.loads(canonical(config, config.pipeline[0]))["derive"]["d"]


def test_a_width_is_charged_by_its_meaning() -> None:
    assert told('field = "a", bucket = 10') == told('field = "a", bucket = 10.0')
    assert told('field = "a", bucket = 10') != told('field = "a", round = -1')
    assert told('time = "hour"') == told('time = "hour", zone = "UTC"')
    assert told('time = "hour"') != told('time = "hour", zone = "Europe/Berlin"')
    assert told('field = "a", round = 1') == {
        "kind": "band", "field": "a", "width": "1/10", "nearest": True,
    }  # fmt: skip


_CASE = 'cases = [{ where = [{ field = "a", above = 1 }], then ='


@pytest.mark.parametrize(
    ("derive", "message"),
    [
        ("", "derive.d: needs time, field with bucket, round or text, or cases"),
        ('field = "a"', "needs one of bucket, round and text"),
        ('field = "a", bucket = 1, round = 1', "needs one of bucket, round and text"),
        ('field = "a", bucket = 0', "must be greater than 0"),
        ('field = "a", bucket = 1e400', "must lie between 0 and 1000000000000000"),
        ('field = "a", bucket = "1/3"', "derive.d.bucket: 1/3 must be a decimal number"),
        ('field = "a", round = 10', "must lie between -9 and 9"),
        ('time = "hours"', '"hours" must be one of year, quarter, month'),
        ('time = "hour", zone = "Mars"', '"Mars" is not a time zone'),
        # UTC without a word, and each machine's own zone
        ('time = "hour", zone = ""', 'zone: "" is not a time zone: write one such as Europe/'),
        ('time = "hour", zone = "localtime"', '"localtime" is not a time zone'),
        ('time = "hour", zone = "posixrules"', '"posixrules" is not a time zone'),
        (
            f'{_CASE} "{"x" * 1021}" }}], otherwise = "b"',
            "derive.d.cases[0].then: makes a key of more",
        ),
        (f'{_CASE} "b" }}], otherwise = "{"é" * 511}"', "derive.d.otherwise: makes a key of more"),
        (f'attribute = "a", otherwise = "{"x" * 1021}"', "write a shorter text"),
        ('time = "hour", field = "a"', "derive.d.field: has no effect with time"),
        ('field = "a", bucket = 1, zone = "UTC"', "derive.d.zone: has an effect only with time"),
    ],
)
def test_mistakes_are_named_with_their_line(derive: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(derive)
    assert message in str(caught.value)
    assert str(caught.value).startswith("hush.toml:13: pipeline[0].derive.d")


def test_a_derived_column_that_no_key_uses_is_refused() -> None:
    with pytest.raises(ConfigError, match="is no column of key"):
        read('time = "hour"', '["page"]')
