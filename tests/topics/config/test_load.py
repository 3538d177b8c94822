"""Loading a deployment: values, overrides, complaints with lines, secrets.

Covers: topics/config/canonical.py, topics/config/check.py, topics/config/describe.py
Covers: topics/config/checks/connections.py, topics/config/checks/pipelines.py
Covers: topics/config/checks/windows.py, topics/config/pipelines/budgets.py
Covers: topics/config/pipelines/windows.py
Covers: topics/config/merge.py, topics/config/model.py, topics/config/pipelines/pipeline.py
Covers: topics/config/pipelines/public.py, topics/config/toml/read.py, topics/config/toml/values.py
"""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hushstream.errors import ConfigError, ParameterError
from hushstream.mechanisms import registry
from hushstream.mechanisms.entry import as_given, many, no_objection
from hushstream.mechanisms.registry import entries
from hushstream.topics.config.access.clients import registry_options
from hushstream.topics.config.canonical import canonical, config_hash
from hushstream.topics.config.describe import documented, rewrite
from hushstream.topics.config.load import Config, load, loads
from hushstream.topics.config.merge import tables
from hushstream.topics.config.pipelines import pipeline as config_pipeline
from hushstream.topics.config.pipelines.schedule import Schedule
from hushstream.topics.config.toml.lines import line_index

ROOT = Path(__file__).parents[3]
TEMPLATE = ROOT / "topics" / "config" / "template.toml"

SMALL = """\
[[input]]
name = "trips"
topic = "trips"
unit = ["car.id", "number"]
time = { field = "pickup", format = "epoch_ms" }

[[pipeline]]
name = "zones"
input = "trips"
key = "zone"
window = { length = "1d" }
triggers = { every = "6h" }
budget = { epsilon = 0.1, delta = 1e-6 }
"""


@dataclass(frozen=True)
class Knobs:
    """Parameters of a mechanism that exists in this module alone."""

    bound: int = 3
    weight: Fraction = Fraction(3, 10)
    style: str = "plain"

    def __post_init__(self) -> None:
        if self.bound < 1:
            raise ParameterError("bound", self.bound, "must be at least 1")


BUILT_IN = dict(entries())


@pytest.fixture(autouse=True)
def _mechanism(monkeypatch: pytest.MonkeyPatch) -> None:
    knobs = entries()["histogram"]._replace(name="knobs", parameters=Knobs, framed=as_given)
    knobs = knobs._replace(objections=no_objection, triggers=many)
    for module in (config_pipeline, registry):
        monkeypatch.setattr(module, "entries", lambda: {**BUILT_IN, "knobs": knobs})
    monkeypatch.setattr(config_pipeline, "DEFAULT", "knobs")


def small(text: str = SMALL, **environ: str) -> Config:
    return loads(text, environ=environ)


