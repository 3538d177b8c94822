"""A setting that a mechanism refuses is named with its line, like one that the reader refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from hushstream.cli.group import hush
from hushstream.cli.lines import with_line
from hushstream.errors import ConfigError, EngineError

TEXT = """
[[input]]
name = "trips"
topic = "trips"
unit = "trip_id"
time = { field = "pickup", format = "iso" }

[[pipeline]]
name = "rides"
input = "trips"
key = "zone"
window = { length = "1d" }
triggers = { every = "1h" }
budget = { epsilon = 1.0, delta = 1e-6 }

[[pipeline]]
name = "fares"
input = "trips"
aggregate = [{ kind = "sum", field = "fare", low = 0, high = 100 }]
window = { length = "1d" }
triggers = { every = "1h" }
budget = { epsilon = 1.0 }

[pipeline.mechanism]
kind = "pak"
bound = 100
warmup = 0
"""


def line_of(part: str) -> int:
    return TEXT[: TEXT.rindex(part)].count("\n") + 1


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "hush.toml"
    path.write_text(TEXT)
    return path


def test_plan_and_check_name_the_line_that_a_mechanism_refuses(file):
    said = f"{file}:{line_of('warmup')}: pipeline 'fares': warmup = 0: must be an integer"
    for words in (["plan"], ["topics", "--print"]):
        error = CliRunner().invoke(hush, [*words, "-c", str(file)]).exception
        assert isinstance(error, ConfigError) and str(error).startswith(said), words
    checked = CliRunner().invoke(hush, ["check", "--offline", "--json", "-c", str(file)])
    (finding,) = json.loads(checked.stdout)["findings"]
    assert checked.exit_code == 2
    assert finding["level"] == "fail" and finding["text"].startswith(said)


@pytest.mark.parametrize(
    ("message", "part"),
    [
        ("pipeline 'fares': warmup = 0: must be more", "warmup"),
        ("pipeline 'fares': aggregate: it sums", "aggregate"),
        ("pipeline 'fares': window.length: too long", 'length = "1d" }\ntriggers'),
        ("pipeline 'fares': no key column 'a'", '[[pipeline]]\nname = "fares"'),
        ("pipeline 'rides': strange = 3: is not there", '[[pipeline]]\nname = "rides"'),
        ("input 'trips': unit: is none", "unit"),
    ],
)
def test_the_line_is_that_of_the_setting_or_of_its_table(file, message, part):
    assert str(with_line(ConfigError(message), str(file))) == f"{file}:{line_of(part)}: {message}"


def test_a_parameter_of_a_mechanism_is_not_taken_for_the_setting_of_its_name(file):
    file.write_text(TEXT + "budget = 0\n")
    for message, line in (
        ("pipeline 'fares': budget = 0: must be positive", TEXT.count("\n") + 1),
        ("pipeline 'fares': budget: is too small", line_of("budget")),
    ):
        assert str(with_line(ConfigError(message), str(file))) == f"{file}:{line}: {message}"


def test_what_names_no_table_of_the_file_stays(file, tmp_path):
    for error in (
        ConfigError("kafka.bootstrap: is missing"),
        ConfigError("pipeline 'other': warmup = 0: must be more"),
        EngineError("pipeline 'fares': warmup = 0: must be more"),
    ):
        assert with_line(error, str(file)) is error
    error = ConfigError("pipeline 'fares': warmup = 0: must be more")
    assert with_line(error, str(tmp_path / "none.toml")) is error
    file.write_text("[[pipeline]\n")
    assert with_line(error, str(file)) is error
