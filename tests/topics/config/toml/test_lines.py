"""The line index agrees with the standard parser on settings, and with the text on lines."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hushstream.topics.config.toml.lines import Path as Setting
from hushstream.topics.config.toml.lines import line_index
from hypothesis import given
from hypothesis import strategies as st

ODD = '''\
# comment = 1
title = "x # no comment" # comment
'single.quoted' . "double\\"quoted" = 1979-05-27T07:32:00Z
[a . b]
text = """
[not.a.header]
escaped \\""" quote = 5
"""
raw = \'\'\'
}]'quotes' here\'\'\'
numbers = [ 1, # one
  2.5e3, [ 3,
    4 ], { x = 1, y = [ "]", ',' ] },
]
empty = [ ]
none = {}

[[p]]
n = 1
[p.sub]
k.l = true
[[p]]
[[p.q]]
z = -1
[[p.q]]
z = 2
[p.q.deep]
last = inf
'''


def _settings(data: Any, path: Setting = ()) -> Iterator[Setting]:
    if path:
        yield path
    items = data.items() if isinstance(data, dict) else enumerate(data) if _many(data) else ()
    for step, value in items:
        yield from _settings(value, (*path, step))


def _many(data: Any) -> bool:
    return isinstance(data, list)


def test_odd_documents() -> None:
    lines = line_index(ODD)
    assert set(lines) == set(_settings(tomllib.loads(ODD)))
    assert lines["single.quoted", 'double"quoted'] == 3
    assert lines["a", "b", "raw"] == 9
    assert lines["a", "b", "numbers", 0] == 11
    assert lines["a", "b", "numbers", 2, 1] == 13
    assert lines["a", "b", "numbers", 3, "y", 1] == 13
    assert lines["p", 0, "sub", "k", "l"] == 21
    assert lines["p", 1, "q", 1, "z"] == 26
    assert lines["p", 1, "q", 1, "deep", "last"] == 28


@pytest.mark.parametrize("name", ["topics/config/template.toml", "pyproject.toml"])
def test_real_documents(name: str) -> None:
    text = (Path(__file__).parents[4] / name).read_text("utf-8")
    assert set(line_index(text)) == set(_settings(tomllib.loads(text)))


def test_windows_line_ends() -> None:
    assert line_index("a = 1\r\n\r\n[b]\r\nc = 2\r\n")["b", "c"] == 4


NAMES = st.sampled_from(["a", "b", '"q.r"', "'s'"])
VALUES = st.recursive(
    st.sampled_from(["1", '"x]"', "'#'", "true", "2020-01-01", '"""a\nb"""']),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda v: "[\n" + ",\n".join(v) + "]")
        | st.lists(inner, min_size=1, max_size=2).map(
            lambda v: "{" + ", ".join(f"k{i} = {x}" for i, x in enumerate(v)) + "}"
        )
    ),
    max_leaves=6,
)


@given(st.lists(st.tuples(st.booleans(), NAMES, VALUES), max_size=5))
def test_random_documents(entries: list[tuple[bool, str, str]]) -> None:
    lines = []
    for number, (header, name, value) in enumerate(entries):
        lines += [f"[[t.{name}]]"] if header else []
        lines.append(f"v{number}.{name} = {value}  # c")
    text = "\n".join(lines)
    index = line_index(text)
    assert set(index) == set(_settings(tomllib.loads(text)))
    rows = text.split("\n")
    for path, line in index.items():
        if str(path[-1]).startswith("v"):
            assert rows[line - 1].startswith(str(path[-1]))
