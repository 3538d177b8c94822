"""Pinned settings: change each one, and note which check finds the change.

Covers: topics/config/change.py
"""

from __future__ import annotations

from dataclasses import is_dataclass, replace
from fractions import Fraction
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
from hushstream.agents.clock.ledger import Ledger
from hushstream.agents.clock.pinned import _verify_end, _verify_own_key, placement
from hushstream.agents.deployment.cluster.topic_specs import layout
from hushstream.agents.deployment.compile import compile_config
from hushstream.errors import ConfigError, EngineError
from hushstream.formats.events.expressions.looked_up import PublicTable
from hushstream.topics.config import change
from hushstream.topics.config.load import Config, loads
from hushstream.topics.config.toml.values import INPUT
from hushstream.topics.names import Names

TOML = """
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
budget = { epsilon = 1.0, delta = 1e-6 }
"""
NAMES = Names("hush", "abcdef")
CONFIG = loads(TOML, environ={})
OTHER = TOML[TOML.index("[[pipeline]]") :].replace('"pages"', '"fares"')
SHARED = (
    '[[budget]]\nname = "both"\nepsilon = 1.0\ndelta = 1e-6\nmembers = { pages = 1, fares = 1 }\n'
)
ALONE = "budget = { epsilon = 1.0, delta = 1e-6 }\n"
SHARING = loads((TOML + OTHER).replace(ALONE, "") + SHARED, environ={})
USERS = """
[[input]]
name = "users"
topic = "users"
unit = "id"
attributes_of = "events"
partitioner = "murmur2"
time = { format = "record" }
"""
STATED = loads(
    (USERS + TOML)
    .replace('unit = "user"', 'unit = "user"\npartitioner = "murmur2"')
    .replace('["page"]', '["page"]\nderive.page = { attribute = "page", otherwise = "none" }'),
    environ={},
)
VIEW = '[[view]]\nname = "busy"\nsource = "pages"\nvalues = [{ of = "count" }]\n'
LOOKUP = '[[lookup]]\nname = "land"\ntopic = "lands"\n' + TOML.replace(
    '["page"]',
    '["page"]\nderive.page = { field = "land", lookup = "land", match = "id", take = "name", '
    'otherwise = "none" }',
)
CAP = 'per_unit = { epsilon = 8.0, delta = 1e-4, period = "30d" }\n'
CAPPED = loads((TOML + OTHER).replace(ALONE, "") + SHARED + CAP, environ={})


def looking_up(text: str) -> Config:
    """The settings with rows from topics; each topic has rows of its own."""
    rows = {"lands": "Togo"}
    return loads(
        text,
        environ={},
        tables=lambda _, origin: PublicTable({"tg": rows.get(origin.topic, "Mali")}, origin),
    )


def holds(config: Config) -> dict[str, Any]:
    """What a deployment with these settings would write to its ledger."""
    made = compile_config(config, {i.topic: 3 for i in config.input})
    (source,) = made.streams
    p = source.pipelines[0]
    laid = {topic: number for topic, number in layout(source, p, NAMES).items() if number}
    held = {change.HASH: p.config_hash, change.LEDGER: (placement(source, p), laid, p.shared)}
    # Here a file stands for its key; a deployment pins the key's fingerprint.
    key = p.own_key or config.pipeline[0].noise_key_file
    return held | {change.END: p.until, change.KEY: key}


def other(hint: Any, value: Any) -> Any:
    """Another value of the same type."""
    if get_origin(hint) is Literal:
        return next((one for one in get_args(hint) if one != value), "another")
    if value == INPUT:
        return 3
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | Fraction):
        return value * 2 if value >= 1 else value / 2  # still a multiple of the same numbers
    if isinstance(value, dict):
        return {name: one + 1 for name, one in value.items()} | {"fares": 9}
    if isinstance(value, tuple):
        return (*value[:-1], "another")
    return f"{value or ''}another"


def changed(thing: Any, steps: list[str]) -> Any:
    """A settings object with another value at a path."""
    name, *rest = steps
    value = getattr(thing, name)
    if isinstance(value, tuple) and rest:
        return replace(thing, **{name: (changed(value[0], rest), *value[1:])})
    if is_dataclass(value):
        return replace(thing, **{name: changed(value, rest)})
    plain = get_type_hints(type(thing))[name]
    return replace(thing, **{name: other(plain, value)})