def refusal(text: str, **environ: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        loads(text, environ=environ)
    return str(caught.value).splitlines()


def changed(old: str, new: str) -> str:
    assert old in SMALL
    return SMALL.replace(old, new)


def test_values_are_exact_and_normalised() -> None:
    pipeline = small().pipeline[0]
    assert pipeline.budget.epsilon == Fraction(1, 10)
    assert pipeline.key == ("zone",)
    assert small().input[0].unit == ("car.id", "number")
    assert pipeline.triggers.every == 6 * 3_600_000_000
    assert pipeline.mechanism == config_pipeline.MechanismSettings("knobs", Knobs())
    assert pipeline.release_topic == "hush.zones.releases.v1"


def test_precedence_is_flag_environment_file_default() -> None:
    text = SMALL + '[engine]\nbeat_interval = "1s"\n'
    variable = {"HUSH_ENGINE__BEAT_INTERVAL": "2s"}
    flags = {"engine.beat_interval": "3s", "engine.log_level": None}
    assert small().engine.beat_interval == 250_000
    assert small(text).engine.beat_interval == 1_000_000
    assert small(text, **variable).engine.beat_interval == 2_000_000
    assert loads(text, environ=variable, flags=flags).engine.beat_interval == 3_000_000


def test_variables_reach_every_kind_of_value() -> None:
    config = small(
        HUSH_KAFKA__BOOTSTRAP="a:1,b:2",
        HUSH_ENGINE__PUBLIC_PORT="0",
        HUSH_PIPELINE__ZONES__BUDGET__EPSILON="0.3",
        HUSH_PIPELINE__0__UNIT_NAME="12",
        HUSH_PIPELINE__ZONES__MECHANISM='{ kind = "knobs", bound = 5 }',
        HUSH_PIPELINE__ZONES__KEY='["a", "b"]',
        HUSH_CACHE="/not/a/setting",
        UNRELATED__NAME="x",
    )
    assert config.kafka.bootstrap == "a:1,b:2"
    assert config.engine.public_port == 0
    assert config.pipeline[0].budget.epsilon == Fraction(3, 10)
    assert config.pipeline[0].unit_name == "12"
    assert config.pipeline[0].mechanism.parameters.bound == 5
    assert config.pipeline[0].key == ("a", "b")


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


def test_a_mark_of_the_encoding_is_passed_over_and_another_one_is_told(tmp_path: Path) -> None:
    file = tmp_path / "hush.toml"
    file.write_text(f"\ufeff{SMALL}", "utf-8")
    assert load(file, environ={}) == loads(SMALL, folder=tmp_path, environ={})
    file.write_text(f"{SMALL}# für", "latin-1")
    with pytest.raises(ConfigError, match=r"hush\.toml:14: is not in UTF-8"):
        load(file, environ={})
    with pytest.raises(ConfigError, match=r"cannot be read .Is a directory"):
        load(tmp_path, environ={})


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ('every = "6h"', 'evry = "6h"', r":12: .*triggers\.evry: .*did you mean 'every'"),
        ('every = "6h"', 'every = "7h"', r":12: .*triggers\.every: 7h does not divide .* 1d"),
        ('every = "6h"', "every = 6", r":12: .*triggers\.every: 6 must be a duration"),
        ('every = "6h"', 'every = "6 hours"', r":12: .*must be a duration such as"),
        ('every = "6h"', "", r":12: pipeline\[0\]\.triggers: needs either every, or cron"),
        ('every = "6h"', 'every = "6h", count = 4', r":12: .*triggers\.count: follows from"),
        ('every = "6h"', 'cron = "0 * * * *"', r":12: .*cron needs count"),
        ('every = "6h"', 'cron = "0 * * * *", count = 23', r"triggers end before their window"),
        ('every = "6h"', 'cron = "61 * * * *", count = 24', r":12: .*not a cron rule"),
        ('every = "6h"', 'cron = "0 0 30 2 *", count = 24', r":12: .*(not a cron rule|fires less)"),
        ('length = "1d"', 'length = "1d", origin = "May"', r":11: .*point in time"),
        ("epsilon = 0.1", "epsilon = 0", r":13: .*budget\.epsilon: 0 must be greater than 0"),
        ("epsilon = 0.1", "epsilon = inf", r":13: .*must be a finite number"),
        ("epsilon = 0.1", "epsilon = nan", r":13: .*must be a finite number"),
        ("epsilon = 0.1", "epsilon = true", r":13: .*true must be a number"),
        ("epsilon = 0.1", "epsilon = 1, limit_epsilon = 0.5", r":13: .*so no epoch could"),
        ("delta = 1e-6", "delta = 0.7", r":13: .*budget\.delta: 0\.7 must lie between 0 and 0\.5"),
        ("epsilon = 0.1, ", "", r":13: pipeline\[0\]\.budget: epsilon is missing"),
        (
            'input = "trips"',
            'input = "trip"',
            r":9: .*\"trip\" is not .* did you mean 'trips'",
        ),
        ('key = "zone"', "key = []", r":10: .*key: must be a path"),
        ('key = "zone"', "key = ['a', 'a']", r":10: .*distinct paths"),
        ('key = "zone"', "key = 'a..b'", r":10: .*path such as a\.b\.c"),
        ('key = "zone"', "", r":7: pipeline\[0\]: needs key"),
        ('key = "zone"', "key = 'a'\nepsilon = 1", r":11: .*belongs to \[pipeline\.budget\]"),
        (
            'key = "zone"',
            "key = 'a'\nepoch = '2d'\nuntil = 2019-03-04",
            r"until: is no boundary .*2019-03-03T00:00:00Z, the next at 2019-03-05T00:00:00Z",
        ),
        ('key = "zone"', "key = 'a'\nepoch = '36h'", r":11: .*1d12h is not a multiple of .* 1d"),
        ('key = "zone"', "key = 'a'\nneighbouring = 'replace'", r":11: .*must be one of \"add_rem"),
        ('key = "zone"', "key = 'a'\npublic_keys = ['x', 'x']", r":11: .*x more than once"),
        ('key = "zone"', "key = 'a'\npublic_keys = ['x',\n ['y', 'z']]", r":12: .*has 2 columns"),
        ('key = "zone"', "key = 'a'\npublic_keys = []", r":11: .*is empty"),
        ('key = "zone"', "key = 'a'\npublic_keys_file = 'none'", r":11: .*cannot be read"),
        ('key = "zone"', "key = 'a'\naggregate = []", r":11: .*must be \"keys\" or a list"),
        ('key = "zone"', "key = 'a'\naggregate = 'key'", r":11: .*must be \"keys\" or a list"),
        ('key = "zone"', "key = 'a'\nsign = 3", r":11: .*sign: 3 must be a text"),
        ('name = "zones"', 'name = "my zones"', r":8: .*letters, digits and hyphens"),
        ('format = "epoch_ms"', 'format = "epoch"', r":5: .*one of .*did you mean 'epoch_.?s'"),
        ('format = "epoch_ms"', 'format = "record"', r":5: .*time\.field: has no effect"),
        (
            'format = "epoch_ms"',
            'format = "iso", zone = "Mars"',
            r":5: .*\"Mars\" is not a time",
        ),
        ('field = "pickup", ', "", r":5: .*needs field"),
        ('topic = "trips"', 'topic = "a/b"', r":3: .*topic: \"a/b\" must be"),
        ('topic = "trips"', 'topic = "hush.ledger.v1"', r":3: .*topic of the ledger"),
        (
            'topic = "trips"',
            'topic = "t"\nformat = "avro"',
            r":4: .*\"avro\" needs registry.url",
        ),
        ('topic = "trips"', 'topic = "t"\nformat = "jsn"', r":4: .*did you mean 'json'"),
        (
            'topic = "trips"',
            'topic = "t"\npartitioner = "crc32"',
            r":4: .*needs a unit of one field",
        ),
        (
            'topic = "trips"',
            'topic = "t"\non_error="drop"\ndlq_payload="hash"',
            r":5: .*no effect",
        ),
        ("[[input]]", "[[inputs]]", r":1: inputs: .*did you mean 'input'"),
        ("[[input]]", "[kafka]\nbootstrap='x'\n[[input]]", r":2: .*must be host:port"),
        ("[[input]]", "[kafka]\nsasl_username='x'\n[[input]]", r":2: .*needs security_protocol"),
        ("[[input]]", "[kafka]\nsecurity_protocol='SASL_SSL'\n[[input]]", r":2: .*needs sasl_mech"),
        ("[[input]]", "[kafka]\nsasl_password='x'\n[[input]]", r":2: .*must not be in this file"),
        ("[[input]]", "[secret]\nnoise_key='ab'\n[[input]]", r":2: .*must not be in this file"),
        ("[[input]]", "[engine]\npublic_port=70000\n[[input]]", r":2: .*between 0 and 65535"),
        ("[[input]]", "[engine]\npublic_port=9465\n[[input]]", r"operator_port: must differ"),
        ("[[input]]", "[engine]\nreplication_factor=0\n[[input]]", r":2: .*-1 or at least 1"),
        ("[[input]]", "[[input]", r"Expected .*line 1"),
    ],
)
def test_what_is_wrong_is_refused_with_its_line(old: str, new: str, expected: str) -> None:
    lines = refusal(changed(old, new))
    assert any(re.search(expected, line) for line in lines), lines
    assert all(line.startswith("hush.toml") for line in lines)


