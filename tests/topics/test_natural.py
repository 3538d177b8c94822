"""Keys that are public by nature: the configuration alone determines their list."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest
from hushstream.agents.deployment.compile import compile_config
from hushstream.cli.planning.plan import describe, described
from hushstream.errors import ConfigError
from hushstream.formats.events.decode import Decoder, RawRecord
from hushstream.formats.events.expressions.derived import PARTS, TimePart
from hushstream.mechanisms.histogram.mechanism import Histogram
from hushstream.topics.config.canonical import config_hash
from hushstream.topics.config.load import loads
from hushstream.topics.natural import MOST, domain_of, natural_keys
from rich.console import Console

CASES = """{ cases = [
  { where = [{ field = "price", above = 100 }], then = "large" },
  { where = [{ field = "price", above = 10 }], then = 1 },
], otherwise = true }"""
TEXT = """\
[[input]]
name = "orders"
topic = "orders"
unit = "user"
time = {{ field = "t", format = "epoch_ms" }}
[[pipeline]]
name = "p"
input = "orders"
{key}
window = {{ length = "1d" }}
triggers = {{ every = "1d" }}
budget = {{ epsilon = 1, delta = 1e-6 }}
"""
HOURS = 'key = ["hour"]\nderive = { hour = { time = "hour" } }\n'


def built(key: str) -> tuple[Histogram, str]:
    """The mechanism of a key, and the words of `hush plan`."""
    config = loads(TEXT.format(key=key), environ={})
    (p,) = compile_config(config).pipelines
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(described(p, describe(p)))
    assert isinstance(p.mechanism, Histogram)
    return p.mechanism, console.export_text()


@pytest.mark.parametrize(
    ("key", "keys", "words"),
    [
        ("", {b"[]"}, "one total of all records: nothing is selected"),
        ("key = []", {b"[]"}, "one total of all records"),
        (HOURS, {b"[%d]" % hour for hour in range(24)}, "all 24 keys of hour, public by nature"),
        (
            f'key = ["size", "day"]\nderive.size = {CASES}\nderive.day = {{ time = "weekday" }}',
            {
                b"[%b,%d]" % (size, day)
                for size in (b'"large"', b"1", b"true")
                for day in range(1, 8)
            },
            "all 21 keys of size, day, public by nature",
        ),
    ],
)
def test_all_keys_are_listed_and_none_is_selected(key: str, keys: set[bytes], words: str) -> None:
    mechanism, told = built(f'public_keys = "natural"\n{key}')
    assert mechanism.public == keys
    assert mechanism.threshold == () and words in told
    # No key is selected, so all δ is that of the sampler and of the Gaussian's curve.
    assert float(mechanism.cost().delta) < 1e-30


def test_the_list_is_the_one_that_a_person_would_write() -> None:
    natural = loads(TEXT.format(key=HOURS + 'public_keys = "natural"'), environ={})
    written = loads(TEXT.format(key=HOURS + f"public_keys = {list(range(24))}"), environ={})
    one, other = (config_hash(config, config.pipeline[0]) for config in (natural, written))
    assert one == other


def test_without_the_word_keys_are_selected_as_before() -> None:
    mechanism, told = built(HOURS)
    assert mechanism.public is None and mechanism.threshold
    assert "public by nature" not in told


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ('key = "page"', "has no list of 'page': records say which values it has"),
        ('key = ["d"]\nderive.d = { time = "date" }', "has no list of 'd'"),
        ('key = ["d"]\nderive.d = { field = "price", bucket = 10 }', "has no list of 'd'"),
        (
            'key = ["a", "b", "c"]\nderive = { a = { time = "minute" }, b = { time = "day" }, '
            'c = { time = "hour" } }',
            "would be 44,640 keys, and at most 10,000 are possible",
        ),
    ],
)
def test_what_records_decide_has_no_list(key: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        built(f'public_keys = "natural"\n{key}')
    assert message in str(caught.value)


@pytest.mark.parametrize("part", sorted(PARTS))
def test_no_time_has_a_part_that_is_not_listed(part: str) -> None:
    domain = domain_of({"time": part})
    hours = range(3 * 366 * 24)
    times = np.array([h * 3_600_000_000 + h % 60 * 60_000_000 for h in hours], np.int64)
    found = set(TimePart(part, "Asia/Kathmandu").values(times))
    assert domain is None or found == set(domain)
    assert (domain is None) == (part in ("year", "date"))


def test_a_total_is_one_key_of_no_column() -> None:
    assert natural_keys([], {}) == ([[]], None)
    assert MOST == 10_000


def test_the_first_case_that_a_record_fulfils_says_its_value() -> None:
    config = loads(TEXT.format(key=f'key = ["size"]\nderive.size = {CASES}'), environ={})
    (source,) = compile_config(config).inputs
    (p,) = source.pipelines
    decoder = Decoder(source.fields, [p.fields], [p.mechanism])
    bodies = [{"user": "u", "t": 1, "price": price} for price in (500, 50, 5)]
    bodies += [{"user": "u", "t": 1}]
    records = [RawRecord(n, 0, None, json.dumps(body).encode()) for n, body in enumerate(bodies)]
    (view,) = decoder.decode(records).views
    assert [view.keys[k] for k in view.key] == [b'["large"]', b"[1]", b"[true]", b"[true]"]
