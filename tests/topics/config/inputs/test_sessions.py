"""Settings that a pipeline of sessions cannot have, each refused with its line."""

from __future__ import annotations

import pytest
from hushstream.agents.deployment.compile import compile_config
from hushstream.errors import ConfigError
from hushstream.topics.config.canonical import privacy_settings
from hushstream.topics.config.load import loads

from ....support import INPUT, PIPELINE

HEAD = INPUT.format(units=1, cells=1, partitioner="murmur2", format="json")
GOOD = 'session = "30m"\nlateness = "30m"\n'
SUM = '{ kind = "sum", field = "session_events", low = 0, high = 9 }'


def text(more: str, *swaps: tuple[str, str]) -> str:
    made = HEAD + PIPELINE.format(name="p", mechanism="", more=more)
    for old, new in swaps:
        assert old in made
        made = made.replace(old, new)
    return made


FIELD = 'aggregate = [{ kind = "sum", field = "price", low = 0, high = 9 }]'
CASES = {
    "lateness must be at least session = 30m": ('session = "30m"', ()),
    "session: needs window.length": ('session = "30m"', (('length = "1d",', "horizon = 4,"),)),
    "sign is not possible with session": (f'{GOOD}sign = "gone"', ()),
    'session: needs mechanism.kind = "histogram" or "quantile"': (
        GOOD + '[pipeline.mechanism]\nkind = "privhp"\n[pipeline.mechanism.domain]\ndepth = 3\n'
        'axes = [{ name = "x", low = 0, high = 1 }]',
        (('mechanism = { kind = "histogram", budget = 4 }', ""), ('key = ["page"]', "")),
    ),
    '"price" is no number of a session': (GOOD + FIELD, ()),
    'kind = "distinct" is not possible': (
        GOOD + 'aggregate = [{ kind = "distinct", field = "shop" }]', ()),
    '"session_events" is known once its session is over': (
        GOOD, (('key = ["page"]', 'key = ["session_events"]'),)),
    "write it as where of an aggregate": (
        GOOD + 'where = [{ field = "session_length", above = 3 }]', ()),
    '"spent" is no number': (
        GOOD + 'aggregate = [{ kind = "count", where = [{ field = "spent", above = 3 }] }]', ()),
}  # fmt: skip


@pytest.mark.parametrize("words", CASES)
def test_settings_that_contradict_sessions_are_refused(words: str) -> None:
    more, swaps = CASES[words]
    with pytest.raises(ConfigError) as refused:
        loads(text(more, *swaps), environ={})
    said = str(refused.value).replace(": is not", " is not").replace(": must", " must")
    assert words in said and "hush.toml:" in said, said


def test_one_trigger_of_an_epoch_needs_no_lateness() -> None:
    """The trigger closes the whole epoch, so no session continues after it."""
    loads(text('session = "30m"', ('every = "6h"', 'every = "1d"')), environ={})


def test_quantiles_of_what_no_session_has_are_refused() -> None:
    swap = ('kind = "histogram", budget = 4', 'kind = "quantile", low = 0, high = 9')
    with pytest.raises(ConfigError, match="a session has the numbers session_length and"):
        compile_config(loads(text(GOOD, swap), environ={}))
    given = GOOD + 'inputs = { value = "session_length" }'
    (p,) = compile_config(loads(text(given, swap), environ={})).pipelines
    assert p.sessions is not None and p.sessions.fields.inputs == {"value": "session_length"}


def test_a_session_is_charged_for_and_never_direct() -> None:
    config = loads(text(f"{GOOD}aggregate = [{SUM}]"), environ={})
    assert privacy_settings(config, config.pipeline[0])["session"] == 1_800_000_000
    (p,) = compile_config(config).pipelines
    assert not p.direct and p.fields.columns == () and [c.name for c in p.columns] == [
        "session_events"]  # fmt: skip
    plain = loads(text(""), environ={})
    assert "session" not in privacy_settings(plain, plain.pipeline[0])
    (direct,) = compile_config(plain).pipelines
    assert direct.direct and direct.sessions is None
