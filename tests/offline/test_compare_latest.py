"""The latest topic against a replay: compacted or not, with every possible fault."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hushstream.agents.deployment.compile import compile_config
from hushstream.agents.stages.step import Out
from hushstream.formats.events.decode import RawRecord
from hushstream.offline.compare import ReleaseCheck, ReplayOutcome
from hushstream.offline.compare_latest import LatestCheck
from hushstream.topics.config.load import loads

from ..recorded.pipelines import COMMON, HEAD, SETTINGS, WINDOW, outs
from ..support import deployment, engine, event, start, trigger

MADE = deployment(cells=2)
P = MADE.pipelines[0]
TRIGGERS = [trigger(P, n, [60 * n]) for n in range(1, 5)]
LOG = [event(i, f"u{i % 80}", f"p{i % 3}") for i in range(240)]
RUN = engine(MADE, [LOG], [start(P), *TRIGGERS])
RELEASES = RUN.outs[P.release_topic]
LATEST = RUN.outs[P.latest_topic or ""]


def read(outs: Sequence[Out]) -> list[RawRecord]:
    return [
        RawRecord(n, out.timestamp or 0, out.key, out.value, tuple(out.headers))
        for n, out in enumerate(outs)
    ]


def judge(
    committed: Sequence[Out], aborted: Sequence[Out] = (), releases: Sequence[Out] = RELEASES
) -> tuple[int, int, int, int]:
    """Numbers of lost, doubled, differing and compared records, for the latest topic alone."""
    outcome, ignored = ReplayOutcome(), ReplayOutcome()
    released = ReleaseCheck(P, TRIGGERS, None)
    check = LatestCheck(P, released)
    for out in RELEASES:
        released.expect(out)
    for record in read(releases):
        released.take(0, record, True)
    for out in LATEST:
        check.expect(out)
    for kept, copies in ((True, committed), (False, [*committed, *aborted])):
        for record in read(copies):
            check.take(0, record, kept)
    released.finish(ignored)
    check.finish(outcome)
    return outcome.lost, outcome.doubled, outcome.differing, outcome.compared


def newest(outs: Sequence[Out]) -> list[Out]:
    kept = {out.key: out for out in outs}
    return [out for out in outs if kept[out.key] is out]


def test_a_topic_as_it_should_be_agrees_compacted_or_not() -> None:
    keys = len({out.key for out in LATEST})
    assert keys == 3 < len(LATEST)
    assert judge(LATEST) == judge(newest(LATEST)) == judge(LATEST[2:]) == (0, 0, 0, keys)
    assert judge(LATEST, aborted=LATEST[:2]) == (0, 0, 0, keys)


def test_the_newest_record_of_a_key_must_be_there() -> None:
    assert judge([out for out in LATEST if out is not newest(LATEST)[0]])[0] == 1
    assert judge([])[0] == 3


def test_what_has_not_been_released_yet_is_not_lost() -> None:
    some = [out for out in RELEASES if b'"trigger":4' not in (out.value or b"")]
    there = [out for out in LATEST if b'"trigger":4' not in (out.value or b"")]
    assert judge(there, releases=some)[:3] == (0, 0, 0)
    assert judge(there)[0] == 3


@pytest.mark.parametrize("again", [0, -1])
def test_a_record_twice_or_an_older_one_after_a_newer_is_doubled(again: int) -> None:
    assert judge([*LATEST, LATEST[again]])[1] == 1


@pytest.mark.parametrize(
    "change", [{"value": b"{}"}, {"value": None}, {"timestamp": 1}, {"headers": ()}]
)
def test_any_other_byte_differs_in_aborted_copies_too(change: dict[str, object]) -> None:
    other = LATEST[0]._replace(**change)  # type: ignore[arg-type]
    assert judge([other, *LATEST[1:]])[2] == 1  # both readers see it, but it is one record
    assert judge(LATEST, aborted=[other])[2] == 1


def test_a_tombstone_is_compared_byte_for_byte() -> None:
    text = HEAD.format(partitioner="none") + COMMON.format(name="phdstream", window=WINDOW)
    config = loads(text + SETTINGS["phdstream"], environ={})
    (p,) = compile_config(config).pipelines
    latest = outs("phdstream")[1]
    place = next(n for n, out in enumerate(latest) if out.value is None)
    keys = len({out.key for out in latest})
    for trigger_named, wrong in ((latest[place].headers[0][1], 0), (b"1", 1)):
        changed = latest[place]._replace(headers=(("hush-gone", trigger_named),))
        check, outcome = LatestCheck(p, ReleaseCheck(p, [], None)), ReplayOutcome()
        for out in latest:
            check.expect(out)
        for record in read([*latest[:place], changed, *latest[place + 1 :]]):
            check.take(0, record, True)
        check.finish(outcome)
        assert (outcome.differing, outcome.doubled, outcome.lost) == (wrong, 0, 0)
        assert outcome.compared == keys  # its row was compared before