def begun(setting: str) -> Config:
    if setting == "secret.ratchet":
        return changed(changed(CONFIG, ["pipeline", "forget_keys"]), ["secret", "ratchet"])
    if setting.startswith("budget.per_unit."):
        return CAPPED
    if setting == "input.attributes_of":
        return STATED
    if setting.startswith("lookup."):
        return looking_up(LOOKUP)
    return SHARING if setting.startswith("budget.") else CONFIG


def moved(setting: str) -> Config:
    if setting.startswith("lookup."):
        old = {"lookup.name": '"land"\n', "lookup.topic": '"lands"'}[setting]
        text = LOOKUP.replace(old, old.replace("land", "other"))
        if setting == "lookup.name":
            text = text.replace('lookup = "land"', 'lookup = "other"')
        return looking_up(text)
    config: Config = changed(begun(setting), setting.split("."))
    if setting == "pipeline.forget_keys":
        config = changed(config, ["secret", "ratchet"])
    if setting == "input.name":  # the pipelines of the input are renamed with it
        (p,) = config.pipeline
        config = replace(config, pipeline=(replace(p, input=config.input[0].name),))
    return config


PLAIN = [s for s in change.every() if not s.startswith(("pipeline.", "view."))]
PLAIN += ["pipeline.budget.epsilon", "pipeline.key", "pipeline.unit_name", "pipeline.lateness"]
PLAIN += [s for s in change.SETTINGS if s.startswith("pipeline.") and not s.endswith("*")]


def test_every_setting_is_listed_with_what_holds_it():
    """For a new setting, decide whether it may change while a deployment lives."""
    assert [s for s in change.every() if change.of(s) is None] == []
    listed = {path.removesuffix(".*") for path in change.SETTINGS}
    known = {path.rsplit(".", n)[0] for path in change.every() for n in (0, 1, 2)}
    known |= set(change.every())
    assert listed <= known  # the list names no setting that is gone


@pytest.mark.parametrize("setting", PLAIN)
def test_a_setting_is_held_by_what_the_table_says_and_by_nothing_else(setting):
    before, after = holds(begun(setting)), holds(moved(setting))
    held = change.of(setting)
    assert held is not None
    noticed = {name for name in before if before[name] != after[name]}
    if setting in ("input.topic", "input.name", "input.attributes_of"):
        noticed.discard(change.LEDGER)  # the setting also names topics of the layout
    assert noticed == ({held.held} if held.held != change.FREE else set())


def test_routing_of_units_is_part_of_what_is_pinned():
    (source,) = compile_config(CONFIG, {"raw": 3}).inputs
    pinned = placement(source, source.pipelines[0])
    assert set(pinned) == {"routing", "partitioner", "release_partitions"}
    for partitioner in ("none", "murmur2", "crc32"):
        other = replace(source, partitioner=partitioner)
        assert placement(other, source.pipelines[0])["partitioner"] == partitioner


DAY = 86_400_000_000


def test_an_end_that_the_ledger_holds_is_configured_as_it_is():
    (source,) = compile_config(CONFIG, {"raw": 3}).inputs
    (p,) = source.pipelines
    open_, ended = Ledger(), Ledger(retired={"pages": {"until": 7 * DAY, "epoch": 7}})
    for until in (None, 7 * DAY):
        _verify_end(open_, replace(p, until=until))  # the end can still be written, once
    _verify_end(ended, replace(p, until=7 * DAY))
    for until, said in ((None, "until is missing"), (8 * DAY, 'until is "1970-01-09T')):
        with pytest.raises(ConfigError, match=f'{said}.*write until = "1970-01-08T00:00:00Z"'):
            _verify_end(ended, replace(p, until=until))


def test_a_key_of_its_own_is_the_one_that_the_ledger_declared():
    (source,) = compile_config(CONFIG, {"raw": 3}).inputs
    (p,) = source.pipelines
    _verify_own_key({}, p)
    _verify_own_key({"key_fingerprint": "one"}, replace(p, own_key="one"))
    for declared, here in (({}, "one"), ({"key_fingerprint": "one"}, None),
                           ({"key_fingerprint": "one"}, "two")):  # fmt: skip
        with pytest.raises(EngineError, match="its own noise key"):
            _verify_own_key(declared, replace(p, own_key=here))


def test_views_are_held_by_nothing_whatever_they_say():
    assert change.of("view.source").held == change.FREE
    assert holds(loads(TOML + VIEW, environ={})) == holds(CONFIG)