@pytest.mark.parametrize(
    ("aggregate", "expected"),
    [
        ('[{ kind = "cuont" }]', r"aggregate\[0\]\.kind: .*did you mean 'count'"),
        ("[{ field = 'x' }]", r"must be a table with kind"),
        ('[{ kind = "count" }, { kind = "count" }]', r"aggregate\[1\]: \"count\" exists already"),
        ('[{ kind = "sum", field = "x", low = 0 }]', r"aggregate\[0\]: high is missing"),
        ('[{ kind = "sum", field = "x", low = 1, high = 1 }]', r"high: 1 must exceed low = 1"),
        (
            '[{ kind = "mean", field = "x", low = 0, high = 1, grid = 0.3 }]',
            r"high: 1 is not a multiple of grid = 0\.3",
        ),
        (
            '[{ kind = "mean", field = "x", low = 0, high = 1, grid = 1e-12 }]',
            r"high: .*coarser grid",
        ),
    ],
)
def test_wrong_aggregates(aggregate: str, expected: str) -> None:
    lines = refusal(changed('key = "zone"', f"key = 'a'\naggregate = {aggregate}"))
    assert any(re.search(r":11: .*" + expected, line) for line in lines), lines


@pytest.mark.parametrize(
    ("mechanism", "expected"),
    [
        ('{ kind = "nobs" }', r"unknown mechanism; did you mean 'knobs'"),
        ('{ kind = "knobs", buond = 2 }', r"buond: unknown setting; did you mean 'bound'"),
        ('{ kind = "knobs", bound = "2" }', r"bound: \"2\" must be a whole number"),
        ('{ kind = "knobs", bound = 0 }', r"bound = 0: must be at least 1"),
    ],
)
def test_wrong_mechanisms(mechanism: str, expected: str) -> None:
    lines = refusal(changed('key = "zone"', f"key = 'a'\nmechanism = {mechanism}"))
    assert any(re.search(r":11: .*" + expected, line) for line in lines), lines


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
    """Without it late records would be kept in full where nobody asked for that."""
    given = 'topic = "trips"\non_error = "drop"\nlate = "topic"\ndlq_payload = "none"'
    assert small(changed('topic = "trips"', given)).input[0].dlq_payload == "none"


