"""Public keys that no record can have are refused, and all others are not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hushstream.agents.deployment.compile import compile_config
from hushstream.errors import ConfigError
from hushstream.formats.events.decode import RawRecord
from hushstream.formats.events.expressions.derived import PARTS
from hushstream.topics.config.load import loads

TEXT = """\
[[input]]
name = "orders"
topic = "orders"
unit = "user"
time = { field = "t", format = "epoch_ms" }

[[pipeline]]
name = "p"
input = "orders"
window = { length = "1d" }
triggers = { every = "1d" }
budget = { epsilon = 1 }
"""
CASES = (
    'cases = [{ where = [{ field = "x", above = 1 }], then = 1 },'
    ' { where = [{ field = "x", below = 0 }], then = true }], otherwise = "rest"'
)
MANY = ", ".join(
    f'{{ where = [{{ field = "x", equals = {n} }}], then = "c{n}" }}' for n in range(7)
)


def listed(key: str, derive: str = "") -> str:
    line = f"derive.k = {{ {derive} }}\n" if derive else ""
    return f'{TEXT}key = "k"\n{line}public_keys = [{key}]\n'


@pytest.mark.parametrize(
    ("derive", "good", "bad", "words"),
    [
        ("", '"a"', '"a", ""', r'\[1\]: has an empty text for k, and .*: leave it out'),
        ("", f'"{"y" * 1020}"', f'"{"é" * 511}"', r'\[0\]: is longer than 1,024 bytes'),
        ('time = "hour"', "0, 23", "0, 24", r"\[1\]: has 24 for k, .* values such as 0 and 1"),
        ('time = "month"', "1, 12", "0", "values such as 1 and 2"),
        ('time = "weekday"', "1", '"1"', 'has "1" for k'),
        ('time = "dow"', "0", "false", "has false for k"),
        ('time = "year"', "1970, 2026", '"2026"', "such as 2026"),
        ('time = "date"', '"2026-11-22"', '"20261122"', 'such as "2026-01-01"'),
        ('time = "date"', '"2024-02-29"', '"2026-02-29"', 'such as "2026-01-01"'),
        ('field = "x", bucket = 10', "-10, 0, 20", "0, 5", "such as 0 and 10"),
        ('field = "x", bucket = 10', "0", '"0"', "such as 0 and 10"),
        ('field = "x", bucket = 1', "1", "true", "such as 0 and 1"),
        ('field = "x", bucket = 0.5', '"-0.5", "1.0"', '"1"', r'such as "0.0" and'),
        ('field = "x", round = 1', '"0.3"', '"0.25"', 'such as "0.0" and "0.1"'),
        ('field = "x", round = -1', "10", f"{10**400}", "such as 0 and 10"),
        (CASES, '1, true, "rest"', "true, false", r'\[1\]: .* such as 1 and true'),
        (f'cases = [{MANY}], otherwise = "rest"', '"c6"', '"c7"', 'such as "c0" and "c1"'),
        ('field = "x", text = [{ case = "lower" }]', '"a"', '""', "has an empty text for k"),
    ],
)  # fmt: skip
def test_a_key_that_no_record_can_have_is_refused_with_its_line(
    derive: str, good: str, bad: str, words: str
) -> None:
    loads(listed(good, derive), environ={})
    line = 15 if derive else 14
    with pytest.raises(
        ConfigError, match=rf"^hush\.toml:{line}: pipeline\[0\]\.public_keys.*{words}"
    ):
        loads(listed(bad, derive), environ={})


def test_every_fault_of_a_list_is_told_once() -> None:
    keys = '[24, "a"], [25, ""], [1, ""], [1, "b"]'
    text = listed(keys, 'time = "hour"').replace('key = "k"', 'key = ["k", "page"]')
    with pytest.raises(ConfigError) as caught:
        loads(text, environ={})
    assert [line.split(": ")[1] for line in str(caught.value).splitlines()] == [
        "pipeline[0].public_keys[0]", "pipeline[0].public_keys[1]"
    ]  # fmt: skip


@pytest.mark.parametrize(
    "derive",
    [
        *(f'time = "{part}", zone = "Asia/Kathmandu"' for part in PARTS),
        'field = "x", bucket = 0.25', 'field = "x", bucket = 7', 'field = "x", round = 2',
        'field = "x", round = 0', CASES,
    ],
)  # fmt: skip
def test_what_the_decoder_makes_may_be_listed(derive: str) -> None:
    """No list may be refused that has a record."""
    pattern = (
        listed('"-"', derive)
        .replace("public_keys", "# ")
        .replace("epsilon = 1", "epsilon = 1, delta = 1e-6")
    )
    (source,) = compile_config(loads(pattern, environ={})).inputs
    values = [
        json.dumps({"user": "u", "t": n * 987_654_321_987, "x": n * 3.7 - 90}).encode()
        for n in range(250)
    ]
    found = source.decoder.decode([RawRecord(n, 0, None, v) for n, v in enumerate(values)])
    keys = [key.decode()[1:-1] for key in found.views[0].keys]
    assert len(keys) > 1
    loads(listed(", ".join(keys), derive), environ={})


def test_a_table_that_is_not_read_yet_refuses_no_key(tmp_path: Path) -> None:
    derive = 'field = "x", lookup = "zones", match = "id", take = "name", otherwise = "?"'
    table = '[[lookup]]\nname = "zones"\ntopic = "zones"\n'
    for more in ("", ", bucket = 1"):
        loads(listed('"Queens"' if not more else "3", derive + more) + table, environ={})
    (tmp_path / "zones.csv").write_text("id,name\n1,Queens\n")
    file = derive.replace('"zones"', '"zones.csv"')
    loads(listed('"Queens", "?"', file), environ={}, folder=tmp_path)
    with pytest.raises(ConfigError, match='such as "Queens" and "\\?"'):
        loads(listed('"queens"', file), environ={}, folder=tmp_path)
