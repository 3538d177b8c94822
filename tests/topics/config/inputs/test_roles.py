"""A pipeline cannot read a field as two types, because every record would be a dead letter.

Covers: topics/config/inputs/roles.py, topics/sql/typed.py, formats/events/roles.py
"""

from __future__ import annotations

import itertools
import json

import pytest
from hushstream.agents.deployment.compile import compile_config
from hushstream.errors import ConfigError
from hushstream.formats.events.decode import Decoder, RawRecord
from hushstream.topics.config.inputs import roles
from hushstream.topics.config.load import loads

INPUT = """\
[[input]]
name = "orders"
topic = "orders"
unit = "user"
time = { field = "at", format = "iso" }

[[pipeline]]
name = "p"
input = "orders"
window = { length = "1d" }
triggers = { every = "1d" }
budget = { epsilon = 1, delta = 1e-6 }
"""
SUM = '{ kind = "sum", field = "x", low = 0, high = 9 }'


@pytest.mark.parametrize(
    ("line", "rest", "words"),
    [
        (14, f'key = "k"\naggregate = [{SUM}]\nwhere = [{{ field = "x", equals = "a" }}]',
         r'aggregate\[0\]: "x" is a number here, and a text in where\[0\]'),
        (15, 'key = "k"\naggregate = [{ kind = "count" },\n'
             '{ kind = "count", name = "n", where = [{ field = "at", above = 3 }] }]',
         r'aggregate\[1\].where\[0\]: "at" is a number here, and a text in input.time'),
        (14, 'key = ["x", "y"]\nwhere = [{ any = [{ field = "x", equals = true }, '
             '{ field = "x", like = "a%" }] }]', r'where\[0\]: "x" is true or false here, and a'),
        (14, 'key = ["k", "b"]\nderive = { b = { field = "x", bucket = 5 } }\n'
             'where = [{ field = "x", one_of = ["a"] }]', r'derive.b: "x" is a number here'),
        (14, 'key = "k"\nwhere = [{ field = "user", equals = false }]',
         r'where\[0\]: "user" is true or false here, and a text or a whole number in input.unit'),
        (15, 'key = "x"\nwhere = [{ field = "x", like = "a%" }]\n'
             f'aggregate = [{SUM}]', r'aggregate\[0\]: "x" is a number'),
    ],
)  # fmt: skip
def test_a_field_of_two_types_is_refused_with_its_line(line: int, rest: str, words: str) -> None:
    with pytest.raises(ConfigError, match=rf"^hush\.toml:{line}: pipeline\[0\]\.{words}"):
        loads(INPUT + rest, environ={})


ASKED = {
    "key": ('key = ["k", "x"]', ""),
    "number": ('key = ["k"]', f"aggregate = [{SUM}]"),
    "text": ('key = ["k"]', 'where = [{ field = "x", like = "%" }]'),
    "truth": ('key = ["k"]', 'where = [{ field = "x", equals = true }]'),
    "scalar": ('key = ["k"]', 'where = [{ field = "x", present = true }]'),
}


@pytest.mark.parametrize(("one", "other"), list(itertools.combinations(ASKED, 2)))
def test_what_is_refused_is_what_every_record_is_a_dead_letter_of(
    one: str, other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compared with the decoder, which is independent of the check."""
    keys = ASKED["key"][0] if "key" in (one, other) else ASKED[one][0]
    rest = [ASKED[role][1] for role in (one, other)]
    wheres = [part[9:-1] for part in rest if part.startswith("where")]
    lines = [part for part in rest if part.startswith("aggregate")]
    text = "\n".join([INPUT + keys, *lines, f"where = [{', '.join(wheres)}]"])
    with monkeypatch.context() as unchecked:
        unchecked.setattr(roles, "objections", lambda pipeline, source: iter(()))
        (source,) = compile_config(loads(text, environ={})).inputs
    (p,) = source.pipelines
    decoder = Decoder(source.fields, [p.fields], [p.mechanism])
    events = [
        {"user": "u", "at": "2024-01-01T00:00:00Z", "k": "k", "x": value}
        for value in ("a", 3, 2.5, True)
    ]
    records = [RawRecord(n, 0, None, json.dumps(e).encode()) for n, e in enumerate(events)]
    decoded = decoder.decode(records)
    if len(decoded.bad | decoded.views[0].bad) < len(events):
        loads(text, environ={})
        return
    with pytest.raises(ConfigError, match='"x" is'):
        loads(text, environ={})


def test_conditions_of_one_value_are_refused_beside_rounds_with_their_line() -> None:
    rest = """key = "k"
mechanism = { kind = "histogram", selection = "rounds" }
aggregate = [{ kind = "count" },
  { kind = "count", name = "n", where = [{ field = "x", above = 3 }] }]"""
    with pytest.raises(ConfigError, match=r"^hush.toml:16: pipeline\[0\].aggregate\[1\].where: is"):
        loads(INPUT + rest, environ={})
    loads(INPUT + rest.replace('selection = "rounds"', 'selection = "threshold"'), environ={})


OTHER = """
[[pipeline]]
name = "q"
input = "orders"
window = { length = "1d" }
triggers = { every = "1d" }
budget = { epsilon = 1, delta = 1e-6 }
"""
PARTS = ["k", "k.a", "k.a.b", "ka", "user", "user.id", "at", "at.zone"]


@pytest.mark.parametrize(("one", "other"), list(itertools.product(PARTS, PARTS)))
def test_what_is_refused_is_what_no_worker_can_read(one: str, other: str) -> None:
    """Compared with the decoder, which a worker makes as it starts."""
    text = f'{INPUT}key = ["{one}"]\n{OTHER}key = "{other}"\n'
    with pytest.MonkeyPatch.context() as unchecked:
        unchecked.setattr(roles, "parts", lambda config: iter(()))
        config = loads(text, environ={})
    try:
        (source,) = compile_config(config).inputs
        assert source.decoder
    except ConfigError:
        with pytest.raises(ConfigError, match=r"hush\.toml:(13|21): .* one is a part of the other"):
            loads(text, environ={})
    else:
        loads(text, environ={})


@pytest.mark.parametrize(
    ("line", "old", "new", "words"),
    [
        (20, "", f'{OTHER}key = ["k.a"]', r'pipeline\[1\]\.key\[0\]: "k.a" .*"k" of pipeline\[0\]'),
        (14, "", '\nwhere = [{ field = "at.x", above = 1 }]',
         r'pipeline\[0\]\.where\[0\]: "at.x" .* "at" of input\[0\]\.time'),
        (4, '"at"', '"user.at"', r'input\[0\]\.unit: "user" .* "user.at" of input\[0\]\.time'),
    ],
)  # fmt: skip
def test_a_value_with_parts_is_refused_with_its_line(
    line: int, old: str, new: str, words: str
) -> None:
    """It was met only as a worker started."""
    text = f'{INPUT}key = "k"'
    text = text.replace(old, new) if old else text + new
    with pytest.raises(ConfigError, match=rf"^hush\.toml:{line}: {words}"):
        loads(text, environ={})