def test_adaptive_weights_need_values() -> None:
    more = 'aggregate = "keys"\nmechanism = { kind = "histogram", adaptive_weight = 0.5 }'
    (line,) = refusal(changed('key = "zone"', f'key = "zone"\n{more}'))
    assert re.search(r":12: .*no effect with aggregate", line), line


def test_everything_wrong_is_reported_at_once_with_its_origin() -> None:
    text = changed('key = "zone"', "kye = 'a'").replace("delta = 1e-6", "delta = 2")
    lines = refusal(text, HUSH_ENGINE__BEAT="1s", HUSH_PIPELINE__ZONE__KEY="a")
    assert len(lines) == 4
    assert any(line.startswith("HUSH_ENGINE__BEAT: engine.beat: unknown") for line in lines)
    assert any("HUSH_PIPELINE__ZONE__KEY" in line and "'zones'" in line for line in lines)


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


def test_a_missing_file_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="hush init"):
        load(tmp_path / "none.toml")


def test_files_are_relative_to_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "zones.json").write_text('["Soho", ["Midtown"]]')
    (tmp_path / "zones.txt").write_text('Soho\n\n["Midtown"]\n')
    (tmp_path / "hush.toml").write_text(SMALL)
    for name in ("zones.json", "zones.txt"):
        flags = {"pipeline.zones.public_keys_file": name}
        config = load(tmp_path / "hush.toml", environ={}, flags=flags)
        assert config.pipeline[0].public_keys == (("Soho",), ("Midtown",))
    assert config.secret.noise_key_file == str(tmp_path / "hush.key")
    assert config.engine.data_dir == str(tmp_path / "hush-data")


@pytest.mark.parametrize("content", ["{", '{"a": 1}', "[[1.5]]", "[null]"])
def test_a_file_that_holds_no_keys_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "keys.json").write_text(content)
    with pytest.raises(ConfigError, match=r"public_keys_file.*keys\.json"):
        loads(
            SMALL,
            folder=tmp_path,
            environ={},
            flags={"pipeline.zones.public_keys_file": "keys.json"},
        )


def test_passwords_come_from_the_environment_and_never_show() -> None:
    config = small(
        HUSH_KAFKA__SECURITY_PROTOCOL="SASL_PLAINTEXT",
        HUSH_KAFKA__SASL_MECHANISM="PLAIN",
        HUSH_KAFKA__SASL_USERNAME="me",
        HUSH_KAFKA__SASL_PASSWORD="canary-7",
    )
    assert config.kafka.sasl_password == "canary-7"
    assert "canary-7" not in repr(config)
    lines = refusal(SMALL, HUSH_KAFKA__SASL_PASSWORD="canary-7", HUSH_KAFKA__SASL_MECHANISM="X")
    assert "canary-7" not in "\n".join(lines)


