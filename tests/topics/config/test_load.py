"""Loading a deployment: values, overrides, complaints with lines, secrets.

Covers: topics/config/merge.py, topics/config/model.py, topics/config/pipelines/budgets.py
Covers: topics/config/pipelines/pipeline.py, topics/config/pipelines/windows.py
Covers: topics/config/pipelines/public.py, topics/config/toml/read.py, topics/config/toml/values.py
"""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path

import pytest
from hushstream.errors import ConfigError
from hushstream.topics.config.load import load, loads
from hushstream.topics.config.pipelines import pipeline as config_pipeline

from .small import SMALL, Knobs, _mechanism, changed, refusal, small

__all__ = ["_mechanism"]  # a fixture


def test_values_are_exact_and_normalised() -> None:
    pipeline = small().pipeline[0]
    assert pipeline.budget.epsilon == Fraction(1, 10)
    assert pipeline.key == ("zone",)
    assert small().input[0].unit == ("car.id", "number")
    assert pipeline.triggers.every == 6 * 3_600_000_000
    assert pipeline.mechanism == config_pipeline.MechanismSettings("knobs", Knobs())
    assert pipeline.release_topic == "hush.zones.releases.v1"


def test_precedence_is_flag_environment_file_default() -> None:
    text = SMALL + '[engine]\nbeat_interval = "4s"\n'
    variable = {"HUSH_ENGINE__BEAT_INTERVAL": "2s"}
    flags = {"engine.beat_interval": "3s", "engine.log_level": None}
    assert small().engine.beat_interval == 1_000_000
    assert small(text).engine.beat_interval == 4_000_000
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


def test_a_mark_of_the_encoding_is_passed_over_and_another_one_is_told(tmp_path: Path) -> None:
    file = tmp_path / "hush.toml"
    file.write_text(f"\ufeff{SMALL}", "utf-8")
    assert load(file, environ={}) == loads(SMALL, folder=tmp_path, environ={})
    file.write_text(f"{SMALL}# für", "latin-1")
    with pytest.raises(ConfigError, match=r"hush\.toml:14: is not in UTF-8"):
        load(file, environ={})
    with pytest.raises(ConfigError, match=r"is a folder; name the file, such as .*hush\.toml"):
        load(tmp_path, environ={})


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ('every = "6h"', 'evry = "6h"', r":12: .*triggers\.evry: .*did you mean 'every'"),
        ('every = "6h"', 'every = "7h"', r":12: .*triggers\.every: 7h does not divide .* 1d"),
        ('every = "6h"', "every = 6", r":12: .*triggers\.every: 6 must be a duration such as"),
        ('every = "6h"', 'every = "6 hours"', r":12: .*must be a duration such as"),
        ('key = "zone"', "key = 5", r":10: .*key: 5 must be a path such as .* or a list of"),
        ('length = "1d"', 'length = "1 fortnight"', r":11: .*1h30m.* of the calendar, .*1 month"),
        ('{ length = "1d" }', '"1d"', r":11: .*window: must be a table such as { length = … }"),
        ('{ every = "6h" }', '"6h"', r":12: .*triggers: must be a table such as { every = … }"),
        ('every = "6h"', "", r":12: pipeline\[0\]\.triggers: needs either every, or cron"),
        ('every = "6h"', 'every = "6h", count = 4', r":12: .*triggers\.count: follows from"),
        ('every = "6h"', 'cron = "0 * * * *"', r":12: .*cron needs count"),
        ('every = "6h"', 'cron = "0 * * * *", count = 23', r"triggers end before their window"),
        ('every = "6h"', 'cron = "61 * * * *", count = 24', r":12: .*not a cron rule"),
        ('every = "6h"', 'cron = "0 0 30 2 *", count = 24', r":12: .*(not a cron rule|fires less)"),
        ('length = "1d"', 'length = "1d", origin = "May"', r":11: .*point in time"),
        ("epsilon = 0.1", "epsilon = 0", r":13: .*budget\.epsilon: 0 must be greater than 0"),
        (
            "epsilon = 0.1",
            "epsilon = 1e-400",
            r":13: .*budget\.epsilon: 1E-400 is too small: it must be greater than 0",
        ),
        ("epsilon = 0.1", "epsilon = 1e400", r":13: .*must lie between 0 and 1000"),
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
        ('key = "zone"', "key = '$.zone.id'", r":10: .*\"\$\.zone\.id\" is JSONPath: write zone"),
        ('key = "zone"', "key = '$[\"zone\"].id'", r":10: .*is JSONPath: write zone\.id$"),
        ('key = "zone"', "key = 'zones[0].id'", r":10: .*JSONPath: write names .* of a list"),
        ('key = "zone"', "key = 'zones[*]'", r":10: .*no path reads elements of a list"),
        ('key = "zone"', "key = '$'", r":10: .*is JSONPath: write names with dots"),
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
        (
            "[[input]]",
            "[kafka]\nbootstrap='x:99999'\n[[input]]",
            r":2: kafka\.bootstrap: \"x:99999\" names port 99999: write one from 1 to 65535$",
        ),
        ("[[input]]", "[kafka]\nbootstrap='x:1,[::1]:0'\n[[input]]", r":2: .*names port 0: "),
        (
            "[[input]]",
            "[registry]\nurl='http://x:99999'\n[[input]]",
            r":2: registry\.url: .*from 1 to 65535",
        ),
        ("[[input]]", "[[input]", r"^hush\.toml:1: not TOML: Expected .*\(column 8\)$"),
        ("delta = 1e-6 }", "delta = 1e-6", r"^hush\.toml:13: not TOML: [A-Z].*"),
        ("delta = 1e-6 }", "delta = ", r"^hush\.toml:13: not TOML: Invalid value"),
        ("delta = 1e-6 }", "n = '''", r"^hush\.toml:13: not TOML: .* at the end of the file$"),
    ],
)
def test_what_is_wrong_is_refused_with_its_line(old: str, new: str, expected: str) -> None:
    lines = refusal(changed(old, new))
    assert any(re.search(expected, line) for line in lines), lines
    assert all(line.startswith("hush.toml") for line in lines)


