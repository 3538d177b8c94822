"""Old terms against new ones: each changed setting, when it takes effect, and both prices."""

from __future__ import annotations

from hushstream.agents.deployment.compile import compile_config
from hushstream.agents.deployment.difference import (
    Difference,
    Terms,
    beside,
    differences,
    next_name,
    proposal,
)
from hushstream.topics.config.load import Config, loads
from hushstream.topics.config.toml.values import parse_instant

OLD = """
[[input]]
name = "events"
topic = "raw"
unit = "user"
time = { field = "t", format = "iso" }
[[pipeline]]
name = "pages"
input = "events"
key = ["page"]
window = { length = "1d" }
triggers = { every = "6h" }
budget = { epsilon = 8, delta = 1e-6, limit_epsilon = 80 }
"""
END = "until = 2031-01-05T00:00:00Z\n"
NEW = """
[[pipeline]]
name = "pages-2"
follows = "pages"
input = "events"
key = ["page"]
public_keys = ["a", "b"]
window = { length = "12h" }
triggers = { every = "6h" }
budget = { epsilon = 2, delta = 1e-7, limit_epsilon = 20 }
"""
NOW = parse_instant("2031-01-02T10:00:00Z")


def config(text: str) -> Config:
    return loads(text, environ={})


def terms(text: str) -> list[Terms]:
    return [Terms.of(p) for p in compile_config(config(text)).pipelines]


def found(old: str, new: str, now: int = NOW) -> dict[str, Difference]:
    return {one.pipeline: one for one in differences(terms(old), terms(new), now)}


def lines(one: Difference) -> dict[str, tuple[str, str, str]]:
    return {line.setting: (line.old, line.new, line.holds) for line in one.lines}


def test_what_is_the_same_is_not_told() -> None:
    assert found(OLD, OLD) == {}


def test_a_follower_is_told_setting_by_setting_with_the_boundary_and_the_sum() -> None:
    told = found(OLD, OLD + END + NEW)
    assert lines(told["pages"]) == {
        "until": ("none", "2031-01-05T00:00:00Z", "from then on; `hush topics` writes it, for ever")
    }
    one, begin = told["pages-2"], "from 2031-01-05T00:00:00Z on"
    assert one.against == "pages"
    assert lines(one) == {
        "budget.epsilon": ("8", "2", begin),
        "budget.delta": ("1/1000000", "1/10000000", begin),
        "budget.limit_epsilon": ("80", "20", begin),
        "epoch": ("1d", "12h", begin),
        "public_keys": ("none", lines(one)["public_keys"][1], begin),
        "window.length": ("1d", "12h", begin),
    }
    assert lines(one)["public_keys"][1].startswith("2 keys (")
    words = "\n".join(one.words)
    assert "ε=8, δ=1e-06 per unit and epoch of 1d, at most 10 epochs" in words
    assert "pays ε=8 a day before, and 4 after" in words
    assert "ε = N × 8 + M × 2, δ = N × 1e-06 + M × 1e-07 (add_remove)" in words
    assert "over both limits together: at most ε=100" in words


def test_a_charged_setting_never_changes_under_its_name_and_the_words_say_what_to_write() -> None:
    told = found(OLD, OLD.replace("{ epsilon = 8", "{ epsilon = 4"))["pages"]
    assert lines(told) == {"budget.epsilon": ("8", "4", "never under this name")}
    (words,) = told.words
    for part in ("until = 2031-01-03T00:00:00Z", 'name = "pages-2"', 'follows = "pages"'):
        assert part in words


def test_what_is_proposed_is_a_valid_configuration() -> None:
    said = proposal(terms(OLD)[0], NOW).splitlines()
    first, *second = [line.strip() for line in said if line.startswith("    ")]
    written = OLD + first + "\n" + "\n".join(second) + NEW.partition('follows = "pages"')[2]
    old, new = config(written).pipeline
    assert (old.until, new.name, new.window.origin) == (old.until, "pages-2", old.until)


def test_free_settings_change_at_once_and_an_end_is_judged() -> None:
    told = found(OLD, OLD.replace("limit_epsilon = 80", "limit_epsilon = 160"))["pages"]
    assert lines(told) == {"budget.limit_epsilon": ("80", "160", "at once")} and told.words == ()
    early = OLD + END.replace("01-05", "01-02")
    assert lines(found(OLD, early)["pages"])["until"][2].endswith("2031-01-03T00:00:00Z")
    moved = found(OLD + END, OLD + END.replace("01-05", "01-06"))["pages"]
    assert lines(moved)["until"][2].startswith("never")


def test_pipelines_that_come_and_go() -> None:
    alone = NEW.replace('follows = "pages"\n', "")
    told = found(OLD, OLD + alone)["pages-2"]
    assert told.against is None and told.words[0].startswith("new: ε=2")
    assert "lost" in found(OLD + alone, OLD)["pages-2"].words[0]
    later = parse_instant("2031-02-01T00:00:00Z")
    ended = found(OLD + END + alone, OLD.partition("[[pipeline]]")[0] + alone, later)["pages"]
    assert ended.words[0].startswith("removed: it has ended")


def test_requests_and_arrival_need_another_name() -> None:
    origin = 'window = { length = "1d", origin = 2031-01-01 }\nschedule = "external"'
    asked = OLD.replace('window = { length = "1d" }', origin)
    assert "Give the pipeline a new name" in proposal(terms(asked)[0], NOW)
    assert next_name("a-9") == "a-10" and next_name("a-b") == "a-b-2"


def test_settings_beside_pipelines_say_what_holds_them() -> None:
    head = '[engine]\ncells_partitions = 8\nstep_records = 5\nmax_future_skew = "1h"\n'
    late = OLD.replace('unit = "user"', 'unit = "user"\nlate = "topic"')
    told = {line.setting: line for line in beside(config(OLD), config(head + late))}
    assert set(told) == {"engine.cells_partitions", "engine.step_records", "input.events.late"}
    assert told["engine.step_records"].holds == "at once"
    assert told["engine.cells_partitions"].holds.startswith("never")
    assert (told["input.events.late"].old, told["input.events.late"].new) == ("drop", "topic")