# What decides the contents of a release changes the hash; what says how workers run does not.
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("epsilon = 0.1", "epsilon = 0.2"),
        ('every = "6h"', 'every = "3h"'),
        ('length = "1d"', 'length = "2d"'),
        ('key = "zone"', 'key = "borough"'),
        ('key = "zone"', 'key = "zone"\nmechanism = { bound = 4 }'),
        ('key = "zone"', 'key = "zone"\npublic_keys = ["a"]'),
        ('key = "zone"', 'key = "zone"\nlateness = "1h"'),
        ('key = "zone"', 'key = "zone"\nepoch = "2d"'),
        ('key = "zone"', 'key = "zone"\nfeedback_delay = 2'),
        ('"number"]', '"plate"]'),
        ('format = "epoch_ms"', 'format = "epoch_s"'),
        ('topic = "trips"', 'topic = "trips2"'),
        ("[[input]]", "[engine]\nmax_future_skew = '1h'\n[[input]]"),
        ("[[input]]", "[deployment]\nname = 'other'\n[[input]]"),
    ],
)
def test_the_hash_covers_every_privacy_setting(old: str, new: str) -> None:
    before, after = small(), small(changed(old, new))
    assert config_hash(before, before.pipeline[0]) != config_hash(after, after.pipeline[0])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("epsilon = 0.1", "epsilon = 0.10"),
        ("epsilon = 0.1", "epsilon = 0.1, limit_epsilon = 7"),
        ('key = "zone"', 'key = "zone"\nuntil = 2031-01-01'),
        ('key = "zone"', 'key = "zone"\nnoise_key_file = "other.key"'),
        ('length = "1d"', 'length = "24h"'),
        ('key = "zone"', 'key = ["zone"]\nepoch = "1d"\nmechanism = { kind = "knobs", bound = 3 }'),
        ('topic = "trips"', 'topic = "trips"\non_error = "drop"\nlate = "topic"'),
        ("[[input]]", "[kafka]\nbootstrap = 'b:1'\n[engine]\nstep_records = 5\n[[input]]"),
    ],
)
def test_the_hash_ignores_how_workers_run_and_how_values_are_written(old: str, new: str) -> None:
    before, after = small(), small(changed(old, new))
    assert canonical(before, before.pipeline[0]) == canonical(after, after.pipeline[0])


def test_every_pipeline_setting_is_in_the_canonical_form() -> None:
    config = small()
    pipeline = replace(config.pipeline[0], public_keys=(("b",), ("a",)))
    settings: dict[str, Any] = json.loads(canonical(config, pipeline))
    meant_elsewhere = {
        "public_keys_file", "noise_key_file", "forget_keys", "query", "clip", "until", "learn",
    }  # fmt: skip
    empty = {
        "where",
        "derive",
        "follows",
        "session",
    }  # they appear where they say something: see their own tests
    assert {f.name for f in fields(pipeline)} - meant_elsewhere - empty <= set(settings)
    assert settings["public_keys"]["count"] == 2
    turned = replace(pipeline, public_keys=(("a",), ("b",)))
    assert canonical(config, turned) == canonical(config, pipeline)


def test_the_template_is_valid_with_and_without_its_comments() -> None:
    text = TEMPLATE.read_text()
    assert small(text).pipeline[0].name == "zones"
    uncommented = re.sub(r"(?m)^( *)# (?=[a-z_.]+ = |\{ kind)", r"\1", text)
    exclusive = (
        r"(?m)^(public_keys_file|inputs|query|clip|derive|follows|learn|session|"
        r"sasl_\w+|ssl_c\w+|ssl_k\w+|time\.zone)\b.*\n"
    )
    config = small(re.sub(exclusive, "", uncommented))
    assert len(config.pipeline[0].aggregate) == 5
    assert config.pipeline[0].budget.limit_epsilon == 12


def test_template_model_and_reference_have_the_same_settings() -> None:
    template = TEMPLATE.read_text()
    page = ROOT / "docs" / "configuration.md"
    assert page.read_text() == rewrite(page.read_text())
    implied = {"sasl_password", "ssl_key_password", "parameters"}
    for name, kind in tables():
        settings = {f.name for f in fields(kind)}
        assert set(documented(kind)) == settings, name
        shown = {s for s in settings - implied if re.search(rf"\b{s}\b(\]\]?)?", template)}
        assert shown == settings - implied, name
    known = {f.name for _, kind in tables() for f in fields(kind)} | {t for t, _ in tables()}
    used = {str(step) for path in line_index(template) for step in path if isinstance(step, str)}
    assert used <= known | {name.strip("[]").rsplit(".", 1)[-1] for name, _ in tables()}


def test_template_comments_show_the_defaults() -> None:
    text = TEMPLATE.read_text()
    engine = text[text.index("[engine]") : text.index("[[input]]")]
    shown = "\n".join(line.removeprefix("# ") for line in engine.splitlines())
    data: dict[str, dict[str, Any]] = tomllib.loads(shown)
    assert loads(shown, environ={}).engine == loads("", environ={}).engine
    assert set(data["engine"]) == {f.name for f in fields(loads("", environ={}).engine)}


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
    """The second one would be charged and never read."""
    second = SMALL.split("[[pipeline]]")[0].replace('"trips"', '"again"', 1)
    assert 'topic = "trips"' in second
    with pytest.raises(ConfigError, match="is read by input trips"):
        loads(SMALL + second, environ={})