@pytest.mark.parametrize("name", ["$id", "zone.$oid", "fare [USD]", "a[b]", "$ref.x", "x.$"])
def test_names_that_a_producer_may_give_are_paths(name: str) -> None:
    assert small(changed('key = "zone"', f"key = '{name}'")).pipeline[0].key == (name,)


@pytest.mark.parametrize(
    ("aggregate", "expected"),
    [
        ('[{ kind = "cuont" }]', r"aggregate\[0\]\.kind: .*did you mean 'count'"),
        ("[{ field = 'x' }]", r"must be a table with kind"),
        ('[{ kind = "count" }, { kind = "count" }]', r"aggregate\[1\]: \"count\" exists already"),
        (
            '[{ kind = "count" }, { kind = "count", name = "count_low" }]',
            r"aggregate\[1\]: \"count_low\" has a column count_low in tables, and .* \"count\"",
        ),
        (
            '[{ kind = "count", name = "n_high" }, { kind = "count", name = "n" }]',
            r"aggregate\[1\]: \"n\" has a column n_high in tables, and .* \"n_high\"",
        ),
        ('[{ kind = "count", name = "trigger" }]', r"column trigger .* that of every release"),
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


def test_everything_wrong_is_reported_at_once_with_its_origin() -> None:
    text = changed('key = "zone"', "kye = 'a'").replace("delta = 1e-6", "delta = 2")
    lines = refusal(text, HUSH_ENGINE__BEAT="1s", HUSH_PIPELINE__ZONE__KEY="a")
    assert len(lines) == 4
    assert any(line.startswith("HUSH_ENGINE__BEAT: engine.beat: unknown") for line in lines)
    assert any("HUSH_PIPELINE__ZONE__KEY" in line and "'zones'" in line for line in lines)


def test_a_missing_file_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="hush init"):
        load(tmp_path / "none.toml")


def test_files_are_relative_to_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "zones.json").write_text('["Soho", ["Midtown"]]')
    (tmp_path / "zones.txt").write_text('Soho\n\n["Midtown"]\n')
    for name in ("zones.json", "zones.txt"):  # as some editors write it
        (tmp_path / f"marked-{name}").write_text("\ufeff" + (tmp_path / name).read_text(), "utf-8")
    (tmp_path / "hush.toml").write_text(SMALL)
    for name in ("zones.json", "zones.txt", "marked-zones.json", "marked-zones.txt"):
        flags = {"pipeline.zones.public_keys_file": name}
        config = load(tmp_path / "hush.toml", environ={}, flags=flags)
        assert config.pipeline[0].public_keys == (("Soho",), ("Midtown",))
    assert config.secret.noise_key_file == str(tmp_path / "hush.key")
    assert config.engine.data_dir == str(tmp_path / "hush-data")


@pytest.mark.parametrize(
    "content", ["{", '{"a": 1}', "[[1.5]]", "[null]", pytest.param(f"[{'9' * 5000}]", id="long"),
                pytest.param("[" * 200_000, id="deep")],
)  # fmt: skip
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
