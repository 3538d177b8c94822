"""A viewer's reading of the ledger agrees with the compiled configuration."""

from __future__ import annotations

import pytest
from hushstream.agents.clock.ledger import Ledger
from hushstream.agents.deployment.compile import compile_config
from hushstream.agents.deployment.model import Pipeline
from hushstream.errors import LedgerError
from hushstream.mechanisms.catalogue import entries
from hushstream.reading.live.declared import Declared, declared
from hushstream.topics.config.load import loads

from ...recorded.pipelines import ARRIVAL, COMMON, EVERY, HEAD, SETTINGS, SURVEY, WINDOW

CRON = (
    'window = { length = "1d", origin = "2019-03-01T00:00:00Z" }\nlateness = "5m"\nepoch = "2d"\n'
    'triggers = { cron = "0 6,0 * * *", count = 2 }\nschedule = "external"'
)
ENDLESS = (
    'window = { endless = true, origin = "2019-03-01T00:00:00Z" }\ntriggers = { every = "3h" }\n'
    'schedule = "external"'
)


def compiled(case: str, window: str = WINDOW) -> Pipeline:
    text = SURVEY if case == "topl" else HEAD.format(partitioner="none")
    if case != "topl":
        text += COMMON.format(name=case, window=window) + SETTINGS[case]
    (pipeline,) = compile_config(loads(text, environ={})).pipelines
    return pipeline


def seen(pipeline: Pipeline, number: int = 0) -> Declared:
    """The pipeline, read from a ledger's declaration."""
    ledger = Ledger()
    bodies = [{"genesis": "g"}, {"pipeline": pipeline.name, "number": number,
                                 "config": pipeline.config}]  # fmt: skip
    for kind, body in zip(("genesis", "pipeline"), bodies, strict=True):
        ledger.take(ledger.next(kind, 0, body).encode())
    return declared(ledger)[pipeline.name]


CASES = ["histogram-sums", "phdstream", "privhp", "pak", "quantile", "tops", "topl"]


@pytest.mark.parametrize("case", CASES)
def test_schedule_names_and_topic_are_those_of_the_pipeline(case: str) -> None:
    pipeline = compiled(case)
    found = seen(pipeline, 3)
    assert found.windows == pipeline.windows
    assert (found.number, found.topic) == (3, pipeline.release_topic)
    assert (found.unit, found.mechanism) == (pipeline.unit_name, pipeline.kind)
    assert not found.external


MONTHS = (
    'window = { length = "1 month", zone = "Europe/Berlin" }\nepoch = "1 quarter"\n'
    'triggers = { every = "1d" }'
)


@pytest.mark.parametrize("window", [CRON, f"{ARRIVAL}\n{EVERY}", MONTHS])
def test_other_schedules_too(window: str) -> None:
    pipeline = compiled("histogram-plain", window)
    found = seen(pipeline)
    assert found.windows == pipeline.windows
    assert found.external == pipeline.external == ("external" in window)


def test_every_mechanism_has_a_form_and_values_their_range() -> None:
    shown = {compiled(case).kind: seen(compiled(case)).shows for case in CASES}
    assert set(shown) | {"activity"} == set(entries())
    assert shown == {
        "histogram": "keys", "phdstream": "cells", "privhp": "cells", "pak": "slots",
        "quantile": "keys", "tops": "slots", "topl": "stream",
    }  # fmt: skip
    assert (seen(compiled("topl")).reach, seen(compiled("topl")).measured) == ((0, 400), "minutes")
    assert seen(compiled("quantile")).reach == (1, 100)
    assert (seen(compiled("phdstream")).reach, seen(compiled("phdstream")).measured) == (None, "")


def test_slots_are_those_that_are_stated_or_follow_from_the_schedule() -> None:
    hour = 3_600_000_000
    assert seen(compiled("pak")).slot == hour
    text = HEAD.format(partitioner="none") + COMMON.format(name="p", window=WINDOW)
    text += SETTINGS["pak"].replace("slot = 3_600_000_000\n", "")
    text = text.replace("origin = 1_551_398_400_000_000\n", "").replace(
        "slots_per_trigger = 2", "slots_per_trigger = 4"
    )
    (pipeline,) = compile_config(loads(text, environ={})).pipelines
    assert seen(pipeline).slot == hour // 2
    assert seen(compiled("histogram-plain")).slot is None


def test_the_next_trigger_is_the_first_one_after_a_time() -> None:
    found, hour = seen(compiled("histogram-plain")), 3_600_000_000
    begin = 17956 * 24 * hour
    assert found.next_due(begin) == begin + 2 * hour
    assert found.next_due(begin + 2 * hour - 1) == begin + 2 * hour
    assert found.next_due(begin + 8 * hour) == begin + 10 * hour  # in the next window
    late = seen(compiled("histogram-plain", CRON))
    assert late.next_due(begin) == begin + hour // 12  # of the previous window
    assert late.next_due(begin + hour) == begin + 6 * hour + hour // 12
    assert late.next_due(begin + 25 * hour) == begin + 30 * hour + hour // 12
    endless = seen(compiled("histogram-plain", ENDLESS))
    for before in (begin - 90 * hour, begin, begin + 3 * hour - 1):
        assert endless.next_due(before) == begin + 3 * hour  # no trigger precedes the first one
    assert endless.next_due(begin + 3 * hour) == begin + 6 * hour


def test_a_declaration_that_lacks_something_is_refused() -> None:
    ledger = Ledger()
    ledger.take(ledger.next("genesis", 0, {}).encode())
    ledger.take(ledger.next("pipeline", 0, {"pipeline": "p", "number": 0, "config": {}}).encode())
    with pytest.raises(LedgerError, match="cannot be read"):
        declared(ledger)
