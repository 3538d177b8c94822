"""Settings that contradict each other: each is refused with its line and the correction.

Covers: topics/config/checks/connections.py, topics/config/checks/pipelines.py
Covers: topics/config/checks/windows.py
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hushstream.errors import ConfigError
from hushstream.topics.config.access.clients import registry_options
from hushstream.topics.config.load import loads
from hushstream.topics.config.pipelines.schedule import Schedule

from .small import SMALL, _mechanism, changed, refusal, small

__all__ = ["_mechanism"]  # a fixture


HISTOGRAM = 'mechanism = { kind = "histogram" }'


LONG = [
    ('every = "1s"', "", "every: makes 86,400 .* at most 16,384: write every = .10s."),
    ('every = "30s"', 'factorization = "honaker"', "every: .* at most 2,048: .*1m"),
    ('every = "1m"', 'factorization = "final"', "every: .* at most 1,024: .*2m"),
    ('every = "30s"', 'selection = "rounds"', "every: .* at most 2,048"),
    ('cron = "* * * * *", count = 20_000', "", "count: 20,000 is more than the 16,384"),
]


@pytest.mark.parametrize(("triggers", "more", "said"), LONG)
def test_more_triggers_than_a_mechanism_has_are_refused_at_their_line(
    triggers: str, more: str, said: str
) -> None:
    mechanism = HISTOGRAM.replace(" }", f", {more} }}" if more else " }")
    text = SMALL.replace('every = "6h"', triggers) + mechanism
    with pytest.raises(ConfigError, match=rf"hush\.toml:12: .*triggers\.{said}"):
        loads(text, environ={})
    loads(SMALL.replace("6h", "1m") + HISTOGRAM, environ={})


def test_hops_and_windows_by_arrival_and_of_the_calendar_end_too() -> None:
    for window, every, said in (
        ('length = "1d", hop = "1m"', "1m", "window.hop: makes 1,440 hops of 1d.*at most 1,024"),
        ("horizon = 20_000", "6h", "window.horizon: makes 20,000 .*: write at most that"),
        ('length = "2 days"', "10s", "triggers.every: makes more than 16,384 .* a longer one"),
    ):
        text = SMALL.replace('length = "1d"', window).replace('every = "6h"', f'every = "{every}"')
        with pytest.raises(ConfigError, match=said):
            loads(text + HISTOGRAM, environ={})


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ("per_key = 3", r":18: .*per_key = 3: .*needs bound = \"per-key\""),
        ('bound = "records"\nper_key = 3', r":19: .*per_key = 3: needs"),
        ('per_key = 3\nselection = "rounds"', r":18: .*per_key = 3: needs"),
        ('bound = "per-key"', r":18: .*needs per_key"),
        ("adaptive_weight = 0.5", r":18: .*no effect with a public list"),
    ],
)
def test_settings_of_histograms_that_would_be_ignored(more: str, expected: str) -> None:
    table = f'[pipeline.mechanism]\nkind = "histogram"\nbudget = 4\n{more}\n'
    text = changed('key = "zone"', 'key = "zone"\npublic_keys = ["a"]')
    (line,) = refusal(text + table)
    assert re.search(expected, line), line
    fine = table.replace(more, 'bound = "per-key"\nper_key = 3\nadaptive_weight = 0')
    assert small(text + fine).pipeline[0].mechanism.parameters.per_key == 3


def by_arrival(window: str, more: str = "", triggers: str = '{ every = "6h" }') -> str:
    text = changed('window = { length = "1d" }', f"window = {window}\n{more}")
    return text.replace('{ every = "6h" }', triggers)


def test_windows_of_so_many_triggers() -> None:
    pipeline = small(by_arrival("{ horizon = 3 }", 'epoch = "36h"')).pipeline[0]
    schedule = Schedule.of(pipeline)
    assert schedule.arrival and (schedule.horizon, schedule.per_epoch) == (3, 2)
    assert schedule.length == pipeline.window_length == 18 * 3_600_000_000
    assert not Schedule.of(small().pipeline[0]).arrival


@pytest.mark.parametrize(
    ("text", "line", "expected"),
    [
        (by_arrival('{ horizon = 3, length = "1d" }'), 11, "either length or horizon"),
        (by_arrival("{ origin = 2019-03-01T00:00:00Z }"), 11, "either length or horizon"),
        (by_arrival("{ horizon = 0 }"), 11, "horizon"),
        (by_arrival("{ horizon = 3 }", 'lateness = "1h"'), 12, "events are never late"),
        (by_arrival("{ horizon = 3 }", 'epoch = "1d"'), 12, "not a multiple"),
        (
            by_arrival("{ horizon = 3 }", "", '{ cron = "0 * * * *", count = 3 }'),
            11,
            "window.horizon: needs triggers.every",
        ),
        (by_arrival("{ horizon = 90000 }", "", '{ every = "300d" }'), 11, "is more than 36500d"),
    ],
)
def test_contradictions_of_windows_by_arrival(text: str, line: int, expected: str) -> None:
    lines = refusal(text)
    assert any(f":{line}: " in said and expected in said for said in lines), lines


def test_the_policy_of_copies_serves_late_records_too() -> None:
    """Otherwise late records would be kept in full against the configured policy."""
    given = 'topic = "trips"\non_error = "drop"\nlate = "topic"\ndlq_payload = "none"'
    assert small(changed('topic = "trips"', given)).input[0].dlq_payload == "none"


def test_adaptive_weights_need_values() -> None:
    more = 'aggregate = "keys"\nmechanism = { kind = "histogram", adaptive_weight = 0.5 }'
    (line,) = refusal(changed('key = "zone"', f'key = "zone"\n{more}'))
    assert re.search(r":12: .*no effect with aggregate", line), line


def test_two_of_a_name_are_refused() -> None:
    lines = refusal(SMALL + SMALL)
    assert any(":14: " in line or ":15: " in line for line in lines)
    assert any("name of another input" in line for line in lines)
    assert any("name of another pipeline" in line for line in lines)


@pytest.mark.parametrize(
    "topic",
    ["__consumer_offsets", "hush.owners.v1", "other.ledger.v1", "other.0a1b2c3d4e.clock",
     "other.0a1b2c3d4e.ingest.pages-changelog"],
)  # fmt: skip
def test_no_pipeline_releases_to_and_no_input_is_what_others_live_by(topic: str) -> None:
    named = refusal(SMALL + f'[pipeline.release]\ntopic = "{topic}"\n')
    assert any("release.topic" in line and topic in line for line in named)
    read = refusal(SMALL.replace('topic = "trips"', f'topic = "{topic}"'))
    assert any("topic" in line and topic in line for line in read)


def test_output_topics_never_coincide() -> None:
    other = SMALL[SMALL.index("[[pipeline]]") :].replace('"zones"', '"other"')
    same = '[pipeline.release]\ntopic = "hush.zones.releases.v1"\n'
    assert any("is the topic of pipeline zones" in line for line in refusal(SMALL + other + same))
    onto_input = '[pipeline.release]\ntopic = "trips"\n'
    assert any("is the topic of input trips" in line for line in refusal(SMALL + onto_input))


REGISTRY = '[registry]\nurl = "https://registry:8081"\n'


@pytest.mark.parametrize(
    ("registry", "line"),
    [
        ("", 'format: "avro" needs registry.url'),
        ('[registry]\nurl = "registry:8081"\n', "url: must be http:// or https://"),
        ('[registry]\nurl = "https://u:p@registry"\n', "without credentials"),
        ('[registry]\nurl = "https://a,b"\n', "url: must be"),
        (REGISTRY + 'username = "u"\n', "username: needs a password"),
        (REGISTRY + 'password_file = "p"\n', "username: is missing"),
        (REGISTRY + 'password = "p"\n', "passwords must not be in this file"),
        (REGISTRY + 'ssl_certfile = "c"\n', "go together"),
        ('[registry]\nurl = "http://a"\nssl_cafile = "c"\n', "ssl_cafile: needs an https://"),
    ],
)
def test_a_registry_that_cannot_be_asked_is_refused(registry: str, line: str) -> None:
    text = registry + SMALL.replace("[[input]]", '[[input]]\nformat = "avro"', 1)
    with pytest.raises(ConfigError, match=re.escape(line)):
        loads(text, environ={})


def test_a_registry_is_read_with_its_secrets_from_outside(tmp_path: Path) -> None:
    text = REGISTRY + 'username = "u"\nssl_cafile = "ca.pem"\ntimeout = "1s"\n'
    text += SMALL.replace("[[input]]", '[[input]]\nformat = "avro"', 1)
    found = loads(text, folder=tmp_path, environ={"HUSH_REGISTRY__PASSWORD": "p:w"}).registry
    assert found.ssl_cafile == str(tmp_path / "ca.pem")
    assert registry_options(found) == {
        "url": "https://registry:8081", "timeout": 1.0, "max.retries": 0,
        "ssl.ca.location": str(tmp_path / "ca.pem"), "basic.auth.user.info": "u:p:w",
    }  # fmt: skip


def test_two_inputs_of_one_topic_are_refused() -> None:
    """The second input would be charged but never read."""
    second = SMALL.split("[[pipeline]]")[0].replace('"trips"', '"again"', 1)
    assert 'topic = "trips"' in second
    with pytest.raises(ConfigError, match="is read by input trips"):
        loads(SMALL + second, environ={})


ENDLESS = 'endless = true, origin = "2026-01-01T00:00:00Z"'


@pytest.mark.parametrize(("window", "more", "said"), [
    ("endless = true", "", "window.origin: is needed"),
    (f'{ENDLESS}, length = "1d"', "", "window.length: is not possible with window.endless"),
    (f'{ENDLESS}, hop = "1h"', "", "window.hop: is not possible with window.endless"),
    (ENDLESS, 'epoch = "7d"\n', "epoch: is not possible with window.endless"),
    (ENDLESS, "until = 2027-01-01T00:00:00Z\n", "until: is not possible with window.endless"),
])  # fmt: skip
def test_a_window_without_an_end_has_nothing_that_needs_one(
    window: str, more: str, said: str
) -> None:
    text = SMALL.replace('length = "1d"', window).replace("triggers =", f"{more}triggers =")
    with pytest.raises(ConfigError, match=said):
        loads(text + HISTOGRAM, environ={})
    loads(SMALL.replace('length = "1d"', ENDLESS) + HISTOGRAM, environ={})


@pytest.mark.parametrize("zone", ["", "localtime", "Mars"])
def test_a_zone_of_times_is_one_of_all_machines(zone: str) -> None:
    time = f'time = {{ field = "pickup", format = "iso", zone = "{zone}" }}'
    text = SMALL.replace('time = { field = "pickup", format = "epoch_ms" }', time)
    with pytest.raises(
        ConfigError, match=rf'^hush.toml:5: input\[0\].time.zone: "{zone}" is not a'
    ):
        loads(text, environ={})
    loads(text.replace(f'"{zone}" }}', '"Europe/Berlin" }'), environ={})
