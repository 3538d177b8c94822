"""Settings that are valid but probably unintended, and errors that say what to do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from hushstream.agents.clock.pinned import _verify_layout
from hushstream.agents.deployment.cautions import cautions, unordered
from hushstream.agents.deployment.compile import compile_config
from hushstream.cli.planning.plan import plan
from hushstream.cli.trigger import trigger
from hushstream.cli.worker import worker
from hushstream.errors import ConfigError, EngineError
from hushstream.offline.simulate import simulate
from hushstream.topics.config.load import Config, loads

from ...support import INPUT, ORIGIN, PIPELINE

TEXT = INPUT.format(units=1, cells=1, partitioner="none", format="json") + PIPELINE.format(
    name="p", mechanism="", more=""
)
SPATIAL = ('kind = "histogram", budget = 4', 'kind = "privhp"'), ('key = ["page"]', "")


def text(*swap: tuple[str, str]) -> str:
    made = TEXT
    for old, new in swap:
        assert old in made
        made = made.replace(old, new)
    return made


def said(*swap: tuple[str, str], now: int = ORIGIN + 1) -> list[str]:
    return list(cautions(loads(text(*swap), environ={}), now))


def test_usual_settings_need_no_caution() -> None:
    assert said() == []


def test_an_epsilon_and_a_delta_that_mean_nothing_are_said_to() -> None:
    (one,) = said(("epsilon = 8.0", "epsilon = 21.0"))
    assert "epsilon = 21 protects nobody" in one
    (one,) = said(("delta = 1e-4", "delta = 1e-3"))
    assert "one unit in 1,000" in one


def test_an_origin_in_the_future_is_said_with_its_time() -> None:
    (one,) = said(("2019-03-01T00:00:00Z", "2099-01-01T00:00:00Z"))
    assert "window.origin lies in the future: windows count from 2099-01-01" in one


def test_a_cap_that_outlives_the_clock_log_cannot_be_replayed_and_that_is_said() -> None:
    for period, span in (("", "for good"), (', period = "8d"', "for 8d")):
        cap = f"delta = 1e-4, per_unit = {{ epsilon = 12, delta = 2e-4{period} }} }}"
        (one,) = said(("delta = 1e-4 }", cap))
        assert f"per_unit holds {span}, and engine.keep_clock is 7d" in one
        assert said(("delta = 1e-4 }", cap), ("[engine]", '[engine]\nkeep_clock = "8d"')) == (
            [] if period else [one.replace("7d", "8d")]
        )


def test_the_unit_square_is_not_planned_without_a_word() -> None:
    (one,) = said(*SPATIAL)
    assert "mechanism.domain is not given, so the unit square" in one


def test_a_key_of_one_unit_shows_nothing_and_that_is_said() -> None:
    (one,) = said(('key = ["page"]', 'key = ["page", "user"]'))
    assert "key holds user, which names the privacy unit" in one


@pytest.mark.parametrize(
    ("where", "words"),
    [
        (
            '{ field = "land", equals = "DE" }, { field = "land", equals = "AT" }',
            "where[0] and where[1] exclude each other",
        ),
        ('{ field = "page", present = false }', "takes records without page, which is a column"),
    ],
)
def test_conditions_that_no_record_fulfils_are_said_to_be_so(where: str, words: str) -> None:
    (one,) = said(('key = ["page"]', f'key = ["page"]\nwhere = [{where}]'))
    assert words in one and "none counts" in one
    open_ = where.replace('"AT"', '"DE"').replace("false", "true")
    assert said(('key = ["page"]', f'key = ["page"]\nwhere = [{open_}]')) == []


@pytest.mark.parametrize(
    ("derive", "good", "wrong", "like"),
    [
        ('{ field = "n", bucket = 10 }', "0, 20, -10", '"20"', "0 and 10"),
        ('{ field = "n", bucket = 10 }', "0", "15", "0 and 10"),
        ('{ field = "n", bucket = 0.5 }', '"0.5"', "1", '"0.0" and "0.5"'),
        ('{ field = "n", bucket = 0.5 }', '"0.5"', '"much"', '"0.0" and "0.5"'),
        ('{ time = "hour" }', "0, 23", "24", "0 and 1"),
        ('{ time = "hour" }', "0, 23", '"23"', "0 and 1"),
        ('{ time = "date" }', '"2026-11-29"', "2026", '"2026-01-01"'),
        ('{ cases = [{ where = [{ field = "n", above = 1 }], then = 1 }], otherwise = true }',
         "1, true", '"1"', "1 and true"),
        ('{ field = "n", text = [{ case = "lower" }] }', '"a"', "1", '"a text"'),
    ],
)  # fmt: skip
def test_a_public_key_that_no_record_can_have_is_refused(
    derive: str, good: str, wrong: str, like: str
) -> None:
    def told(keys: str) -> list[str]:
        more = f'key = ["c"]\nderive = {{ c = {derive} }}\npublic_keys = [{keys}]'
        return said(('key = ["page"]', more))

    assert told(good) == []
    with pytest.raises(ConfigError) as caught:
        told(f"{good}, {wrong}")
    assert f"has {wrong} for c" in str(caught.value)
    assert str(caught.value).endswith(f"such as {like}")


def test_a_pause_that_is_as_long_as_the_time_between_triggers_hides_nothing() -> None:
    engine = "[engine]\n"
    assert said((engine, engine + 'publish_delay = "1h"\n')) == []
    (one,) = said((engine, engine + 'publish_delay = "5h"\n'))
    assert "publish_delay = 18000 s is too long for triggers that are 21600 s apart" in one


@pytest.mark.parametrize(
    ("swap", "words"),
    [
        (("[engine]\n", '[engine]\nlog_level = "debug"\n'), "which may quote records"),
        (("[engine]\n", '[engine]\noperator_host = "::"\n'), "'::' serves exact counts"),
        (('name = "events"\n', 'name = "events"\non_error = "fail"\n'), "any producer can stop"),
    ],
)
def test_a_setting_by_which_records_reach_more_people_is_said(
    swap: tuple[str, str], words: str
) -> None:
    (one,) = said(swap)
    assert words in one


def test_operator_metrics_of_this_machine_alone_need_no_caution() -> None:
    for host in ("localhost", "127.0.0.2", "::1", '0.0.0.0"\noperator_port = 0 #"'):
        assert said(("[engine]\n", f'[engine]\noperator_host = "{host}"\n')) == []


def test_an_order_that_load_moves_is_told_where_a_unit_may_be_in_several_partitions() -> None:
    def told(many: int, *swap: tuple[str, str]) -> list[str]:
        return list(unordered(loads(text(*swap), environ={}), {"events": many}))

    (one,) = told(2)
    assert "topic events has 2 partitions" in one and "declare their partitioner" in one
    assert told(1) == told(2, ('partitioner = "none"', 'partitioner = "murmur2"')) == []


def test_plan_prints_its_cautions(tmp_path: Path) -> None:
    file = tmp_path / "hush.toml"
    file.write_text(text(("delta = 1e-4", "delta = 1e-3")))
    done = CliRunner().invoke(plan, ["-c", str(file)])
    assert done.exit_code == 0
    assert "warning: pipeline 'p': delta = 0.001 allows" in done.output
    (one,) = json.loads(CliRunner().invoke(plan, ["-c", str(file), "--json"]).output)["warnings"]
    assert one.startswith("pipeline 'p': delta = 0.001 allows")


def test_a_table_where_a_list_of_tables_belongs_names_the_brackets() -> None:
    with pytest.raises(ConfigError, match=r"write \[\[pipeline\]\], not \[pipeline\]"):
        loads(text(("[[pipeline]]", "[pipeline]")), environ={})


def test_no_delta_for_unknown_keys_has_a_line_and_a_hint() -> None:
    with pytest.raises(ConfigError, match=r"hush\.toml:\d+: .*delta.*public_keys"):
        loads(text(("delta = 1e-4", "delta = 0")), environ={})


def test_min_users_with_public_keys_names_min_users() -> None:
    swap = ("budget = 4 }", 'budget = 4, min_users = 5 }\npublic_keys = [["a"]]')
    with pytest.raises(ConfigError, match=r"min_users = 5: has no effect with public_keys"):
        compile_config(loads(text(swap), environ={}))


@pytest.mark.parametrize("processes", ["0", "-1"])
def test_a_worker_of_no_process_is_refused(processes: str) -> None:
    done = CliRunner().invoke(worker, ["--processes", processes])
    assert done.exit_code == 2
    assert "x>=1" in done.output


def test_a_trigger_before_the_origin_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    file = tmp_path / "hush.toml"
    file.write_text(TEXT)
    done = CliRunner().invoke(trigger, ["-c", str(file), "--at", "2019-02-01T00:00Z"])
    assert isinstance(done.exception, ConfigError)
    assert "before window.origin" in str(done.exception)


def config() -> Config:
    return loads(TEXT, environ={})


def test_rows_without_a_field_name_the_fields_that_there_are() -> None:
    rows = [{"customer": "a", "page": "p", "t": ORIGIN}]
    with pytest.raises(ConfigError, match=r"no record has the field 'user'.*customer, page, t"):
        simulate(config(), rows, "events", bytes(32))


def test_a_topic_that_one_side_lacks_is_not_called_a_topic_of_0_partitions() -> None:
    for wanted, pinned in (({}, {"units": 2}), ({"units": 2}, {})):
        with pytest.raises(EngineError, match=r"topic units.*partitioner") as caught:
            _verify_layout(wanted, pinned, "p")
        assert "0 partitions" not in str(caught.value)
